using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

// What was served under one route, as the server itself saw it.
internal sealed class Served
{
    private readonly List<string> ids = new();
    private long asked;
    private double seconds;

    // A request's trace and local root, or that it has no activity.
    internal void Note(Activity? request)
    {
        lock (ids)
        {
            asked++;
            if (request != null)
                ids.Add(request.TraceId.ToHexString() + "/" + request.SpanId.ToHexString());
        }
    }

    internal void Took(double more)
    {
        lock (ids)
            seconds += more;
    }

    internal void Reset()
    {
        lock (ids)
        {
            ids.Clear();
            asked = 0;
            seconds = 0;
        }
    }

    internal void Write(System.Text.Json.Utf8JsonWriter json)
    {
        lock (ids)
        {
            json.WriteStartObject();
            json.WriteNumber("asked", asked);
            json.WriteNumber("seconds", seconds);
            json.WriteStartArray("ids");
            ids.ForEach(json.WriteStringValue);
            json.WriteEndArray();
            json.WriteEndObject();
        }
    }
}

// The handlers. Each does its work in methods of its own, which a profile is searched for.
internal static class Endpoints
{
    internal static readonly ActivitySource Source = new("ClpWeb");
    internal static long Made; // activities of our own that somebody wanted
    internal static long Loads; // requests to /load

    [MethodImpl(MethodImplOptions.NoInlining)]
    internal static string BurnEndpoint(int ms)
    {
        Burn(ms);
        // Work that the request leaves behind without its context: in no request.
        ThreadPool.UnsafeQueueUserWorkItem(AfterRequest, null);
        return "burnt";
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    internal static string SleepEndpoint(int ms)
    {
        Thread.Sleep(ms);
        return "slept";
    }

    // What a handler of a small service does: seven kilobytes in small objects, an exception in one request of `every`,
    // and a lock that others want.
    [MethodImpl(MethodImplOptions.NoInlining)]
    internal static string LoadEndpoint(int every)
    {
        var words = new List<string>();
        for (int i = 0; i < 80; i++)
            words.Add("word " + i.ToString());
        try
        {
            words.Add(Parse(Interlocked.Increment(ref Loads) % every == 0 ? "no number" : "7"));
        }
        catch (FormatException)
        {
            words.Add("0");
        }
        lock (Recent)
        {
            string all = string.Join(' ', words);
            Recent[all.Length % 100] = all;
            return all;
        }
    }

    private static readonly Dictionary<int, string> Recent = new();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static string Parse(string text) => int.Parse(text).ToString();

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void AfterRequest(object? _) => Burn(2);

    // Awaits, fans out and throws.
    internal static async Task<string> MixedEndpoint(int id)
    {
        MixedBefore();
        await Task.Delay(2);
        MixedAfterAwait();
        var parts = new Task[3];
        for (int i = 0; i < parts.Length; i++)
            parts[i] = Task.Run(MixedPart);
        await Task.WhenAll(parts);
        try
        {
            await MixedThrows(id);
        }
        catch (InvalidOperationException)
        {
            MixedAfterThrow();
        }
        return "mixed";
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MixedBefore() => Burn(3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MixedAfterAwait() => Burn(3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MixedPart()
    {
        using Activity? part = Source.StartActivity("part");
        if (part != null)
            Interlocked.Increment(ref Made);
        Burn(4);
        GC.KeepAlive(MixedAllocates());
        MixedLocks();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static byte[][] MixedAllocates()
    {
        var kept = new byte[64][];
        for (int i = 0; i < kept.Length; i++)
            kept[i] = new byte[2000];
        return kept;
    }

    // Three parts at once, and those of other requests.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MixedLocks()
    {
        lock (Source)
            Burn(1);
    }

    private static async Task MixedThrows(int id)
    {
        using Activity? part = Source.StartActivity("throws");
        if (part != null)
            Interlocked.Increment(ref Made);
        await Task.Yield();
        MixedBeforeThrow();
        throw new InvalidOperationException($"as asked by {id}");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MixedBeforeThrow() => Burn(3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MixedAfterThrow() => Burn(3);

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Burn(int ms)
    {
        long until = Stopwatch.GetTimestamp() + ms * Stopwatch.Frequency / 1000;
        ulong x = 1;
        while (Stopwatch.GetTimestamp() < until)
            x = Work.Burn(x, 1000);
        GC.KeepAlive(x);
    }
}
