using System;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Reflection.Metadata;
using System.Reflection.Metadata.Ecma335;
using System.Reflection.PortableExecutable;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Code that comes and goes: collectible load contexts and dynamic methods, made, run and dropped.
// Every name holds its number; WorkN calls only InnerN, DynN only DynNInner, and thread K runs only
// numbers with N % threads == K.  A name taken from a dead neighbour breaks one of these rules.
internal sealed class CollectibleMode : Mode
{
    private readonly Crew crew = new();
    private readonly int contexts, dynamics, threads;
    private readonly ulong contextCpuNs, dynamicCpuNs;
    private long contextsRun, dynamicsRun;
    private Thread? collector;
    private volatile bool stop;

    public CollectibleMode(Options options)
    {
        contexts = options.Count("contexts", 500);
        dynamics = options.Count("dynamics", 5000) / 2;
        threads = options.Count("threads", 2);
        contextCpuNs = (ulong)(options.Number("context-ms", 20) * 1e6);
        dynamicCpuNs = (ulong)(options.Number("dynamic-ms", 4) * 1e6);
    }

    public override void Prepare()
    {
        for (int i = 0; i < threads; i++)
            crew.Add($"collect-{i}", RunAll);
    }

    private void RunAll(Worker worker)
    {
        int most = Math.Max(contexts, dynamics);
        // Spread evenly, so that both kinds are always mixed.
        for (int i = worker.Index; i < most && !worker.Stop; i += threads)
        {
            if (i < contexts)
            {
                RunContext(worker, i);
                Interlocked.Increment(ref contextsRun);
            }
            if (i < dynamics)
            {
                RunDynamic(worker, i);
                Interlocked.Increment(ref dynamicsRun);
            }
            worker.Loops++;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void RunContext(Worker worker, int number)
    {
        var context = new AssemblyLoadContext($"plugin {number}", isCollectible: true);
        Assembly assembly = context.LoadFromStream(new MemoryStream(Plugin.Build(number)));
        var work = assembly.GetType($"Plugin{number}.Worker")!.GetMethod($"Work{number}")!
            .CreateDelegate<Func<ulong, int, ulong>>();
        worker.Checksum += CallFor(work, contextCpuNs);
        context.Unload();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void RunDynamic(Worker worker, int number)
    {
        DynamicMethod inner = Emitted.Loop($"Dyn{number}Inner");
        DynamicMethod outer = Emitted.Caller($"Dyn{number}", inner, 5000);
        worker.Checksum += CallFor(outer.CreateDelegate<Func<ulong, int, ulong>>(), dynamicCpuNs);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong CallFor(Func<ulong, int, ulong> work, ulong cpuNs)
    {
        ulong end = Native.Now(Native.ClockThreadCpu) + cpuNs, x = 1;
        do
        {
            x = work(x, 20);
        } while (Native.Now(Native.ClockThreadCpu) < end);
        return x;
    }

    private void Collect()
    {
        while (!stop)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
            Thread.Sleep(100);
        }
    }

    public override void Begin()
    {
        contextsRun = dynamicsRun = 0;
        stop = false;
        collector = new Thread(Collect) { IsBackground = true, Name = "collector" };
        collector.Start();
        crew.Begin();
    }

    // The work is of a fixed size: the end is when it is done.
    public override void End()
    {
        crew.WaitUntilDone();
        stop = true;
        collector!.Join();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("contexts", contextsRun);
        json.WriteNumber("dynamics", 2 * dynamicsRun);
        json.WriteNumber("modulus", threads);
        crew.Describe(json);
    }
}

// An assembly of one type, Plugin<N>.Worker, with two static methods:
//   ulong Work<N>(ulong x, int n)    calls Inner<N> n times
//   ulong Inner<N>(ulong x, int n)   n steps of arithmetic
internal static class Plugin
{
    public static byte[] Build(int number)
    {
        var metadata = new MetadataBuilder();
        var code = new BlobBuilder();
        var bodies = new MethodBodyStreamEncoder(code);
        Header(metadata, number);
        TypeReferenceHandle baseType = ObjectType(metadata);
        BlobHandle signature = Signature(metadata);

        MethodDefinitionHandle inner = Method(metadata, $"Inner{number}", signature, InnerBody(bodies));
        Method(metadata, $"Work{number}", signature, WorkBody(bodies, inner));
        metadata.AddTypeDefinition(default, default, metadata.GetOrAddString("<Module>"), default,
            MetadataTokens.FieldDefinitionHandle(1), MetadataTokens.MethodDefinitionHandle(1));
        metadata.AddTypeDefinition(TypeAttributes.Public | TypeAttributes.Abstract | TypeAttributes.Sealed,
            metadata.GetOrAddString($"Plugin{number}"), metadata.GetOrAddString("Worker"), baseType,
            MetadataTokens.FieldDefinitionHandle(1), inner);

        var image = new BlobBuilder();
        new ManagedPEBuilder(PEHeaderBuilder.CreateLibraryHeader(), new MetadataRootBuilder(metadata), code)
            .Serialize(image);
        return image.ToArray();
    }

    private static void Header(MetadataBuilder metadata, int number)
    {
        metadata.AddModule(0, metadata.GetOrAddString($"Plugin{number}.dll"),
            metadata.GetOrAddGuid(Guid.NewGuid()), default, default);
        metadata.AddAssembly(metadata.GetOrAddString($"Plugin{number}"), new Version(1, 0, 0, 0), default,
            default, 0, AssemblyHashAlgorithm.None);
    }

    private static TypeReferenceHandle ObjectType(MetadataBuilder metadata)
    {
        AssemblyName core = typeof(object).Assembly.GetName();
        AssemblyReferenceHandle reference = metadata.AddAssemblyReference(
            metadata.GetOrAddString(core.Name!), core.Version!, default,
            metadata.GetOrAddBlob(core.GetPublicKeyToken()!), default, default);
        return metadata.AddTypeReference(reference, metadata.GetOrAddString("System"),
            metadata.GetOrAddString("Object"));
    }

    private static BlobHandle Signature(MetadataBuilder metadata)
    {
        var blob = new BlobBuilder();
        new BlobEncoder(blob).MethodSignature().Parameters(2, r => r.Type().UInt64(), p =>
        {
            p.AddParameter().Type().UInt64();
            p.AddParameter().Type().Int32();
        });
        return metadata.GetOrAddBlob(blob);
    }

    private static MethodDefinitionHandle Method(MetadataBuilder metadata, string name, BlobHandle signature,
        int body) => metadata.AddMethodDefinition(MethodAttributes.Public | MethodAttributes.Static,
            MethodImplAttributes.IL | MethodImplAttributes.NoInlining, metadata.GetOrAddString(name), signature,
            body, MetadataTokens.ParameterHandle(metadata.GetRowCount(TableIndex.Param) + 1));

    private static int InnerBody(MethodBodyStreamEncoder bodies)
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

    private static int WorkBody(MethodBodyStreamEncoder bodies, MethodDefinitionHandle inner)
    {
        var il = new InstructionEncoder(new BlobBuilder(), new ControlFlowBuilder());
        LabelHandle again = il.DefineLabel();
        il.MarkLabel(again);
        il.LoadArgument(0);
        il.LoadConstantI4(5000);
        il.Call(inner);
        il.StoreArgument(0);
        CountDown(il, again);
        il.LoadArgument(0);
        il.OpCode(ILOpCode.Ret);
        return bodies.AddMethodBody(il);
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
