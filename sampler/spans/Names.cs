using System;

namespace Clrpulse;

// Numbers of endpoint names. Names are few and mostly the same objects, so most questions end at a
// comparison of references; each is asked anew from time to time, which keeps its number in use.
// The time is the caller's: an activity knows some, and reading a clock would cost as much as all else.
internal static class Names
{
    private sealed record Entry(string Name, uint Endpoint, long At);

    private const int Places = 256;
    private const ulong AgainTicks = 10 * TimeSpan.TicksPerSecond;
    private static readonly Entry?[] Known = new Entry?[Places];

    // `now` may go back, as clocks do: the name is then asked anew.
    internal static uint Of(string name, DateTime now)
    {
        int place = Place(name);
        Entry? entry = Known[place];
        if (entry != null && entry.Name == name && (ulong)(now.Ticks - entry.At) < AgainTicks)
            return entry.Endpoint;
        uint endpoint = Library.Endpoint(name);
        Known[place] = new Entry(name, endpoint, now.Ticks);
        return endpoint;
    }

    // Routes differ in their length and at their end.
    private static int Place(string name)
    {
        int n = name.Length;
        return n == 0 ? 0 : (n * 31 + name[n - 1] + name[n / 2] * 7) & (Places - 1);
    }
}
