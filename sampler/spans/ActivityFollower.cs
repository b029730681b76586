using System;
using System.Diagnostics;

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
        Activity.CurrentChanged += Changed;
        Library.HookRuns();
        return true;
    }

    private static void Changed(object? sender, ActivityChangedEventArgs change)
    {
        try
        {
            Follow(change.Previous, change.Current);
        }
        catch (Exception)
        {
            // Nobody who starts an activity may see our trouble.
        }
    }

    private static void Follow(Activity? previous, Activity? current)
    {
        SpanContext? context = SpanContext.Current;
        if (context != null && previous != null && previous.IsStopped)
            Ended(previous, context);
        if (current == null || current.IsStopped)
            SpanContext.Current = null;
        else if (Library.Live || context != null)
            SpanContext.Current = ContextOf(current, context);
    }

    private static SpanContext? ContextOf(Activity activity, SpanContext? context)
    {
        for (SpanContext? c = context; c != null; c = c.Parent)
            if (ReferenceEquals(c.Owner, activity))
                return c;
        if (activity.IdFormat != ActivityIdFormat.W3C)
            return null;
        SpanContext? parent = context != null && ReferenceEquals(context.Owner, activity.Parent)
            ? context : null;
        string trace = activity.TraceId.ToHexString();
        ulong id = Number(activity.SpanId);
        Activity root = parent == null ? Root(activity) : activity;
        return new SpanContext(Number(trace, 0), Number(trace, 16), id,
            parent?.LocalRoot ?? (ReferenceEquals(root, activity) ? id : Number(root.SpanId)),
            parent, activity)
        {
            Endpoint = parent?.Endpoint ?? Names.Of(root.DisplayName),
        };
    }

    // The outermost activity of this process: its parent is another process's, or none.
    private static Activity Root(Activity activity)
    {
        while (activity.Parent is { } parent)
            activity = parent;
        return activity;
    }

    private static ulong Number(ActivitySpanId id) => Number(id.ToHexString(), 0);

    // 16 digits that Activity has checked. (ulong.Parse would be a quarter of what a request costs.)
    private static ulong Number(string hex, int from)
    {
        ulong number = 0;
        foreach (char digit in hex.AsSpan(from, 16))
            number = number << 4 | ((uint)digit & 15) + 9 * ((uint)digit >> 6);
        return number;
    }

    // A local root has got its last name by now: frameworks set the route when they have matched it.
    private static void Ended(Activity activity, SpanContext context)
    {
        if (activity.Parent != null || activity.IdFormat != ActivityIdFormat.W3C || !Library.Live)
            return;
        string name = activity.GetTagItem("http.route") as string is { Length: > 0 } route
            ? route : activity.DisplayName;
        Library.RequestEnded(Names.Of(name));
        ulong root = ReferenceEquals(context.Owner, activity)
            ? context.Id : Number(activity.SpanId);
        if (Library.WasSampled(root))
            Library.RootEnded(root, name);
    }
}
