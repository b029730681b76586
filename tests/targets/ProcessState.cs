using System;
using System.IO;
using System.Linq;
using System.Text.Json;

namespace ClpTarget;

// What a profiler that came and went must have left as it was.
internal static unsafe class ProcessState
{
    public static void Write(Utf8JsonWriter json)
    {
        json.WriteStartObject("state");
        json.WriteStartArray("tasks");
        foreach (string task in Directory.GetDirectories("/proc/self/task"))
            WriteTask(json, task);
        json.WriteEndArray();
        json.WriteNumber("fds", Directory.GetFileSystemEntries("/proc/self/fd").Length);
        json.WriteNumber("rss_kb", long.Parse(Field("/proc/self/status", "VmRSS").Split(' ')[0]));
        WriteActions(json);
        json.WriteEndObject();
    }

    private static void WriteTask(Utf8JsonWriter json, string task)
    {
        try
        {
            string blocked = Field(task + "/status", "SigBlk"), name = Field(task + "/status", "Name");
            json.WriteStartObject();
            json.WriteNumber("tid", int.Parse(Path.GetFileName(task)));
            json.WriteString("name", name);
            json.WriteString("blocked", blocked);
            json.WriteEndObject();
        }
        catch (IOException)
        {
            // the thread has ended
        }
    }

    private static string Field(string path, string key) =>
        File.ReadLines(path).First(line => line.StartsWith(key + ":", StringComparison.Ordinal))[(key.Length + 1)..]
            .Trim();

    private static void WriteActions(Utf8JsonWriter json)
    {
        int realtime = Native.__libc_current_sigrtmin();
        json.WriteNumber("sigrtmin", realtime);
        json.WriteStartArray("actions");
        for (int signal = 1; signal <= 64; signal++)
        {
            Native.SigAction action;
            if (Native.sigaction(signal, null, &action) != 0)
                continue;
            json.WriteStartObject();
            json.WriteNumber("signal", signal);
            json.WriteString("handler", $"0x{action.Handler:x}");
            json.WriteString("flags", $"0x{action.Flags:x}");
            json.WriteString("mask", $"0x{action.Mask[0]:x}");
            json.WriteEndObject();
        }
        json.WriteEndArray();
    }
}
