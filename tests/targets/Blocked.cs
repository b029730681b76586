using System;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// The runtime's own count of waits for locks, which says when a thread does not spin any more.
internal static class Contentions
{
    public static long Now => Monitor.LockContentionCount;

    // Until so many more have begun than there were.
    public static void Await(long before, int more = 1)
    {
        while (Monitor.LockContentionCount < before + more)
            Thread.Sleep(0);
    }
}

// Waits of which each one blocks: one of --long MS, and --short N of a millisecond, for four locks in turn.
// Who has a lock keeps it until the runtime has counted the wait for it, then for its time, and takes no other before
// the waiter has had it. Nothing else here uses locks. So the number of waits is known. Their time is what the waiter's
// calls took, less the shortest time after which one had been counted: for that long each spins. Whatever the machine
// does, it is no more than with the spinning, and no less than from the count until just before the release.
internal sealed class TurnsMode : Mode
{
    private const int Locks = 4;

    private sealed class Bounds
    {
        public long Waits, BlockedAt, SpinNs = long.MaxValue, LeastNs, MostNs;

        public void Add(long from, long got)
        {
            Waits++;
            MostNs += got - from;
            SpinNs = Math.Min(SpinNs, BlockedAt - from);
        }
    }

    private readonly Crew crew = new();
    private readonly object longLock = new();
    private readonly object[] gates = { new(), new(), new(), new() };
    private readonly Bounds[] bounds = new Bounds[Locks];
    private Bounds longBounds = new();
    private readonly AutoResetEvent longTaken = new(false), longBlocked = new(false), turn = new(false), passed = new(false);
    private readonly int longMs, shorts;
    private long before, contentions;
    private int holderTid;

    public TurnsMode(Options options)
    {
        longMs = options.Count("long", 2000);
        shorts = options.Count("short", 500);
    }

    public override void Prepare()
    {
        crew.Add("long-holder", HoldLong);
        crew.Add("long-waiter", WaitLong);
        crew.Add("short-holder", HoldShort);
        crew.Add("short-waiter", WaitShort);
    }

    private static long Now => (long)Native.Now(Native.ClockMonotonic);

    // Another thread waits for what this one has.
    private static void Hold(Bounds b, int ms)
    {
        b.BlockedAt = Now;
        Thread.Sleep(ms);
        b.LeastNs += Now - b.BlockedAt;
    }

    private void HoldLong(Worker w)
    {
        holderTid = w.Tid;
        lock (longLock)
        {
            longTaken.Set();
            Contentions.Await(before);
            longBlocked.Set();
            Hold(longBounds, longMs);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitLong(Worker w)
    {
        longTaken.WaitOne();
        long from = Now;
        lock (longLock)
            longBounds.Add(from, Now);
    }

    private void HoldShort(Worker w)
    {
        longBlocked.WaitOne();
        for (int i = 0; i < shorts; i++)
        {
            lock (gates[i % Locks])
            {
                long count = Contentions.Now;
                turn.Set();
                Contentions.Await(count);
                Hold(bounds[i % Locks], 1);
            }
            passed.WaitOne();
        }
    }

    private void WaitShort(Worker w)
    {
        for (int i = 0; i < shorts; i++)
        {
            Bounds b = bounds[i % Locks];
            turn.WaitOne();
            long from = Now;
            long got = (i % Locks) switch
            {
                0 => Wait0(),
                1 => Wait1(),
                2 => Wait2(),
                _ => Wait3(),
            };
            b.Add(from, got);
            passed.Set();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private long Wait0()
    {
        lock (gates[0])
            return Now;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private long Wait1()
    {
        lock (gates[1])
            return Now;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private long Wait2()
    {
        lock (gates[2])
            return Now;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private long Wait3()
    {
        lock (gates[3])
            return Now;
    }

    public override void Begin()
    {
        longBounds = new Bounds();
        for (int i = 0; i < Locks; i++)
            bounds[i] = new Bounds();
        before = Contentions.Now;
        crew.Begin();
    }

    public override void End()
    {
        crew.WaitUntilDone();
        contentions = Contentions.Now - before;
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("contentions", contentions);
        json.WriteNumber("holder_tid", holderTid);
        json.WriteStartObject("waits");
        Write(json, "WaitLong", longBounds);
        for (int i = 0; i < Locks; i++)
            Write(json, $"Wait{i}", bounds[i]);
        json.WriteEndObject();
        crew.Describe(json);
    }

    private static void Write(Utf8JsonWriter json, string name, Bounds b)
    {
        json.WriteStartObject(name);
        json.WriteNumber("count", b.Waits);
        json.WriteNumber("time_ns", b.MostNs - b.Waits * b.SpinNs);
        json.WriteNumber("least_ns", b.LeastNs);
        json.WriteNumber("most_ns", b.MostNs);
        json.WriteEndObject();
    }
}

// --threads N that all wait for one lock, which is held until the end, each --depth M calls further down.
internal sealed class PileMode : Mode
{
    private readonly Crew crew = new();
    private readonly object gate = new();
    private readonly AutoResetEvent taken = new(false), release = new(false);
    private readonly int threads, depth;
    private long before, waits, leastNs, mostNs, blockedAt;

    public PileMode(Options options)
    {
        threads = options.Count("threads", 2000);
        depth = options.Count("depth", 0);
    }

    public override void Prepare()
    {
        crew.Add("holder", Hold, 256 * 1024);
        for (int i = 0; i < threads; i++)
            crew.Add($"waiter-{i}", w => Deeper(depth), 256 * 1024);
    }

    private static long Now => (long)Native.Now(Native.ClockMonotonic);

    private void Hold(Worker w)
    {
        lock (gate)
        {
            taken.Set();
            release.WaitOne();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private int Deeper(int calls)
    {
        if (calls > 0)
            return 1 + Deeper(calls - 1);
        Wait();
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void Wait()
    {
        long from = Now;
        lock (gate)
        {
            mostNs += Now - from;
            waits++;
        }
    }

    // Returns when all of them are blocked.
    public override void Begin()
    {
        waits = leastNs = mostNs = 0;
        before = Contentions.Now;
        crew.Workers[0].Begin();
        taken.WaitOne();
        for (int i = 1; i <= threads; i++)
            crew.Workers[i].Begin();
        Contentions.Await(before, threads);
        blockedAt = Now;
    }

    public override void End()
    {
        leastNs = (Now - blockedAt) * threads;
        release.Set();
        crew.WaitUntilDone();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("waits", waits);
        json.WriteNumber("contentions", Contentions.Now - before);
        json.WriteNumber("least_ns", leastNs);
        json.WriteNumber("most_ns", mostNs);
        crew.Describe(json);
    }
}
