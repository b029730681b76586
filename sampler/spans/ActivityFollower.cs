using System;
using System.Diagnostics;
using System.Runtime.InteropServices;

namespace Clrpulse;

// Keeps SpanContext.Current on Activity.Current.
//
// Activity.CurrentChanged tells of each start, stop and assignment; between them the AsyncLocal flows
// by itself. Nothing listens to an ActivitySource, so HasListeners() stays what it was: no activity
// is created, sampled or recorded that would not exist without us, and none becomes dearer to start.
internal static class ActivityFollower
{
    internal static bool Start()
    {
        if (!Library.Find())
            return false;
        Activity.CurrentChanged += static (_, change) => Changed(change);
        Library.HookRuns();
        return true;
    }

    private static void Changed(in ActivityChangedEventArgs change)
    {
        try
        {
            Follow(change.Current);
        }
        catch (Exception)
        {
            // Nobody who starts an activity may see our trouble.
        }
    }

    private static void Follow(Activity? current)
    {
        if (!Library.Live)
        {
            SpanContext.Current = null;
            return;
        }
        SpanContext? flow = SpanContext.Current;
        // What was stopped elsewhere may still be current.
        while (current is { IsStopped: true })
            current = current.Parent;
        EndStopped(flow, current);
        SpanContext? around = SpanContext.Living(flow);
        if (current == null ? around == null : around != null && around.IsOf(current))
            SpanContext.Show(around); // the flow has it already
        else
            SpanContext.Current = current == null ? null : ContextOf(current, around);
    }

    // All that the flow leaves: a span may be stopped while one inside it was left open.
    private static void EndStopped(SpanContext? context, Activity? current)
    {
        for (; context != null; context = context.Parent)
        {
            if (context.TakeStopped() is { } stopped)
            {
                if (stopped.Parent == null)
                    RootEnded(stopped, context.Span.Span);
            }
            else if (current != null && (context.IsOf(current)
                || current.Parent is { } parent && context.IsOf(parent)))
            {
                break; // nothing around a span in use is left
            }
        }
    }

    private static SpanContext? ContextOf(Activity activity, SpanContext? around)
    {
        if (SpanContext.Find(around, activity) is { } known)
            return known;
        if (activity.IdFormat != ActivityIdFormat.W3C)
            return null;
        bool child = around != null && activity.Parent is { } parent && around.IsOf(parent);
        return child ? ChildOf(around!, activity) : First(activity);
    }

    private static SpanContext ChildOf(SpanContext parent, Activity activity)
    {
        NativeSpan span = parent.Span;
        span.Span = Number(activity.SpanId);
        return new SpanContext(span, parent, activity);
    }

    private static SpanContext First(Activity activity)
    {
        Activity root = Root(activity);
        string trace = activity.TraceId.ToHexString();
        NativeSpan span;
        span.TraceHigh = Number(trace, 0);
        span.TraceLow = Number(trace, 16);
        span.Span = Number(activity.SpanId);
        span.LocalRoot = ReferenceEquals(root, activity) ? span.Span : Number(root.SpanId);
        span.Endpoint = Names.Of(root.DisplayName, activity.StartTimeUtc);
        span.Reserved = 0;
        return new SpanContext(span, null, activity);
    }

    // The outermost activity of this process: its parent is another process's, or none.
    private static Activity Root(Activity activity)
    {
        while (activity.Parent is { } parent)
            activity = parent;
        return activity;
    }

    private static ulong Number(ActivitySpanId id) => Number(id.ToHexString(), 0);

    // 16 digits that Activity has checked, four at a time: a character's low 16 bits are one digit, and
    // the multiplication brings the four of them together in the top 16 bits of the product.
    private static ulong Number(string hex, int from)
    {
        ulong number = 0;
        foreach (ulong four in MemoryMarshal.Cast<char, ulong>(hex.AsSpan(from, 16)))
        {
            ulong digits = (four & 0x000f_000f_000f_000f) + 9 * (four >> 6 & 0x0001_0001_0001_0001);
            number = number << 16 | digits * 0x1000_0100_0010_0001 >> 48;
        }
        return number;
    }

    // It has got its last name by now: frameworks set the route when they have matched it.
    private static void RootEnded(Activity activity, ulong root)
    {
        string name = activity.GetTagItem("http.route") as string is { Length: > 0 } route
            ? route : activity.DisplayName;
        Library.RequestEnded(Names.Of(name, activity.StartTimeUtc + activity.Duration));
        if (Library.WasSampled(root))
            Library.RootEnded(root, name);
    }
}
