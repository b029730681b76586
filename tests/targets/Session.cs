using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Text;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

internal sealed class Options
{
    private readonly Dictionary<string, string> values = new();

    public Options(string[] args)
    {
        for (int i = 1; i + 1 < args.Length; i += 2)
        {
            if (!args[i].StartsWith("--", StringComparison.Ordinal))
                throw new ArgumentException($"'{args[i]}' is no option: use --KEY VALUE");
            values[args[i][2..]] = args[i + 1];
        }
    }

    public string Text(string key, string otherwise) => values.GetValueOrDefault(key, otherwise);

    public double Number(string key, double otherwise) =>
        values.TryGetValue(key, out string? text)
            ? double.Parse(text, CultureInfo.InvariantCulture) : otherwise;

    public int Count(string key, int otherwise) => (int)Number(key, otherwise);
}

internal abstract class Mode
{
    // Called before "ready": threads that are to exist at an attach are made here.
    public virtual void Prepare() { }
    public abstract void Begin();
    // Returns when nothing of the mode uses CPU any more.
    public abstract void End();
    public abstract void Describe(Utf8JsonWriter json);
}

// What every mode can have beside it: --gap 1 adds a ticking thread, --gc-rate N a collecting one.
internal sealed class Session
{
    private readonly string name;
    private readonly Mode mode;
    private readonly List<Mode> companions = new();
    private readonly Stream output = Console.OpenStandardOutput();
    private ulong beganAt, beganCpu;

    public Session(string name, Options options, Mode mode)
    {
        this.name = name;
        this.mode = mode;
        if (options.Count("gap", 0) != 0)
            companions.Add(new GapProbe());
        if (options.Number("gc-rate", 0) != 0)
            companions.Add(new GcCompanion(options));
    }

    public void Ready()
    {
        mode.Prepare();
        companions.ForEach(c => c.Prepare());
        Print(json =>
        {
            json.WriteBoolean("ready", true);
            json.WriteNumber("pid", Environment.ProcessId);
            json.WriteString("mode", name);
            json.WriteString("runtime", Environment.Version.ToString());
            json.WriteBoolean("server_gc", System.Runtime.GCSettings.IsServerGC);
        });
    }

    public int RunFor(TimeSpan duration)
    {
        Begin();
        Thread.Sleep(duration);
        End();
        return 0;
    }

    public int Obey(TextReader commands)
    {
        bool running = false;
        while (commands.ReadLine() is { } line)
        {
            string[] words = line.Split(' ', StringSplitOptions.RemoveEmptyEntries);
            switch (words.Length == 0 ? "" : words[0])
            {
            case "begin" when !running:
                Begin();
                running = true;
                break;
            case "end" when running:
                End();
                running = false;
                break;
            case "state":
                Print(ProcessState.Write);
                break;
            case "quit":
                if (running)
                    End();
                return words.Length > 1 ? int.Parse(words[1], CultureInfo.InvariantCulture) : 0;
            default:
                Print(json => json.WriteString("error", $"unknown command now: {line}"));
                break;
            }
        }
        return 0;
    }

    private void Begin()
    {
        beganAt = Native.Now(Native.ClockMonotonic);
        beganCpu = Native.Now(Native.ClockProcessCpu);
        companions.ForEach(c => c.Begin());
        mode.Begin();
        Print(json =>
        {
            json.WriteBoolean("begun", true);
            json.WriteNumber("time_ns", beganAt);
        });
    }

    private void End()
    {
        mode.End();
        companions.ForEach(c => c.End());
        ulong cpu = Native.Now(Native.ClockProcessCpu), now = Native.Now(Native.ClockMonotonic);
        Print(json =>
        {
            json.WriteStartObject("truth");
            json.WriteString("mode", name);
            json.WriteNumber("begin_ns", beganAt);
            json.WriteNumber("end_ns", now);
            json.WriteNumber("process_cpu_ns", cpu - beganCpu);
            mode.Describe(json);
            companions.ForEach(c => c.Describe(json));
            json.WriteEndObject();
        });
    }

    private void Print(Action<Utf8JsonWriter> body)
    {
        var buffer = new MemoryStream();
        using (var json = new Utf8JsonWriter(buffer))
        {
            json.WriteStartObject();
            body(json);
            json.WriteEndObject();
        }
        buffer.WriteByte((byte)'\n');
        output.Write(buffer.GetBuffer(), 0, (int)buffer.Length);
        output.Flush();
    }
}
