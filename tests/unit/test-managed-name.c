/* Raw names as compilers and the runtime make them (taken from the metadata of compiled programs)
 * and what people are to see. */
#include "tests/unit/clp-cmocka.h"

#include "sampler/symbols/managed_name.h"
#include "wire/wire.h"

#include <string.h>

#define OVER CLP_METHOD_OVERLOADED
#define ASYNC CLP_METHOD_ASYNC
#define ITER CLP_METHOD_ITERATOR
#define STUB CLP_METHOD_STUB
#define DYN CLP_METHOD_DYNAMIC

#define FILE_PREFIX "<Program>FA38B9581129E690FF975C47A3D3CEA92180E5E31A81D05E84000F81BB923D581__"

static const struct {
    const char *type, *name, *type_args, *method_args, *signature;
    unsigned flags;
    const char *shown;
} cases[] = {
    /* Types, nesting, generics. */
    {"Ns.Outer+Inner", "Method", "", "", "", 0, "Ns.Outer.Inner.Method"},
    {"Global", "Method", "", "", "", 0, "Global.Method"},
    {"", "GlobalFunction", "", "", "", 0, "GlobalFunction"},
    {"System.Collections.Generic.List`1", "Add", "System.Int32", "", "!0", 0,
     "System.Collections.Generic.List<int>.Add"},
    {"System.Collections.Generic.List`1", "Add", "System.__Canon", "", "!0", 0,
     "System.Collections.Generic.List<T>.Add"},
    {"System.Collections.Generic.List`1", "Add", "", "", "!0", 0,
     "System.Collections.Generic.List<T>.Add"},
    {"System.Collections.Generic.Dictionary`2", "TryAdd", "System.__Canon,System.__Canon", "", "",
     0, "System.Collections.Generic.Dictionary<T1, T2>.TryAdd"},
    {"System.Collections.Generic.Dictionary`2", "TryAdd",
     "System.__Canon:TKey,System.__Canon:TValue", "", "", 0,
     "System.Collections.Generic.Dictionary<TKey, TValue>.TryAdd"},
    {"System.Collections.Generic.Dictionary`2", "TryAdd", "System.Int32,System.__Canon", "", "", 0,
     "System.Collections.Generic.Dictionary<int, T2>.TryAdd"},
    {"Shop.Orders.Box`1+Inner`1", "Put", "System.Int32,System.String", "", "", 0,
     "Shop.Orders.Box<int>.Inner<string>.Put"},
    {"Shop.Orders.Box`1+Inner`1", "Put", "", "", "", 0, "Shop.Orders.Box<T1>.Inner<T2>.Put"},
    {"Shop.Orders.Box`1+Enumerator", "MoveNext", "System.Double", "", "", 0,
     "Shop.Orders.Box<double>.Enumerator.MoveNext"},
    {"System.Linq.Enumerable", "ToList", "", "Shop.Orders.Money", "", 0,
     "System.Linq.Enumerable.ToList<Money>"},
    {"System.Linq.Enumerable", "Select", "", "System.__Canon,System.__Canon", "", 0,
     "System.Linq.Enumerable.Select<T1, T2>"},
    {"System.Linq.Enumerable", "ToList", "", "System.__Canon:TSource", "", 0,
     "System.Linq.Enumerable.ToList<TSource>"},
    {"System.Collections.Generic.List`1", "ConvertAll", "System.__Canon", "System.__Canon", "", 0,
     "System.Collections.Generic.List<T>.ConvertAll<U>"},
    {"A.B`1", "M", "System.Nullable`1[System.Int32]", "", "", 0, "A.B<int?>.M"},
    {"A.B`1", "M", "System.ValueTuple`2[System.Int32,System.__Canon]", "", "", 0,
     "A.B<(int, T2)>.M"},
    {"A.B`1", "M",
     "System.ValueTuple`8[System.Int32,System.Int32,System.Int32,System.Int32,System.Int32,"
     "System.Int32,System.Int32,System.ValueTuple`2[System.String,System.Byte]]",
     "", "", 0, "A.B<(int, int, int, int, int, int, int, string, byte)>.M"},
    {"A.B`1", "M", "System.ValueTuple`1[System.Int32]", "", "", 0, "A.B<ValueTuple<int>>.M"},
    {"A.B`1", "M", "System.Collections.Generic.List`1[System.Int32[,][]]", "", "", 0,
     "A.B<List<int[][,]>>.M"},
    {"A.B`1", "M", "N.Outer`1+Inner`1[System.Char,System.Boolean]", "", "", 0,
     "A.B<Outer<char>.Inner<bool>>.M"},
    {"A.B`1", "M", "[System.Int32, System.Private.CoreLib, Version=10.0.0.0]", "", "", 0,
     "A.B<int>.M"},
    {"System.Int32[,]", "Get", "", "", "System.Int32,System.Int32", 0, "System.Int32[,].Get"},
    {"System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1", "MoveNext",
     "System.Threading.Tasks.VoidTaskResult,Shop.Worker+<RunAsync>d__37", "", "", 0,
     "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<VoidTaskResult>"
     ".AsyncStateMachineBox<Worker.RunAsync>.MoveNext"},
    {"System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1", "MoveNext",
     "System.Int32,Shop.Worker+<>c__DisplayClass3_0+<<Run>b__0>d", "", "", 0,
     "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<int>"
     ".AsyncStateMachineBox<Worker.Run.lambda#0>.MoveNext"},

    /* Overloads. */
    {"Shop.Orders.Worker", "Over", "", "", "System.Int32", OVER, "Shop.Orders.Worker.Over(int)"},
    {"Shop.Orders.Worker", "Over", "", "", "System.Int32", 0, "Shop.Orders.Worker.Over"},
    {"Shop.Orders.Worker", "Over", "", "", "", OVER, "Shop.Orders.Worker.Over()"},
    {"Shop.Orders.Worker", "Over", "", "",
     "System.String,System.Int32&,System.Int64&,System.Nullable`1[System.Int32],System.Int32[,],"
     "System.Int32[][],System.ValueTuple`2[System.Int32,System.String]",
     OVER,
     "Shop.Orders.Worker.Over(string, ref int, ref long, int?, int[,], int[][], (int, string))"},
    {"W", "Ptr", "", "", "System.Int32*,System.Void**,System.IntPtr,System.Byte*[]&", OVER,
     "W.Ptr(int*, void**, nint, ref byte*[])"},
    {"W", "Call", "", "",
     "System.Void(System.Int32,System.Byte*),System.Int32(),System.IntPtr()*[]", OVER,
     "W.Call(delegate*<int, byte*, void>, delegate*<int>, delegate*<nint>*[])"},
    {"W", "All", "", "",
     "System.Boolean,System.SByte,System.Char,System.Decimal,System.Single,System.UInt32,"
     "System.UIntPtr,System.UInt64,System.Int16,System.UInt16,System.Object",
     OVER, "W.All(bool, sbyte, char, decimal, float, uint, nuint, ulong, short, ushort, object)"},
    {"System.Collections.Generic.Dictionary`2", "Remove", "System.Int32,System.__Canon", "",
     "!0,!1&", OVER, "System.Collections.Generic.Dictionary<int, T2>.Remove(int, ref T2)"},
    {"System.Linq.Enumerable", "Select", "", "System.Int32,System.__Canon:TResult",
     "System.Collections.Generic.IEnumerable`1[!!0],System.Func`2[!!0,!!1]", OVER,
     "System.Linq.Enumerable.Select<int, TResult>(IEnumerable<int>, Func<int, TResult>)"},

    /* Constructors, properties, indexers, events, operators, finalizers. */
    {"Shop.Orders.Worker", ".ctor", "", "", "", 0, "Shop.Orders.Worker..ctor"},
    {"Shop.Orders.Worker", ".ctor", "", "", "System.Int32,System.String", OVER,
     "Shop.Orders.Worker..ctor(int, string)"},
    {"Shop.Orders.Worker", ".cctor", "", "", "", 0, "Shop.Orders.Worker..cctor"},
    {"Shop.Orders.Worker", "get_Count", "", "", "", 0, "Shop.Orders.Worker.Count.get"},
    {"Shop.Orders.Worker", "set_Count", "", "", "System.Int32", 0, "Shop.Orders.Worker.Count.set"},
    {"Shop.Orders.Worker", "get_Item", "", "", "System.Int32,System.String", 0,
     "Shop.Orders.Worker.this[int, string].get"},
    {"Shop.Orders.Worker", "set_Item", "", "", "System.Int32,System.String,System.String", OVER,
     "Shop.Orders.Worker.this[int, string].set"},
    {"System.Collections.Generic.List`1", "get_Item", "System.__Canon", "", "System.Int32", 0,
     "System.Collections.Generic.List<T>.this[int].get"},
    {"Shop.Node", "get_Item", "", "", "", 0, "Shop.Node.Item.get"},
    {"Shop.Node", "set_Item", "", "", "System.Int32", 0, "Shop.Node.Item.set"},
    {"Shop.Orders.Worker", "add_Changed", "", "", "System.Action", 0,
     "Shop.Orders.Worker.Changed.add"},
    {"Shop.Orders.Worker", "remove_Changed", "", "", "System.Action", 0,
     "Shop.Orders.Worker.Changed.remove"},
    {"Shop.Orders.Worker", "get_", "", "", "", 0, "Shop.Orders.Worker.get_"},
    {"Shop.Orders.Money", "op_Equality", "", "", "", 0, "Shop.Orders.Money.operator =="},
    {"Shop.Orders.Money", "op_Implicit", "", "", "System.Int32", OVER,
     "Shop.Orders.Money.implicit operator(int)"},
    {"Shop.Orders.Money", "op_UnsignedRightShift", "", "", "", 0, "Shop.Orders.Money.operator >>>"},
    {"Shop.Orders.Money", "op_CheckedAddition", "", "", "", 0,
     "Shop.Orders.Money.operator checked +"},
    {"Shop.Orders.Money", "op_Custom", "", "", "", 0, "Shop.Orders.Money.op_Custom"},
    {"Shop.Orders.Worker", "Finalize", "", "", "", 0, "Shop.Orders.Worker.Finalize"},
    {"Shop.Orders.Money", "<Clone>$", "", "", "", 0, "Shop.Orders.Money.Clone"},

    /* Explicit implementations. */
    {"Shop.Orders.Worker", "System.IDisposable.Dispose", "", "", "", 0,
     "Shop.Orders.Worker.IDisposable.Dispose"},
    {"Shop.Orders.Worker", "System.Collections.Generic.IEnumerable<System.Int32>.GetEnumerator", "",
     "", "", 0, "Shop.Orders.Worker.IEnumerable<int>.GetEnumerator"},
    {"<>z__ReadOnlyArray`1", "System.Collections.Generic.IList<T>.get_Item", "System.Int32", "",
     "System.Int32", 0, "ReadOnlyArray<int>.IList<T>.this[int].get"},
    {"A.Map",
     "System.Collections.Generic.IDictionary<System.String,System.ValueTuple<System.Int32,System."
     "Byte>>.Add",
     "", "", "", 0, "A.Map.IDictionary<string, (int, byte)>.Add"},

    /* Lambdas: the method's number only where the method has overloads. */
    {"Shop.Orders.Worker+<>c", "<RunAsync>b__37_2", "", "", "", 0,
     "Shop.Orders.Worker.RunAsync.lambda#2"},
    {"Shop.Orders.Worker+<>c", "<Over>b__34_1", "", "", "", OVER,
     "Shop.Orders.Worker.Over.lambda#34_1"},
    {"Shop.Orders.Worker+<>c__DisplayClass34_0", "<Over>b__0", "", "", "", OVER,
     "Shop.Orders.Worker.Over.lambda#34_0"},
    {"Shop.Orders.Worker+<>c__DisplayClass34_0", "<Over>b__0", "", "", "", 0,
     "Shop.Orders.Worker.Over.lambda#0"},
    {"Shop.Orders.Prim", "<F>b__3_0", "", "", "", 0, "Shop.Orders.Prim.F.lambda#0"},
    {"Shop.Orders.Worker+<>c", "<get_Prop2>b__41_0", "", "", "", 0,
     "Shop.Orders.Worker.Prop2.get.lambda#0"},
    {"Shop.Orders.Worker+<>c", "<.ctor>b__14_1", "", "", "", 0,
     "Shop.Orders.Worker..ctor.lambda#1"},
    {"Shop.Orders.Worker+<>c", "<.cctor>b__15_0", "", "", "", 0,
     "Shop.Orders.Worker..cctor.lambda#0"},
    {"Shop.Orders.Worker+<>c", "<System.IDisposable.Dispose>b__5_0", "", "", "", 0,
     "Shop.Orders.Worker.IDisposable.Dispose.lambda#0"},
    {"Shop.Orders.Worker+<>c__39`2", "<Gen>b__39_1", "System.Int32,System.__Canon", "", "", 0,
     "Shop.Orders.Worker.Gen<int, T2>.lambda#1"},
    {"Shop.Orders.Box`1+Inner`1+<>c__DisplayClass1_0`1", "<GetAsync>b__0",
     "System.Int32,System.Byte,System.__Canon:TExtra", "", "", 0,
     "Shop.Orders.Box<int>.Inner<byte>.GetAsync<TExtra>.lambda#0"},
    {"Shop.Orders.Worker+<>c", ".cctor", "", "", "", 0, "Shop.Orders.Worker.closure..cctor"},
    {"Shop.Orders.Worker+<>c__39`2", ".ctor", "System.Int32,System.Byte", "", "", 0,
     "Shop.Orders.Worker.closure<int, byte>..ctor"},
    {"Shop.Orders.Worker+<>c__DisplayClass3_0#1", "<M>b__0#1", "", "", "", 0,
     "Shop.Orders.Worker.M.lambda#0#1"},

    /* Local functions. */
    {"Shop.Orders.Worker+<>c__DisplayClass37_0", "<RunAsync>g__Plain|1", "", "", "System.Int32", 0,
     "Shop.Orders.Worker.RunAsync.Plain"},
    {"Shop.Orders.Worker", "<RunAsync>g__Plain|37_1", "", "", "System.Int32", 0,
     "Shop.Orders.Worker.RunAsync.Plain"},
    {"Shop.Orders.Worker", "<Over>g__Plain|34_1", "", "", "System.Int32", OVER,
     "Shop.Orders.Worker.Over.Plain#34_1"},
    {"Shop.Orders.Worker+<>c__DisplayClass39_0`2", "<Gen>g__L|2", "System.Int32,System.Byte",
     "System.String", "", 0, "Shop.Orders.Worker.Gen<int, byte>.L<string>"},

    /* State machines. */
    {"Shop.Orders.Worker+<RunAsync>d__37", "MoveNext", "", "", "", ASYNC,
     "Shop.Orders.Worker.RunAsync (async)"},
    {"Shop.Orders.Box`1+<Walk>d__2", "MoveNext", "System.Int32", "", "", ITER,
     "Shop.Orders.Box<int>.Walk (iterator)"},
    {"Shop.Orders.Worker+<StreamAsync>d__38", "MoveNext", "", "", "", ASYNC | ITER,
     "Shop.Orders.Worker.StreamAsync (async iterator)"},
    {"Shop.Orders.Worker+<RunAsync>d__37", "MoveNext", "", "", "", 0,
     "Shop.Orders.Worker.RunAsync (state machine)"},
    {"Shop.Orders.Worker+<Over>d__36", "MoveNext", "", "", "", ASYNC | OVER,
     "Shop.Orders.Worker.Over (async #36)"},
    {"Shop.Orders.Worker+<RunAsync>d__37", "SetStateMachine", "", "", "", ASYNC,
     "Shop.Orders.Worker.RunAsync.SetStateMachine (async)"},
    {"Shop.Orders.Box`1+Inner`1+<GetAsync>d__1`1", "MoveNext",
     "System.Int32,System.Byte,System.Char", "", "", ASYNC,
     "Shop.Orders.Box<int>.Inner<byte>.GetAsync<char> (async)"},
    {"Shop.Orders.Worker+<>c+<<RunAsync>b__37_2>d", "MoveNext", "", "", "", ASYNC,
     "Shop.Orders.Worker.RunAsync.lambda#2 (async)"},
    {"Shop.Orders.Worker+<>c+<<Over>b__37_2>d", "MoveNext", "", "", "", ASYNC | OVER,
     "Shop.Orders.Worker.Over.lambda#37_2 (async)"},
    {"Shop.Orders.Worker+<>c__DisplayClass37_0+<<RunAsync>b__3>d`1", "MoveNext", "System.Int32", "",
     "", ASYNC | OVER, "Shop.Orders.Worker.RunAsync.lambda#37_3<int> (async)"},
    {"Shop.Orders.Worker+<>c__DisplayClass37_0+<<RunAsync>g__LocalAsync|0>d`1", "MoveNext", "", "",
     "", ASYNC, "Shop.Orders.Worker.RunAsync.LocalAsync<T> (async)"},
    {"Shop.Orders.Box`1+<Walk>d__2", "<>m__Finally1", "System.Int32", "", "", ITER,
     "Shop.Orders.Box<int>.Walk.finally#1 (iterator)"},
    {"Shop.Orders.Box`1+<Walk>d__2", "System.Collections.IEnumerator.get_Current", "System.Int32",
     "", "", ITER, "Shop.Orders.Box<int>.Walk.IEnumerator.Current.get (iterator)"},
    {"Shop.Orders.Worker+<System-Collections-Generic-IEnumerable<System-Int32>-GetEnumerator>d__33",
     "MoveNext", "", "", "", ITER, "Shop.Orders.Worker.IEnumerable<int>.GetEnumerator (iterator)"},
    {"Shop.Orders.Derived", "<>n__0", "", "", "", 0, "Shop.Orders.Derived.base#0"},

    /* Top-level statements. */
    {"Program", "<Main>$", "", "", "System.String[]", 0, "Program.Main"},
    {"Program", "<Main>", "", "", "System.String[]", 0, "Program.<Main>"},
    {"Program", "<<Main>$>g__TopLocal|0_0", "", "", "", 0, "Program.Main.TopLocal"},
    {"Program+<>c", "<<Main>$>b__0_1", "", "", "", 0, "Program.Main.lambda#1"},
    {"Program+<<Main>$>d__0", "MoveNext", "", "", "", ASYNC, "Program.Main (async)"},
    {"Program+<>c+<<<Main>$>b__0_1>d", "MoveNext", "", "", "", ASYNC,
     "Program.Main.lambda#1 (async)"},

    /* Types that only the compiler named. */
    {"Shop.Orders." FILE_PREFIX "Hidden", "M", "", "", "", 0, "Shop.Orders.Hidden.M"},
    {"Shop.Orders." FILE_PREFIX "Hidden`1+Runner", "Scan", "System.Int32", "", "", 0,
     "Shop.Orders.Hidden<int>.Runner.Scan"},
    {"<>f__AnonymousType0`2", "Equals", "System.Int32,System.__Canon:<B>j__TPar", "",
     "System.Object", 0, "AnonymousType0<int, <B>j__TPar>.Equals"},
    {"<>f__AnonymousDelegate0`3", "Invoke", "", "", "", 0, "AnonymousDelegate0<T1, T2, T3>.Invoke"},
    {"<>y__InlineArray4`1", "get_Item", "System.Byte", "", "", 0, "InlineArray4<byte>.Item.get"},
    {"<PrivateImplementationDetails>", "ComputeStringHash", "", "", "System.String", 0,
     "<PrivateImplementationDetails>.ComputeStringHash"},
    {"<Module>", ".cctor", "", "", "", 0, "<Module>..cctor"},
    {"Shop.<Program>FA38__Hidden", "M", "", "", "", 0, "Shop.<Program>FA38__Hidden.M"},

    /* Visual Basic and F#. */
    {"App.Form+VB$StateMachine_3_Load_Data", "MoveNext", "", "", "", ASYNC,
     "App.Form.Load_Data (async)"},
    {"App.Form+_Closure$__3-0", "_Lambda$__3-0", "", "", "", 0, "App.Form.lambda#3-0"},
    {"Program+work@12", "MoveNext", "", "", "", ASYNC, "Program.work@12 (async)"},
    {"Tasks+Builder-Merge@663-10", "MoveNext", "", "", "", ASYNC,
     "Tasks.Builder.Merge@663-10 (async)"},
    {"Program+clo@12-1", "Invoke", "", "", "", 0, "Program.clo@12-1.Invoke"},
    {"Module", "|Even|Odd|", "", "", "System.Int32", 0, "Module.|Even|Odd|"},

    /* Stubs and dynamic methods. */
    {"", "IL_STUB_PInvoke", "", "", "System.Int32,System.Byte*", STUB,
     "[P/Invoke stub] (int, byte*)"},
    {"", "IL_STUB_ReversePInvoke", "", "", "", STUB, "[reverse P/Invoke stub]"},
    {"ILStubClass", "IL_STUB_InstantiatingStub", "", "", "", 0, "[instantiating stub]"},
    {"", "IL_STUB_MulticastDelegate_Invoke", "", "", "System.Object", STUB | DYN,
     "[multicast delegate stub] (object)"},
    {"", "IL_STUB_SomethingNew", "", "", "", STUB, "[stub] SomethingNew"},
    {"", "IL_STUB", "", "", "", STUB, "[stub]"},
    {"", "lambda_method1", "", "", "System.Runtime.CompilerServices.Closure,System.Int32", DYN,
     "lambda_method1"},
    {"", "Regex1_TryMatchAtCurrentPosition", "", "", "", DYN, "Regex1_TryMatchAtCurrentPosition"},
    {"(dynamicClass)", "InvokeStub_Console.WriteLine", "", "", "", DYN,
     "InvokeStub_Console.WriteLine"},
    {"dynamicClass", "Run", "", "", "System.Int32", DYN | OVER, "Run(int)"},

    /* What is not known is shown as it is. */
    {"Ns.<Odd", "M", "", "", "", 0, "Ns.<Odd.M"},
    {"Ns.A`", "M", "", "", "", 0, "Ns.A`.M"},
    {"Ns.A`x", "M`2", "", "", "", 0, "Ns.A`x.M`2"},
    {"Ns.A+<M>q__3", "<M>x__4", "", "", "", 0, "Ns.A.<M>q__3.<M>x__4"},
    {"Ns.A", "", "", "", "", 0, "Ns.A."},
    {"", "", "", "", "", 0, ""},
    {"Ns.Ünï`1", "Größe", "System.Int32", "", "", 0, "Ns.Ünï<int>.Größe"},
    {"Ns.A", "line\nbreak\x7f", "", "", "", 0, "Ns.A.line?break?"},
    {"Ns.A", "\xc2\x85\xff", "", "", "", 0, "Ns.A.??\xef\xbf\xbd"},
};

static struct clp_name_text text(const char *s)
{
    return (struct clp_name_text){.at = s, .len = strlen(s)};
}

static void shows_what_people_wrote(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        struct clp_managed_raw raw = {
            .type = text(cases[i].type),
            .name = text(cases[i].name),
            .type_args = text(cases[i].type_args),
            .method_args = text(cases[i].method_args),
            .signature = text(cases[i].signature),
            .flags = (uint16_t)cases[i].flags,
        };
        char buf[CLP_NAME_MAX];
        clp_managed_name(&raw, buf, sizeof(buf));
        assert_string_equal(buf, cases[i].shown);
    }
}

static void system_name_keeps_metadata(void **state)
{
    (void)state;
    struct clp_managed_raw raw = {
        .type = text("Ns.Outer`1+Inner`1"),
        .name = text("Method"),
        .type_args = text("System.Int32,N.A`2[System.__Canon:TKey,System.__Canon:TValue]"),
        .method_args = text("System.__Canon:T"),
        .signature = text("System.Int32,!0"),
    };
    char buf[CLP_NAME_MAX];
    clp_managed_system_name(&raw, buf, sizeof(buf));
    assert_string_equal(buf, "Ns.Outer`1+Inner`1[System.Int32,N.A`2[System.__Canon,System.__Canon]]"
                             ".Method[System.__Canon](System.Int32,!0)");
    raw = (struct clp_managed_raw){.name = text("IL_STUB_PInvoke")};
    clp_managed_system_name(&raw, buf, sizeof(buf));
    assert_string_equal(buf, "IL_STUB_PInvoke()");
}

static void long_names_end_in_dots(void **state)
{
    (void)state;
    char name[3000], buf[CLP_NAME_MAX], small[8];
    for (size_t i = 0; i < sizeof(name); i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    struct clp_managed_raw raw = {.type = text("A"), .name = {name, sizeof(name)}};
    clp_managed_name(&raw, buf, sizeof(buf));
    size_t len = strlen(buf);
    assert_in_range(len, CLP_NAME_MAX - 6, CLP_NAME_MAX - 1);
    assert_string_equal(buf + len - 5, "\xc3\xa9...");
    clp_managed_name(&raw, small, sizeof(small));
    assert_string_equal(small, "A.\xc3\xa9...");
    clp_managed_name(&raw, small, 1);
    assert_string_equal(small, "");
}

static void embedded_nul_does_not_end_a_name(void **state)
{
    (void)state;
    struct clp_managed_raw raw = {.type = text("A"), .name = {"x\0y", 3}};
    char buf[CLP_NAME_MAX];
    clp_managed_name(&raw, buf, sizeof(buf));
    assert_string_equal(buf, "A.x?y");
}

/* Deep and self-referring arguments must end, and soon: hostile names cost what a long one costs.
 */
static void recursion_ends(void **state)
{
    (void)state;
    char deep[4000] = "", buf[CLP_NAME_MAX];
    for (int i = 0; i < 800; i++)
        strcat(deep, "B`1[");
    struct clp_managed_raw raw = {.type = text("A`1"), .name = text("M"), .type_args = text(deep)};
    clp_managed_name(&raw, buf, sizeof(buf));
    assert_int_equal(strncmp(buf, "A<B<B<", 6), 0);

    raw.type_args = text("System.Func`2[!0,!0]");
    raw.signature = text("!0,!0,!0");
    raw.flags = CLP_METHOD_OVERLOADED;
    clp_managed_name(&raw, buf, sizeof(buf));
    assert_string_equal(buf, "A<Func<Func<!0, !0>, Func<!0, !0>>>"
                             ".M(Func<!0, !0>, Func<!0, !0>, Func<!0, !0>)");
}

static void shows_types_of_events(void **state)
{
    (void)state;
    static const struct {
        const char *type, *shown;
    } types[] = {
        {"System.String", "System.String"},
        {"System.Int32[,]", "System.Int32[,]"},
        {"System.Int32[*]", "System.Int32[*]"},
        {"Ns.Outer+Inner[]", "Ns.Outer.Inner[]"},
        {"System.Collections.Generic.List`1[System.String]", "List<string>"},
        /* What the type is nested in is left out, its arguments are not. */
        {"Entry[System.Int32,System.Int32][]", "Entry<int, int>[]"},
        {"Entry[System.Int32,System.Collections.Generic.KeyValuePair`2[Ns.A,Ns.B]][]",
         "Entry<int, KeyValuePair<A, B>>[]"},
        {"Enumerator[Ns.A[],System.Object]", "Enumerator<A[], object>"},
        {"AsyncStateMachineBox`1[System.Int32,Ns.Orders+<Place>d__3]",
         "AsyncStateMachineBox<int, Orders.Place>"},
        {"Odd[", "Odd["},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(types); i++) {
        char buf[CLP_NAME_MAX];
        clp_managed_type_name(types[i].type, buf, sizeof(buf));
        assert_string_equal(buf, types[i].shown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_what_people_wrote),
        cmocka_unit_test(system_name_keeps_metadata),
        cmocka_unit_test(long_names_end_in_dots),
        cmocka_unit_test(embedded_nul_does_not_end_a_name),
        cmocka_unit_test(recursion_ends),
        cmocka_unit_test(shows_types_of_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
