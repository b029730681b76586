using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// One thread that sleeps in four methods for 10, 20, 30 and 40 ms, in turn.
internal sealed class SharesMode : Mode
{
    private readonly Crew crew = new();
    private readonly ulong[] slept = new ulong[4];

    public SharesMode(Options options) => _ = options;

    public override void Prepare() => crew.Add("shares", Work);

    private void Work(Worker worker)
    {
        while (!worker.Stop)
        {
            Note(0, Sleep10);
            Note(1, Sleep20);
            Note(2, Sleep30);
            Note(3, Sleep40);
            worker.Loops++;
        }
    }

    private void Note(int index, Action sleep)
    {
        ulong start = Native.Now(Native.ClockMonotonic);
        sleep();
        slept[index] += Native.Now(Native.ClockMonotonic) - start;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] private static void Sleep10() => Thread.Sleep(10);
    [MethodImpl(MethodImplOptions.NoInlining)] private static void Sleep20() => Thread.Sleep(20);
    [MethodImpl(MethodImplOptions.NoInlining)] private static void Sleep30() => Thread.Sleep(30);
    [MethodImpl(MethodImplOptions.NoInlining)] private static void Sleep40() => Thread.Sleep(40);

    public override void Begin()
    {
        Array.Clear(slept);
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        crew.Describe(json);
        json.WriteStartArray("slept_ns");
        foreach (ulong ns in slept)
            json.WriteNumberValue(ns);
        json.WriteEndArray();
    }
}

// Threads that sleep for good in four ways, and some that come and go. Each life is measured by the
// thread itself.
internal sealed unsafe class LivesMode : Mode
{
    private readonly int sleepers;
    private readonly double lifeMs;
    private readonly ManualResetEvent never = new(false);
    private readonly List<(string Name, ulong From, ulong To, ulong Cpu)> lives = new();
    private readonly Crew crew = new();
    private readonly List<string> names = new();
    private int ready;

    public LivesMode(Options options)
    {
        sleepers = options.Count("sleepers", 4);
        lifeMs = options.Number("life-ms", 0);
    }

    public override void Prepare()
    {
        for (int i = 0; i < sleepers; i++)
        {
            int way = i % 4;
            string name = $"asleep-{i}";
            names.Add(name);
            new Thread(() => Sleep(way), 256 * 1024) { IsBackground = true, Name = name }.Start();
        }
        while (Volatile.Read(ref ready) < sleepers)
            Thread.Sleep(1);
        if (lifeMs > 0)
            crew.Add("starter", Start);
    }

    private void Sleep(int way)
    {
        Interlocked.Increment(ref ready);
        for (;;)
        {
            switch (way)
            {
            case 0: Thread.Sleep(Timeout.Infinite); break;
            case 1: Native.usleep(1_000_000_000); break;
            case 2: Native.poll(null, 0, -1); break;
            default: never.WaitOne(); break;
            }
        }
    }

    // One life after the other: a little work, then sleep.
    private void Start(Worker worker)
    {
        while (!worker.Stop)
        {
            string name = $"life-{worker.Loops++}";
            var thread = new Thread(() => Live(name)) { Name = name };
            thread.Start();
            thread.Join();
        }
    }

    private void Live(string name)
    {
        ulong from = Native.Now(Native.ClockMonotonic);
        Work.BurnCpu(1, 2_000_000);
        Thread.Sleep(TimeSpan.FromMilliseconds(lifeMs));
        lock (lives)
            lives.Add((name, from, Native.Now(Native.ClockMonotonic), Native.Now(Native.ClockThreadCpu)));
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        crew.Describe(json);
        json.WriteStartArray("asleep");
        names.ForEach(json.WriteStringValue);
        json.WriteEndArray();
        json.WriteStartArray("lives");
        foreach ((string name, ulong from, ulong to, ulong cpu) in lives)
        {
            json.WriteStartObject();
            json.WriteString("name", name);
            json.WriteNumber("life_ns", to - from);
            json.WriteNumber("cpu_ns", cpu);
            json.WriteEndObject();
        }
        json.WriteEndArray();
    }
}

// Threads that measure by their own stopwatch where their time goes: --convoy N share one lock,
// --half N work half of the time and sleep the other half.
internal sealed class StopwatchMode : Mode
{
    private readonly Crew crew = new();
    private readonly int convoy, half;
    private readonly object shared = new();
    private ulong[] waited = Array.Empty<ulong>();
    private (ulong Ran, ulong Delay)[] before = Array.Empty<(ulong, ulong)>(), after = Array.Empty<(ulong, ulong)>();

    public StopwatchMode(Options options, int convoy, int half)
    {
        this.convoy = options.Count("convoy", convoy);
        this.half = options.Count("half", half);
    }

    public override void Prepare()
    {
        for (int i = 0; i < convoy; i++)
            crew.Add($"convoy-{i}", Convoy);
        for (int i = 0; i < half; i++)
            crew.Add($"half-{i}", Half);
        waited = new ulong[convoy + half];
        before = new (ulong, ulong)[convoy + half];
        after = new (ulong, ulong)[convoy + half];
    }

    private static (ulong, ulong) SchedStat()
    {
        string[] words = System.IO.File.ReadAllText($"/proc/self/task/{Native.gettid()}/schedstat").Split(' ');
        return (ulong.Parse(words[0]), ulong.Parse(words[1]));
    }

    private void Convoy(Worker worker)
    {
        before[worker.Index] = SchedStat();
        while (!worker.Stop)
        {
            ulong start = Native.Now(Native.ClockMonotonic);
            bool taken = false;
            Monitor.Enter(shared, ref taken);
            waited[worker.Index] += Native.Now(Native.ClockMonotonic) - start;
            Thread.Sleep(2);
            Monitor.Exit(shared);
            worker.Loops++;
        }
        after[worker.Index] = SchedStat();
    }

    private void Half(Worker worker)
    {
        before[worker.Index] = SchedStat();
        while (!worker.Stop)
        {
            worker.Checksum = Work.BurnCpu(worker.Checksum, 5_000_000);
            // What the thread then waits for a CPU, the kernel counts: that is no sleep.
            (_, ulong delay) = SchedStat();
            ulong start = Native.Now(Native.ClockMonotonic);
            Thread.Sleep(5);
            ulong took = Native.Now(Native.ClockMonotonic) - start;
            (_, ulong delayed) = SchedStat();
            waited[worker.Index] += took - Math.Min(took, delayed - delay);
            worker.Loops++;
        }
        after[worker.Index] = SchedStat();
    }

    public override void Begin()
    {
        Array.Clear(waited);
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        crew.Describe(json);
        json.WriteStartArray("waited");
        foreach (Worker worker in crew.Workers)
        {
            json.WriteStartObject();
            json.WriteString("name", worker.Name);
            json.WriteNumber("ns", waited[worker.Index]);
            json.WriteNumber("run_delay_ns", after[worker.Index].Delay - before[worker.Index].Delay);
            json.WriteEndObject();
        }
        json.WriteEndArray();
    }
}

// Threads that wake every few microseconds, in different depths, and others that come and go.
internal sealed unsafe class WakingMode : Mode
{
    private readonly Crew crew = new();
    private readonly int wakers;
    private readonly double churn;
    private readonly long pauseNs;
    private long started, finished, wakes;

    public WakingMode(Options options)
    {
        wakers = options.Count("wakers", 4);
        churn = options.Number("churn", 500);
        pauseNs = (long)(options.Number("pause-us", 20) * 1000);
    }

    public override void Prepare()
    {
        for (int i = 0; i < wakers; i++)
            crew.Add($"waker-{i}", Wake);
        if (churn > 0)
            crew.Add("starter", Start);
    }

    private void Wake(Worker worker)
    {
        long n = 0;
        while (!worker.Stop)
            n += Deeper(worker.Index, (int)(n % 40));
        Interlocked.Add(ref wakes, n);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private long Deeper(int index, int depth)
    {
        if (depth > 0)
            return Deeper(index, depth - 1) + 0;
        var time = Native.TimeSpec.Of(pauseNs);
        Native.nanosleep(&time, null);
        return 1;
    }

    private void Start(Worker worker)
    {
        double period = 1e9 / churn;
        ulong next = Native.Now(Native.ClockMonotonic);
        while (!worker.Stop)
        {
            new Thread(() =>
            {
                Thread.Sleep(1);
                Interlocked.Increment(ref finished);
            }, 128 * 1024) { IsBackground = true }.Start();
            started++;
            next += (ulong)period;
            ulong now = Native.Now(Native.ClockMonotonic);
            if (next > now)
                Thread.Sleep(TimeSpan.FromMilliseconds((next - now) / 1e6));
            else
                next = now;
        }
        while (Interlocked.Read(ref finished) < started)
            Thread.Sleep(1);
    }

    public override void Begin()
    {
        started = finished = wakes = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        crew.Describe(json);
        json.WriteNumber("wakes", wakes);
        json.WriteNumber("started", started);
    }
}
