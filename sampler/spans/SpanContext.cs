using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Clrpulse;

// What a thread's cell holds while a span is current. One object for each span, made when the span
// begins: a switch between contexts copies its span and allocates nothing.
internal sealed unsafe class SpanContext
{
    internal readonly NativeSpan Span;
    internal readonly SpanContext? Parent; // as Activity.Parent, while that one is known
    private Activity? owner;               // null: of ThreadSpan, or its end has been seen
    private bool over;

    [ThreadStatic] private static NativeCell* own;

    internal SpanContext(in NativeSpan span, SpanContext? parent, Activity? owner)
    {
        Span = span;
        Parent = parent;
        this.owner = owner;
    }

    // Follows the logical flow of execution exactly as Activity.Current does, which is an AsyncLocal
    // itself. Its handler runs on the thread whose context changes, and must not throw: that would
    // end the process.
    private static readonly AsyncLocal<SpanContext?> Flow =
        new(static change => Show(Living(change.CurrentValue)));

    // What the flow has, also when that has ended: to take it out would cost an ExecutionContext. So
    // Living is to be asked, and an ended one keeps nothing alive.
    internal static SpanContext? Current
    {
        get => Flow.Value;
        set => Flow.Value = value;
    }

    internal bool IsOf(Activity activity) => ReferenceEquals(owner, activity);

    // That of the activity, of this one and those around it.
    internal static SpanContext? Find(SpanContext? context, Activity activity)
    {
        while (context != null && !context.IsOf(activity))
            context = context.Parent;
        return context;
    }

    // The nearest span that has not ended, of this one and those around it: whoever stopped it, and on
    // whatever flow.
    internal static SpanContext? Living(SpanContext? context)
    {
        while (context != null && (context.over || context.owner is { IsStopped: true }))
            context = context.Parent;
        return context;
    }

    // Of one without an activity.
    internal void End() => over = true;

    // Its activity when that has stopped, for one of all the flows that see it.
    internal Activity? TakeStopped()
    {
        Activity? activity = owner;
        if (activity is not { IsStopped: true })
            return null;
        over = true;
        return Interlocked.CompareExchange(ref owner, null, activity);
    }

    // In the cell of the running thread.
    internal static void Show(SpanContext? context)
    {
        NativeCell* cell = own;
        if (cell == null && (context == null || (cell = TakeCell()) == null))
            return;
        ulong next = cell->Version + 1;
        NativeSpan* copy = (next & 1) == 0 ? &cell->Even : &cell->Odd;
        *copy = context == null ? default : context.Span;
        Volatile.Write(ref cell->Version, next);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static NativeCell* TakeCell() => Library.Found ? own = Library.Cell() : null;
}
