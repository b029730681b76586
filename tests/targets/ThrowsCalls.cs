using System;
using System.Collections.Generic;
using System.Linq;
using System.Linq.Expressions;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.Json;
using System.Text.Json.Serialization;
using System.Text.RegularExpressions;
using System.Threading.Tasks;

namespace ClpTarget;

// Throws below many ways of calling.  Nothing is called in tail position, or its caller would not be
// on the stack.
internal static class Thrower
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Throw(int n) => n < 0 ? n : throw new Thrown(n);

    // Small methods that are optimised at once: without a frame pointer.
    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static int Leaf(int n) => n < 0 ? n : throw new Thrown(n);

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static int Frameless(int n) => Leaf(n) + 1;

    // Many values that live over the call: the registers that a callee has to save.
    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static int Saving(int n)
    {
        int a = n * 3, b = n ^ 77, c = n + 9, d = n - 5, e = n << 2;
        int result = Frameless(n) + 2;
        return result + a + b * c + d * e;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Catch(Func<int, int> call, int n)
    {
        try
        {
            return (ulong)call(n);
        }
        catch (Thrown e)
        {
            return (ulong)e.Value;
        }
    }
}

internal static class GenericThrows
{
    private interface ICall<T>
    {
        int Call<TMore>(T value, TMore more, int n);
        int ByDefault<TMore>(TMore more, int n) => Thrower.Frameless(n) + (more is null ? 1 : 2);
    }

    private readonly struct Value<T> : ICall<T>
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Call<TMore>(T value, TMore more, int n) => Pass<T, TMore>(n) + (more is null ? 1 : 2);
    }

    private class Reference<T> : ICall<T>
    {
        public virtual int Call<TMore>(T value, TMore more, int n) =>
            ((ICall<T>)this).ByDefault(more, n) + 3;
    }

    private sealed class Derived<T> : Reference<List<T>>
    {
        public override int Call<TMore>(List<T> value, TMore more, int n) => base.Call(value, value, n) + 1;
    }

    private sealed class Outer<TOuter>
    {
        public sealed class Inner<TInner>
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            public int Go<T>(T value, int n) where T : ICall<TInner> =>
                value.Call(default(TInner)!, default(TOuter), n) + 1;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Pass<TFirst, TSecond>(int n) =>
        Thrower.Throw(n) + (typeof(TFirst) == typeof(TSecond) ? 1 : 2);

    private static readonly Outer<string>.Inner<string> Shared = new();
    private static readonly Outer<long>.Inner<double> Values = new();
    private static readonly Reference<List<string>> Overridden = new Derived<string>();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Thrower.Catch(n => Shared.Go(default(Value<string>), n) + 1, 1)
        + Thrower.Catch(n => Shared.Go(new Reference<string>(), n) + 1, 2)
        + Thrower.Catch(n => Values.Go(default(Value<double>), n) + 1, 3)
        + Thrower.Catch(n => Values.Go(new Reference<double>(), n) + 1, 4)
        + Thrower.Catch(n => Overridden.Call(null!, "more", n) + 1, 5)
        + Thrower.Catch(n => Overridden.Call<(int, string)>(null!, default, n) + 1, 6);
}

internal static class LinqThrows
{
    private static readonly int[] Numbers = Enumerable.Range(1, 40).ToArray();

    private static IEnumerable<int> Iterate(IEnumerable<int> source)
    {
        try
        {
            foreach (int n in source)
                yield return n == 30 ? Thrower.Saving(n) + 1 : n;
        }
        finally
        {
            Work.Burn(1, 10);
        }
    }

    private sealed class Comparer : IComparer<int>
    {
        public int Compare(int x, int y) => x + y > 70 ? Thrower.Frameless(x) + 1 : x.CompareTo(y);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Thrower.Catch(m => Numbers.Where(n => n % 3 != 0).Select(n => n > m ? Thrower.Throw(n) + 1 : n).Sum() + 1, 20)
        + Thrower.Catch(m => Iterate(Numbers).GroupBy(n => n % m).Count() + 1, 7)
        + Thrower.Catch(m => Numbers.ToDictionary(n => n > m ? Thrower.Leaf(n) + 1 : n).Count + 1, 10)
        + Thrower.Catch(m => Numbers.Aggregate(m, (sum, n) => n > m ? Thrower.Saving(n) + sum : sum + n) + 1, 10)
        + CatchInner(() => Numbers.OrderByDescending(n => n, new Comparer()).First());

    // A sort of the framework wraps what its comparer throws.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong CatchInner(Func<int> call)
    {
        try
        {
            return (ulong)call() + 1;
        }
        catch (Exception e)
        {
            return (ulong)e.Message.Length;
        }
    }
}

internal static class JsonThrows
{
    private sealed record Line(string Article, Price Price);
    private sealed record Order(int Id, List<Line> Lines);

    [JsonConverter(typeof(PriceConverter))]
    private readonly record struct Price(int Cents);

    private sealed class PriceConverter : JsonConverter<Price>
    {
        public override Price Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options) =>
            new(Thrower.Frameless(reader.GetInt32()) + 1);

        public override void Write(Utf8JsonWriter writer, Price value, JsonSerializerOptions options) =>
            writer.WriteNumberValue(Thrower.Saving(value.Cents) + 1);
    }

    // What the converters of the framework look at in their filters is the exception's own code.
    private sealed class Curious : InvalidOperationException
    {
        public override string? Source => $"source {Thrower.Catch(n => Thrower.Saving(n) + 1, 3)}";
    }

    [JsonConverter(typeof(RefusingConverter))]
    private readonly record struct Refused(int Value);

    private sealed class RefusingConverter : JsonConverter<Refused>
    {
        public override Refused Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options) =>
            reader.GetInt32() < 0 ? default : throw new Curious();

        public override void Write(Utf8JsonWriter writer, Refused value, JsonSerializerOptions options) =>
            writer.WriteNumberValue(value.Value);
    }

    private sealed record Odd(Refused Value);

    private static readonly Order Sample = new(1, new() { new("a", new(7)) });
    private const string Text = """{"Id":1,"Lines":[{"Article":"a","Price":7}]}""";

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Thrower.Catch(n => JsonSerializer.Serialize(Sample).Length + n, 1)
        + Thrower.Catch(n => JsonSerializer.Deserialize<Order>(Text)!.Id + n, 2) + CatchCurious();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong CatchCurious()
    {
        try
        {
            return (ulong)JsonSerializer.Deserialize<Odd>("""{"Value":1}""")!.Value.Value;
        }
        catch (Curious e)
        {
            return (ulong)e.Source!.Length;
        }
    }
}

internal static class RegexThrows
{
    private static readonly Regex Compiled = new(@"(\w+)=(\d+)", RegexOptions.Compiled);
    private static readonly Regex Interpreted = new(@"(?<key>\w+)=(?<value>\d+)");

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Thrower.Catch(n => Compiled.Replace("a=1;b=2", m => Evaluate(m, n)).Length + 1, 1)
        + Thrower.Catch(n => Interpreted.Replace("a=1;b=2", m => Evaluate(m, n)).Length + 1, 2);

    private static string Evaluate(Match match, int n) =>
        match.Value[0] == 'b' ? (Thrower.Frameless(n) + 1).ToString() : match.Value;
}

internal static class AsyncThrows
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Thrower.Catch(n => Outer(n).GetAwaiter().GetResult() + 1, 1)
        + Thrower.Catch(n => Task.Run(() => Inner(n)).GetAwaiter().GetResult() + 1, 2);

    private static async Task<int> Outer(int n)
    {
        int sum = 0;
        await foreach (int value in Values(2))
            sum += value;
        return sum + await Middle(n) + 1;
    }

    private static async ValueTask<int> Middle(int n)
    {
        try
        {
            await Task.Yield();
            return await Inner(n) + 1;
        }
        finally
        {
            await Task.Yield();
        }
    }

    private static async Task<int> Inner(int n)
    {
        await Task.Yield();
        return Thrower.Saving(n) + 1;
    }

    private static async IAsyncEnumerable<int> Values(int count)
    {
        for (int i = 0; i < count; i++)
        {
            try
            {
                await Task.Yield();
                Thrower.Frameless(i + 1);
            }
            catch (Thrown)
            {
                await Task.Yield();
            }
            yield return i;
        }
    }
}

internal static class DynamicThrows
{
    private static readonly Func<int, int> Emitted = Emit("EmittedCaller",
        typeof(Thrower).GetMethod(nameof(Thrower.Saving))!, tail: false);
    private static readonly Func<int, int> Tail = Emit("EmittedTail",
        typeof(DynamicThrows).GetMethod(nameof(CalledFromTail))!, tail: true);
    private static readonly Func<int, int> Lambda = MakeLambda();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Thrower.Catch(n => Emitted(n) + 1, 1) + Thrower.Catch(n => Lambda(n) + 1, 2)
        + Thrower.Catch(n => Tail(n) + 1, 3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int CalledFromTail(int n) => Thrower.Frameless(n) + 1;

    // int NAME(int n): target(n) + 1, or an explicit tail call of target(n).
    private static Func<int, int> Emit(string name, MethodInfo target, bool tail)
    {
        var method = new DynamicMethod(name, typeof(int), new[] { typeof(int) }, typeof(Thrower).Module);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldarg_0);
        if (tail)
            il.Emit(OpCodes.Tailcall);
        il.Emit(OpCodes.Call, target);
        if (!tail)
        {
            il.Emit(OpCodes.Ldc_I4_1);
            il.Emit(OpCodes.Add);
        }
        il.Emit(OpCodes.Ret);
        return method.CreateDelegate<Func<int, int>>();
    }

    // Throws by itself, in a catch block of its own.
    private static Func<int, int> MakeLambda()
    {
        ParameterExpression n = Expression.Parameter(typeof(int)), e = Expression.Parameter(typeof(Thrown));
        Expression call = Expression.Add(Expression.Call(typeof(Thrower), nameof(Thrower.Frameless), null, n),
            Expression.Constant(1));
        Expression again = Expression.Throw(e, typeof(int));
        return Expression.Lambda<Func<int, int>>(Expression.TryCatch(call, Expression.Catch(e, again)),
            "ExpressionThrow", new[] { n }).Compile();
    }
}

internal static unsafe class DispatchThrows
{
    private interface IStep
    {
        int Step(int n);
    }

    private sealed class First : IStep
    {
        public int Step(int n) => Thrower.Throw(n) + 1;
    }

    private class Second : IStep
    {
        public virtual int Step(int n) => Thrower.Frameless(n) + 1;
    }

    private sealed class Third : Second
    {
        public override int Step(int n) => base.Step(n) + 1;
    }

    private struct Boxed : IStep
    {
        public int Added { get; init; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Step(int n) => Thrower.Saving(n) + Added;
    }

    private static readonly IStep[] Steps = { new First(), new Second(), new Third(), new Boxed { Added = 1 } };
    private static readonly Func<int, int> Many;
    private static readonly delegate*<int, int> Pointer = &Thrower.Frameless;

    static DispatchThrows()
    {
        Many = n => n + 1;
        Many += Thrower.Saving;
    }

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.Synchronized)]
    private static int Synchronized(int n) => Pointer(n) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        ulong sum = Thrower.Catch(Many, 1) + Thrower.Catch(Synchronized, 2);
        foreach (IStep step in Steps)
        {
            sum += Thrower.Catch(step.Step, 3);
            sum += Thrower.Catch(n => step.Step(n) + 1, 4);
        }
        return sum;
    }
}

internal static class ReflectionThrows
{
    private sealed class Made
    {
        public int Value { get; }

        public Made() => Value = Thrower.Frameless(1) + 1;
    }

    // A type whose initialiser fails: once for each instantiation, then always the same again.
    private static class Uninitialised<T>
    {
        public static readonly int Value = Thrower.Saving(1) + typeof(T).Name.Length;
    }

    private static readonly MethodInfo Method = typeof(Thrower).GetMethod(nameof(Thrower.Saving))!;
    private static readonly object[] One = { 1 };
    private static readonly Func<int, int> Call = Thrower.Frameless;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker) =>
        Catch(() => (int)Method.Invoke(null, One)! + 1)
        + Catch(() => ((Made)Activator.CreateInstance(typeof(Made))!).Value + 1)
        + Catch(() => Activator.CreateInstance<Made>().Value + 1)
        + Catch(() => (int)Call.DynamicInvoke(1)! + 1)
        + Catch(() => Uninitialised<string>.Value + 1)
        + Catch(() => Uninitialised<int>.Value + 1)
        + Catch(() => new Lazy<int>(() => Thrower.Leaf(1) + 1).Value + 1)
        + Catch(() => { Parallel.For(0, 4, n => Thrower.Frameless(n)); return 1; });

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong Catch(Func<int> call)
    {
        try
        {
            return (ulong)call();
        }
        catch (Exception e)
        {
            return (ulong)e.Message.Length;
        }
    }
}

// Managed code under native code under managed code.
internal static unsafe class QsortThrows
{
    private static readonly Native.Comparer Compare = CompareDelegate;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Run(Worker worker)
    {
        int* data = stackalloc int[8] { 3, 7, 1, 5, 8, 2, 6, 4 };
        Native.QsortUnmanaged(data, 8, sizeof(int), &CompareUnmanaged);
        for (int i = 0; i < 8; i++)
            data[i] = 8 - i;
        Native.QsortDelegate(data, 8, sizeof(int), Compare);
        return (ulong)data[0];
    }

    [UnmanagedCallersOnly(CallConvs = new[] { typeof(CallConvCdecl) })]
    private static int CompareUnmanaged(int* left, int* right) => Order(*left, *right) + 0;

    private static int CompareDelegate(int* left, int* right) => Order(*left, *right) + 0;

    // No exception may leave through native code.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int Order(int left, int right) =>
        (int)(Thrower.Catch(Thrower.Saving, left) - Thrower.Catch(n => Thrower.Throw(n) + 1, right));
}
