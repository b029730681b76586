using System;
using System.Threading;

namespace Clrpulse;

// What a thread's cell holds while a span is current. One object for each span, made when the span
// begins: a switch between contexts writes its fields and allocates nothing.
internal sealed unsafe class SpanContext
{
    internal readonly ulong TraceHigh, TraceLow, Id, LocalRoot;
    internal readonly SpanContext? Parent; // the span that is current again when this one ends
    internal readonly object? Owner;       // its Activity
    internal uint Endpoint;                // of its local root, as far as it is known

    [ThreadStatic] private static NativeCell* own;

    internal SpanContext(ulong traceHigh, ulong traceLow, ulong id, ulong localRoot,
        SpanContext? parent, object? owner)
    {
        TraceHigh = traceHigh;
        TraceLow = traceLow;
        Id = id;
        LocalRoot = localRoot;
        Parent = parent;
        Owner = owner;
    }

    // Follows the logical flow of execution exactly as Activity.Current does, which is an AsyncLocal
    // itself. Its handler runs on the thread whose context changes, and must not throw: that would
    // end the process.
    private static readonly AsyncLocal<SpanContext?> Flow = new(Changed);

    internal static SpanContext? Current
    {
        get => Flow.Value;
        set
        {
            if (!ReferenceEquals(Flow.Value, value))
                Flow.Value = value;
        }
    }

    private static void Changed(AsyncLocalValueChangedArgs<SpanContext?> change)
        => Write(change.CurrentValue);

    private static void Write(SpanContext? context)
    {
        NativeCell* cell = own;
        if (cell == null)
        {
            if (context == null || !Library.Found)
                return;
            own = cell = Library.Cell();
            if (cell == null)
                return;
        }
        ulong next = cell->Version + 1;
        NativeSpan* copy = (next & 1) == 0 ? &cell->Even : &cell->Odd;
        if (context == null)
        {
            copy->Span = 0;
            copy->LocalRoot = 0;
        }
        else
        {
            copy->TraceHigh = context.TraceHigh;
            copy->TraceLow = context.TraceLow;
            copy->Span = context.Id;
            copy->LocalRoot = context.LocalRoot;
            copy->Endpoint = context.Endpoint;
        }
        Volatile.Write(ref cell->Version, next);
    }
}
