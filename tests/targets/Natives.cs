using System;
using System.Diagnostics;
using System.Runtime.InteropServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Everything that holds a native lock when a signal may arrive: the allocator, the loader, thread
// creation.
internal sealed unsafe class NativesMode : Mode
{
    // Small libraries of glibc that nothing else in the process has loaded.
    private static readonly string[] Libraries =
        { "libanl.so.1", "libBrokenLocale.so.1", "libthread_db.so.1", "libnss_compat.so.2" };

    private const int Starters = 8;

    private readonly Crew crew = new();
    private readonly double startsPerSecond;
    private long started, finished, loads;

    public NativesMode(Options options) => startsPerSecond = options.Number("rate", 500);

    public override void Prepare()
    {
        crew.Add("malloc-0", Malloc);
        crew.Add("malloc-1", Malloc);
        crew.Add("loader", Load);
        // A start waits for its thread to run; several starters keep up the rate on busy cores.
        for (int i = 0; i < Starters; i++)
            crew.Add($"starter-{i}", Start);
    }

    private static void Malloc(Worker worker)
    {
        void** kept = stackalloc void*[64];
        for (int i = 0; i < 64; i++)
            kept[i] = null;
        ulong x = (ulong)worker.Index + 1;
        while (!worker.Stop)
        {
            x = Work.Step(x);
            int slot = (int)(x & 63);
            Native.free(kept[slot]);
            kept[slot] = Native.malloc((nuint)(x >> 8 & 0x3fff) + 1);
            worker.Loops++;
        }
        for (int i = 0; i < 64; i++)
            Native.free(kept[i]);
    }

    private void Load(Worker worker)
    {
        while (!worker.Stop)
        {
            if (NativeLibrary.TryLoad(Libraries[worker.Loops % Libraries.Length], out nint handle))
            {
                NativeLibrary.Free(handle);
                loads++;
            }
            worker.Loops++;
            // Thread creation needs the loader's lock as well: leave it a chance.
            if (worker.Loops % 16 == 0)
                Thread.Sleep(1);
        }
    }

    private void Start(Worker worker)
    {
        ulong interval = (ulong)(1e9 * Starters / startsPerSecond), next = Native.Now(Native.ClockMonotonic);
        while (!worker.Stop)
        {
            new Thread(() =>
            {
                Work.Burn(1, 1000);
                Interlocked.Increment(ref finished);
            }) { IsBackground = true }.Start();
            worker.Loops++;
            Interlocked.Increment(ref started);
            next += interval;
            ulong now = Native.Now(Native.ClockMonotonic);
            if (next > now)
                Thread.Sleep(TimeSpan.FromMilliseconds((next - now) / 1e6));
            else
                next = now;
        }
        while (Interlocked.Read(ref finished) < Interlocked.Read(ref started))
            Thread.Sleep(1);
    }

    public override void Begin()
    {
        started = finished = loads = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("loads", loads);
        json.WriteNumber("started", started);
        crew.Describe(json);
    }
}

// fork without exec.  The child must not come back into managed code (the runtime's other threads
// do not exist there), so the call lies in a few bytes of machine code of our own.
internal sealed unsafe class ForkMode : Mode
{
    private const int ExitCode = 7;
    private const int NoHang = 1;

    private readonly Crew crew = new();
    private readonly delegate* unmanaged[Cdecl]<int> forkThenExit;
    private long forks, wrong, hung;
    private int firstWrongStatus;

    public ForkMode(Options options)
    {
        _ = options;
        forkThenExit = (delegate* unmanaged[Cdecl]<int>)MakeCode();
    }

    //   sub rsp,8; mov rax,fork; call rax; add rsp,8; test eax,eax; jz child; ret
    //   child: mov ecx,2000000; again: dec ecx; jnz again     (a millisecond in which a stray signal shows)
    //          mov edi,7; mov eax,231 (exit_group); syscall
    private static nint MakeCode()
    {
        byte[] code =
        {
            0x48, 0x83, 0xec, 0x08, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0,
            0x48, 0x83, 0xc4, 0x08, 0x85, 0xc0, 0x74, 0x01, 0xc3,
            0xb9, 0x80, 0x84, 0x1e, 0x00, 0xff, 0xc9, 0x75, 0xfc,
            0xbf, ExitCode, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05,
        };
        nint libc = NativeLibrary.Load("libc.so.6");
        BitConverter.TryWriteBytes(code.AsSpan(6), (long)NativeLibrary.GetExport(libc, "fork"));
        void* page = Native.mmap(null, 4096, 7 /* read, write, execute */, 0x22 /* private, anonymous */, -1, 0);
        if ((nint)page == -1)
            throw new InvalidOperationException("no executable page");
        code.CopyTo(new Span<byte>(page, 4096));
        return (nint)page;
    }

    public override void Prepare()
    {
        crew.Add("forker", Fork);
        crew.Add("busy", Busy);
    }

    private void Fork(Worker worker)
    {
        while (!worker.Stop)
        {
            int pid = forkThenExit();
            if (pid < 0)
                throw new InvalidOperationException("fork failed");
            forks++;
            Check(pid);
            worker.Loops++;
            worker.Checksum = Work.Burn(worker.Checksum, 20_000);
        }
    }

    private void Check(int pid)
    {
        int status = 0;
        ulong deadline = Native.Now(Native.ClockMonotonic) + 20_000_000_000;
        int got;
        while ((got = Native.waitpid(pid, &status, NoHang)) == 0 && Native.Now(Native.ClockMonotonic) < deadline)
            Thread.Sleep(1);
        if (got == 0)
            hung++;
        else if (got == pid && status != ExitCode << 8)
        {
            if (wrong++ == 0)
                firstWrongStatus = status;
        }
    }

    private static void Busy(Worker worker)
    {
        while (!worker.Stop)
        {
            worker.Checksum = Work.Burn(worker.Checksum, 100_000);
            worker.Loops++;
        }
    }

    public override void Begin()
    {
        forks = wrong = hung = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("forks", forks);
        json.WriteNumber("wrong", wrong);
        json.WriteNumber("hung", hung);
        json.WriteNumber("first_wrong_status", firstWrongStatus);
        crew.Describe(json);
    }
}

// Process.Start in a loop, in a process with much committed memory: a fork that copies page tables
// is slow there, and a signal in the child is fatal.
internal sealed unsafe class ProcessStartMode : Mode
{
    private readonly Crew crew = new();
    private readonly long bytes;
    private long starts, wrong;
    private void* memory;

    public ProcessStartMode(Options options) => bytes = (long)(options.Number("gb", 4) * (1L << 30));

    public override void Prepare()
    {
        memory = Native.mmap(null, (nuint)bytes, 3, 0x22, -1, 0);
        if ((nint)memory == -1)
            throw new InvalidOperationException($"no {bytes} bytes of memory");
        for (long at = 0; at < bytes; at += 4096)
            ((byte*)memory)[at] = 1;
        crew.Add("process-start", Start);
        crew.Add("busy", Busy);
    }

    private void Start(Worker worker)
    {
        while (!worker.Stop)
        {
            int expected = (int)(worker.Loops % 3);
            using var process = Process.Start(new ProcessStartInfo("/bin/sh", new[] { "-c", $"exit {expected}" })
            {
                RedirectStandardOutput = true,
            })!;
            process.StandardOutput.ReadToEnd();
            process.WaitForExit();
            starts++;
            if (process.ExitCode != expected)
                wrong++;
            worker.Loops++;
        }
    }

    private static void Busy(Worker worker)
    {
        while (!worker.Stop)
        {
            worker.Checksum = Work.Burn(worker.Checksum, 100_000);
            worker.Loops++;
        }
    }

    public override void Begin()
    {
        starts = wrong = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("starts", starts);
        json.WriteNumber("wrong", wrong);
        crew.Describe(json);
    }
}
