using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.Json;

namespace ClpTarget;

// Managed code that calls native code that calls managed code: libc's qsort with a comparer of ours,
// once as a plain function pointer and once as a marshalled delegate.
internal sealed unsafe class QsortMode : Mode
{
    private const int Count = 2000;
    private readonly Crew crew = new();

    public QsortMode(Options options) => _ = options;

    public override void Prepare()
    {
        crew.Add("unmanaged", SortUnmanaged, 0, "SortUnmanaged", "CompareUnmanaged", "Helper");
        crew.Add("delegate", SortDelegate, 0, "SortDelegate", "CompareDelegate", "Helper");
    }

    private static void SortUnmanaged(Worker worker)
    {
        int[] data = new int[Count];
        while (!worker.Stop)
        {
            Fill(data, (int)worker.Loops);
            fixed (int* first = data)
                Native.QsortUnmanaged(first, Count, sizeof(int), &CompareUnmanaged);
            Check(data);
            worker.Loops++;
        }
    }

    private static void SortDelegate(Worker worker)
    {
        Native.Comparer compare = CompareDelegate;
        int[] data = new int[Count];
        while (!worker.Stop)
        {
            Fill(data, (int)worker.Loops);
            fixed (int* first = data)
                Native.QsortDelegate(first, Count, sizeof(int), compare);
            Check(data);
            worker.Loops++;
        }
        GC.KeepAlive(compare);
    }

    [UnmanagedCallersOnly(CallConvs = new[] { typeof(CallConvCdecl) })]
    private static int CompareUnmanaged(int* left, int* right) => Helper(*left, *right) + 0;

    private static int CompareDelegate(int* left, int* right)
    {
        int order = Helper(*left, *right);
        return order < 0 ? -1 : order;
    }

    // Long enough that most samples fall here.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Helper(int left, int right)
    {
        ulong x = (ulong)(uint)left;
        for (int i = 0; i < 100; i++)
            x = Work.Step(x + (ulong)(uint)right);
        return x == 0 ? 0 : left.CompareTo(right);
    }

    private static void Fill(int[] data, int seed)
    {
        var random = new Random(seed);
        for (int i = 0; i < data.Length; i++)
            data[i] = random.Next();
    }

    private static void Check(int[] data)
    {
        for (int i = 1; i < data.Length; i++)
        {
            if (data[i - 1] > data[i])
                throw new InvalidOperationException("qsort gave a wrong order");
        }
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}
