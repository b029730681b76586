// What the runtime calls: DOTNET_STARTUP_HOOKS at start, ApplyStartupHook in a running process. The
// name, the missing namespace and the signature are prescribed (dotnet/runtime,
// docs/design/features/host-startup-hook.md).

using System;
using System.Runtime.CompilerServices;
using System.Threading;

internal static class StartupHook
{
    private static int started;

    // An exception that leaves this method ends the process on .NET 9 and 10. What is used lies in a
    // method of its own: should a type be missing (a trimmed application), it is that method that
    // fails to compile, inside the try.
    public static void Initialize()
    {
        try
        {
            if (Interlocked.Exchange(ref started, 1) == 0 && !Start())
                Volatile.Write(ref started, 0); // no library yet: the next call may find one
        }
        catch (Exception)
        {
            Volatile.Write(ref started, 0);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static bool Start() => Clrpulse.ActivityFollower.Start();
}
