using System;
using System.Runtime.InteropServices;

namespace ClpTarget;

internal static unsafe class Native
{
    // "libc" would find the linker script of a development package first.
    private const string C = "libc.so.6";

    public const int ClockMonotonic = 1, ClockProcessCpu = 2, ClockThreadCpu = 3;
    public const int Eintr = 4, Eagain = 11;

    [StructLayout(LayoutKind.Sequential)]
    public struct TimeSpec
    {
        public long Seconds, Nanoseconds;
        public static TimeSpec Of(long ns) => new() { Seconds = ns / 1_000_000_000, Nanoseconds = ns % 1_000_000_000 };
    }

    [StructLayout(LayoutKind.Sequential)]
    public struct TimeVal
    {
        public long Seconds, Microseconds;
        public static TimeVal Of(long us) => new() { Seconds = us / 1_000_000, Microseconds = us % 1_000_000 };
    }

    [StructLayout(LayoutKind.Sequential)]
    public struct PollFd
    {
        public int Fd;
        public short Events, Returned;
    }

    [StructLayout(LayoutKind.Sequential, Pack = 4)]
    public struct EpollEvent
    {
        public uint Events;
        public ulong Data;
    }

    // Layout of glibc's struct sigaction on x86-64.
    [StructLayout(LayoutKind.Sequential)]
    public struct SigAction
    {
        public nint Handler;
        public fixed ulong Mask[16];
        public int Flags;
        public nint Restorer;
    }

    [DllImport(C)] private static extern int clock_gettime(int clock, TimeSpec* time);
    [DllImport(C)] public static extern int gettid();
    [DllImport(C)] public static extern void* malloc(nuint size);
    [DllImport(C)] public static extern void free(void* pointer);
    [DllImport(C)] public static extern int waitpid(int pid, int* status, int options);
    [DllImport(C)] public static extern int sigaction(int signal, SigAction* action, SigAction* old);
    [DllImport(C)] public static extern int __libc_current_sigrtmin();
    [DllImport(C)] public static extern void* mmap(void* address, nuint length, int protection, int flags, int fd, long offset);
    [DllImport(C)] public static extern int munmap(void* address, nuint length);
    [DllImport(C)] public static extern int close(int fd);

    [DllImport(C, SetLastError = true)] public static extern int poll(PollFd* fds, ulong count, int timeoutMs);
    [DllImport(C, SetLastError = true)] public static extern int select(int count, void* read, void* write, void* except, TimeVal* timeout);
    [DllImport(C, SetLastError = true)] public static extern int nanosleep(TimeSpec* wanted, TimeSpec* left);
    [DllImport(C, SetLastError = true)] public static extern int usleep(uint microseconds);
    [DllImport(C, SetLastError = true)] public static extern int epoll_create1(int flags);
    [DllImport(C, SetLastError = true)] public static extern int epoll_wait(int fd, EpollEvent* events, int count, int timeoutMs);
    [DllImport(C, SetLastError = true)] public static extern int socketpair(int domain, int type, int protocol, int* fds);
    [DllImport(C, SetLastError = true)] public static extern int setsockopt(int fd, int level, int name, void* value, uint length);
    [DllImport(C, SetLastError = true)] public static extern nint recv(int fd, void* buffer, nuint length, int flags);
    [DllImport(C, SetLastError = true)] public static extern int flock(int fd, int operation);
    [DllImport(C, SetLastError = true)] public static extern int open(byte* path, int flags, int mode);

    [DllImport(C, EntryPoint = "qsort")]
    public static extern void QsortUnmanaged(int* data, nuint count, nuint size,
        delegate* unmanaged[Cdecl]<int*, int*, int> compare);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate int Comparer(int* left, int* right);

    [DllImport(C, EntryPoint = "qsort")]
    public static extern void QsortDelegate(int* data, nuint count, nuint size, Comparer compare);

    public static ulong Now(int clock)
    {
        TimeSpec time;
        clock_gettime(clock, &time);
        return (ulong)time.Seconds * 1_000_000_000 + (ulong)time.Nanoseconds;
    }
}
