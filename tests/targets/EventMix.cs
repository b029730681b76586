using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Locks for which waits of two kinds compete, short ones and heavy-tailed long ones, each with a
// stack of its own: --groups locks, --seed for who waits when and how long, --rest ms in the mean between two waits
// for a lock.
internal sealed class MixedLocksMode : Mode
{
    private readonly Crew crew = new();
    private readonly int groups, seed, restMs;
    private long shortNs, longNs, shortWaits, longWaits;

    public MixedLocksMode(Options options)
    {
        groups = options.Count("groups", 40);
        seed = options.Count("seed", 1);
        restMs = options.Count("rest", 0);
    }

    private sealed class Group
    {
        public readonly object Gate = new();
        public readonly SemaphoreSlim Held = new(0), Passed = new(0);
        public volatile bool IsLong;
    }

    public override void Prepare()
    {
        for (int i = 0; i < groups; i++)
        {
            var group = new Group();
            int number = i;
            crew.Add($"holder-{i}", w => Hold(w, group, number));
            crew.Add($"waiter-{i}", w => Wait(w, group));
        }
    }

    // Long ones follow Pareto's law with a mean of 21 ms, up to 200 ms.
    private static double LongMs(Random random) => Math.Min(200, 7 / Math.Pow(1 - random.NextDouble(), 1 / 1.5));

    private void Hold(Worker w, Group group, int number)
    {
        var random = new Random(seed * 1000 + number);
        while (!w.Stop)
        {
            bool isLong = random.Next(5) == 0;
            double ms = isLong ? LongMs(random) : 4;
            lock (group.Gate)
            {
                group.IsLong = isLong;
                group.Held.Release();
                Thread.Sleep(TimeSpan.FromMilliseconds(ms));
            }
            group.Passed.Wait();
            if (restMs > 0)
                Thread.Sleep(random.Next(2 * restMs));
        }
        group.IsLong = false;
        group.Held.Release();
    }

    private void Wait(Worker w, Group group)
    {
        for (;;)
        {
            group.Held.Wait();
            if (w.Stop)
                break;
            if (group.IsLong)
                WaitLong(group);
            else
                WaitShort(group);
            group.Passed.Release();
        }
        group.Passed.Release();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitShort(Group group)
    {
        ulong from = Native.Now(Native.ClockMonotonic);
        lock (group.Gate)
            Interlocked.Add(ref shortNs, (long)(Native.Now(Native.ClockMonotonic) - from));
        Interlocked.Increment(ref shortWaits);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitLong(Group group)
    {
        ulong from = Native.Now(Native.ClockMonotonic);
        lock (group.Gate)
            Interlocked.Add(ref longNs, (long)(Native.Now(Native.ClockMonotonic) - from));
        Interlocked.Increment(ref longWaits);
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("short_ns", shortNs);
        json.WriteNumber("long_ns", longNs);
        json.WriteNumber("short_waits", shortWaits);
        json.WriteNumber("long_waits", longWaits);
        crew.Describe(json);
    }
}

// Waits for handles and monitors of a known number and length, and one that never ends: --rounds.
internal sealed class HandlesMode : Mode
{
    private readonly Crew crew = new();
    private readonly int rounds;
    private readonly ManualResetEvent never = new(false);
    private readonly object monitor = new();
    private long eventNs, monitorNs, openNs;
    private ulong openFrom;

    public HandlesMode(Options options) => rounds = options.Count("rounds", 50);

    public override void Prepare()
    {
        crew.Add("events", w => Repeat(WaitEvent));
        crew.Add("monitors", w => Repeat(WaitMonitor));
        crew.Add("open", WaitOpen);
    }

    private void Repeat(Action one)
    {
        for (int i = 0; i < rounds; i++)
            one();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitEvent()
    {
        ulong from = Native.Now(Native.ClockMonotonic);
        never.WaitOne(20);
        eventNs += (long)(Native.Now(Native.ClockMonotonic) - from);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitMonitor()
    {
        lock (monitor)
        {
            ulong from = Native.Now(Native.ClockMonotonic);
            Monitor.Wait(monitor, 20);
            monitorNs += (long)(Native.Now(Native.ClockMonotonic) - from);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitOpen(Worker w)
    {
        openFrom = Native.Now(Native.ClockMonotonic);
        never.WaitOne();
    }

    public override void Begin() => crew.Begin();

    public override void End()
    {
        crew.Workers[0].Join();
        crew.Workers[1].Join();
        openNs = (long)(Native.Now(Native.ClockMonotonic) - openFrom);
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("rounds", rounds);
        json.WriteNumber("event_ns", eventNs);
        json.WriteNumber("monitor_ns", monitorNs);
        json.WriteNumber("open_ns", openNs);
        crew.Describe(json);
    }
}

// What the runtime knows of itself at the end of a round: exceptions of two types, collections and
// their pauses by generation, sizes of the heap, workers of the pool.
internal sealed class MetricsMode : Mode
{
    private readonly Crew crew = new();
    private readonly int throws, rounds, workers;
    private readonly List<byte[]> held = new();
    private readonly ManualResetEvent release = new(false);
    private readonly int[] before = new int[3], after = new int[3];
    private readonly double[] pauseNs = new double[3];
    private readonly long[] sizes = new long[5];
    private int poolThreads;
    private static object? sink;

    public MetricsMode(Options options)
    {
        throws = options.Count("throws", 300);
        rounds = options.Count("rounds", 10);
        workers = Math.Max(options.Count("workers", 6), Environment.ProcessorCount);
    }

    public override void Prepare()
    {
        crew.Add("thrower", Throw);
        crew.Add("collector", Collect);
        // Not one more, which the pool starts when all of them are busy, and lets go later: as many as
        // at the end of the round are there when the recording ends.
        ThreadPool.GetMaxThreads(out _, out int ports);
        if (!ThreadPool.SetMinThreads(workers, 1) || !ThreadPool.SetMaxThreads(workers, ports))
            throw new InvalidOperationException($"the pool cannot be held at {workers} workers");
    }

    private void Throw(Worker w)
    {
        for (int i = 0; i < throws; i++)
        {
            try
            {
                if (i % 3 == 0)
                    throw new FormatException();
                throw new TimeoutException();
            }
            catch (Exception e) when (e is FormatException or TimeoutException)
            {
            }
        }
    }

    private void Collect(Worker w)
    {
        for (int i = 0; i < 20; i++)
            held.Add(new byte[200_000]);
        held.Add(GC.AllocateArray<byte>(300_000, pinned: true));
        for (int i = 0; i < rounds; i++)
            for (int generation = 0; generation < 3; generation++)
            {
                for (int n = 0; n < 1000; n++)
                    sink = new byte[100];
                TimeSpan from = GC.GetTotalPauseDuration();
                GC.Collect(generation, GCCollectionMode.Forced, blocking: true);
                GCMemoryInfo info = GC.GetGCMemoryInfo(GCKind.Any);
                pauseNs[info.Generation] += (GC.GetTotalPauseDuration() - from).TotalNanoseconds;
            }
    }

    private void StartWorkers()
    {
        using var started = new CountdownEvent(workers);
        for (int i = 0; i < workers; i++)
            ThreadPool.UnsafeQueueUserWorkItem(_ =>
            {
                started.Signal();
                release.WaitOne();
            }, null);
        started.Wait();
    }

    private static void Look(int[] counts)
    {
        for (int i = 0; i < 3; i++)
            counts[i] = GC.CollectionCount(i);
    }

    public override void Begin()
    {
        Look(before);
        StartWorkers();
        crew.Begin();
    }

    public override void End()
    {
        crew.WaitUntilDone();
        Look(after);
        ReadOnlySpan<GCGenerationInfo> generations = GC.GetGCMemoryInfo(GCKind.Any).GenerationInfo;
        for (int i = 0; i < sizes.Length; i++)
            sizes[i] = generations[i].SizeAfterBytes;
        poolThreads = ThreadPool.ThreadCount;
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("format_exceptions", (throws + 2) / 3);
        json.WriteNumber("timeout_exceptions", throws - (throws + 2) / 3);
        json.WriteNumber("pool_threads", poolThreads);
        json.WriteStartArray("collections");
        for (int i = 0; i < 3; i++)
            json.WriteNumberValue(after[i] - before[i] - (i < 2 ? after[i + 1] - before[i + 1] : 0));
        json.WriteEndArray();
        json.WriteStartArray("pause_ns");
        foreach (double ns in pauseNs)
            json.WriteNumberValue((long)ns);
        json.WriteEndArray();
        json.WriteStartArray("heap_bytes"); // generations 0 to 2, large, pinned
        foreach (long size in sizes)
            json.WriteNumberValue(size);
        json.WriteEndArray();
        crew.Describe(json);
    }
}
