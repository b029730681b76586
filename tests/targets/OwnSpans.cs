using System;
using System.Collections.Generic;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

// A program without Activity that tells its spans itself: --assembly Clrpulse.Spans.dll, and --native,
// the library made of docs/examples/span.c.
internal sealed class OwnSpansMode : Mode
{
    private readonly string assembly, native;
    private readonly List<Thread> threads = new();
    private volatile bool stop;
    private int imports, orders;
    private string wrong = "";

    public OwnSpansMode(Options options)
    {
        assembly = options.Text("assembly", "");
        native = options.Text("native", "");
    }

    private delegate object Enter(ulong traceHigh, ulong traceLow, ulong span, string? endpoint);

    // As `using (Clrpulse.ThreadSpan.Enter(...))` in a program that has a reference to the assembly.
    private Enter FindEnter()
    {
        MethodInfo enter = Assembly.LoadFrom(assembly).GetType("Clrpulse.ThreadSpan", true)!
            .GetMethod("Enter")!;
        return (high, low, span, endpoint) =>
            enter.Invoke(null, new object?[] { high, low, span, endpoint, 0ul })!;
    }

    public override void Begin()
    {
        stop = false;
        Enter enter = FindEnter();
        OutOfOrder(enter);
        threads.Add(new Thread(() => Import(enter).Wait()));
        threads.Add(new Thread(Orders));
        threads.ForEach(t => t.Start());
    }

    // A span that has ended does not come back, whichever ends first and however often.
    private void OutOfOrder(Enter enter)
    {
        var outer = (IDisposable)enter(1, 1, 0x31, null);
        var inner = (IDisposable)enter(1, 1, 0x32, null);
        Expect(0x32, "two spans");
        outer.Dispose();
        Expect(0x32, "the outer one has ended");
        inner.Dispose();
        Expect(0, "both have ended");
        using (enter(1, 1, 0x33, null) as IDisposable)
        {
            inner.Dispose();
            Expect(0x33, "a span that ended before ends again");
        }
        Expect(0, "after all");
    }

    private void Expect(ulong span, string where)
    {
        if (SpanCell.Span() != span && wrong == "")
            wrong = $"{where}: {SpanCell.Span():x} instead of {span:x}";
    }

    private async Task Import(Enter enter)
    {
        while (!stop)
        {
            using (var scope = (IDisposable)enter(0xa1, 0xb2, 0x1000 + (ulong)imports++, "import"))
            {
                InImport();
                await Task.Yield();
                InImport();
            }
            Outside();
        }
    }

    private unsafe void Orders()
    {
        IntPtr library = NativeLibrary.Load(native);
        var find = (delegate* unmanaged<int>)NativeLibrary.GetExport(library, "orders_find_clrpulse");
        var process = (delegate* unmanaged<ulong, ulong, ulong, ulong, void>)NativeLibrary.GetExport(
            library, "orders_process");
        while (!stop && find() == 0)
            Thread.Sleep(10);
        while (!stop)
        {
            process(0xc3, 0xd4, 0x2000 + (ulong)orders++, 20_000_000);
            Outside();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void InImport() => Burn(10);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Outside() => Burn(5);

    private static void Burn(int ms) => GC.KeepAlive(Work.BurnCpu(1, (ulong)ms * 1_000_000));

    public override void End()
    {
        stop = true;
        threads.ForEach(t => t.Join());
        threads.Clear();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("imports", imports);
        json.WriteNumber("orders", orders);
        json.WriteString("wrong", wrong);
    }
}
