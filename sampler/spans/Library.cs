using System;
using System.IO;
using System.Runtime.InteropServices;
using System.Threading;

namespace Clrpulse;

// struct clp_span of clp_span.h.
[StructLayout(LayoutKind.Sequential)]
internal struct NativeSpan
{
    internal ulong TraceHigh, TraceLow, Span, LocalRoot;
    internal uint Endpoint, Reserved;
}

// struct clp_span_cell of clp_span.h: its thread writes the copy that is not in force, then raises
// the version.
[StructLayout(LayoutKind.Sequential, Size = 128)]
internal struct NativeCell
{
    internal ulong Version;
    internal NativeSpan Even, Odd;
}

// libclrpulse.so as it lies in this process. It is only ever found, never brought: without it nothing
// here does anything.
internal static unsafe class Library
{
    internal const uint Abi = 1;
    internal const uint NoEndpoint = 0;
    private const string FileName = "/libclrpulse.so";
    private const string Gone = " (deleted)"; // the agent takes its copy away once it is loaded

    private static delegate* unmanaged<uint, NativeCell*> cell;
    private static delegate* unmanaged<byte*, nuint, uint> endpoint;
    private static delegate* unmanaged[SuppressGCTransition]<ulong, int> rootSampled;
    private static delegate* unmanaged<ulong, byte*, nuint, void> rootEnded;
    private static delegate* unmanaged[SuppressGCTransition]<uint, void> requestEnded;
    private static delegate* unmanaged<void> hookRuns;
    private static uint* generation;

    internal static bool Found => generation != null;

    // Somebody records samples now.
    internal static bool Live => generation != null && (Volatile.Read(ref *generation) & 1) != 0;

    internal static bool Find()
    {
        if (Found)
            return true;
        foreach (string line in File.ReadLines("/proc/self/maps"))
        {
            int slash = line.IndexOf('/');
            if (slash < 0)
                continue;
            string path = line.Substring(slash);
            if (path.EndsWith(Gone, StringComparison.Ordinal))
                path = path.Substring(0, path.Length - Gone.Length);
            // Loaded already, so this opens nothing: it finds the module by the same text.
            if (path.EndsWith(FileName, StringComparison.Ordinal)
                && NativeLibrary.TryLoad(path, out IntPtr library) && Take(library))
                return true;
        }
        return false;
    }

    private static bool Take(IntPtr library)
    {
        if (!NativeLibrary.TryGetExport(library, "clp_span_cell", out IntPtr c)
            || !NativeLibrary.TryGetExport(library, "clp_span_endpoint", out IntPtr e)
            || !NativeLibrary.TryGetExport(library, "clp_span_root_sampled", out IntPtr s)
            || !NativeLibrary.TryGetExport(library, "clp_span_root_ended", out IntPtr r)
            || !NativeLibrary.TryGetExport(library, "clp_span_request_ended", out IntPtr q)
            || !NativeLibrary.TryGetExport(library, "clp_span_hook_runs", out IntPtr h)
            || !NativeLibrary.TryGetExport(library, "clp_span_generation", out IntPtr g))
            return false;
        cell = (delegate* unmanaged<uint, NativeCell*>)c;
        endpoint = (delegate* unmanaged<byte*, nuint, uint>)e;
        rootSampled = (delegate* unmanaged[SuppressGCTransition]<ulong, int>)s;
        rootEnded = (delegate* unmanaged<ulong, byte*, nuint, void>)r;
        requestEnded = (delegate* unmanaged[SuppressGCTransition]<uint, void>)q;
        hookRuns = (delegate* unmanaged<void>)h;
        generation = ((delegate* unmanaged<uint*>)g)();
        return true;
    }

    internal static NativeCell* Cell() => cell(Abi);

    internal static bool WasSampled(ulong root) => rootSampled(root) != 0;

    internal static void RequestEnded(uint endpoint) => requestEnded(endpoint);

    internal static void HookRuns() => hookRuns();

    internal static uint Endpoint(string name)
    {
        Span<byte> utf8 = stackalloc byte[MaxName];
        utf8 = utf8.Slice(0, Encode(name, utf8));
        fixed (byte* p = utf8)
            return endpoint(p, (nuint)utf8.Length);
    }

    internal static void RootEnded(ulong root, string name)
    {
        Span<byte> utf8 = stackalloc byte[MaxName];
        utf8 = utf8.Slice(0, Encode(name, utf8));
        fixed (byte* p = utf8)
            rootEnded(root, p, (nuint)utf8.Length);
    }

    private const int MaxName = 256;

    // As much of it as fits; the library cuts once more, on a whole character.
    private static int Encode(string name, Span<byte> utf8)
    {
        System.Text.Unicode.Utf8.FromUtf16(name, utf8, out _, out int bytes);
        return bytes;
    }
}
