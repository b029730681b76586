using System.Runtime.CompilerServices;

namespace ClpTarget;

// Arithmetic that the JIT cannot remove and that is the same on every machine.
internal static class Work
{
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static ulong Step(ulong x)
    {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        return x * 0x9e3779b97f4a7c15;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Burn(ulong x, int steps)
    {
        for (int i = 0; i < steps; i++)
            x = Step(x + (ulong)i);
        return x;
    }

    // Uses this much CPU of the calling thread, by its own clock.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong BurnCpu(ulong x, ulong cpuNs)
    {
        ulong end = Native.Now(Native.ClockThreadCpu) + cpuNs;
        do
        {
            x = Burn(x, 1000);
        } while (Native.Now(Native.ClockThreadCpu) < end);
        return x;
    }
}
