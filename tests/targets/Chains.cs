using System;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Fixed call chains whose exact frames a profile must show while garbage collections suspend the
// threads in the middle of them.  No call is in tail position, or the JIT would drop the frame.

// Without loops: the runtime can only stop the thread at a return, so it hijacks return addresses.
internal static class StraightChain
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Drive(Worker worker)
    {
        ulong x = 1;
        for (int i = 0; i < 10_000; i++)
            x = First(x) + 1;
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong First(ulong x) => Second(x + 1) ^ (x << 1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Second(ulong x) => Third(x + 2) ^ (x >> 1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Third(ulong x) => Fourth(x + 3) ^ (x << 3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Fourth(ulong x)
    {
        x = Work.Step(x); x = Work.Step(x); x = Work.Step(x); x = Work.Step(x);
        x = Work.Step(x); x = Work.Step(x); x = Work.Step(x); x = Work.Step(x);
        x = Work.Step(x); x = Work.Step(x); x = Work.Step(x); x = Work.Step(x);
        return x;
    }
}

// With loops: fully or partly interruptible code.
internal static class LoopChain
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Drive(Worker worker)
    {
        ulong x = 1;
        for (int i = 0; i < 10; i++)
            x = First(x) + 1;
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong First(ulong x)
    {
        for (int i = 0; i < 4; i++)
            x ^= Second(x + (ulong)i);
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Second(ulong x)
    {
        for (int i = 0; i < 4; i++)
            x ^= Third(x + (ulong)i);
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Third(ulong x)
    {
        for (int i = 0; i < 4; i++)
            x ^= Fourth(x + (ulong)i);
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Fourth(ulong x)
    {
        for (int i = 0; i < 200; i++)
            x = Work.Step(x);
        return x;
    }
}

// The chain that causes its own collections: its last method allocates.
internal static class AllocChain
{
    [ThreadStatic] private static object? keep;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Drive(Worker worker)
    {
        ulong x = 1;
        for (int i = 0; i < 10_000; i++)
            x = First(x) + 1;
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong First(ulong x) => Second(x + 1) ^ (x << 1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Second(ulong x) => Third(x + 2) ^ (x >> 1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Third(ulong x) => Fourth(x + 3) ^ (x << 3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Fourth(ulong x)
    {
        keep = new byte[64 + (x & 127)];
        return Work.Step(x);
    }
}

internal sealed class ChainMode : Mode
{
    private readonly Crew crew = new();
    private readonly bool allocate;

    public ChainMode(Options options) => allocate = options.Text("kind", "collect") == "alloc";

    public override void Prepare()
    {
        if (allocate)
        {
            Add("alloc-0", AllocChain.Drive);
            Add("alloc-1", AllocChain.Drive);
            return;
        }
        Add("straight", StraightChain.Drive);
        Add("loop", LoopChain.Drive);
    }

    private void Add(string name, Func<Worker, ulong> drive)
    {
        crew.Add(name, worker =>
        {
            while (!worker.Stop)
            {
                worker.Checksum += drive(worker);
                worker.Loops++;
            }
        });
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}

// Each loop is called once, so it runs in the body that on-stack replacement made, for its whole
// life, under a caller with a name.
internal sealed class OsrMode : Mode
{
    private readonly Crew crew = new();

    public OsrMode(Options options) => _ = options;

    public override void Prepare()
    {
        crew.Add("simple", w => w.Checksum = OsrLoops.CallSimple(w), 0, "CallSimple", "Simple");
        crew.Add("try", w => w.Checksum = OsrLoops.CallTry(w), 0, "CallTry", "InTry");
        crew.Add("large", w => w.Checksum = OsrLoops.CallLarge(w), 0, "CallLarge", "LargeFrame");
        crew.Add("calls", w => w.Checksum = OsrLoops.CallCalls(w), 0, "CallCalls", "WithCalls");
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}

internal static class OsrLoops
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong CallSimple(Worker worker) => Simple(worker, 1) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Simple(Worker worker, ulong x)
    {
        while (!worker.Stop)
            x = Work.Step(x);
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong CallTry(Worker worker) => InTry(worker, 2) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong InTry(Worker worker, ulong x)
    {
        try
        {
            while (!worker.Stop)
                x = Work.Step(x);
        }
        finally
        {
            worker.Loops++;
        }
        return x;
    }

    private unsafe struct Large
    {
        public fixed ulong Values[64];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong CallLarge(Worker worker) => LargeFrame(worker, 3) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static unsafe ulong LargeFrame(Worker worker, ulong x)
    {
        Large large = default;
        int i = 0;
        while (!worker.Stop)
        {
            x = Work.Step(x + large.Values[i & 63]);
            large.Values[i++ & 63] = x;
        }
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong CallCalls(Worker worker) => WithCalls(worker, 4) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong WithCalls(Worker worker, ulong x)
    {
        while (!worker.Stop)
            x = Work.Burn(x, 100);
        return x;
    }
}

// Recursion of a given depth with the work at its end.
internal sealed class DeepMode : Mode
{
    private readonly Crew crew = new();
    private readonly int depth;

    public DeepMode(Options options) => depth = options.Count("depth", 500);

    public override void Prepare() => crew.Add("deep", worker =>
    {
        while (!worker.Stop)
        {
            worker.Checksum += Down(worker, depth);
            worker.Loops++;
        }
    }, 64 << 20);

    // `depth` frames of Down, one of Leaf.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Down(Worker worker, int left) =>
        left == 1 ? Leaf(worker) + 1 : Down(worker, left - 1) + (ulong)left;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Leaf(Worker worker)
    {
        ulong x = 5;
        for (int i = 0; i < 200 && !worker.Stop; i++)
            x = Work.Burn(x, 100_000);
        return x;
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("depth", depth);
        crew.Describe(json);
    }
}
