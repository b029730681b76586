using System;
using System.Runtime.CompilerServices;
using System.Runtime.Intrinsics;
using System.Threading;

namespace ClpTarget;

// Throws inside of handlers, and below frames of unusual shapes.

// Handlers run on top of the frames that they handle: while they run, those are dead but still there.
internal static class FuncletThrows
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong InCatch(Worker worker) =>
        FromCatch(1) + Nested(4) + Thrower.Catch(n => RethrowInner(n) + 1, 2)
        + Thrower.Catch(n => CatchAndGoOn(n) + 1, 3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong FromCatch(int n)
    {
        try
        {
            try
            {
                return (ulong)Thrower.Saving(n);
            }
            catch (Thrown e)
            {
                throw new OtherThrown(e);
            }
        }
        catch (OtherThrown e)
        {
            return (ulong)e.Message.Length + Thrower.Catch(Thrower.Frameless, n);
        }
    }

    // A chain of handlers, each of which throws for the next one.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Nested(int depth)
    {
        int kept = depth * 3;
        try
        {
            return (ulong)Thrower.Frameless(depth);
        }
        catch (Thrown e)
        {
            ulong below = depth > 0 ? Nested(depth - 1) + 1 : Thrower.Catch(Thrower.Saving, depth);
            return below + (ulong)(e.Value + kept);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Rethrow(int n)
    {
        try
        {
            return (ulong)RethrowInner(n) + 1;
        }
        catch (Thrown e) when (e.Value == n)
        {
            return 1;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int RethrowInner(int n)
    {
        try
        {
            return Thrower.Throw(n) + 1;
        }
        catch (Thrown)
        {
            Work.Burn(1, 10);
            throw;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int CatchAndGoOn(int n)
    {
        int caught = 0;
        for (int i = 0; i < 3; i++)
        {
            try
            {
                Thrower.Frameless(n + i);
            }
            catch (Thrown e)
            {
                caught += e.Value;
            }
        }
        return Thrower.Saving(caught) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong InFinally(Worker worker) =>
        Thrower.Catch(n => Unwinding(n) + 1, 1) + Thrower.Catch(n => Replacing(n) + 1, 2)
        + Thrower.Catch(n => Leaving(n) + 1, 3) + Thrower.Catch(n => NestedFinally(n) + 1, 4);

    // The finally block of an exception that passes: throws and catches by itself.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Unwinding(int n)
    {
        ulong seen = 0;
        try
        {
            return Thrower.Saving(n) + 1;
        }
        finally
        {
            seen += Thrower.Catch(Thrower.Frameless, n);
            seen += Thrower.Catch(m => Thrower.Throw(m) + 1, (int)seen);
        }
    }

    // Its exception takes the place of the first one.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Replacing(int n)
    {
        try
        {
            return Thrower.Frameless(n) + 1;
        }
        finally
        {
            Thrower.Saving(n + 1);
        }
    }

    // Without an exception on the way: the block may be called, or be part of the method.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Leaving(int n)
    {
        int sum = 0;
        for (int i = 0; i < 2; i++)
        {
            try
            {
                sum += n;
                if (sum > 100)
                    return sum;
            }
            finally
            {
                sum += (int)Thrower.Catch(Thrower.Frameless, n);
            }
        }
        return Thrower.Throw(sum) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int NestedFinally(int n)
    {
        try
        {
            try
            {
                return Unwinding(n) + 1;
            }
            finally
            {
                try
                {
                    Thrower.Frameless(n);
                }
                catch (Thrown e)
                {
                    n += (int)Thrower.Catch(Thrower.Saving, e.Value);
                }
            }
        }
        finally
        {
            n += (int)Thrower.Catch(m => Thrower.Throw(m) + 1, n);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong InFilter(Worker worker) =>
        Filtered(1) + Filtered(2) + FilterInHandler(3) + Rethrow(4);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Filtered(int n)
    {
        int kept = n + 5;
        try
        {
            return (ulong)Guarded(n) + 1;
        }
        catch (Thrown e) when (Refuse(e, kept))
        {
            return 1;
        }
        catch (Thrown e) when (Accept(e, kept))
        {
            return (ulong)kept + Thrower.Catch(Thrower.Frameless, kept);
        }
    }

    // Between the throw and its filter: a frame with a finally block.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Guarded(int n)
    {
        try
        {
            return Thrower.Saving(n) + 1;
        }
        finally
        {
            Work.Burn(1, 10);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static bool Accept(Thrown e, int n) =>
        Thrower.Catch(Thrower.Frameless, n) + Thrower.Catch(m => Thrower.Throw(m) + 1, e.Value) != 0;

    // What a filter throws is swallowed by the runtime; the answer is no.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static bool Refuse(Thrown e, int n) => Thrower.Saving(n) + e.Value != 0;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong FilterInHandler(int n)
    {
        try
        {
            return (ulong)Thrower.Frameless(n) + 1;
        }
        catch (Thrown)
        {
            return Filtered(n) + 1;
        }
        finally
        {
            Filtered(n + 1);
        }
    }
}

// Loops that run for as long as the thread works: in the body that on-stack replacement made.
internal static class OsrThrows
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) => (Interlocked.Increment(ref runs) % 3) switch
    {
        0 => Calls(worker, 1) + 1,
        1 => Handles(worker, 2) + 1,
        _ => Large(worker, 3) + 1,
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong RunFilters(Worker worker) => Filters(worker, 4) + 1;

    private const int Rounds = 60_000;
    private static int runs;

    private static bool Again(Worker worker, ref int round) => !worker.Stop && round++ < Rounds;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Calls(Worker worker, ulong x)
    {
        for (int i = 0; Again(worker, ref i);)
        {
            x = Work.Step(x);
            if (i % 100 == 0)
                x += Thrower.Catch(Thrower.Saving, i & 0xff);
        }
        return x;
    }

    // With handlers of its own, which throw as well.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Handles(Worker worker, ulong x)
    {
        for (int i = 0; Again(worker, ref i);)
        {
            try
            {
                x = Work.Step(x);
                if (i % 200 == 0)
                    x += (ulong)Thrower.Frameless(i & 0xff);
            }
            catch (Thrown e)
            {
                x += Thrower.Catch(Thrower.Frameless, e.Value);
            }
            finally
            {
                if (i % 300 == 0)
                    x += Thrower.Catch(n => Thrower.Throw(n) + 1, 7);
            }
        }
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Filters(Worker worker, ulong x)
    {
        for (int i = 0; Again(worker, ref i);)
        {
            try
            {
                x = Work.Step(x);
                if (i % 200 == 0)
                    x += (ulong)Thrower.Frameless(i & 0xff);
            }
            catch (Thrown e) when (Accepts(e))
            {
                x += Thrower.Catch(Thrower.Frameless, e.Value);
            }
        }
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static bool Accepts(Thrown e) => Thrower.Catch(Thrower.Saving, e.Value) != 0 || e.Value >= 0;

    private unsafe struct Values
    {
        public fixed ulong Items[64];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static unsafe ulong Large(Worker worker, ulong x)
    {
        Values values = default;
        for (int i = 0; Again(worker, ref i);)
        {
            x = Work.Step(x + values.Items[i & 63]);
            values.Items[i & 63] = x;
            if (i % 100 == 0)
                x += Thrower.Catch(Thrower.Frameless, i & 0xff);
        }
        return x;
    }
}

internal static class FrameThrows
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Stackalloc(Worker worker)
    {
        ulong sum = 0;
        for (int i = 1; i < 8; i++)
            sum += Allocate(i * 16);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Allocate(int count)
    {
        Span<int> values = stackalloc int[count % 512 + 1];
        try
        {
            values[0] = Thrower.Saving(count);
        }
        catch (Thrown e)
        {
            values[0] = (int)Thrower.Catch(Thrower.Frameless, e.Value);
        }
        return (ulong)values[0] + Thrower.Catch(n => AllocateOptimized(n) + 1, count);
    }

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int AllocateOptimized(int count)
    {
        Span<int> values = stackalloc int[count];
        values[count - 1] = Thrower.Frameless(count);
        return values[count - 1] + values[0];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Frames(Worker worker) =>
        Thrower.Catch(n => Probed(n) + 1, 1) + Thrower.Catch(n => ProbedOptimized(n) + 1, 2)
        + Thrower.Catch(n => ManyArguments(1, 2, 3, 4, 5, 6, 7, 8, 9.0, 10.0f, default, n) + 1, 3)
        + Thrower.Catch(n => Vectors(Vector256.Create(n), Vector512.Create(n), n) + 1, 4)
        + Thrower.Catch(n => ByReference(ref n) + 1, 5) + Thrower.Catch(n => (int)Floats(n, 1.5) + 1, 6);

    private unsafe struct Page
    {
        public fixed byte Bytes[12_000];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static unsafe int Probed(int n)
    {
        Page page = default;
        page.Bytes[n] = (byte)Thrower.Saving(n);
        return page.Bytes[n + 1] + page.Bytes[n];
    }

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static unsafe int ProbedOptimized(int n)
    {
        Page page = default;
        page.Bytes[n] = (byte)Thrower.Frameless(n);
        return page.Bytes[n + 1] + page.Bytes[n];
    }

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int ManyArguments(int a, int b, int c, int d, int e, int f, int g, int h, double i, float j,
        decimal k, int n) => Thrower.Saving(n) + a * b + c * d + e * f + g * h + (int)(i + j) + (int)k;

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int Vectors(Vector256<int> a, Vector512<int> b, int n)
    {
        Vector256<int> c = a + Vector256<int>.One;
        Vector512<int> d = b + Vector512<int>.One;
        return Thrower.Frameless(n) + c[3] + d[7];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int ByReference(ref int n) => Thrower.Frameless(n) + n;

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static double Floats(int n, double x) => Thrower.Leaf(n) + x * x;

    public const int Depth = 900;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Recursion(Worker worker) => Down(Depth) + 1;

    // Caught at its end: an exception that unwinds all of it would take most of the time.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Down(int left)
    {
        if (left > 0)
            return Down(left - 1) + (ulong)left;
        ulong sum = 0;
        for (int i = 0; i < 20; i++)
            sum += Thrower.Catch(Thrower.Saving, i);
        return sum;
    }
}

// Exceptions that the runtime raises.
internal static class RuntimeThrows
{
    private class Node
    {
        public int Value = 1;
        public virtual int Get() => Value;
    }

    private sealed class OtherNode : Node
    {
        public override int Get() => 2;
    }

    private interface IGet
    {
        int Get(int n);
    }

    private static readonly int[] Numbers = { 1, 2, 3 };
    private static Node? none = Environment.ProcessId == 0 ? new Node() : null;
    private static IGet? noGet = none as IGet;
    private static int zero = Numbers.Length - 3;
    private static object text = "text";
    private static object[] strings = new string[4];
    private static int most = int.MaxValue;

    // A signal of the processor in a method without a frame, below another one.
    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int Read(Node? node) => node!.Value;

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int ReadBelow(Node? node) => Read(node) + 1;

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int ReadSaving(Node? node)
    {
        int a = zero * 3, b = zero ^ 77, c = zero + 9, d = zero - 5, e = zero << 2;
        return ReadBelow(node) + a + b * c + d * e;
    }

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    private static int Divide(int n) => n / zero;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Hardware(Worker worker) =>
        Catch(() => ReadSaving(none) + 1) + Catch(() => Read(none) + 1) + Catch(() => none!.Get() + 1)
        + Catch(() => Divide(7) + 1) + Catch(() => 7 % zero + 1) + Catch(() => noGet!.Get(3) + 1)
        + Catch(InHandler);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong HardwareInFilter(Worker worker) => Catch(InFilter) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int InFilter()
    {
        int n = 1;
        try
        {
            n += ReadBelow(none);
        }
        catch (NullReferenceException) when (Catch(() => Divide(1)) > 0)
        {
            n += (int)Catch(() => ReadSaving(none) + 1);
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int InHandler()
    {
        int n = 1;
        try
        {
            n += ReadBelow(none);
        }
        catch (NullReferenceException)
        {
            n += (int)Catch(() => ReadSaving(none) + 1);
        }
        finally
        {
            n += (int)Catch(() => Read(none) + 1);
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Helpers(Worker worker) =>
        Catch(() => ((Node)text).Value + 1) + Catch(() => (int)text + 1)
        + Catch(() => { strings[1] = new Node(); return 1; }) + Catch(() => Numbers[zero - 1] + 1)
        + Catch(() => checked(most + Numbers[0]) + 1) + Catch(() => new int[zero - 1].Length + 1)
        + Catch(() => int.Parse("x") + 1) + Catch(() => "text".Substring(9).Length + 1)
        + Catch(() => ((OtherNode)new Node()).Get() + 1) + Catch(() => (int)Enum.Parse<DayOfWeek>("x") + 1)
        + Catch(() => Array.CreateInstance(typeof(int), zero - 1).Length + 1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Catch(Func<int> call)
    {
        try
        {
            return (ulong)call();
        }
        catch (Exception e)
        {
            return (ulong)e.HResult;
        }
    }
}
