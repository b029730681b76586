using System;
using System.Collections.Generic;
using System.Text.Json;

namespace ClpTarget;

// Exceptions thrown and caught at the ends of every kind of stack.  Who watches the exceptions (a
// debugger, a profiler) sees each stack at the moment of the throw.
//   --only KIND,...  some kinds
//   --threads N      so many threads, each with its share of the kinds; else one for each kind
//   --ballast N      each exception holds so many bytes: whoever is told of allocations sees the stacks too
//   --filters 0      without the kinds that run exception filters, their own or the framework's
internal sealed class ThrowsMode : Mode
{
    private readonly Crew crew = new();
    public Crew Crew => crew;
    private readonly List<(string Name, Func<Worker, ulong> Step)> kinds = new();
    private readonly string only;
    private readonly int threads;
    private readonly bool filters;

    public ThrowsMode(Options options)
    {
        only = options.Text("only", "");
        threads = options.Count("threads", 0);
        filters = options.Count("filters", 1) != 0;
        Thrown.BallastBytes = options.Count("ballast", 0);
    }

    public override void Prepare()
    {
        Add("generics", GenericThrows.Run);
        Add("linq", LinqThrows.Run);
        Add("json", JsonThrows.Run, hasFilters: true);
        Add("regex", RegexThrows.Run);
        Add("async", AsyncThrows.Run);
        Add("dynamic", DynamicThrows.Run);
        Add("dispatch", DispatchThrows.Run);
        Add("reflection", ReflectionThrows.Run, hasFilters: true);
        Add("qsort", QsortThrows.Run);
        Add("catch", FuncletThrows.InCatch);
        Add("finally", FuncletThrows.InFinally);
        Add("filter", FuncletThrows.InFilter, hasFilters: true);
        Add("osr", OsrThrows.Run);
        Add("osr-filter", OsrThrows.RunFilters, hasFilters: true);
        Add("stackalloc", FrameThrows.Stackalloc);
        Add("frames", FrameThrows.Frames);
        Add("recursion", FrameThrows.Recursion);
        Add("hardware", RuntimeThrows.Hardware);
        Add("hardware-filter", RuntimeThrows.HardwareInFilter, hasFilters: true);
        Add("helpers", RuntimeThrows.Helpers);
        int count = threads > 0 ? Math.Min(threads, kinds.Count) : kinds.Count;
        for (int i = 0; i < count; i++)
        {
            int first = i;
            crew.Add(count == kinds.Count ? kinds[i].Name : $"throws-{i}", w => Work(w, first, count));
        }
    }

    private void Add(string name, Func<Worker, ulong> step, bool hasFilters = false)
    {
        bool named = only == "" || $",{only},".Contains($",{name},", StringComparison.Ordinal);
        if (named && (filters || !hasFilters))
            kinds.Add((name, step));
    }

    private void Work(Worker worker, int first, int stride)
    {
        for (int kind = first; !worker.Stop; kind = kind + stride < kinds.Count ? kind + stride : first)
        {
            worker.Checksum += kinds[kind].Step(worker);
            worker.Loops++;
        }
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}

internal sealed class Thrown : Exception
{
    public static int BallastBytes;
    private static readonly byte[] None = Array.Empty<byte>();

    public int Value { get; }
    public byte[] Ballast { get; }

    public Thrown(int value) : base("thrown")
    {
        Value = value;
        Ballast = BallastBytes > 0 ? new byte[BallastBytes] : None;
    }
}

internal sealed class OtherThrown : Exception
{
    public OtherThrown(Exception inner) : base("other", inner) { }
}
