using System;
using System.Runtime.CompilerServices;

namespace Clrpulse;

// Numbers of endpoint names. Names are few and mostly the same objects, so most questions end at a
// comparison of references; each is asked anew from time to time, which keeps its number in use.
internal static class Names
{
    private sealed record Entry(string Name, uint Endpoint, long At);

    private const int Places = 256;
    private const long AgainMs = 10_000;
    private static readonly Entry?[] Known = new Entry?[Places];

    internal static uint Of(string name)
    {
        int place = RuntimeHelpers.GetHashCode(name) & (Places - 1);
        Entry? entry = Known[place];
        long now = Environment.TickCount64;
        if (entry != null && ReferenceEquals(entry.Name, name) && now - entry.At < AgainMs)
            return entry.Endpoint;
        uint endpoint = Library.Endpoint(name);
        Known[place] = new Entry(name, endpoint, now);
        return endpoint;
    }
}
