using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Code that comes and goes: collectible load contexts and dynamic methods, made, run and dropped.
// Every name holds its number; WorkN calls only InnerN, DynN only DynNInner, and thread K runs only
// numbers with N % threads == K.  A name taken from a dead neighbour breaks one of these rules.
//   --contexts N, --dynamics N   so many are made in a round (--endless 1: over and over)
//   --events 1   contexts also throw, allocate and wait for a lock (ActN), types of their own
internal sealed class CollectibleMode : Mode
{
    private readonly Crew crew = new();
    public Crew Crew => crew;
    private readonly int contexts, dynamics, threads;
    private readonly ulong contextCpuNs, dynamicCpuNs;
    private readonly bool events, endless;
    private readonly object shared = new();
    private readonly object?[] kept = new object?[64]; // of the latest contexts, which live with them
    private readonly List<WeakReference> made = new();
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
        events = options.Count("events", 0) != 0;
        endless = options.Count("endless", 0) != 0;
    }

    public override void Prepare()
    {
        for (int i = 0; i < threads; i++)
            crew.Add($"collect-{i}", RunAll);
    }

    private void RunAll(Worker worker)
    {
        do
        {
            RunRound(worker);
        } while (endless && !worker.Stop);
    }

    private void RunRound(Worker worker)
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
        if (events)
            kept[number % kept.Length] = CallForEvents(assembly, number);
        Remember(context);
        context.Unload();
    }

    private void Remember(AssemblyLoadContext context)
    {
        lock (made)
        {
            if (made.Count >= 4 * kept.Length)
                made.RemoveAll(m => !m.IsAlive);
            made.Add(new WeakReference(context));
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private object CallForEvents(Assembly assembly, int number) => assembly.GetType($"Plugin{number}.Worker")!
        .GetMethod($"Act{number}")!.CreateDelegate<Func<object, int, object>>()(shared, 20);

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
        made.Clear();
        stop = false;
        collector = new Thread(Collect) { IsBackground = true, Name = "collector" };
        collector.Start();
        crew.Begin();
    }

    // Work of a fixed size ends when it is done.
    public override void End()
    {
        if (endless)
            crew.End();
        else
            crew.WaitUntilDone();
        stop = true;
        collector!.Join();
        for (int i = 0; i < 2; i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("contexts", contextsRun);
        json.WriteNumber("contexts_left", made.FindAll(m => m.IsAlive).Count);
        json.WriteNumber("dynamics", 2 * dynamicsRun);
        json.WriteNumber("modulus", threads);
        crew.Describe(json);
    }
}
