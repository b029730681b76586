using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// System calls that report EINTR or return early when a signal arrives, one thread each, with CPU
// work in between so that a sampler has a reason to look at the thread.
internal sealed unsafe class InterruptMode : Mode
{
    private delegate int Wait(out long earlyNs);

    private sealed class Counts
    {
        public string Call = "";
        public long Calls, Eintr, Early, Errors;
        public long WorstEarlyNs;
    }

    private readonly Crew crew = new();
    private readonly List<Counts> counts = new();
    private readonly int[] pair = new int[2];
    private readonly int epoll;
    private readonly string lockPath = Path.GetTempFileName();

    public InterruptMode(Options options)
    {
        _ = options;
        epoll = Native.epoll_create1(0);
        fixed (int* fds = pair)
            Native.socketpair(1 /* AF_UNIX */, 1 /* SOCK_STREAM */, 0, fds);
        var timeout = Native.TimeVal.Of(20_000);
        Native.setsockopt(pair[0], 1 /* SOL_SOCKET */, 20 /* SO_RCVTIMEO */, &timeout, (uint)sizeof(Native.TimeVal));
    }

    public override void Prepare()
    {
        // The kernel counts SO_RCVTIMEO in ticks of up to 10 ms and may be one short by itself.
        Add("poll", 5_000_000, 0, () => Native.poll(null, 0, 5));
        Add("select", 5_000_000, 0, () =>
        {
            var timeout = Native.TimeVal.Of(5_000);
            return Native.select(0, null, null, null, &timeout);
        });
        Add("nanosleep", 3_000_000, 0, () =>
        {
            var time = Native.TimeSpec.Of(3_000_000);
            return Native.nanosleep(&time, null);
        });
        Add("usleep", 3_000_000, 0, () => Native.usleep(3_000));
        Add("epoll_wait", 5_000_000, 0, () =>
        {
            Native.EpollEvent got;
            return Native.epoll_wait(epoll, &got, 1, 5);
        });
        Add("recv", 20_000_000, 10_000_000, () =>
        {
            byte buffer;
            int result = (int)Native.recv(pair[0], &buffer, 1, 0);
            return result < 0 && Marshal.GetLastPInvokeError() == Native.Eagain ? 0 : result;
        });
        Add("flock-0", 0, 0, () => Lock(Open()));
        Add("flock-1", 0, 0, () => Lock(Open()));
    }

    private int Open()
    {
        fixed (byte* path = Encoding.UTF8.GetBytes(lockPath + '\0'))
            return Native.open(path, 2 /* O_RDWR */, 0);
    }

    private static int Lock(int fd)
    {
        int result = Native.flock(fd, 2 /* LOCK_EX */);
        int error = Marshal.GetLastPInvokeError();
        if (result == 0)
            Thread.Sleep(2);
        Native.close(fd);
        Marshal.SetLastPInvokeError(error);
        return result;
    }

    private void Add(string call, ulong waitNs, ulong toleranceNs, Func<int> wait)
    {
        var count = new Counts { Call = call };
        counts.Add(count);
        crew.Add(call, worker =>
        {
            while (!worker.Stop)
            {
                worker.Checksum = Work.Burn(worker.Checksum, 200_000);
                ulong start = Native.Now(Native.ClockMonotonic);
                int result = wait();
                int error = Marshal.GetLastPInvokeError();
                Note(count, result, error, Native.Now(Native.ClockMonotonic) - start, waitNs, toleranceNs);
                worker.Loops++;
            }
        });
    }

    private static void Note(Counts count, int result, int error, ulong took, ulong waitNs, ulong toleranceNs)
    {
        count.Calls++;
        if (result != 0)
        {
            if (error == Native.Eintr)
                count.Eintr++;
            else
                count.Errors++;
        }
        else if (took + toleranceNs < waitNs)
        {
            count.Early++;
            count.WorstEarlyNs = Math.Max(count.WorstEarlyNs, (long)(waitNs - took));
        }
    }

    public override void Begin()
    {
        foreach (Counts count in counts)
            count.Calls = count.Eintr = count.Early = count.Errors = count.WorstEarlyNs = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteStartArray("calls");
        foreach (Counts count in counts)
        {
            json.WriteStartObject();
            json.WriteString("call", count.Call);
            json.WriteNumber("calls", count.Calls);
            json.WriteNumber("eintr", count.Eintr);
            json.WriteNumber("early", count.Early);
            json.WriteNumber("worst_early_ns", count.WorstEarlyNs);
            json.WriteNumber("errors", count.Errors);
            json.WriteEndObject();
        }
        json.WriteEndArray();
        crew.Describe(json);
        File.Delete(lockPath);
    }
}
