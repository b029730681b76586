using System;
using System.Threading;

namespace Clrpulse;

/// <summary>
/// For programs that have no System.Diagnostics.Activity: sets the span of the current flow of
/// execution, so that samples carry it. It flows like an AsyncLocal, over await and Task.Run, and
/// ends with the method that set it, or with Dispose. Without a clrpulse library in the process, or
/// while nobody records, it does next to nothing.
/// </summary>
public static class ThreadSpan
{
    /// <summary>
    /// Enters a span. <paramref name="localRoot"/> is the outermost span of this process in the
    /// trace; 0 takes that of the span around this one, or this span itself.
    /// </summary>
    public static Scope Enter(ulong traceHigh, ulong traceLow, ulong span, string? endpoint = null,
        ulong localRoot = 0)
    {
        SpanContext? around = SpanContext.Living(SpanContext.Current);
        if (!Ready() || span == 0 || (traceHigh | traceLow) == 0)
            return new Scope(around, null);
        var entered = new SpanContext(new NativeSpan
        {
            TraceHigh = traceHigh,
            TraceLow = traceLow,
            Span = span,
            LocalRoot = localRoot != 0 ? localRoot : around?.Span.LocalRoot ?? span,
            Endpoint = endpoint == null
                ? around?.Span.Endpoint ?? Library.NoEndpoint : Names.Of(endpoint, DateTime.UtcNow),
        }, around, null);
        SpanContext.Current = entered;
        return new Scope(around, entered);
    }

    /// <summary>Leaves every span.</summary>
    public static void Clear() => SpanContext.Current = null;

    /// <summary>
    /// Ends the span when it is disposed, on every flow; the flow is then in the nearest one around
    /// that has not ended.
    /// </summary>
    public readonly struct Scope : IDisposable
    {
        private readonly SpanContext? around, entered;

        internal Scope(SpanContext? around, SpanContext? entered)
        {
            this.around = around;
            this.entered = entered;
        }

        public void Dispose()
        {
            if (entered == null)
                return;
            entered.End();
            if (ReferenceEquals(SpanContext.Current, entered))
                SpanContext.Current = around;
            else // out of order, or elsewhere: what is current there stays
                SpanContext.Show(SpanContext.Living(SpanContext.Current));
        }
    }

    private static long lookAgainAt;

    // The library may come at any time, and looking for it reads a file.
    private static bool Ready()
    {
        if (Library.Found)
            return Library.Live;
        long now = Environment.TickCount64;
        if (now < Volatile.Read(ref lookAgainAt))
            return false;
        Volatile.Write(ref lookAgainAt, now + 5_000);
        try
        {
            return Library.Find() && Library.Live;
        }
        catch (Exception)
        {
            return false;
        }
    }
}
