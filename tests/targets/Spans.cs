using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

// The native cell of the running thread (clp_span.h), as the library keeps it.
internal static class SpanCell
{
    private static unsafe delegate* unmanaged<uint, byte*> cellOf;

    internal static unsafe bool FindLibrary()
    {
        foreach (string line in File.ReadLines("/proc/self/maps"))
        {
            int slash = line.IndexOf('/');
            if (slash < 0 || !line.Contains("/libclrpulse.so", StringComparison.Ordinal))
                continue;
            string path = line.Substring(slash).Replace(" (deleted)", "", StringComparison.Ordinal);
            cellOf = (delegate* unmanaged<uint, byte*>)NativeLibrary.GetExport(
                NativeLibrary.Load(path), "clp_span_cell");
            return true;
        }
        return false;
    }

    // The copy that is in force: trace high, trace low, span, local root.
    internal static unsafe ulong* InForce()
    {
        byte* cell = cellOf(1);
        return (ulong*)(cell + 8 + (*(ulong*)cell & 1) * 40);
    }

    // 0 in no span, or without the library.
    internal static unsafe ulong Span() => cellOf == null && !FindLibrary() ? 0 : InForce()[2];

    // Until an activity of now is in the cell of now.
    internal static unsafe bool WaitForHook()
    {
        long until = Environment.TickCount64 + 30_000;
        while (Environment.TickCount64 < until)
        {
            using (var probe = new Activity("probe").Start())
                if (FindLibrary() && InForce()[2].ToString("x16") == probe.SpanId.ToHexString())
                    return true;
            Thread.Sleep(5);
        }
        return false;
    }
}

// Compares the native cell of the running thread with Activity.Current wherever code may come to run:
// after await, in tasks, loops, the pool, new threads, iterators, without flow.
internal sealed class SpanChecksMode : Mode
{
    private static readonly ActivitySource Source = new("ClpTarget.Spans");
    private static long checks, inSpan, wrong;
    private static string firstWrong = "";
    private readonly int rounds, crowd;
    private readonly List<Task> running = new();

    public SpanChecksMode(Options options)
    {
        rounds = options.Count("rounds", 400);
        crowd = options.Count("crowd", 0);
    }

    // An application's own tracer, which is what makes activities.
    public override void Prepare() => ActivitySource.AddActivityListener(new ActivityListener
    {
        ShouldListenTo = source => source.Name == "ClpTarget.Spans",
        Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllData,
    });

    public override void Begin()
    {
        checks = inSpan = wrong = 0;
        if (!SpanCell.WaitForHook())
        {
            firstWrong = "the hook does not run";
            wrong = 1;
            return;
        }
        Check("before"); // this thread is in no span
        for (int i = 0; i < 4; i++)
            running.Add(Task.Run(Rounds));
        Crowd();
    }

    // So many threads at once, each in a span of its own.
    private void Crowd()
    {
        using var all = new CountdownEvent(Math.Max(crowd, 1));
        var threads = new Thread[crowd];
        for (int i = 0; i < crowd; i++)
        {
            threads[i] = new Thread(() =>
            {
                using (Source.StartActivity("in a crowd"))
                {
                    all.Signal();
                    all.Wait();
                    Check("in a crowd");
                }
                Check("after the crowd");
            }, 128 << 10);
            threads[i].Start();
        }
        foreach (Thread thread in threads)
            thread.Join();
    }

    private async Task Rounds()
    {
        for (int i = 0; i < rounds; i++)
        {
            Check("between requests");
            Task left;
            var looked = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            using (Activity? request = Source.StartActivity("request"))
            {
                using (Source.StartActivity("leaves work behind"))
                    left = Outlives(looked, ended.Task);
                await Request(i);
                await looked.Task;
            }
            Check("after a request");
            ended.SetResult();
            await left;
            if (i % 50 == 0)
                NothingIsKept();
        }
    }

    // Begun inside a span that ends at once, and finished when the span around that one has ended too.
    private static async Task Outlives(TaskCompletionSource looked, Task request)
    {
        await Task.Yield();
        using (Source.StartActivity("in work left behind"))
        {
            await Task.Yield();
            Check("in work left behind");
        }
        Check("work left behind");
        looked.SetResult();
        await request;
        await Task.Yield(); // a flow sees that a span has ended elsewhere at its next switch
        Check("after its request");
        if (Activity.Current is not { IsStopped: true })
            Wrong("Activity.Current is nothing after its request");
        using (Source.StartActivity("after its request"))
            Check("span after its request");
    }

    // One flow that begins and ends spans for ever keeps none of them alive but the last.
    private static void NothingIsKept()
    {
        WeakReference[] spans = Enumerable.Range(0, 20).Select(_ => BeginAndEnd()).ToArray();
        GC.Collect();
        int kept = spans.Take(19).Count(s => s.IsAlive);
        if (kept > 0)
            Wrong($"{kept} ended activities are kept alive");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static WeakReference BeginAndEnd()
    {
        using Activity? span = Source.StartActivity("begins and ends");
        Check("begins and ends");
        return new WeakReference(span);
    }

    private static async Task Request(int i)
    {
        Check("request");
        await Task.Yield();
        Check("after yield");
        using (Source.StartActivity("child"))
        {
            Check("child");
            await Task.Delay(i % 16 == 0 ? 1 : 0);
            Check("child after delay");
            await Task.Run(() => InTask("child's task"));
            Check("child after task");
        }
        Check("after child");
        Parallel.ForEach(new[] { 1, 2, 3, 4, 5, 6 }, n => InTask("parallel"));
        Check("after parallel");
        await Pool();
        await Unflowed();
        if (i % 8 == 0)
            Threads();
        Check("value " + await Value(i));
        await foreach (int n in Iterator())
            Check("iterating");
        Assignments();
        await Task.WhenAll(InOther("fan 1"), InOther("fan 2"), InOther("fan 3"));
        Check("after fan-out");
        try
        {
            using (Source.StartActivity("throws"))
                await Throw();
        }
        catch (InvalidOperationException)
        {
            Check("catch");
        }
    }

    private static void InTask(string where)
    {
        Check(where);
        using (Source.StartActivity(where))
            Check(where + " span");
        Check(where + " after span");
    }

    private static async Task InOther(string where)
    {
        using (Source.StartActivity(where))
        {
            await Task.Yield();
            Check(where);
        }
        Check(where + " after");
    }

    private static Task Pool()
    {
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        ThreadPool.QueueUserWorkItem(_ =>
        {
            InTask("pool");
            ThreadPool.UnsafeQueueUserWorkItem(_ =>
            {
                Check("unsafe pool"); // no flow: in no span
                done.SetResult();
            }, null);
        });
        return done.Task;
    }

    private static Task Unflowed()
    {
        Task task;
        using (ExecutionContext.SuppressFlow())
            task = Task.Run(() => InTask("suppressed"));
        Check("after suppress");
        return task;
    }

    private static void Threads()
    {
        var thread = new Thread(() => InTask("thread"));
        thread.Start();
        thread.Join();
        thread = new Thread(() => InTask("unsafe thread"));
        thread.UnsafeStart();
        thread.Join();
    }

    private static async ValueTask<int> Value(int i)
    {
        if (i % 2 == 0)
            return i;
        using (Source.StartActivity("value"))
            await Task.Yield();
        Check("value");
        return i;
    }

    private static async IAsyncEnumerable<int> Iterator()
    {
        for (int i = 0; i < 3; i++)
        {
            using (Source.StartActivity("iterator"))
            {
                await Task.Yield();
                Check("iterator");
            }
            yield return i;
        }
    }

    // What callbacks of old libraries do.
    private static void Assignments()
    {
        Activity? was = Activity.Current;
        Activity.Current = null;
        Check("none");
        Activity.Current = was;
        Check("given back");
        using (Activity? other = Source.StartActivity("elsewhere", ActivityKind.Internal,
            new ActivityContext(ActivityTraceId.CreateRandom(), ActivitySpanId.CreateRandom(),
                ActivityTraceFlags.Recorded)))
            Check("another trace");
        Check("back");
    }

    private static async Task Throw()
    {
        await Task.Yield();
        Check("about to throw");
        throw new InvalidOperationException();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static unsafe void Check(string where)
    {
        ulong* copy = SpanCell.InForce();
        Activity? current = Activity.Current;
        // Work that outlives its request: Current is still the stopped one there.
        while (current is { IsStopped: true })
            current = current.Parent;
        string want = current == null ? "none" : current.TraceId.ToHexString() + current.SpanId;
        string have = copy[2] == 0 ? "none" : $"{copy[0]:x16}{copy[1]:x16}{copy[2]:x16}";
        Activity? root = current;
        while (root?.Parent != null)
            root = root.Parent;
        if (root != null && have == want && copy[3].ToString("x16") != root.SpanId.ToHexString())
            have = "root " + copy[3].ToString("x16");
        Interlocked.Increment(ref checks);
        if (current != null)
            Interlocked.Increment(ref inSpan);
        if (have != want)
            Wrong($"{where}: {have} instead of {want}");
    }

    private static void Wrong(string what)
    {
        if (Interlocked.Increment(ref wrong) == 1)
            firstWrong = what;
    }

    public override void End()
    {
        Task.WaitAll(running.ToArray());
        running.Clear();
        Check("after");
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("checks", checks);
        json.WriteNumber("in_span", inSpan);
        json.WriteNumber("wrong", wrong);
        json.WriteString("first_wrong", firstWrong);
    }
}

// Requests of two kinds that burn CPU in methods of their own; --tracer 0 leaves out what makes
// activities. Counts the activities that were made.
internal sealed class RequestsMode : Mode
{
    private static readonly ActivitySource Source = new("ClpTarget.Requests");
    private readonly bool tracer, hooked, forgets;
    private readonly List<Thread> threads = new();
    private readonly List<string> roots = new();
    private volatile bool stop;
    private long made, asked;

    public RequestsMode(Options options)
    {
        tracer = options.Count("tracer", 1) != 0;
        hooked = options.Count("hooked", 0) != 0; // to begin when the hook runs
        forgets = options.Count("forgets", 0) != 0; // to end spans inside a request
    }

    public override void Prepare()
    {
        if (tracer)
            ActivitySource.AddActivityListener(new ActivityListener
            {
                ShouldListenTo = source => source.Name == "ClpTarget.Requests",
                Sample = (ref ActivityCreationOptions<ActivityContext> _) =>
                    ActivitySamplingResult.AllData,
            });
    }

    public override void Begin()
    {
        stop = false;
        if (hooked && !SpanCell.WaitForHook())
            throw new TimeoutException("the start-up hook does not run");
        for (int i = 0; i < 2; i++)
        {
            bool slow = i == 0;
            var thread = new Thread(() => Serve(slow)) { IsBackground = true };
            threads.Add(thread);
            thread.Start();
        }
    }

    private void Serve(bool slow)
    {
        while (!stop)
        {
            Activity? request = Source.StartActivity("HttpRequestIn");
            Interlocked.Increment(ref asked);
            if (request != null)
            {
                Interlocked.Increment(ref made);
                lock (roots)
                    roots.Add(request.SpanId.ToHexString());
            }
            if (slow)
                SlowEndpoint();
            else
                FastEndpoint();
            if (forgets)
                Source.StartActivity("left open");
            // As web frameworks do: the route is known when the request has been served.
            request?.SetTag("http.route", slow ? "/slow/{id}" : "/fast/{id}");
            request?.Dispose();
            Outside();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void SlowEndpoint() => Burn(30);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void FastEndpoint()
    {
        using (Source.StartActivity("part"))
            Burn(10);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Outside() => Burn(5);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Burn(int ms)
    {
        long until = Stopwatch.GetTimestamp() + ms * Stopwatch.Frequency / 1000;
        ulong x = 1;
        while (Stopwatch.GetTimestamp() < until)
            for (int i = 0; i < 1000; i++)
                x = Work.Step(x);
        GC.KeepAlive(x);
    }

    public override void End()
    {
        stop = true;
        threads.ForEach(t => t.Join());
        threads.Clear();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("asked", asked);
        json.WriteNumber("made", made);
        json.WriteBoolean("listeners", Source.HasListeners());
        json.WriteBoolean("other_hook", StartupHook.Ran);
        json.WriteStartArray("roots");
        roots.ForEach(json.WriteStringValue);
        json.WriteEndArray();
    }
}

// What entering and leaving a captured context with a span costs, as each continuation does, and what
// an activity costs from its start to its end.
internal sealed class SwitchCostMode : Mode
{
    private static readonly ActivitySource Source = new("ClpTarget.Cost");
    private readonly int switches;
    private double nanoseconds, activity;

    public SwitchCostMode(Options options) => switches = options.Count("switches", 200_000);

    public override void Prepare() => ActivitySource.AddActivityListener(new ActivityListener
    {
        ShouldListenTo = source => source.Name == "ClpTarget.Cost",
        Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllData,
    });

    public override void Begin()
    {
        nanoseconds = activity = double.MaxValue;
        for (int i = 0; i < 7; i++)
        {
            nanoseconds = Math.Min(nanoseconds, Task.Run(Measure).Result);
            activity = Math.Min(activity, Task.Run(MeasureActivity).Result);
        }
    }

    private double MeasureActivity()
    {
        long start = Stopwatch.GetTimestamp();
        for (int i = 0; i < switches; i++)
            using (Source.StartActivity("request"))
                continue;
        return Elapsed(start);
    }

    // Run() on a captured context enters and leaves it: what the runtime does around each
    // continuation.
    private double Measure()
    {
        using Activity? span = Source.StartActivity("switched");
        ExecutionContext context = ExecutionContext.Capture()!;
        Activity.Current = null;
        ContextCallback nothing = static _ => { };
        long start = Stopwatch.GetTimestamp();
        for (int i = 0; i < switches; i++)
            ExecutionContext.Run(context, nothing, null);
        double took = Elapsed(start);
        Activity.Current = span;
        return took;
    }

    private double Elapsed(long start)
        => (Stopwatch.GetTimestamp() - start) * 1e9 / Stopwatch.Frequency / switches;

    public override void End() { }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("nanoseconds", nanoseconds);
        json.WriteNumber("activity_nanoseconds", activity);
    }
}
