using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// A large heap of small objects, a part of which is replaced all the time, beside garbage: --heap-mb N of cells of
// 1 KB, --replace-mb N of which a round replaces beside --churn-mb of short lives.  A round asks for --background N
// collections of all generations that need not block; they are background ones unless a profiler forbids it.
// The work of a round is of a fixed size.  Pauses are those that the runtime tells of each collection.
internal sealed class BigHeapMode : Mode
{
    private const int CellBytes = 1024, ShelfCells = 1000;

    private sealed class Cell
    {
        public Cell? Other;
        public readonly byte[] Bytes = new byte[CellBytes - 56];
    }

    private readonly Crew crew = new();
    private readonly Cell[][] shelves;
    private readonly int replaced, churned, asked;
    private readonly List<ulong> pauses = new(1 << 16);
    private readonly int[] before = new int[3], after = new int[3];
    private long background;
    private Thread? watcher;
    private volatile bool stop;
    private static byte[]? sink;

    public BigHeapMode(Options options)
    {
        shelves = new Cell[Cells(options, "heap-mb", 3000) / ShelfCells][];
        replaced = Cells(options, "replace-mb", 300);
        churned = Cells(options, "churn-mb", 3000);
        asked = options.Count("background", 4);
    }

    private static int Cells(Options options, string key, int otherwise) =>
        (int)(options.Count(key, otherwise) * 1e6 / CellBytes);

    public override void Prepare()
    {
        for (int i = 0; i < shelves.Length; i++)
        {
            shelves[i] = new Cell[ShelfCells];
            for (int k = 0; k < ShelfCells; k++)
                shelves[i][k] = new Cell();
        }
        crew.Add("replacer", Replace);
    }

    private void Replace(Worker w)
    {
        ulong x = 88172645463325252;
        for (int i = 0; i < replaced; i++)
        {
            x = Work.Step(x);
            MakeCell(ref shelves[x % (ulong)shelves.Length][(x >> 32) % ShelfCells], x);
            for (int k = 0; k < churned / replaced; k++)
                MakeChurn();
            if (i % (replaced / asked) == 0)
                GC.Collect(2, GCCollectionMode.Forced, blocking: false);
            w.Loops++;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private void MakeCell(ref Cell place, ulong x) =>
        place = new Cell { Other = shelves[(x >> 8) % (ulong)shelves.Length][(x >> 40) % ShelfCells] };

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void MakeChurn() => sink = new byte[CellBytes - 24];

    private void Watch()
    {
        long seen = GC.GetGCMemoryInfo(GCKind.Any).Index, seenBackground = GC.GetGCMemoryInfo(GCKind.Background).Index;
        while (!stop)
        {
            Thread.Sleep(1);
            GCMemoryInfo any = GC.GetGCMemoryInfo(GCKind.Any);
            if (any.Index != seen)
                foreach (TimeSpan pause in any.PauseDurations)
                    if (pause > TimeSpan.Zero)
                        pauses.Add((ulong)pause.TotalNanoseconds);
            seen = any.Index;
            long now = GC.GetGCMemoryInfo(GCKind.Background).Index;
            background += now != seenBackground ? 1 : 0;
            seenBackground = now;
        }
    }

    private static void Look(int[] counts)
    {
        for (int i = 0; i < 3; i++)
            counts[i] = GC.CollectionCount(i);
    }

    public override void Begin()
    {
        pauses.Clear();
        background = 0;
        stop = false;
        Look(before);
        watcher = new Thread(Watch) { IsBackground = true, Name = "watcher" };
        watcher.Start();
        crew.Begin();
    }

    public override void End()
    {
        crew.WaitUntilDone();
        stop = true;
        watcher!.Join();
        Look(after);
    }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteStartArray("collections");
        for (int i = 0; i < 3; i++)
            json.WriteNumberValue(after[i] - before[i]);
        json.WriteEndArray();
        json.WriteNumber("background", background);
        json.WriteNumber("heap_bytes", GC.GetTotalMemory(false));
        Percentiles.Write(json, "pauses", new[] { pauses });
        json.WriteStartArray("each_pause_ns");
        pauses.ForEach(json.WriteNumberValue);
        json.WriteEndArray();
        crew.Describe(json);
    }
}
