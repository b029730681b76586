using System;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Locks whose owners do something that is known: --pairs N locks, each with one holder and one
// waiter; --hold MS is how long a holder has it. Half of the holders sleep meanwhile, or, with
// --busy 1, all compute.
//   --crowd N    instead: N threads on one lock, each holds it for --hold
internal sealed class OwnersMode : Mode
{
    private readonly Crew crew = new();
    private readonly int pairs, crowd;
    private readonly double holdMs;
    private readonly bool busy;
    private readonly object crowdLock = new();
    private long waits, waitedNs;

    public OwnersMode(Options options)
    {
        pairs = options.Count("pairs", 4);
        crowd = options.Count("crowd", 0);
        holdMs = options.Number("hold", 20);
        busy = options.Count("busy", 0) != 0;
    }

    public override void Prepare()
    {
        for (int i = 0; i < (crowd > 0 ? 0 : pairs); i++)
        {
            var gate = new object();
            var held = new SemaphoreSlim(0);
            var next = new SemaphoreSlim(0);
            bool even = i % 2 == 0;
            crew.Add($"holder-{i}", w => Hold(w, gate, held, next, even));
            crew.Add($"waiter-{i}", w => WaitFor(w, gate, held, next));
        }
        for (int i = 0; i < crowd; i++)
            crew.Add($"crowd-{i}", Crowd);
    }

    private void Hold(Worker w, object gate, SemaphoreSlim held, SemaphoreSlim next, bool even)
    {
        while (!w.Stop)
        {
            lock (gate)
            {
                held.Release();
                if (even)
                    HoldA();
                else
                    HoldB();
            }
            while (!next.Wait(50) && !w.Stop)
            {
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void HoldA() => Pass();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void HoldB() => Pass();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void Pass()
    {
        if (!busy)
        {
            Thread.Sleep(TimeSpan.FromMilliseconds(holdMs));
            return;
        }
        ulong until = Native.Now(Native.ClockMonotonic) + (ulong)(holdMs * 1e6);
        while (Native.Now(Native.ClockMonotonic) < until)
        {
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitFor(Worker w, object gate, SemaphoreSlim held, SemaphoreSlim next)
    {
        while (!w.Stop)
        {
            if (!held.Wait(50))
                continue;
            ulong from = Native.Now(Native.ClockMonotonic);
            lock (gate)
            {
                Interlocked.Add(ref waitedNs, (long)(Native.Now(Native.ClockMonotonic) - from));
                Interlocked.Increment(ref waits);
            }
            next.Release();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void Crowd(Worker w)
    {
        while (!w.Stop)
        {
            ulong from = Native.Now(Native.ClockMonotonic);
            lock (crowdLock)
            {
                waitedNs += (long)(Native.Now(Native.ClockMonotonic) - from);
                waits++;
                Pass();
            }
        }
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("waits", waits);
        json.WriteNumber("waited_ns", waitedNs);
        crew.Describe(json);
    }
}
