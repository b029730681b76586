using System;
using System.Reflection;
using System.Reflection.Metadata;
using System.Reflection.Metadata.Ecma335;
using System.Reflection.PortableExecutable;

namespace ClpTarget;

// Builds an assembly whose names all hold its number:
//   Plugin<N>.Worker    ulong Work<N>(ulong x, int n)    calls Inner<N> n times
//                       ulong Inner<N>(ulong x, int n)   n steps of arithmetic
//                       object Act<N>(object shared, int n)   computes for a while under the lock of `shared`, throws
//                           and catches a Fail<N>, makes n Thing<N>s and arrays of them, and gives the last one back
//   Plugin<N>.Thing<N>, Plugin<N>.Fail<N>
internal sealed class Plugin
{
    private const int HoldSteps = 400_000; // a part of a millisecond
    private const int ArrayLength = 1000;  // 8 KB
    // Rows of the tables, in the order in which they are added: bodies name what comes after them.
    private static readonly MethodDefinitionHandle Inner = MetadataTokens.MethodDefinitionHandle(1),
        ThingMake = MetadataTokens.MethodDefinitionHandle(4), FailMake = MetadataTokens.MethodDefinitionHandle(5);
    private static readonly TypeDefinitionHandle Thing = MetadataTokens.TypeDefinitionHandle(3);

    private readonly MetadataBuilder metadata = new();
    private readonly BlobBuilder code = new();
    private readonly MethodBodyStreamEncoder bodies;
    private readonly AssemblyReferenceHandle core;
    private readonly int number;

    private Plugin(int number)
    {
        this.number = number;
        bodies = new MethodBodyStreamEncoder(code);
        metadata.AddModule(0, Text($"Plugin{number}.dll"), metadata.GetOrAddGuid(Guid.NewGuid()), default, default);
        metadata.AddAssembly(Text($"Plugin{number}"), new Version(1, 0, 0, 0), default, default, 0,
            AssemblyHashAlgorithm.None);
        AssemblyName name = typeof(object).Assembly.GetName();
        core = metadata.AddAssemblyReference(Text(name.Name!), name.Version!, default,
            metadata.GetOrAddBlob(name.GetPublicKeyToken()!), default, default);
    }

    public static byte[] Build(int number)
    {
        var plugin = new Plugin(number);
        plugin.AddMembers();
        var image = new BlobBuilder();
        new ManagedPEBuilder(PEHeaderBuilder.CreateLibraryHeader(), new MetadataRootBuilder(plugin.metadata),
            plugin.code).Serialize(image);
        return image.ToArray();
    }

    private void AddMembers()
    {
        TypeReferenceHandle root = CoreType("System", "Object"), exception = CoreType("System", "Exception");
        BlobHandle steps = Signature(false, 2, r => r.Type().UInt64(), p =>
        {
            p.AddParameter().Type().UInt64();
            p.AddParameter().Type().Int32();
        });
        BlobHandle act = Signature(false, 2, r => r.Type().Object(), p =>
        {
            p.AddParameter().Type().Object();
            p.AddParameter().Type().Int32();
        });
        Static($"Inner{number}", steps, InnerBody());
        Static($"Work{number}", steps, WorkBody());
        Static($"Act{number}", act, ActBody(exception));
        Constructor(root);
        Constructor(exception);
        Type("", "<Module>", default, 0, 1);
        Type($"Plugin{number}", "Worker", root, TypeAttributes.Abstract | TypeAttributes.Sealed, 1);
        Type($"Plugin{number}", $"Thing{number}", root, 0, 4);
        Type($"Plugin{number}", $"Fail{number}", exception, 0, 5);
    }

    // ---- tables ----

    private StringHandle Text(string text) => metadata.GetOrAddString(text);

    private TypeReferenceHandle CoreType(string space, string name) =>
        metadata.AddTypeReference(core, Text(space), Text(name));

    private void Type(string space, string name, EntityHandle root, TypeAttributes more, int firstMethod) =>
        metadata.AddTypeDefinition(root.IsNil ? 0 : TypeAttributes.Public | more, space == "" ? default : Text(space),
            Text(name), root, MetadataTokens.FieldDefinitionHandle(1), MetadataTokens.MethodDefinitionHandle(firstMethod));

    private BlobHandle Signature(bool instance, int count, Action<ReturnTypeEncoder> result,
        Action<ParametersEncoder> parameters)
    {
        var blob = new BlobBuilder();
        new BlobEncoder(blob).MethodSignature(isInstanceMethod: instance).Parameters(count, result, parameters);
        return metadata.GetOrAddBlob(blob);
    }

    private BlobHandle ConstructorSignature() => Signature(true, 0, r => r.Void(), p => { });

    private MemberReferenceHandle MonitorMember(string name) => metadata.AddMemberReference(
        CoreType("System.Threading", "Monitor"), Text(name),
        Signature(false, 1, r => r.Void(), p => p.AddParameter().Type().Object()));

    private void Static(string name, BlobHandle signature, int body) => Method(
        MethodAttributes.Public | MethodAttributes.Static, MethodImplAttributes.NoInlining, name, signature, body);

    private void Method(MethodAttributes attributes, MethodImplAttributes more, string name, BlobHandle signature,
        int body) => metadata.AddMethodDefinition(attributes, MethodImplAttributes.IL | more, Text(name), signature,
            body, MetadataTokens.ParameterHandle(metadata.GetRowCount(TableIndex.Param) + 1));

    // Calls the constructor of the class it is derived from.
    private void Constructor(TypeReferenceHandle root)
    {
        var il = new InstructionEncoder(new BlobBuilder());
        il.LoadArgument(0);
        il.Call(metadata.AddMemberReference(root, Text(".ctor"), ConstructorSignature()));
        il.OpCode(ILOpCode.Ret);
        Method(MethodAttributes.Public | MethodAttributes.HideBySig | MethodAttributes.SpecialName
            | MethodAttributes.RTSpecialName, 0, ".ctor", ConstructorSignature(), bodies.AddMethodBody(il));
    }

    // ---- bodies ----

    private int InnerBody()
    {
        var il = new InstructionEncoder(new BlobBuilder(), new ControlFlowBuilder());
        LabelHandle again = il.DefineLabel();
        il.MarkLabel(again);
        il.LoadArgument(0);
        il.LoadConstantI8(6364136223846793005);
        il.OpCode(ILOpCode.Mul);
        il.LoadConstantI8(1442695040888963407);
        il.OpCode(ILOpCode.Add);
        il.StoreArgument(0);
        CountDown(il, again);
        il.LoadArgument(0);
        il.OpCode(ILOpCode.Ret);
        return bodies.AddMethodBody(il);
    }

    private int WorkBody()
    {
        var il = new InstructionEncoder(new BlobBuilder(), new ControlFlowBuilder());
        LabelHandle again = il.DefineLabel();
        il.MarkLabel(again);
        il.LoadArgument(0);
        il.LoadConstantI4(5000);
        il.Call(Inner);
        il.StoreArgument(0);
        CountDown(il, again);
        il.LoadArgument(0);
        il.OpCode(ILOpCode.Ret);
        return bodies.AddMethodBody(il);
    }

    private int ActBody(TypeReferenceHandle exception)
    {
        var il = new InstructionEncoder(new BlobBuilder(), new ControlFlowBuilder());
        il.LoadArgument(0);
        il.Call(MonitorMember("Enter"));
        il.LoadConstantI8(1);
        il.LoadConstantI4(HoldSteps);
        il.Call(Inner);
        il.OpCode(ILOpCode.Pop);
        il.LoadArgument(0);
        il.Call(MonitorMember("Exit"));
        ThrowAndCatch(il, exception);
        LabelHandle again = il.DefineLabel();
        il.MarkLabel(again);
        il.OpCode(ILOpCode.Newobj);
        il.Token(ThingMake);
        il.StoreLocal(0);
        il.LoadConstantI4(ArrayLength);
        il.OpCode(ILOpCode.Newarr);
        il.Token(Thing);
        il.StoreLocal(0);
        CountDown(il, again);
        il.LoadLocal(0);
        il.OpCode(ILOpCode.Ret);
        return bodies.AddMethodBody(il, 8, ObjectLocal());
    }

    private StandaloneSignatureHandle ObjectLocal()
    {
        var blob = new BlobBuilder();
        new BlobEncoder(blob).LocalVariableSignature(1).AddVariable().Type().Object();
        return metadata.AddStandaloneSignature(metadata.GetOrAddBlob(blob));
    }

    private static void ThrowAndCatch(InstructionEncoder il, TypeReferenceHandle exception)
    {
        LabelHandle begin = il.DefineLabel(), handler = il.DefineLabel(), end = il.DefineLabel();
        il.MarkLabel(begin);
        il.OpCode(ILOpCode.Newobj);
        il.Token(FailMake);
        il.OpCode(ILOpCode.Throw);
        il.MarkLabel(handler);
        il.OpCode(ILOpCode.Pop);
        il.Branch(ILOpCode.Leave, end);
        il.MarkLabel(end);
        il.ControlFlowBuilder!.AddCatchRegion(begin, handler, handler, end, exception);
    }

    // while (--n > 0)
    private static void CountDown(InstructionEncoder il, LabelHandle again)
    {
        il.LoadArgument(1);
        il.LoadConstantI4(1);
        il.OpCode(ILOpCode.Sub);
        il.StoreArgument(1);
        il.LoadArgument(1);
        il.LoadConstantI4(0);
        il.Branch(ILOpCode.Bgt, again);
    }
}
