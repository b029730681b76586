using System;
using System.Collections.Generic;
using System.Text.Json;

namespace ClpTarget;

// Exceptions thrown and caught at the ends of every kind of stack, one thread for each kind.  Who
// watches the exceptions (a debugger, a profiler) sees each stack at the moment of the throw.
internal sealed class ThrowsMode : Mode
{
    private readonly Crew crew = new();
    private readonly string only;

    public ThrowsMode(Options options) => only = options.Text("only", "");

    public override void Prepare()
    {
        Add("generics", GenericThrows.Run);
        Add("linq", LinqThrows.Run);
        Add("json", JsonThrows.Run);
        Add("regex", RegexThrows.Run);
        Add("async", AsyncThrows.Run);
        Add("dynamic", DynamicThrows.Run);
        Add("dispatch", DispatchThrows.Run);
        Add("reflection", ReflectionThrows.Run);
        Add("qsort", QsortThrows.Run);
        Add("catch", FuncletThrows.InCatch);
        Add("finally", FuncletThrows.InFinally);
        Add("filter", FuncletThrows.InFilter);
        Add("osr", OsrThrows.Run);
        Add("stackalloc", FrameThrows.Stackalloc);
        Add("frames", FrameThrows.Frames);
        Add("recursion", FrameThrows.Recursion);
        Add("hardware", RuntimeThrows.Hardware);
        Add("helpers", RuntimeThrows.Helpers);
    }

    private void Add(string name, Func<Worker, ulong> step)
    {
        if (only != "" && !$",{only},".Contains($",{name},", StringComparison.Ordinal))
            return;
        crew.Add(name, worker =>
        {
            while (!worker.Stop)
            {
                worker.Checksum += step(worker);
                worker.Loops++;
            }
        });
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}

internal sealed class Thrown : Exception
{
    public int Value { get; }

    public Thrown(int value) : base("thrown") => Value = value;
}

internal sealed class OtherThrown : Exception
{
    public OtherThrown(Exception inner) : base("other", inner) { }
}
