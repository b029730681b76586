using System;
using System.Collections.Generic;
using System.Collections.Concurrent;
using System.Diagnostics;
using System.IO;
using System.IO.Pipes;
using System.Net;
using System.Net.Sockets;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ClpTarget;

// One thread for each way to wait, named after it (at most 15 letters: the kernel's name).  They wait
// until the program ends; a call that a debugger interrupts is made again.
internal sealed unsafe class WaitKindsMode : Mode
{
    private readonly List<(string Name, string Wait)> kinds = new();
    private readonly object held = new(), pulsed = new();
    private readonly List<IDisposable> kept = new();
    private int started;

    public WaitKindsMode(Options options) => _ = options;

    public override void Prepare()
    {
        Monitor.Enter(held);
        AddLocks();
        AddEvents();
        AddTasks();
        AddInputs();
        AddCalls();
        AddShapes();
        // A pool worker that has run something, and waits for more.
        Task.Run(() => Thread.Sleep(1)).Wait();
        while (Volatile.Read(ref started) < kinds.Count)
            Thread.Sleep(1);
        Thread.Sleep(500);
    }

    private void Add(string name, string wait, Action body)
    {
        kinds.Add((name, wait));
        var thread = new Thread(() =>
        {
            Interlocked.Increment(ref started);
            for (;;)
                body();
        }) { IsBackground = true, Name = name };
        thread.Start();
    }

    private void AddLocks()
    {
        Add("monitor-enter", "lock", () => { lock (held) { } });
        Add("synchronized", "lock", Synchronized);
        var readers = new ReaderWriterLockSlim();
        readers.EnterWriteLock();
        Add("rw-read", "lock", readers.EnterReadLock);
        Add("rw-write", "lock", readers.EnterWriteLock);
#if NET9_0_OR_GREATER
        var typed = new Lock();
        typed.Enter();
        Add("lock-type", "lock", typed.Enter);
#endif
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void Synchronized()
    {
        bool taken = false;
        Monitor.TryEnter(held, Timeout.Infinite, ref taken);
    }

    private void AddEvents()
    {
        Add("monitor-wait", "event", () => { lock (pulsed) Monitor.Wait(pulsed); });
        var manual = new ManualResetEvent(false);
        var auto = new AutoResetEvent(false);
        Add("manual-event", "event", () => manual.WaitOne());
        Add("auto-event", "event", () => auto.WaitOne());
        Add("wait-any", "event", () => WaitHandle.WaitAny(new WaitHandle[] { manual, auto }));
        Add("wait-all", "event", () => WaitHandle.WaitAll(new WaitHandle[] { manual, auto }));
        Add("event-slim", "event", new ManualResetEventSlim(false).Wait);
        var semaphore = new Semaphore(0, 1);
        Add("semaphore", "event", () => semaphore.WaitOne());
        Add("semaphore-slim", "event", new SemaphoreSlim(0).Wait);
        Add("countdown", "event", new CountdownEvent(1).Wait);
        Add("barrier", "event", new Barrier(2).SignalAndWait);
        var mutex = new Mutex(true);
        Add("mutex", "event", () => mutex.WaitOne());
        var forever = new Thread(() => Thread.Sleep(Timeout.Infinite)) { IsBackground = true, Name = "sleep" };
        kinds.Add(("sleep", "sleep"));
        Interlocked.Increment(ref started);
        forever.Start();
        Add("join", "event", forever.Join);
        var queue = new BlockingCollection<int>();
        Add("blocking-queue", "event", () => queue.Take());
    }

    private void AddTasks()
    {
        Task never = new TaskCompletionSource().Task;
        Task<int> answer = new TaskCompletionSource<int>().Task;
        Add("task-wait", "task", never.Wait);
        Add("task-result", "task", () => _ = answer.Result);
        Add("task-wait-all", "task", () => Task.WaitAll(never, answer));
        Add("task-wait-any", "task", () => Task.WaitAny(never, answer));
        Add("awaiter", "task", () => answer.GetAwaiter().GetResult());
    }

    private void AddInputs()
    {
        var listener = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listener.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listener.Listen();
        var client = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        client.Connect(listener.LocalEndPoint!);
        Socket server = listener.Accept();
        kept.Add(listener);
        Add("socket-accept", "io", () => listener.Accept());
        Add("socket-receive", "io", () => client.Receive(new byte[1]));
        Add("net-stream", "io", () => new NetworkStream(server).ReadByte());
        var pipe = new AnonymousPipeServerStream(PipeDirection.In);
        kept.Add(pipe);
        Add("pipe-stream", "io", () => pipe.ReadByte());
        string fifo = Path.Combine(Path.GetTempPath(), $"clp-fifo-{Environment.ProcessId}");
        fixed (byte* path = Encoding.UTF8.GetBytes(fifo + '\0'))
            mkfifo(path, 0x180);
        Add("open-fifo", "io", () => File.OpenRead(fifo).Dispose());
        Add("process", "process", () =>
        {
            // Ends with this program, however that ends: its input is closed then.
            using Process child = Process.Start(
                new ProcessStartInfo("/bin/cat") { RedirectStandardInput = true })!;
            child.WaitForExit();
        });
    }

    [DllImport("libc.so.6")] private static extern int mkfifo(byte* path, int mode);
    [DllImport("libc.so.6")] private static extern int pause();
    [DllImport("libc.so.6")] private static extern nint read(int fd, void* buffer, nuint count);
    [DllImport("libc.so.6")] private static extern int pipe(int* fds);
    [DllImport("libc.so.6")] private static extern int sem_wait(void* semaphore);
    [DllImport("libc.so.6")] private static extern int pthread_mutex_lock(void* mutex);
    [DllImport("libc.so.6")] private static extern int pthread_cond_wait(void* condition, void* mutex);

    private static void* Zeroed(int bytes)
    {
        void* p = NativeMemory.AllocZeroed((nuint)bytes);
        return p;
    }

    // P/Invokes of the program's own.
    private void AddCalls()
    {
        int* fds = (int*)Zeroed(16);
        int first, second;
        pipe(fds);
        first = fds[0];
        Native.socketpair(1, 1, 0, fds);
        second = fds[0];
        Add("pi-poll", "io", () => Native.poll(null, 0, -1));
        Add("pi-select", "io", () => Native.select(0, null, null, null, null));
        int epoll = Native.epoll_create1(0);
        Add("pi-epoll", "io", () => { Native.EpollEvent e; Native.epoll_wait(epoll, &e, 1, -1); });
        Add("pi-read", "io", () => { byte b; read(first, &b, 1); });
        Add("pi-recv", "io", () => { byte b; Native.recv(second, &b, 1, 0); });
        Add("pi-usleep", "sleep", () => Native.usleep(900_000_000));
        Add("pi-nanosleep", "sleep", () => { var t = Native.TimeSpec.Of(900_000_000_000); Native.nanosleep(&t, null); });
        Add("pi-pause", "event", () => pause());
        void* semaphore = Zeroed(64), mutex = Zeroed(64), condition = Zeroed(64), inner = Zeroed(64);
        pthread_mutex_lock(mutex);
        Add("pi-semaphore", "lock", () => sem_wait(semaphore));
        Add("pi-mutex", "lock", () => pthread_mutex_lock(mutex));
        Add("pi-condition", "lock", () => pthread_cond_wait(condition, inner));
    }

    // Callers whose frames are out of the ordinary.
    private void AddShapes()
    {
        Add("localloc", "io", () => WithLocalloc(100));
        Add("big-frame", "io", WithBigFrame);
        Add("catch", "io", WithCatch);
        Add("finally", "io", WithFinally);
        Add("osr", "io", () => WithOsr(200_000));
        Add("generic", "io", () => WithGeneric<string>("x"));
        Add("dynamic", "io", MakeDynamic());
        Add("callback", "io", WithCallback);
        nint libc = NativeLibrary.Load("libc.so.6");
        var address = (delegate* unmanaged[Cdecl]<void*, ulong, int, int>)NativeLibrary.GetExport(libc, "poll");
        Add("pointer", "io", () => address(null, 0, -1));
        Add("arguments", "io", () => ManyArguments(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int WithLocalloc(int n)
    {
        byte* p = stackalloc byte[n + (int)(Stopwatch.GetTimestamp() & 63)];
        p[0] = 1;
        return Native.poll(null, 0, -1) + p[0];
    }

    private struct Big
    {
        public fixed byte Bytes[9000];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void WithBigFrame()
    {
        Big big;
        big.Bytes[8999] = 1;
        Native.poll(null, 0, -1);
        GC.KeepAlive(big.Bytes[8999]);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void WithCatch()
    {
        try
        {
            throw new InvalidOperationException();
        }
        catch (InvalidOperationException)
        {
            Native.poll(null, 0, -1);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void WithFinally()
    {
        try
        {
            GC.KeepAlive(null);
        }
        finally
        {
            Native.poll(null, 0, -1);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ulong WithOsr(int loops)
    {
        ulong x = 1;
        for (int i = 0; i <= loops; i++)
        {
            x = Work.Step(x);
            if (i == loops)
                Native.poll(null, 0, -1);
        }
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int WithGeneric<T>(T value) => Native.poll(null, 0, -1) + (value is null ? 1 : 0);

    private static Action MakeDynamic()
    {
        var method = new DynamicMethod("DynamicWait", null, Type.EmptyTypes, typeof(WaitKindsMode), true);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldc_I4_0);
        il.Emit(OpCodes.Conv_U);
        il.Emit(OpCodes.Ldc_I8, 0L);
        il.Emit(OpCodes.Ldc_I4_M1);
        il.Emit(OpCodes.Call, typeof(Native).GetMethod(nameof(Native.poll))!);
        il.Emit(OpCodes.Pop);
        il.Emit(OpCodes.Ret);
        return method.CreateDelegate<Action>();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void WithCallback()
    {
        int* two = stackalloc int[2] { 2, 1 };
        Native.QsortUnmanaged(two, 2, sizeof(int), &Compare);
    }

    [UnmanagedCallersOnly(CallConvs = new[] { typeof(CallConvCdecl) })]
    private static int Compare(int* left, int* right)
    {
        Native.poll(null, 0, -1);
        return *left - *right;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int ManyArguments(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j) =>
        Native.poll(null, 0, -1) + a + b + c + d + e + f + g + h + i + j;

    public override void Begin()
    {
    }

    public override void End()
    {
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteStartObject("kinds");
        foreach ((string name, string wait) in kinds)
            json.WriteString(name, wait);
        json.WriteEndObject();
    }
}
