using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

internal static class Percentiles
{
    public static void Write(Utf8JsonWriter json, string key, IEnumerable<IEnumerable<ulong>> series)
    {
        ulong[] sorted = series.SelectMany(s => s).ToArray();
        Array.Sort(sorted);
        json.WriteStartObject(key);
        json.WriteNumber("count", sorted.Length);
        if (sorted.Length != 0)
        {
            json.WriteNumber("p10_ns", At(sorted, 0.10));
            json.WriteNumber("p50_ns", At(sorted, 0.50));
            json.WriteNumber("p99_ns", At(sorted, 0.99));
            json.WriteNumber("p999_ns", At(sorted, 0.999));
            json.WriteNumber("max_ns", sorted[^1]);
            json.WriteNumber("sum_ns", sorted.Aggregate(0ul, (sum, value) => sum + value));
        }
        json.WriteEndObject();
    }

    private static ulong At(ulong[] sorted, double part) =>
        sorted[Math.Min(sorted.Length - 1, (int)(part * sorted.Length))];
}

// A thread that ticks each millisecond and keeps the time between ticks: what stops the whole
// process, or a lock that everybody needs, shows as a gap.
internal sealed class GapProbe : Mode
{
    private const int Most = 1 << 20;
    private readonly Crew crew = new();
    private readonly ulong[] gaps = new ulong[Most];
    private int count;

    public override void Prepare() => crew.Add("gap-probe", Tick);

    private unsafe void Tick(Worker worker)
    {
        var wait = Native.TimeSpec.Of(1_000_000);
        ulong last = Native.Now(Native.ClockMonotonic);
        while (!worker.Stop)
        {
            Native.nanosleep(&wait, null);
            ulong now = Native.Now(Native.ClockMonotonic);
            if (count < Most)
                gaps[count++] = now - last;
            last = now;
        }
    }

    public override void Begin()
    {
        count = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json) =>
        Percentiles.Write(json, "gap", new[] { gaps.Take(count) });
}

// Collects garbage: --gc-rate N per second (-1: as fast as it goes), --gc-gen 0..2.
internal sealed class GcCompanion : Mode
{
    private readonly Crew crew = new();
    private readonly List<ulong> pauses = new(1 << 16);
    private readonly double rate;
    private readonly int generation;

    public GcCompanion(Options options)
    {
        rate = options.Number("gc-rate", 1);
        generation = options.Count("gc-gen", 0);
    }

    public override void Prepare() => crew.Add("collector", Collect);

    private void Collect(Worker worker)
    {
        ulong interval = rate > 0 ? (ulong)(1e9 / rate) : 0, next = Native.Now(Native.ClockMonotonic);
        while (!worker.Stop)
        {
            TimeSpan before = GC.GetTotalPauseDuration();
            GC.Collect(generation, GCCollectionMode.Forced, blocking: true);
            if (pauses.Count < pauses.Capacity)
                pauses.Add((ulong)(GC.GetTotalPauseDuration() - before).TotalNanoseconds);
            worker.Loops++;
            // At the highest rate a moment is left in which other threads can come back from waits at
            // all; without it the process starves for seconds.
            if (rate < 0)
                worker.Checksum = Work.Burn(worker.Checksum, 10_000);
            next += interval;
            while (!worker.Stop && rate > 0)
            {
                ulong now = Native.Now(Native.ClockMonotonic);
                if (now >= next)
                    break;
                Thread.Sleep(TimeSpan.FromMilliseconds(Math.Min((next - now) / 1e6, 100)));
            }
        }
    }

    public override void Begin()
    {
        pauses.Clear();
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("collections", crew.Workers[0].Loops);
        Percentiles.Write(json, "gc_pause", new[] { pauses });
    }
}
