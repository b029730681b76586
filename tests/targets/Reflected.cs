using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using System.Text.Json;

namespace ClpTarget;

// The same facts about methods as a profiler has them, from another source: reflection.
//   ClpTarget describe        reads lines "PATH TAB TOKEN(hex)", prints one JSON object for each
internal static class Reflected
{
    private const BindingFlags Declared = BindingFlags.Public | BindingFlags.NonPublic
        | BindingFlags.Static | BindingFlags.Instance | BindingFlags.DeclaredOnly;

    public static int Describe(TextReader input)
    {
        using Stream output = Console.OpenStandardOutput();
        for (string? line = input.ReadLine(); line != null; line = input.ReadLine())
        {
            string[] parts = line.Split('\t');
            int token = int.Parse(parts[1], NumberStyles.HexNumber, CultureInfo.InvariantCulture);
            MethodBase method = Load(parts[0]).ManifestModule.ResolveMethod(token)!;
            using var json = new Utf8JsonWriter(output);
            Write(json, method);
            json.Flush();
            output.WriteByte((byte)'\n');
        }
        return 0;
    }

    private static Assembly Load(string path) =>
        AppDomain.CurrentDomain.GetAssemblies().FirstOrDefault(a => a.Location == path)
        ?? AssemblyLoadContext.Default.LoadFromAssemblyPath(path);

    private static void Write(Utf8JsonWriter json, MethodBase method)
    {
        Type? type = method.DeclaringType;
        json.WriteStartObject();
        json.WriteString("type", type == null ? "" : RawName(type));
        json.WriteString("name", method.Name);
        json.WriteString("signature",
            string.Join(',', method.GetParameters().Select(p => Text(p.ParameterType))));
        WriteNames(json, "type_parameters", type?.GetGenericArguments());
        WriteNames(json, "method_parameters",
            method.IsGenericMethod ? method.GetGenericArguments() : null);
        json.WriteBoolean("overloaded", type != null && IsOverloaded(type, method.Name));
        json.WriteBoolean("async", IsMachine(type, t => t == typeof(IAsyncStateMachine)));
        json.WriteBoolean("iterator", IsMachine(type, t =>
            t == typeof(System.Collections.IEnumerator)
            || (t.IsGenericType && t.GetGenericTypeDefinition() == typeof(IAsyncEnumerator<>))));
        json.WriteEndObject();
    }

    private static void WriteNames(Utf8JsonWriter json, string key, Type[]? parameters)
    {
        json.WriteStartArray(key);
        foreach (Type parameter in parameters ?? Type.EmptyTypes)
            json.WriteStringValue(parameter.Name);
        json.WriteEndArray();
    }

    // Type.FullName escapes what compilers put into names.
    private static string RawName(Type type)
    {
        if (type.DeclaringType != null)
            return RawName(type.DeclaringType) + "+" + type.Name;
        return string.IsNullOrEmpty(type.Namespace) ? type.Name : type.Namespace + "." + type.Name;
    }

    private static string Text(Type type)
    {
        if (type.IsGenericParameter)
            return (type.DeclaringMethod != null ? "!!" : "!") + type.GenericParameterPosition;
        if (type.HasElementType)
            return Text(type.GetElementType()!) + Suffix(type);
        if (type.IsFunctionPointer)
            return Text(type.GetFunctionPointerReturnType()) + "("
                + string.Join(',', type.GetFunctionPointerParameterTypes().Select(Text)) + ")";
        if (type.IsGenericType)
            return RawName(type.GetGenericTypeDefinition()) + "["
                + string.Join(',', type.GetGenericArguments().Select(Text)) + "]";
        return RawName(type);
    }

    private static string Suffix(Type type)
    {
        if (type.IsByRef)
            return "&";
        if (type.IsPointer)
            return "*";
        int rank = type.GetArrayRank();
        return type.IsSZArray ? "[]" : rank == 1 ? "[*]" : "[" + new string(',', rank - 1) + "]";
    }

    // A compiler's `<M>...` stands for M of the type that people wrote it in.
    private static bool IsOverloaded(Type type, string name)
    {
        string? from = From(name) ?? From(type.Name);
        if (from == null)
            return Count(type, name) > 1;
        while (type.Name[0] == '<' && type.DeclaringType != null)
            type = type.DeclaringType;
        return Count(type, from) > 1;
    }

    private static int Count(Type type, string name) =>
        type.GetMembers(Declared).OfType<MethodBase>().Count(m => m.Name == name);

    private static string? From(string name)
    {
        string? found = null;
        while (name.StartsWith('<'))
        {
            int depth = 0, end = -1;
            for (int i = 0; i < name.Length && end < 0; i++)
            {
                depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
                if (depth == 0)
                    end = i;
            }
            if (end <= 1)
                break;
            name = found = name[1..end];
        }
        return found;
    }

    private static bool IsMachine(Type? type, Func<Type, bool> marks) =>
        type != null && type.Name.StartsWith('<') && type.GetInterfaces().Any(marks);
}
