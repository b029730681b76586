using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Diagnostics.Tracing;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

internal sealed class TruthException : Exception
{
    public TruthException(string message) : base(message) { }
}

internal sealed class SpanException : Exception
{
}

internal sealed class SmallThing
{
    public long A { get; init; } // 32 bytes with header
    public long B { get; init; }
}

// Work of a fixed size whose events are counted by the program itself: exceptions, waits for a lock,
// collections, allocations.
internal sealed class EventTruthMode : Mode
{
    private readonly int throws, waits, collections, megabytes;
    private readonly object gate = new();
    private readonly Crew crew = new();
    private readonly AutoResetEvent held = new(false), passed = new(false);
    private readonly int[] before = new int[3];
    private readonly Dictionary<string, long> allocated = new();
    private double waitedNs;
    private long thrown, waited;
    private static object? sink;
    private static readonly ActivitySource Source = new("ClpTarget.Truth");
    private readonly List<(string Trace, string Span, string Root, int Thrown)> spans = new();

    public EventTruthMode(Options options)
    {
        throws = options.Count("throws", 2000);
        waits = options.Count("waits", 40);
        collections = options.Count("collections", 6);
        megabytes = options.Count("megabytes", 300);
    }

    public override void Prepare()
    {
        crew.Add("thrower", Throw);
        crew.Add("holder", Hold);
        crew.Add("waiter", Wait);
        crew.Add("allocator", Allocate);
    }

    private void Throw(Worker worker)
    {
        for (int i = 0; i < throws; i++)
        {
            try
            {
                if (i % 4 == 0)
                    throw new TruthException("one of four");
                ThrowDeeper(3);
            }
            catch (Exception)
            {
                thrown++;
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void ThrowDeeper(int depth)
    {
        if (depth == 0)
            throw new InvalidOperationException("three of four");
        ThrowDeeper(depth - 1);
    }

    // The waiter comes while the lock is held, every time.
    private void Hold(Worker worker)
    {
        for (int i = 0; i < waits; i++)
        {
            lock (gate)
            {
                held.Set();
                Thread.Sleep(15);
            }
            passed.WaitOne();
        }
    }

    private void Wait(Worker worker)
    {
        for (int i = 0; i < waits; i++)
        {
            held.WaitOne();
            long start = Stopwatch.GetTimestamp();
            WaitForGate();
            waitedNs += Stopwatch.GetElapsedTime(start).TotalNanoseconds;
            waited++;
            passed.Set();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitForGate()
    {
        lock (gate)
            Thread.MemoryBarrier();
    }

    private void Allocate(Worker worker)
    {
        long bytes = (long)megabytes << 20;
        Measure("ClpTarget.SmallThing", () => { for (long n = bytes / 3 / 32; n > 0; n--) sink = new SmallThing { A = n, B = n }; });
        Measure("System.Int64[]", () => { for (long n = bytes / 3 / 1024; n > 0; n--) sink = new long[125]; });
        Measure("System.Byte[]", () => { for (long n = bytes / 3 / 100024; n > 0; n--) sink = new byte[100000]; });
    }

    private void Measure(string type, Action work)
    {
        long start = GC.GetAllocatedBytesForCurrentThread();
        work();
        allocated[type] = GC.GetAllocatedBytesForCurrentThread() - start;
    }

    public override void Begin()
    {
        thrown = waited = 0;
        waitedNs = 0;
        allocated.Clear();
        spans.Clear();
        for (int g = 0; g < before.Length; g++)
            before[g] = GC.CollectionCount(g);
        crew.Begin();
    }

    // Span N throws N exceptions, half of them in a part of it, and in between it changes its thread.
    private async Task ThrowInSpans()
    {
        for (int n = 1; n <= 12; n++)
        {
            using Activity? outer = Source.StartActivity($"request {n}");
            string root = outer?.SpanId.ToHexString() ?? "";
            int some = ThrowSome(n - n / 2);
            await Task.Delay(2);
            some += ThrowSome(1);
            Note(outer, root, some);
            using Activity? inner = Source.StartActivity("part");
            await Task.Yield();
            Note(inner, root, ThrowSome(n / 2));
        }
    }

    private void Note(Activity? activity, string root, int count)
    {
        if (activity != null && count > 0)
            spans.Add((activity.TraceId.ToHexString(), activity.SpanId.ToHexString(), root, count));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int ThrowSome(int count)
    {
        for (int i = 0; i < count; i++)
        {
            try
            {
                throw new SpanException();
            }
            catch (SpanException)
            {
            }
        }
        return count;
    }

    public override void End()
    {
        crew.WaitUntilDone();
        ThrowInSpans().GetAwaiter().GetResult();
        for (int i = 0; i < collections; i++)
            GC.Collect(i % 3, GCCollectionMode.Forced, blocking: true);
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("thrown", thrown);
        json.WriteNumber("thrown_truth", (throws + 3) / 4);
        json.WriteNumber("waits", waited);
        json.WriteNumber("wait_ns", waitedNs);
        json.WriteNumber("collections", GC.CollectionCount(0) - before[0]);
        json.WriteNumber("collections_2", GC.CollectionCount(2) - before[2]);
        json.WriteStartArray("spans");
        foreach ((string trace, string span, string root, int count) in spans)
        {
            json.WriteStartObject();
            json.WriteString("trace", trace);
            json.WriteString("span", span);
            json.WriteString("root", root);
            json.WriteNumber("thrown", count);
            json.WriteEndObject();
        }
        json.WriteEndArray();
        json.WriteStartObject("allocated");
        foreach ((string type, long bytes) in allocated)
            json.WriteNumber(type, bytes);
        json.WriteEndObject();
        crew.Describe(json);
    }
}

[EventSource(Name = "ClpTarget-Manifest")]
internal sealed class ManifestSource : EventSource
{
    public static readonly ManifestSource Log = new();

    [Event(1)]
    public void Told(int number, string text, long big, double half, bool yes, Guid id) =>
        WriteEvent(1, number, text, big, half, yes, id);

    [Event(2)]
    public void Bytes(byte[] bytes) => WriteEvent(2, bytes);
}

[EventData]
internal sealed class Shape
{
    public string Name { get; set; } = "";
    public int Sides { get; set; }
    public Place Where { get; set; } = new();
}

[EventData]
internal sealed class Place
{
    public double X { get; set; }
    public long Y { get; set; }
}

// Event sources of the program's own: with a manifest, and describing themselves.
internal sealed class SourcesMode : Mode
{
    private readonly EventSource described = new("ClpTarget-Described", EventSourceSettings.EtwSelfDescribingEventFormat);
    private volatile bool stop;
    private Thread? teller;
    private long told;

    public SourcesMode(Options options) { }

    private void Tell()
    {
        while (!stop)
        {
            ManifestSource.Log.Told(7, "grüße", 1L << 40, 0.5, true, new Guid("00112233-4455-6677-8899-aabbccddeeff"));
            ManifestSource.Log.Bytes(new byte[] { 1, 2, 254 });
            described.Write("Shape", new Shape { Name = "triangle", Sides = 3, Where = new Place { X = 0.25, Y = -7 } });
            told++;
            Thread.Sleep(5);
        }
    }

    public override void Begin()
    {
        stop = false;
        teller = new Thread(Tell) { IsBackground = true };
        teller.Start();
    }

    public override void End()
    {
        stop = true;
        teller!.Join();
    }

    public override void Describe(Utf8JsonWriter json) => json.WriteNumber("told", told);
}

// Very many methods made at run time, and a thread that notices every pause.
internal sealed class EmittedMode : Mode
{
    private const int PerType = 1000;
    private readonly int methods;
    private volatile bool stop;
    private Thread? probe;
    private readonly List<double> pausesMs = new();
    private static long sum;

    public EmittedMode(Options options) => methods = options.Count("methods", 100000);

    public override void Prepare()
    {
        ModuleBuilder module = AssemblyBuilder
            .DefineDynamicAssembly(new AssemblyName("Emitted"), AssemblyBuilderAccess.Run).DefineDynamicModule("Emitted");
        for (int first = 0; first < methods; first += PerType)
            MakeType(module, first);
    }

    private static void MakeType(ModuleBuilder module, int first)
    {
        TypeBuilder type = module.DefineType($"Emitted{first}", TypeAttributes.Public);
        for (int i = first; i < first + PerType; i++)
        {
            ILGenerator il = type.DefineMethod($"M{i}", MethodAttributes.Public | MethodAttributes.Static, typeof(int),
                Type.EmptyTypes).GetILGenerator();
            il.Emit(OpCodes.Ldc_I4, i);
            il.Emit(OpCodes.Ret);
        }
        Type made = type.CreateType()!;
        for (int i = first; i < first + PerType; i++)
            RuntimeHelpers.PrepareMethod(made.GetMethod($"M{i}")!.MethodHandle);
    }

    // How late a thread comes that wants to run every millisecond.
    private void Probe()
    {
        while (!stop)
        {
            long start = Stopwatch.GetTimestamp();
            Thread.Sleep(1);
            double ms = Stopwatch.GetElapsedTime(start).TotalMilliseconds;
            lock (pausesMs)
                pausesMs.Add(ms);
            sum++;
        }
    }

    public override void Begin()
    {
        pausesMs.Clear();
        stop = false;
        probe = new Thread(Probe) { IsBackground = true, Name = "probe", Priority = ThreadPriority.Highest };
        probe.Start();
    }

    public override void End()
    {
        stop = true;
        probe!.Join();
        pausesMs.Sort();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("methods", methods);
        json.WriteNumber("looks", pausesMs.Count);
        json.WriteNumber("longest_ms", pausesMs[^1]);
        json.WriteNumber("p999_ms", pausesMs[(int)(pausesMs.Count * 0.999)]);
    }
}
