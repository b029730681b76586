using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// One managed thread that waits without CPU until a round begins, does its body, and keeps its own
// CPU clock at both ends as the truth for the profile.
internal sealed class Worker
{
    private readonly AutoResetEvent gate = new(false);
    private readonly ManualResetEvent done = new(true);
    private readonly Action<Worker> body;
    private volatile bool stop;
    private bool quit;

    public string? Name { get; }
    public int Index { get; }
    public int Tid { get; private set; }
    public ulong CpuBegin { get; private set; }
    public ulong CpuEnd { get; private set; }
    public long Loops;
    public ulong Checksum;
    public string? Failure { get; private set; }
    public string[] Expect { get; init; } = Array.Empty<string>();

    public bool Stop => stop;

    public Worker(string? name, int index, Action<Worker> body, int stackBytes = 0)
    {
        Name = name;
        Index = index;
        this.body = body;
        var thread = new Thread(Live, stackBytes) { IsBackground = true };
        if (name != null)
            thread.Name = name;
        thread.Start();
        // Ready means that all threads exist and know themselves.
        while (Volatile.Read(ref ready) == 0)
            Thread.Sleep(1);
    }

    private int ready;

    private void Live()
    {
        Tid = Native.gettid();
        Volatile.Write(ref ready, 1);
        for (;;)
        {
            gate.WaitOne();
            if (quit)
                return;
            CpuBegin = Native.Now(Native.ClockThreadCpu);
            try
            {
                body(this);
            }
            catch (Exception e)
            {
                Failure = e.ToString();
            }
            CpuEnd = Native.Now(Native.ClockThreadCpu);
            done.Set();
        }
    }

    public void Begin()
    {
        stop = false;
        Loops = 0;
        Checksum = 0;
        done.Reset();
        gate.Set();
    }

    public void AskToStop() => stop = true;

    public void Join() => done.WaitOne();

    // Ends the thread itself.
    public void Leave()
    {
        quit = true;
        gate.Set();
    }

    public void Describe(Utf8JsonWriter json)
    {
        json.WriteStartObject();
        json.WriteString("name", Name);
        json.WriteNumber("tid", Tid);
        json.WriteNumber("cpu_begin_ns", CpuBegin);
        json.WriteNumber("cpu_end_ns", CpuEnd);
        json.WriteNumber("loops", Loops);
        json.WriteNumber("checksum", Checksum);
        if (Failure != null)
            json.WriteString("failure", Failure);
        json.WriteStartArray("expect");
        foreach (string method in Expect)
            json.WriteStringValue(method);
        json.WriteEndArray();
        json.WriteEndObject();
    }
}

internal sealed class Crew
{
    public List<Worker> Workers { get; } = new();

    public Worker Add(string? name, Action<Worker> body, int stackBytes = 0, params string[] expect)
    {
        var worker = new Worker(name, Workers.Count, body, stackBytes) { Expect = expect };
        Workers.Add(worker);
        return worker;
    }

    public void Begin() => Workers.ForEach(w => w.Begin());

    public void End()
    {
        Workers.ForEach(w => w.AskToStop());
        Workers.ForEach(w => w.Join());
    }

    // Loops of the worker that made the fewest, of those that make any.
    public long Steps()
    {
        long least = long.MaxValue;
        foreach (Worker w in Workers)
        {
            long loops = Volatile.Read(ref w.Loops);
            least = loops > 0 ? Math.Min(least, loops) : least;
        }
        return least == long.MaxValue ? 0 : least;
    }

    // For modes whose work is of a fixed size.
    public void WaitUntilDone() => Workers.ForEach(w => w.Join());

    public void Describe(Utf8JsonWriter json, string key = "threads")
    {
        json.WriteStartArray(key);
        Workers.ForEach(w => w.Describe(json));
        json.WriteEndArray();
    }
}
