using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

// Whatever programs do with activities that nobody expects, all the time and on many threads; some work
// in between is ordinary and checks that it is in its own span.
internal sealed class SpanStormMode : Mode
{
    private static readonly ActivitySource Source = new("ClpTarget.SpanStorm");
    private static readonly string[] Names =
    {
        new('x', 100_000), "\ud800 alone", "\udc00", "with\0zero", "", "ünï ☃ 🌩",
        string.Concat(Enumerable.Repeat("🌩", 150)),
    };
    private readonly List<Thread> threads = new();
    private volatile bool stop;
    private long done, wrong, started;
    private string firstWrong = "";

    public SpanStormMode(Options options) { }

    public override void Prepare() => ActivitySource.AddActivityListener(new ActivityListener
    {
        ShouldListenTo = source => source.Name == "ClpTarget.SpanStorm",
        Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllData,
    });

    public override void Begin()
    {
        stop = false;
        foreach (Action<int> part in new Action<int>[] { Odd, Elsewhere, Threads, Flows, Ordinary })
        {
            var thread = new Thread(() => Repeat(part)) { IsBackground = true };
            threads.Add(thread);
            thread.Start();
        }
    }

    private void Repeat(Action<int> part)
    {
        for (int i = 0; !stop; i++)
        {
            try
            {
                part(i);
            }
            catch (Exception e)
            {
                Wrong(e.ToString());
            }
            Activity.Current = null;
            Interlocked.Increment(ref done);
        }
    }

    private void Wrong(string what)
    {
        if (Interlocked.Increment(ref wrong) == 1)
            firstWrong = what;
    }

    // Names and ids that nobody would choose.
    private void Odd(int i)
    {
        string name = Names[i % Names.Length];
        var activity = new Activity("odd") { DisplayName = name };
        switch (i / Names.Length % 5)
        {
            case 0: activity.SetIdFormat(ActivityIdFormat.Hierarchical); break;
            case 1: activity.SetParentId("|not.w3c.1.2_"); break;
            case 2: activity.SetParentId(default, default(ActivitySpanId)); break;
            case 3: activity.SetTag("http.route", i); break;
            default: activity.SetTag("http.route", name + i % 3000); break;
        }
        activity.Start();
        GC.KeepAlive(Work.BurnCpu(1, 200_000));
        activity.Stop();
        activity.Stop();
        Activity.Current = activity; // has ended
        using (Source.StartActivity("below an ended one"))
            GC.KeepAlive(Work.BurnCpu(1, 50_000));
    }

    // Stopped, or current, on other threads than it was started on.
    private void Elsewhere(int i)
    {
        Activity? activity = Source.StartActivity("elsewhere");
        Activity? child = i % 2 == 0 ? Source.StartActivity("child") : null;
        Task other = Task.Run(() => activity?.Dispose());
        using (ExecutionContext.SuppressFlow())
            Task.Run(() => Activity.Current = i % 3 == 0 ? child : activity).Wait();
        other.Wait();
        child?.Dispose(); // after its parent
    }

    private void Threads(int i)
    {
        var many = new Thread[50];
        for (int n = 0; n < many.Length; n++)
        {
            many[n] = new Thread(() =>
            {
                using (Source.StartActivity("of a thread"))
                    Interlocked.Increment(ref started);
            }, 128 << 10);
            many[n].Start();
        }
        foreach (Thread thread in many)
            thread.Join();
    }

    private void Flows(int i) => Task.WhenAll(Flow(6), Flow(6), Flow(6)).Wait();

    private static async Task Flow(int depth)
    {
        using Activity? activity = Source.StartActivity("flow");
        await Task.Yield();
        if (depth > 0)
            await Task.WhenAll(Flow(depth - 1), Flow(depth - 1));
        await Task.Yield();
    }

    private void Ordinary(int i)
    {
        using Activity? activity = Source.StartActivity("ordinary");
        ulong want = Convert.ToUInt64(activity!.SpanId.ToHexString(), 16), have = SpanCell.Span();
        GC.KeepAlive(Work.BurnCpu(1, 1_000_000));
        // 0: nobody records, or did not when the activity began.
        if (have != 0 && have != want || SpanCell.Span() != have)
            Wrong($"{have:x16}, then {SpanCell.Span():x16}, instead of {want:x16}");
    }

    public override void End()
    {
        stop = true;
        threads.ForEach(t => t.Join());
        threads.Clear();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("done", done);
        json.WriteNumber("threads_started", started);
        json.WriteNumber("wrong", wrong);
        json.WriteString("first_wrong", firstWrong);
    }
}
