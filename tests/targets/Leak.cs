using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// A leak of 1 KB arrays beside churn.
//   --leak N     arrays a second; --churn N   arrays of 200 bytes a second (0: as many as possible)
//   --least N    arrays that leak in any case, however long that takes
//   --held N     arrays that are allocated at the beginning and stay
//   --bursts N   MB that are held for half a second, over and over
//   --steady 1   all pauses of 5 ms; else of 1 to 9, by chance
internal sealed class LeakMode : Mode
{
    private readonly Crew crew = new();
    private readonly List<byte[]> leak = new(), held = new();
    private readonly double leakRate, churnRate;
    private readonly int heldCount, burstMb, least;
    private readonly bool steady;
    private static byte[]? sink;

    public LeakMode(Options options)
    {
        leakRate = options.Number("leak", 2000);
        churnRate = options.Number("churn", 100_000);
        heldCount = options.Count("held", 0);
        least = options.Count("least", 0);
        burstMb = options.Count("bursts", 0);
        steady = options.Count("steady", 0) != 0;
    }

    public override void Prepare()
    {
        crew.Add("leaker", Leak);
        crew.Add("churner", Churn);
        if (burstMb > 0)
            crew.Add("bursts", Bursts);
    }

    private void Paced(Worker w, double rate, Action one, int least = 0)
    {
        var random = new Random(w.Index);
        ulong start = Native.Now(Native.ClockMonotonic);
        for (long n = 0; !w.Stop || n < least;)
        {
            double due = rate > 0 ? (Native.Now(Native.ClockMonotonic) - start) / 1e9 * rate : n + 1000;
            for (; n < due; n++)
                one();
            if (rate > 0)
                Thread.Sleep(steady ? 5 : random.Next(1, 10));
        }
    }

    private void Leak(Worker w)
    {
        for (int i = 0; i < heldCount; i++)
            MakeHeld();
        Paced(w, leakRate, MakeLeak, least);
    }

    private void Churn(Worker w) => Paced(w, churnRate, MakeChurn);

    private void Bursts(Worker w)
    {
        while (!w.Stop)
        {
            MakeBurst();
            Thread.Sleep(200);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void MakeHeld() => held.Add(new byte[1000]);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void MakeLeak() => leak.Add(new byte[1000]);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MakeChurn() => sink = new byte[176];

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void MakeBurst()
    {
        var burst = new List<byte[]>();
        for (int i = 0; i < burstMb * 1000; i++)
            burst.Add(new byte[976]);
        Thread.Sleep(500);
        GC.KeepAlive(burst);
    }

    public override void Begin() => crew.Begin();

    // What is dead has been collected before the truth is told.
    public override void End()
    {
        crew.End();
        for (int i = 0; i < 2; i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("leak_objects", leak.Count);
        json.WriteNumber("leak_bytes", leak.Count * 1024L);
        json.WriteNumber("held_bytes", held.Count * 1024L);
        json.WriteNumber("collections", GC.CollectionCount(0));
        crew.Describe(json);
    }
}
