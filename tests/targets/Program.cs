// A program with known truth: each mode does one kind of work, measures itself and prints what a
// profile of it has to show.
//
//   ClpTarget MODE [--duration SEC] [--KEY VALUE]...
//
// Output is one JSON object per line.  {"ready":true,...} comes first, when all threads of the mode
// exist and wait.  Without --duration the program then reads commands from standard input:
//   begin   start the work                 -> {"begun":true,"time_ns":...}
//   end     stop it, print what was done   -> {"truth":{...}}
//   state   signal masks, actions, fds     -> {"state":{...}}
//   quit N  leave with exit code N (end of input: code 0)
// `ClpTarget describe` is no mode: it answers questions about methods, see Reflected.cs.
// begin and end may be repeated.  With --duration the work starts at once, the truth is printed
// when the time is over and the program ends.

using System;
using System.Collections.Generic;
using System.IO;
using System.Threading;

namespace ClpTarget;

internal static class Program
{
    private static readonly Dictionary<string, Func<Options, Mode>> Modes = new()
    {
        ["spin"] = o => new SpinMode(o, busy: 3, sleepers: 30),
        ["overcommit"] = o => new SpinMode(o, busy: 4, sleepers: 0),
        ["churn"] = o => new ChurnMode(o),
        ["names"] = o => new NamesMode(o),
        ["stacks"] = o => new StacksMode(o),
        ["throws"] = o => new ThrowsMode(o),
        ["qsort"] = o => new QsortMode(o),
        ["osr"] = o => new OsrMode(o),
        ["chain"] = o => new ChainMode(o),
        ["deep"] = o => new DeepMode(o),
        ["storm"] = o => new StormMode(o),
        ["natives"] = o => new NativesMode(o),
        ["fork"] = o => new ForkMode(o),
        ["procstart"] = o => new ProcessStartMode(o),
        ["eintr"] = o => new InterruptMode(o),
        ["collectible"] = o => new CollectibleMode(o),
        ["shares"] = o => new SharesMode(o),
        ["lives"] = o => new LivesMode(o),
        ["stopwatch"] = o => new StopwatchMode(o, convoy: 8, half: 0),
        ["waking"] = o => new WakingMode(o),
        ["waits"] = o => new WaitKindsMode(o),
        ["chunks"] = o => new ChunksMode(o),
        ["exceptions"] = o => new ExceptionsMode(o),
        ["allocations"] = o => new AllocationsMode(o),
        ["locks"] = o => new LocksMode(o),
        ["everything"] = o => new EverythingMode(o),
        ["kinds"] = o => new KindsMode(o),
        ["bigheap"] = o => new BigHeapMode(o),
        ["leak"] = o => new LeakMode(o),
        ["owners"] = o => new OwnersMode(o),
        ["deadlock"] = o => new DeadlockMode(o),
        ["collections"] = o => new CollectionsMode(o),
        ["mixedlocks"] = o => new MixedLocksMode(o),
        ["handles"] = o => new HandlesMode(o),
        ["metrics"] = o => new MetricsMode(o),
        ["spanchecks"] = o => new SpanChecksMode(o),
        ["requests"] = o => new RequestsMode(o),
        ["ownspans"] = o => new OwnSpansMode(o),
        ["eventtruth"] = o => new EventTruthMode(o),
        ["sources"] = o => new SourcesMode(o),
        ["network"] = o => new NetworkMode(o),
        ["emitted"] = o => new EmittedMode(o),
        ["switchcost"] = o => new SwitchCostMode(o),
        ["spanstorm"] = o => new SpanStormMode(o),
    };

    private static int Main(string[] args)
    {
        if (args.Length == 1 && args[0] == "describe")
            return Reflected.Describe(Console.In);
        if (args.Length == 0 || !Modes.TryGetValue(args[0], out Func<Options, Mode>? make))
        {
            Console.Error.WriteLine("usage: ClpTarget MODE [--duration SEC] [--KEY VALUE]...; modes: "
                + string.Join(' ', Modes.Keys));
            return 2;
        }
        var options = new Options(args);
        var session = new Session(args[0], options, make(options));
        session.Ready();
        double seconds = options.Number("duration", 0);
        return seconds > 0 ? session.RunFor(TimeSpan.FromSeconds(seconds)) : session.Obey(
            new StreamReader(Console.OpenStandardInput()));
    }
}
