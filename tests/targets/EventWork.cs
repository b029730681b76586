using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.CompilerServices;
using System.Text;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Exceptions of four types from six places, and one of a fifth type.
//   --rate N     throws a second in all (0: as many as possible); --threads N
//   --busy N     between throws a fixed amount of other work, so that each busy thread makes N a second
//   --messages long   10 MB, all different, with lone surrogates and NULs
internal sealed class ExceptionsMode : Mode
{
    private const int Sites = 6;
    private readonly Crew crew = new();
    public Crew Crew => crew;
    private readonly double rate;
    private readonly int threads, mask;
    private readonly bool longMessages;
    private readonly double busyRate;
    private long filling;
    private long[][] counts = Array.Empty<long[]>();
    private long rethrown;

    public ExceptionsMode(Options options)
    {
        rate = options.Number("rate", 500);
        threads = options.Count("threads", 1);
        mask = options.Count("sites", (1 << Sites) - 1);
        longMessages = options.Text("messages", "") == "long";
        busyRate = options.Number("busy", 0);
    }

    public override void Prepare()
    {
        filling = busyRate > 0 ? Filler.For(1 / busyRate, () => ViaB(0)) : 0;
        for (int i = 0; i < threads; i++)
            crew.Add($"thrower-{i}", Work);
    }

    private void Work(Worker w)
    {
        long[] mine = counts[w.Index];
        double perThread = rate / threads;
        ulong start = Native.Now(Native.ClockMonotonic);
        for (long n = 0; !w.Stop; n++)
        {
            int site = (int)(n % Sites);
            if ((mask >> site & 1) == 0)
                continue;
            if (longMessages)
                ThrowLong(n);
            else if (n % 4 == 0)
                ViaA(site);
            else
                ViaB(site);
            mine[site]++;
            w.Loops++;
            if (n == 1000 || (rate is > 0 and < 50 && n == 20))
            {
                Rare();
                mine[Sites]++;
            }
            if (filling > 0)
                Filler.Burn(filling);
            else if (perThread > 0)
                Pace(start, n, perThread);
        }
    }

    private static void Pace(ulong start, long n, double rate)
    {
        double due = n / rate, now = (Native.Now(Native.ClockMonotonic) - start) / 1e9;
        if (due > now + 0.001)
            Thread.Sleep((int)((due - now) * 1000));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void ViaA(int site) => Dispatch(site);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void ViaB(int site) => Dispatch(site);

    private static void Dispatch(int site)
    {
        try
        {
            switch (site)
            {
            case 0: Site0(); break;
            case 1: Site1(); break;
            case 2: Site2(); break;
            case 3: Site3(); break;
            case 4: Site4(); break;
            default: Site5(); break;
            }
        }
        catch (Exception)
        {
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Site0() => throw new InvalidOperationException("site 0");

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Site1() => throw new ArgumentException("site 1");

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Site2() => throw new FormatException("site 2");

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Site3() => throw new InvalidOperationException("site 3");

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Site4() => throw new Ошибка("сообщение 消息 🎉");

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Site5() => throw new GetterThrows();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Rare()
    {
        try
        {
            throw new TimeoutException("rare");
        }
        catch (TimeoutException)
        {
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void ThrowLong(long n)
    {
        try
        {
            try
            {
                throw new InvalidDataException("\ud800" + n + (n % 2 == 0 ? "\0" : "")
                    + new string('ж', 5_000_000));
            }
            catch (InvalidDataException)
            {
                rethrown++;
                throw;
            }
        }
        catch (InvalidDataException)
        {
        }
    }

    public override void Begin()
    {
        counts = new long[threads][];
        for (int i = 0; i < threads; i++)
            counts[i] = new long[Sites + 1];
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        string[] names = { "Site0", "Site1", "Site2", "Site3", "Site4", "Site5", "Rare" };
        json.WriteStartObject("thrown");
        for (int site = 0; site <= Sites; site++)
        {
            long sum = 0;
            foreach (long[] c in counts)
                sum += c[site];
            json.WriteNumber(names[site], sum);
        }
        json.WriteEndObject();
        json.WriteNumber("rethrown", rethrown);
        json.WriteNumber("getter_runs", GetterThrows.Runs);
        crew.Describe(json);
    }
}

// Who asks for its message waits for ever.
internal sealed class Ошибка : Exception
{
    public Ошибка(string message) : base(message) { }

    public override string Message
    {
        get
        {
            Interlocked.Increment(ref GetterThrows.Runs);
            Thread.Sleep(Timeout.Infinite);
            return "";
        }
    }
}

// Who asks for its message is told off.
internal sealed class GetterThrows : Exception
{
    public static long Runs;

    public GetterThrows() : base("from the field") { }

    public override string Message
    {
        get
        {
            Interlocked.Increment(ref Runs);
            throw new NotSupportedException("the getter ran");
        }
    }
}

// A fixed amount of work beside what is measured.
internal static class Filler
{
    private static long sink;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Burn(long steps)
    {
        ulong x = 0x9e3779b97f4a7c15;
        for (long i = 0; i < steps; i++)
            x = x * 6364136223846793005 + 1442695040888963407;
        sink = (long)x;
    }

    // Steps that fill a round of `seconds` in which `work` is done once.
    public static long For(double seconds, Action work)
    {
        for (int i = 0; i < 300; i++)
        {
            Burn(100_000);
            work();
        }
        Thread.Sleep(300); // code is made better meanwhile
        double step = Least(() => Burn(1_000_000)) / 1_000_000;
        return (long)Math.Max(1, (seconds - Least(work)) / step);
    }

    private static double Least(Action work)
    {
        double least = double.MaxValue;
        for (int i = 0; i < 200; i++)
        {
            ulong from = Native.Now(Native.ClockMonotonic);
            work();
            least = Math.Min(least, (Native.Now(Native.ClockMonotonic) - from) / 1e9);
        }
        return least;
    }
}

// Objects of three classes: --small, --middle, --big of each a round, --rounds (0: until the end);
// --alternate 1: mixed.
//   --short N    instead: N threads a round, eight at a time, each of 1 to 16 middle ones
//   --before MB  allocated before it is ready
//   --busy MB    with --alternate: a fixed amount of other work between, for so many megabytes a second
internal sealed class AllocationsMode : Mode
{
    private readonly Crew crew = new();
    public Crew Crew => crew;
    private readonly int small, middle, big, rounds;
    private readonly bool alternate;
    private readonly int shortThreads, beforeMegabytes;
    private readonly double busyMegabytes;
    private long begunBytes, endedBytes;
    private long filling;
    private static object? sink;

    public AllocationsMode(Options options)
    {
        small = options.Count("small", 2_000_000);
        middle = options.Count("middle", 200_000);
        big = options.Count("big", 2_000);
        rounds = options.Count("rounds", 1);
        alternate = options.Count("alternate", 0) != 0;
        busyMegabytes = options.Number("busy", 0);
        shortThreads = options.Count("short", 0);
        beforeMegabytes = options.Count("before", 0);
    }

    public override void Prepare()
    {
        for (int i = 0; i < beforeMegabytes; i++)
            sink = GC.AllocateUninitializedArray<byte>(1_000_000);
        double bytes = BigBytes + middle / big * 1024.0 + small / big * 32.0;
        filling = busyMegabytes > 0 ? Filler.For(bytes / busyMegabytes / 1e6, AlternateOnce) : 0;
        crew.Add("allocator", Work);
    }

    private void Work(Worker w)
    {
        for (int round = 0; rounds > 0 ? round < rounds : !w.Stop; round++)
        {
            if (shortThreads > 0)
                LiveShortly();
            else if (alternate)
                Alternate();
            else
                InTurn();
            w.Loops++;
        }
    }

    private void LiveShortly()
    {
        for (int i = 0; i < shortThreads; i++)
        {
            var thread = new Thread(OneLife);
            thread.Start(i);
            if (i % 8 == 7)
                thread.Join();
        }
    }

    private static void OneLife(object? number)
    {
        for (int i = (int)number! % 16; i >= 0; i--)
            MakeMiddle();
    }

    private void InTurn()
    {
        for (int i = 0; i < small; i++)
            MakeSmall();
        for (int i = 0; i < middle; i++)
            MakeMiddle();
        for (int i = 0; i < big; i++)
            MakeBig();
    }

    private void Alternate()
    {
        for (int i = 0; i < big; i++)
        {
            AlternateOnce();
            if (filling > 0)
                Filler.Burn(filling);
        }
    }

    private void AlternateOnce()
    {
        MakeBig();
        for (int k = 0; k < middle / big; k++)
        {
            MakeMiddle();
            for (int n = 0; n < small / middle; n++)
                MakeSmall();
        }
    }

    private const int BigBytes = 32 + 8 + 500 * 51 * 4;

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MakeSmall() => sink = new Small();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MakeMiddle() => sink = new byte[1000];

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MakeBig() => sink = new int[500, 51];

    private sealed class Small
    {
        public long A = 1, B = 2;
    }

    public override void Begin()
    {
        begunBytes = GC.GetTotalAllocatedBytes(true);
        crew.Begin();
    }

    public override void End()
    {
        crew.End();
        endedBytes = GC.GetTotalAllocatedBytes(true);
    }

    public override void Describe(Utf8JsonWriter json)
    {
        long done = crew.Workers[0].Loops;
        json.WriteNumber("process_bytes", endedBytes - begunBytes);
        json.WriteStartObject("allocated");
        // The runtime writes a nested type without what it is nested in.
        Class(json, "Small", small * done, 32);
        Class(json, "System.Byte[]", middle * done, 1024);
        Class(json, "System.Int32[,]", big * done, BigBytes);
        json.WriteEndObject();
        crew.Describe(json);
    }

    private static void Class(Utf8JsonWriter json, string name, long objects, int bytes)
    {
        json.WriteStartObject(name);
        json.WriteNumber("objects", objects);
        json.WriteNumber("bytes", objects * bytes);
        json.WriteEndObject();
    }
}

// One long wait, and many short ones: --long MS, --short N waits of 1 ms each by --threads; the
// waiters measure themselves.
internal sealed class LocksMode : Mode
{
    private readonly Crew crew = new();
    public Crew Crew => crew;
    private readonly object longLock = new(), shortLock = new();
    private readonly int longMs, threads;
    private readonly SemaphoreSlim taken = new(0);
    private long longWaits, longNs, shortWaits, shortNs;
    private int holderTid;

    public LocksMode(Options options)
    {
        longMs = options.Count("long", 2000);
        threads = options.Count("threads", 4);
    }

    public override void Prepare()
    {
        crew.Add("long-holder", HoldLong);
        crew.Add("long-waiter", WaitLong);
        for (int i = 0; i < threads; i++)
            crew.Add($"short-{i}", Short);
    }

    private void HoldLong(Worker w)
    {
        holderTid = w.Tid;
        lock (longLock)
        {
            taken.Release();
            Thread.Sleep(longMs);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void WaitLong(Worker w)
    {
        taken.Wait();
        ulong from = Native.Now(Native.ClockMonotonic);
        lock (longLock)
            longNs += (long)(Native.Now(Native.ClockMonotonic) - from);
        longWaits++;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void Short(Worker w)
    {
        while (!w.Stop)
        {
            ulong from = Native.Now(Native.ClockMonotonic);
            lock (shortLock)
            {
                ulong got = Native.Now(Native.ClockMonotonic);
                Interlocked.Add(ref shortNs, (long)(got - from));
                shortWaits++;
                while (Native.Now(Native.ClockMonotonic) < got + 1_000_000)
                    Thread.Sleep(1);
            }
            w.Loops++;
        }
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("long_waits", longWaits);
        json.WriteNumber("long_ns", longNs);
        json.WriteNumber("short_acquired", shortWaits);
        json.WriteNumber("short_ns", shortNs);
        json.WriteNumber("holder_tid", holderTid);
        crew.Describe(json);
    }
}

// Two threads that wait for each other for ever.
internal sealed class DeadlockMode : Mode
{
    private readonly Crew crew = new();
    private readonly object a = new(), b = new();
    private readonly Barrier both = new(2);

    public override void Prepare()
    {
        crew.Add("dead-a", w => TakeA());
        crew.Add("dead-b", w => TakeB());
    }

    public DeadlockMode(Options options) { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void TakeA()
    {
        lock (a)
        {
            both.SignalAndWait();
            lock (b)
                both.Dispose();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void TakeB()
    {
        lock (b)
        {
            both.SignalAndWait();
            lock (a)
                both.Dispose();
        }
    }

    public override void Begin() => crew.Begin();
    public override void End() { }
    public override void Describe(Utf8JsonWriter json) => crew.Describe(json);
}

// GC.Collect of each generation from three call paths: --rounds; --rest N ms between rounds.
internal sealed class CollectionsMode : Mode
{
    private readonly Crew crew = new();
    private readonly int rounds, rest;
    private readonly int[] before = new int[3], after = new int[3];
    private TimeSpan pauseBefore, pauseAfter;
    private readonly List<byte[]> ballast = new();

    public CollectionsMode(Options options)
    {
        rounds = options.Count("rounds", 20);
        rest = options.Count("rest", 5);
    }

    public override void Prepare()
    {
        for (int i = 0; i < 20_000; i++)
            ballast.Add(new byte[1000]);
        crew.Add("collector", Work);
    }

    private void Work(Worker w)
    {
        for (int i = 0; i < rounds; i++)
        {
            Collect0();
            Collect1();
            Collect2();
            Thread.Sleep(rest);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Collect0() => GC.Collect(0);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Collect1() => GC.Collect(1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Collect2() => GC.Collect(2);

    private void Look(int[] counts)
    {
        for (int i = 0; i < 3; i++)
            counts[i] = GC.CollectionCount(i);
    }

    public override void Begin()
    {
        Look(before);
        pauseBefore = GC.GetTotalPauseDuration();
        crew.Begin();
    }

    public override void End()
    {
        crew.WaitUntilDone();
        Look(after);
        pauseAfter = GC.GetTotalPauseDuration();
    }

    public override void Describe(Utf8JsonWriter json)
    {
        // CollectionCount of a generation has those of the older ones in it.
        json.WriteStartArray("collections");
        for (int i = 0; i < 3; i++)
            json.WriteNumberValue(after[i] - before[i] - (i < 2 ? after[i + 1] - before[i + 1] : 0));
        json.WriteEndArray();
        json.WriteNumber("pause_ns", (long)(pauseAfter - pauseBefore).TotalNanoseconds);
        crew.Describe(json);
    }
}
