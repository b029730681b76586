using System;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Busy threads and threads that sleep in different ways: CPU must go to the first kind only.
internal sealed class SpinMode : Mode
{
    private readonly Crew busy = new(), asleep = new();
    private readonly int busyCount, sleeperCount;
    private readonly ManualResetEvent wake = new(false);
    private readonly object monitor = new();

    public SpinMode(Options options, int busy, int sleepers)
    {
        busyCount = options.Count("busy", busy);
        sleeperCount = options.Count("sleepers", sleepers);
    }

    public override void Prepare()
    {
        for (int i = 0; i < busyCount; i++)
            busy.Add($"busy-{i}", Spin, 0, "ClpTarget.SpinMode.Spin", "ClpTarget.Work.Burn");
        for (int i = 0; i < sleeperCount; i++)
            asleep.Add($"sleeper-{i}", Sleep);
    }

    private static void Spin(Worker worker)
    {
        while (!worker.Stop)
        {
            worker.Checksum = Work.Burn(worker.Checksum, 100_000);
            worker.Loops++;
        }
    }

    private unsafe void Sleep(Worker worker)
    {
        while (!worker.Stop)
        {
            worker.Loops++;
            switch (worker.Index % 4)
            {
            case 0:
                Thread.Sleep(500);
                break;
            case 1:
                wake.WaitOne(1000);
                break;
            case 2:
                lock (monitor)
                    Monitor.Wait(monitor, 1000);
                break;
            default:
                Native.poll(null, 0, 500);
                break;
            }
        }
    }

    public override void Begin()
    {
        wake.Reset();
        asleep.Begin();
        busy.Begin();
    }

    public override void End()
    {
        busy.End();
        foreach (Worker sleeper in asleep.Workers)
            sleeper.AskToStop();
        wake.Set();
        lock (monitor)
            Monitor.PulseAll(monitor);
        asleep.End();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        busy.Describe(json);
        asleep.Describe(json, "sleepers");
    }
}

// Starts threads at a steady rate; each lives for a few milliseconds of CPU.
internal sealed class ChurnMode : Mode
{
    private readonly Crew crew = new();
    public Crew Crew => crew;
    private readonly double perSecond;
    private readonly ulong cpuNs;
    private long started, finished;
    private ulong cpuTotal;

    public ChurnMode(Options options)
    {
        perSecond = options.Number("rate", 200);
        cpuNs = (ulong)(options.Number("cpu-ms", 4) * 1e6);
    }

    public override void Prepare() => crew.Add("starter", Start);

    private void Start(Worker worker)
    {
        ulong interval = (ulong)(1e9 / perSecond);
        ulong next = Native.Now(Native.ClockMonotonic);
        while (!worker.Stop)
        {
            var thread = new Thread(ShortLife) { IsBackground = true };
            thread.Start();
            started++;
            worker.Loops++;
            next += interval;
            ulong now = Native.Now(Native.ClockMonotonic);
            if (next > now)
                Thread.Sleep(TimeSpan.FromMilliseconds((next - now) / 1e6));
            else if (now - next > 1_000_000_000)
                next = now; // the machine is too slow for the rate: no backlog without end
        }
        while (Interlocked.Read(ref finished) < started)
            Thread.Sleep(1);
    }

    private void ShortLife()
    {
        Work.BurnCpu(1, cpuNs);
        Interlocked.Add(ref cpuTotal, Native.Now(Native.ClockThreadCpu));
        Interlocked.Increment(ref finished);
    }

    public override void Begin()
    {
        started = finished = 0;
        cpuTotal = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        crew.Describe(json);
        json.WriteNumber("started", started);
        json.WriteNumber("short_lived_cpu_ns", cpuTotal);
    }
}

// Thread names that break careless code.
internal sealed class NamesMode : Mode
{
    private readonly Crew crew = new();

    public NamesMode(Options options) => _ = options;

    private static readonly string[] Names =
    {
        "plain", new string('n', 300), "emoji \U0001F525\U0001F680 \u00e4\u00f6\u00fc",
        "control \u0001\t\n\"quoted\\", "lone \ud800 surrogate", "longer than the kernel's fifteen bytes",
    };

    // Each name once before an attach, when only the kernel's short form of it can be known, and once
    // given while the thread is recorded.
    public override void Prepare()
    {
        crew.Add(null, Spin);
        foreach (string name in Names)
            crew.Add(name, Spin);
        foreach (string name in Names)
            crew.Add(null, worker => NameLate(worker, "late " + name));
    }

    private static void Spin(Worker worker)
    {
        while (!worker.Stop)
        {
            worker.Checksum = Work.Burn(worker.Checksum, 100_000);
            worker.Loops++;
        }
    }

    // A thread may change its name while it runs, also to null and back.
    private static void NameLate(Worker worker, string name)
    {
        Thread.CurrentThread.Name = "first";
        Thread.CurrentThread.Name = null;
        Thread.CurrentThread.Name = name;
        Spin(worker);
        Thread.CurrentThread.Name = null;
        Thread.CurrentThread.Name = name;
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}
