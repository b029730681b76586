// What Microsoft.Diagnostics.Tracing.TraceEvent reads from a .nettrace file, added up in the same way
// as summary.c does with our reader, so that the two can be compared line by line.
//
//   TraceSummary FILE          sums per kind of event and per field
//   TraceSummary --count FILE  only counts, and says how long it took

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Reflection;
using System.Text;
using Microsoft.Diagnostics.Tracing;
using Microsoft.Diagnostics.Tracing.Parsers;
using Microsoft.Diagnostics.Tracing.Parsers.Clr;

namespace TraceSummary;

internal sealed class Kind
{
    public ulong Count, Headers, Payloads, Stacks;
    public readonly Dictionary<string, ulong> Fields = new();
}

internal static unsafe class Program
{
    private static readonly Dictionary<(string, int), Kind> Kinds = new();
    private static readonly FieldInfo Record = typeof(TraceEvent).GetField("eventRecord",
        BindingFlags.Instance | BindingFlags.NonPublic)!;

    private static int Main(string[] args)
    {
        bool count = args.Length == 2 && args[0] == "--count";
        if (args.Length != 1 && !count)
        {
            Console.Error.WriteLine("usage: TraceSummary [--count] FILE");
            return 2;
        }
        return count ? Count(args[1]) : Summarize(args[0]);
    }

    private static int Count(string path)
    {
        ulong events = 0;
        var watch = Stopwatch.StartNew();
        using var source = new EventPipeEventSource(path);
        source.AllEvents += _ => events++;
        source.Process();
        double seconds = watch.Elapsed.TotalSeconds;
        Console.WriteLine(string.Create(CultureInfo.InvariantCulture,
            $"{{\"events\":{events},\"seconds\":{seconds:F6},\"peak_bytes\":{Process.GetCurrentProcess().PeakWorkingSet64}}}"));
        return 0;
    }

    private static int Summarize(string path)
    {
        using var source = new EventPipeEventSource(path);
        source.Clr.All += Add;
        new ClrRundownTraceEventParser(source).All += Add;
        source.Dynamic.All += Add;
        source.AllEvents += AddAny;
        try
        {
            source.Process();
        }
        catch (Exception e) when (e is FormatException or EndOfStreamException)
        {
            Console.Error.WriteLine("cut: " + e.Message); // a killed writer: what came before counts
        }
        Console.WriteLine("lost\t" + source.EventsLost);
        foreach (((string provider, int id), Kind kind) in Kinds)
        {
            Console.WriteLine($"event\t{provider}\t{id}\t{kind.Count}\t{kind.Headers:x16}\t{kind.Payloads:x16}\t{kind.Stacks:x16}");
            foreach ((string field, ulong sum) in kind.Fields)
                Console.WriteLine($"field\t{provider}\t{id}\t{field}\t{sum:x16}");
        }
        return 0;
    }

    private static Kind KindOf(TraceEvent e)
    {
        if (!Kinds.TryGetValue((e.ProviderName, (int)e.ID), out Kind? kind))
            Kinds[(e.ProviderName, (int)e.ID)] = kind = new Kind();
        return kind;
    }

    // Every event, whether a parser knows it or not.
    private static void AddAny(TraceEvent e)
    {
        Kind kind = KindOf(e);
        byte* record = (byte*)Pointer.Unbox(Record.GetValue(e)!);
        kind.Count++;
        var header = new Hash();
        header.Add(*(ulong*)(record + 16)); // EVENT_HEADER.TimeStamp
        header.Add(*(uint*)(record + 8));   // EVENT_HEADER.ThreadId
        header.Add(e.ActivityID.ToByteArray());
        kind.Headers += header.Value;
        var payload = new Hash();
        payload.Add(e.EventData());
        kind.Payloads += payload.Value;
        kind.Stacks += StackOf(record);
    }

    // EVENT_RECORD.ExtendedData: the stack is the item of type 6 (or 5: 32 bits).
    private static ulong StackOf(byte* record)
    {
        var hash = new Hash();
        ushort items = *(ushort*)(record + 84);
        byte* item = *(byte**)(record + 88);
        for (int i = 0; i < items; i++, item += 16)
            if (*(ushort*)(item + 2) == 6)
                hash.Add(new ReadOnlySpan<byte>(*(byte**)(item + 8) + 8, *(ushort*)(item + 6) - 8));
        return hash.Value;
    }

    // Events that a parser understands: their fields.
    private static void Add(TraceEvent e)
    {
        if (e.ProviderName == "Microsoft-Windows-DotNETRuntime" && e.GetType().Name == "DynamicTraceEventData")
            return; // the typed parser has it
        Kind kind = KindOf(e);
        string[] names = e.PayloadNames;
        for (int i = 0; i < names.Length; i++)
        {
            string? text = TextOf(e, i);
            if (text == null)
                continue;
            var hash = new Hash();
            hash.Add(Encoding.UTF8.GetBytes(text));
            kind.Fields[names[i]] = kind.Fields.GetValueOrDefault(names[i]) + hash.Value;
        }
    }

    private static string? TextOf(TraceEvent e, int i)
    {
        object? value;
        try
        {
            value = e.PayloadValue(i);
        }
        catch (Exception)
        {
            return null; // appended in a later version than this event is
        }
        return value switch
        {
            null => null,
            string s => s,
            bool b => b ? "1" : "0",
            double d => BitConverter.DoubleToUInt64Bits(d).ToString(CultureInfo.InvariantCulture),
            float f => BitConverter.SingleToUInt32Bits(f).ToString(CultureInfo.InvariantCulture),
            Guid g => g.ToString(),
            Enum x => unchecked((uint)Convert.ToInt64(x, CultureInfo.InvariantCulture)).ToString(CultureInfo.InvariantCulture),
            ulong or long => unchecked((ulong)(value is long l ? (ulong)l : (ulong)value)).ToString(CultureInfo.InvariantCulture),
            byte or sbyte or short or ushort or int or uint =>
                unchecked((uint)Convert.ToInt64(value, CultureInfo.InvariantCulture)).ToString(CultureInfo.InvariantCulture),
            _ => null,
        };
    }

    // FNV-1a, 64 bits.
    private struct Hash
    {
        private ulong state;
        private bool started;

        public readonly ulong Value => started ? state : 14695981039346656037;

        public void Add(ReadOnlySpan<byte> bytes)
        {
            if (!started)
                state = 14695981039346656037;
            started = true;
            foreach (byte b in bytes)
                state = (state ^ b) * 1099511628211;
        }

        public void Add(ulong v) => Add(new ReadOnlySpan<byte>(&v, 8));
    }
}
