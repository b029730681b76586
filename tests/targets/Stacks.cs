using System;
using System.Collections.Generic;
using System.Linq;
using System.Linq.Expressions;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

// Every way in which managed code commonly builds stacks, one thread each, so that a sample without
// a root can be told by its thread.
internal sealed class StacksMode : Mode
{
    private readonly Crew crew = new();

    public StacksMode(Options options) => _ = options;

    public override void Prepare()
    {
        Add("linq", LinqWork.Run);
        Add("json", JsonWork.Run);
        Add("regex", RegexWork.Run);
        Add("generics", GenericWork.Run);
        Add("async", AsyncWork.Run);
        Add("exceptions", ExceptionWork.Run);
        Add("osr", OsrWork.Run);
        Add("dynamic", DynamicWork.Run);
        Add("dispatch", DispatchWork.Run);
        Add("recursion", RecursionWork.Run);
        Add("stackalloc", StackallocWork.Run);
    }

    private void Add(string name, Func<Worker, ulong> step)
    {
        crew.Add(name, worker =>
        {
            while (!worker.Stop)
            {
                worker.Checksum += step(worker);
                worker.Loops++;
            }
        });
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}

internal static class LinqWork
{
    private static readonly int[] Numbers = Enumerable.Range(1, 4000).ToArray();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) => (ulong)Numbers
        .Where(n => n % 3 != 0)
        .Select(n => new { n, Key = n % 17 })
        .GroupBy(pair => pair.Key)
        .OrderByDescending(group => group.Count())
        .SelectMany(group => group.Select(pair => pair.n * 2))
        .Aggregate(0, (sum, n) => unchecked(sum * 31 + n));
}

internal static class JsonWork
{
    private sealed record Line(string Article, int Quantity, decimal Price, string[] Tags);
    private sealed record Order(int Id, string Customer, List<Line> Lines, DateTime At);

    private static readonly Order Sample = new(42, "Grace", Enumerable.Range(0, 40)
        .Select(i => new Line($"article {i}", i, i * 1.25m, new[] { "a", "b", $"c{i}" })).ToList(),
        new DateTime(2024, 1, 2, 3, 4, 5, DateTimeKind.Utc));

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        string text = JsonSerializer.Serialize(Sample);
        Order back = JsonSerializer.Deserialize<Order>(text)!;
        return (ulong)(text.Length + back.Lines.Count);
    }
}

internal static class RegexWork
{
    private static readonly Regex Compiled =
        new(@"(\w+)@(\w+)\.(com|org)|(\d{1,3}\.){3}\d{1,3}", RegexOptions.Compiled);
    private static readonly Regex Interpreted = new(@"(?<key>\w+)=(?<value>[^;]*);?");
    private static readonly string Text = string.Concat(Enumerable.Repeat(
        "name=value;mail=somebody@example.org;address=10.20.30.40;rest of the line ", 60));

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        ulong found = 0;
        foreach (Match match in Compiled.Matches(Text))
            found += (ulong)match.Length;
        foreach (Match match in Interpreted.Matches(Text))
            found += (ulong)match.Groups["value"].Length;
        return found;
    }
}

internal static class GenericWork
{
    private interface IShape<T>
    {
        T Area(T scale);
    }

    private readonly struct Square : IShape<double>
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public double Area(double scale) => scale * scale + 1;
    }

    private sealed class Box<TKey, TValue> where TKey : notnull
    {
        private readonly Dictionary<TKey, List<TValue>> values = new();

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Put<TMore>(TKey key, TValue value, TMore more)
        {
            if (!values.TryGetValue(key, out List<TValue>? list))
                values[key] = list = new List<TValue>();
            if (list.Count > 100)
                list.Clear();
            list.Add(value);
            return list.Count + (more is null ? 1 : 0);
        }
    }

    private static readonly Box<string, Square> Strings = new();
    private static readonly Box<long, string> Longs = new();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static T Sum<T, TShape>(TShape shape, T scale, Func<T, T, T> add, int count) where TShape : IShape<T>
    {
        T sum = scale;
        for (int i = 0; i < count; i++)
            sum = add(sum, shape.Area(scale));
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        ulong result = (ulong)Sum<double, Square>(default, 2.0, (a, b) => a + b, 2000);
        for (int i = 0; i < 500; i++)
        {
            result += (ulong)Strings.Put("key" + i % 7, default, new object());
            result += (ulong)Longs.Put<string?>(i % 5, "value", null);
        }
        return result;
    }
}

internal static class AsyncWork
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) => Outer(8).GetAwaiter().GetResult();

    private static async Task<ulong> Outer(int rounds)
    {
        ulong sum = 0;
        for (int i = 0; i < rounds; i++)
            sum += Work.Burn((ulong)i, 100_000) + await Middle(i);
        await foreach (ulong value in Values(12))
            sum += value;
        return sum;
    }

    private static async ValueTask<ulong> Middle(int i)
    {
        await Task.Yield();
        return Work.Burn((ulong)i, 100_000) + await Inner(i);
    }

    private static async Task<ulong> Inner(int i)
    {
        return Work.Burn((ulong)i, 100_000) + await Task.Run(() => Work.Burn(7, 100_000));
    }

    private static async IAsyncEnumerable<ulong> Values(int count)
    {
        for (int i = 0; i < count; i++)
        {
            await Task.Yield();
            yield return Work.Burn((ulong)i, 100_000);
        }
    }
}

internal static class ExceptionWork
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        ulong sum = 0;
        try
        {
            sum += Guarded(worker.Loops);
        }
        catch (InvalidOperationException e)
        {
            sum += InCatch(e);
        }
        return sum + Nested(worker.Loops);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Guarded(long n)
    {
        try
        {
            return Thrower(n);
        }
        catch (ArgumentException e) when (InFilter(e))
        {
            return 1;
        }
        finally
        {
            InFinally((ulong)n);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Thrower(long n)
    {
        if (n % 2 == 0)
            throw new ArgumentException("even");
        throw new InvalidOperationException("odd");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static bool InFilter(Exception e) => Work.Burn((ulong)e.Message.Length, 20_000) != 0;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong InCatch(Exception e) => Work.Burn((ulong)e.Message.Length, 20_000);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong InFinally(ulong n) => Work.Burn(n, 20_000);

    // A throw inside a catch block, with a finally on the way.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Nested(long n)
    {
        try
        {
            try
            {
                return Thrower(n | 1);
            }
            catch (InvalidOperationException e)
            {
                InCatch(e);
                throw new ArgumentException("from a catch", e);
            }
            finally
            {
                InFinally(3);
            }
        }
        catch (ArgumentException e)
        {
            return InCatch(e);
        }
    }
}

internal static class OsrWork
{
    // Generic instantiations over fresh types would be needed for many OSR bodies; here the loop is
    // just long enough for the first call, and later calls run what the tiering made of it.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) => LongLoop(worker, 3) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong LongLoop(Worker worker, ulong x)
    {
        while (!worker.Stop)
        {
            for (int i = 0; i < 1000; i++)
                x = Work.Step(x);
            worker.Loops++;
        }
        return x;
    }
}

internal static class DynamicWork
{
    private static readonly Func<ulong, int, ulong> Lambda = MakeLambda();
    private static readonly Func<ulong, int, ulong> Method = MakeMethod();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) => Lambda(3, 20_000) + Method(5, 20_000);

    private static Func<ulong, int, ulong> MakeLambda()
    {
        ParameterExpression x = Expression.Parameter(typeof(ulong)), n = Expression.Parameter(typeof(int));
        LabelTarget end = Expression.Label(typeof(ulong));
        Expression step = Expression.Assign(x, Expression.Add(Expression.Multiply(x,
            Expression.Constant(6364136223846793005ul)), Expression.Constant(1442695040888963407ul)));
        Expression loop = Expression.Loop(Expression.IfThenElse(
            Expression.GreaterThan(Expression.PostDecrementAssign(n), Expression.Constant(0)),
            step, Expression.Break(end, x)), end);
        return Expression.Lambda<Func<ulong, int, ulong>>(loop, "ExpressionLoop", new[] { x, n }).Compile();
    }

    private static Func<ulong, int, ulong> MakeMethod() =>
        Emitted.Loop("DynamicLoop").CreateDelegate<Func<ulong, int, ulong>>();
}

internal static class Emitted
{
    // ulong NAME(ulong x, int n): n steps of a linear congruential generator.
    public static DynamicMethod Loop(string name)
    {
        var method = new DynamicMethod(name, typeof(ulong), new[] { typeof(ulong), typeof(int) },
            typeof(Emitted).Module);
        ILGenerator il = method.GetILGenerator();
        Label again = il.DefineLabel();
        il.MarkLabel(again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I8, 6364136223846793005);
        il.Emit(OpCodes.Mul);
        il.Emit(OpCodes.Ldc_I8, 1442695040888963407);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Starg_S, (byte)0);
        il.Emit(OpCodes.Ldarg_1);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Sub);
        il.Emit(OpCodes.Starg_S, (byte)1);
        il.Emit(OpCodes.Ldarg_1);
        il.Emit(OpCodes.Ldc_I4_0);
        il.Emit(OpCodes.Bgt, again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ret);
        return method;
    }

    // ulong NAME(ulong x, int n): n calls of `inner`, then one more step that keeps it no tail call.
    public static DynamicMethod Caller(string name, DynamicMethod inner, int innerSteps)
    {
        var method = new DynamicMethod(name, typeof(ulong), new[] { typeof(ulong), typeof(int) },
            typeof(Emitted).Module);
        ILGenerator il = method.GetILGenerator();
        Label again = il.DefineLabel();
        il.MarkLabel(again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4, innerSteps);
        il.Emit(OpCodes.Call, inner);
        il.Emit(OpCodes.Starg_S, (byte)0);
        il.Emit(OpCodes.Ldarg_1);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Sub);
        il.Emit(OpCodes.Starg_S, (byte)1);
        il.Emit(OpCodes.Ldarg_1);
        il.Emit(OpCodes.Ldc_I4_0);
        il.Emit(OpCodes.Bgt, again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4_3);
        il.Emit(OpCodes.Conv_I8);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
        return method;
    }
}

internal static class DispatchWork
{
    private interface IStep
    {
        ulong Step(ulong x);
    }

    private sealed class Add : IStep
    {
        public ulong Step(ulong x) => Work.Burn(x + 1, 50);
    }

    private sealed class Mix : IStep
    {
        public ulong Step(ulong x) => Work.Burn(x ^ 77, 50);
    }

    private class Rotate : IStep
    {
        public virtual ulong Step(ulong x) => Work.Burn(x << 3, 50);
    }

    private sealed class RotateMore : Rotate
    {
        public override ulong Step(ulong x) => base.Step(x) + 5;
    }

    private static readonly IStep[] Steps = { new Add(), new Mix(), new Rotate(), new RotateMore() };
    private static event Func<ulong, ulong> Handlers = x => x + 1;

    static DispatchWork()
    {
        Handlers += x => Work.Burn(x, 50);
        Handlers += Steps[3].Step;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        ulong x = 1;
        for (int i = 0; i < 1000; i++)
            x = Handlers(Steps[i & 3].Step(x));
        return x;
    }
}

internal static class RecursionWork
{
    public const int Depth = 900;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) => Down(Depth) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Down(int left) => left == 0 ? Work.Burn(9, 200_000) : Down(left - 1) + (ulong)left;
}

internal static class StackallocWork
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        ulong sum = 0;
        for (int i = 1; i < 200; i++)
            sum += Fill(i * 16);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Fill(int count)
    {
        Span<ulong> values = stackalloc ulong[count % 512 + 1];
        for (int i = 0; i < values.Length; i++)
            values[i] = Work.Step((ulong)i);
        return Sum(values) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Sum(Span<ulong> values)
    {
        ulong sum = 0;
        foreach (ulong value in values)
            sum = Work.Burn(sum + value, 10);
        return sum;
    }
}
