using System;
using System.Runtime.CompilerServices;
using System.Runtime.Intrinsics;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Threads that raise and catch NullReferenceExceptions all the time.  The runtime handles the
// underlying SIGSEGV on a small alternate stack, the place where a sampling signal is deadly.
//   --variant plain | deep (close to the end of the stack) | vector (live 512-bit registers)
internal sealed class StormMode : Mode
{
    private sealed class Node
    {
        public int Value = 1;
    }

    private readonly Crew crew = new();
    private readonly string variant;
    private readonly int threads, extraFrames;
    private long wrong;

    public StormMode(Options options)
    {
        variant = options.Text("variant", "plain");
        threads = options.Count("threads", 8);
        extraFrames = options.Count("extra-frames", 40);
    }

    public override void Prepare()
    {
        Action<Worker> body = variant switch
        {
            "plain" => Plain,
            "deep" => Deep,
            "vector" => Vector,
            _ => throw new ArgumentException($"unknown variant '{variant}'"),
        };
        for (int i = 0; i < threads; i++)
            crew.Add($"storm-{i}", body, variant == "deep" ? 512 << 10 : 0);
    }

    // 1 if the access raised what it has to raise.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int ThrowCatch(Node? node)
    {
        try
        {
            return node!.Value + 1;
        }
        catch (NullReferenceException)
        {
            return 1;
        }
    }

    private void Plain(Worker worker)
    {
        while (!worker.Stop)
        {
            if (ThrowCatch(null) != 1)
                Interlocked.Increment(ref wrong);
            worker.Loops++;
        }
    }

    private void Deep(Worker worker)
    {
        while (!worker.Stop)
            Descend(worker, extraFrames);
    }

    // Down to the runtime's own limit for safe code, then `extra` frames of 1 KB beyond it.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private ulong Descend(Worker worker, int extra)
    {
        Span<ulong> room = stackalloc ulong[128];
        room[extra & 127] = (ulong)extra;
        if (RuntimeHelpers.TryEnsureSufficientExecutionStack())
            return Descend(worker, extra) + room[0];
        if (extra > 0)
            return Descend(worker, extra - 1) + room[1];
        for (int i = 0; i < 50 && !worker.Stop; i++)
        {
            if (ThrowCatch(null) != 1)
                Interlocked.Increment(ref wrong);
            worker.Loops++;
        }
        return room[2];
    }

    private void Vector(Worker worker)
    {
        while (!worker.Stop)
        {
            if (!VectorRound((ulong)worker.Loops))
                Interlocked.Increment(ref wrong);
            worker.Loops++;
        }
    }

    // Eight vectors that stay in registers over the exception; each lane has a known value.
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static bool VectorRound(ulong seed)
    {
        Vector512<ulong> a = Vector512.Create(seed), b = a + Vector512.Create(1ul),
            c = b + b, d = c ^ a, e = d + b, f = e ^ c, g = f + d, h = g ^ e;
        Vector512<ulong> step = Vector512.Create(0x9e3779b97f4a7c15ul);
        ulong sa = seed, sb = sa + 1, sc = sb + sb, sd = sc ^ sa, se = sd + sb, sf = se ^ sc,
            sg = sf + sd, sh = sg ^ se;
        for (int i = 0; i < 64; i++)
        {
            a += h; b ^= a; c += step; d ^= c; e += b; f ^= e; g += d; h ^= g;
            sa += sh; sb ^= sa; sc += 0x9e3779b97f4a7c15; sd ^= sc; se += sb; sf ^= se; sg += sd; sh ^= sg;
            if ((i & 15) == 15 && ThrowCatch(null) != 1)
                return false;
        }
        return a == Vector512.Create(sa) && b == Vector512.Create(sb) && c == Vector512.Create(sc)
            && d == Vector512.Create(sd) && e == Vector512.Create(se) && f == Vector512.Create(sf)
            && g == Vector512.Create(sg) && h == Vector512.Create(sh);
    }

    public override void Begin()
    {
        wrong = 0;
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteString("variant", variant);
        json.WriteBoolean("vector512_hardware", Vector512.IsHardwareAccelerated);
        json.WriteNumber("wrong", wrong);
        crew.Describe(json);
    }
}
