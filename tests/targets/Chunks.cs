using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// A fixed amount of CPU work in equal chunks: what a profiler costs shows in their times.  A chunk
// is longer than a sampling interval, so each of them pays its share.
internal sealed class ChunksMode : Mode
{
    private readonly Crew crew = new();
    private readonly int threads, chunks, rounds, sleepers;
    private readonly ulong[][] wallNs, cpuNs;

    public ChunksMode(Options options)
    {
        threads = options.Count("threads", 4);
        chunks = options.Count("chunks", 60);
        rounds = options.Count("rounds", 500);
        sleepers = options.Count("sleepers", 0);
        wallNs = new ulong[threads][];
        cpuNs = new ulong[threads][];
    }

    // Threads that do next to nothing: only who looks at all threads pays for them.
    private static void Sleep()
    {
        for (;;)
            Thread.Sleep(100);
    }

    public override void Prepare()
    {
        for (int i = 0; i < sleepers; i++)
            new Thread(Sleep, 256 * 1024) { IsBackground = true, Name = $"sleeper-{i}" }.Start();
        for (int i = 0; i < threads; i++)
        {
            wallNs[i] = new ulong[chunks];
            cpuNs[i] = new ulong[chunks];
            crew.Add($"chunks-{i}", Run);
        }
    }

    private void Run(Worker worker)
    {
        var state = new ChunkState();
        ulong[] wall = wallNs[worker.Index], cpu = cpuNs[worker.Index];
        for (int i = 0; i < chunks; i++)
        {
            ulong cpuStart = Native.Now(Native.ClockThreadCpu), start = Native.Now(Native.ClockMonotonic);
            worker.Checksum += state.Chunk(rounds);
            wall[i] = Native.Now(Native.ClockMonotonic) - start;
            cpu[i] = Native.Now(Native.ClockThreadCpu) - cpuStart;
            worker.Loops++;
        }
    }

    public override void Begin() => crew.Begin();

    public override void End() => crew.WaitUntilDone();

    public override void Describe(Utf8JsonWriter json)
    {
        Percentiles.Write(json, "wall", wallNs);
        Percentiles.Write(json, "cpu", cpuNs);
        crew.Describe(json);
    }
}

// Sorting, hashing, virtual calls, recursion and arithmetic; the same instructions in each chunk.
internal sealed class ChunkState
{
    private readonly int[] source = new int[512], values = new int[512];
    private readonly Dictionary<int, int> table = new();

    public ChunkState()
    {
        var random = new Random(1);
        for (int i = 0; i < source.Length; i++)
        {
            source[i] = random.Next();
            table[source[i]] = i;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public ulong Chunk(int rounds)
    {
        ulong sum = 0;
        for (int i = 0; i < rounds; i++)
            sum = sum * 31 + Sort() + Look() + Tree(8) + Work.Burn(3, 10_000);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private ulong Sort()
    {
        source.CopyTo(values, 0);
        Array.Sort(values, Comparer<int>.Create((a, b) => b.CompareTo(a)));
        return (ulong)values[0];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private ulong Look()
    {
        ulong sum = 0;
        foreach (int key in source)
            sum += (ulong)table[key];
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Tree(int depth) => depth == 0 ? 1 : Tree(depth - 1) + Tree(depth - 1) + 1;
}
