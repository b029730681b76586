using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Everything that a profiler of events is told of, at once and as fast as it goes: throws, allocations, a contended
// lock, contexts and methods that come and go, threads that do, stacks of every kind. --gc-rate adds collections.
// A part stands still when its threads make no step while the process uses CPU; the longest such time is the truth,
// in CPU, because a busy machine may stop the whole process for any time.
internal sealed class EverythingMode : Mode
{
    private readonly (string Name, Mode Mode, Func<long> Steps)[] parts;
    private Thread? watcher;
    private volatile bool stop;
    private readonly ulong[] longest;

    public EverythingMode(Options options)
    {
        var exceptions = new ExceptionsMode(Of("--rate", "0", "--threads", "2"));
        var allocations = new AllocationsMode(Of("--rounds", "0"));
        var locks = new LocksMode(Of("--long", "5"));
        var collectible = new CollectibleMode(Of("--contexts", "2000", "--dynamics", "2000", "--context-ms", "1",
            "--dynamic-ms", "1", "--events", "1", "--endless", "1"));
        var churn = new ChurnMode(Of("--rate", "200", "--cpu-ms", "0.2"));
        // Filters amid collections end the process where exceptions are watched by anybody (dotnet/runtime 132462).
        var throws = new ThrowsMode(Of("--threads", "1", "--filters", "0"));
        parts = new (string, Mode, Func<long>)[]
        {
            ("exceptions", exceptions, () => exceptions.Crew.Steps()),
            ("allocations", allocations, () => allocations.Crew.Steps()),
            ("locks", locks, () => locks.Crew.Steps()),
            ("collectible", collectible, () => collectible.Crew.Steps()),
            ("churn", churn, () => churn.Crew.Steps()),
            ("throws", throws, () => throws.Crew.Steps()),
        };
        longest = new ulong[parts.Length];
    }

    private static Options Of(params string[] values)
    {
        var all = new List<string> { "everything" };
        all.AddRange(values);
        return new Options(all.ToArray());
    }

    public override void Prepare()
    {
        foreach (var part in parts)
            part.Mode.Prepare();
    }

    private void Watch()
    {
        var steps = new long[parts.Length];
        var since = new ulong[parts.Length];
        Array.Fill(since, Native.Now(Native.ClockProcessCpu));
        while (!stop)
        {
            Thread.Sleep(100);
            ulong now = Native.Now(Native.ClockProcessCpu);
            for (int i = 0; i < parts.Length; i++)
            {
                long made = parts[i].Steps();
                longest[i] = Math.Max(longest[i], now - since[i]);
                if (made != steps[i])
                    since[i] = now;
                steps[i] = made;
            }
        }
    }

    public override void Begin()
    {
        Array.Clear(longest);
        foreach (var part in parts)
            part.Mode.Begin();
        stop = false;
        watcher = new Thread(Watch) { IsBackground = true, Name = "watcher" };
        watcher.Start();
    }

    public override void End()
    {
        stop = true;
        watcher!.Join();
        foreach (var part in parts)
            part.Mode.End();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        for (int i = 0; i < parts.Length; i++)
        {
            json.WriteStartObject(parts[i].Name);
            json.WriteNumber("steps", parts[i].Steps());
            json.WriteNumber("stood_still_ns", longest[i]);
            parts[i].Mode.Describe(json);
            json.WriteEndObject();
        }
    }
}
