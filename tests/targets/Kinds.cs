using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Text.Json;

namespace ClpTarget;

// Many types at once, each of them rare: --kinds N types of exceptions, each thrown --throws N times, one after the
// other, from a stack of --deep KB; an array of each is allocated beside it. Fixed work: `end` waits for it.
internal sealed class KindsMode : Mode
{
    private readonly int throws, deepBytes;
    private readonly List<Type> kinds = new();
    private readonly Dictionary<string, int> thrown = new();
    private readonly Crew crew = new();
    private static object? sink;

    public KindsMode(Options options)
    {
        throws = options.Count("throws", 3);
        deepBytes = options.Count("deep", 16) * 1024;
        ModuleBuilder module = AssemblyBuilder.DefineDynamicAssembly(new AssemblyName("Kinds"), AssemblyBuilderAccess.Run)
            .DefineDynamicModule("Kinds");
        for (int i = 0; i < options.Count("kinds", 200); i++)
        {
            TypeBuilder type = module.DefineType($"Kinds.Kind{i}", TypeAttributes.Public, typeof(Exception));
            type.DefineDefaultConstructor(MethodAttributes.Public);
            kinds.Add(type.CreateType());
        }
    }

    public override void Prepare() => crew.Add("thrower", Work);

    private void Work(Worker worker)
    {
        for (int n = 0; n < throws; n++)
        {
            foreach (Type kind in kinds)
            {
                Deep(deepBytes, (Exception)Activator.CreateInstance(kind)!);
                sink = Array.CreateInstance(kind, 30_000);
                thrown[kind.FullName!] = thrown.GetValueOrDefault(kind.FullName!) + 1;
                worker.Loops++;
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Deep(int bytes, Exception what)
    {
        Span<byte> room = stackalloc byte[1024];
        room[bytes % room.Length] = 1;
        if (bytes > 0)
            Deep(bytes - room.Length, what);
        else
            Throw(what);
        sink = room[0] == 1 ? what : null;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Throw(Exception what)
    {
        try
        {
            throw what;
        }
        catch (Exception)
        {
        }
    }

    public override void Begin()
    {
        thrown.Clear();
        crew.Begin();
    }

    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteStartObject("thrown");
        foreach (KeyValuePair<string, int> kind in thrown)
            json.WriteNumber(kind.Key, kind.Value);
        json.WriteEndObject();
        crew.Describe(json);
    }
}
