// What the public servers refuse, for profiles and for the labels of their series.
using System.Text.RegularExpressions;
using Checks.Pprof;
using Google.Protobuf;

static partial class Rules
{
    public const int LabelsMax = 30, NameMax = 1024, ValueMax = 2048;
    public const int SamplesMax = 16000, DepthMax = 1000, BytesMax = 4 << 20;

    [GeneratedRegex("^[a-zA-Z_][a-zA-Z0-9_]*$")]
    private static partial Regex LabelName();

    // A refusal in words, or null.
    public static string? OfLabels(IReadOnlyList<(string Name, string Value)> labels)
    {
        if (labels.All(l => l.Name != "__name__"))
            return "no __name__";
        if (labels.Select(l => l.Name).Distinct().Count() != labels.Count)
            return "label twice";
        if (labels.Count > LabelsMax)
            return "too many labels";
        foreach (var (name, value) in labels)
        {
            if (!LabelName().IsMatch(name))
                return $"label {name}";
            if (name.Length > NameMax || value.Length is 0 or > ValueMax)
                return "label size";
        }
        return null;
    }

    // Sequential: Parca's own reader takes ids for positions.
    public static string? OfProfile(byte[] bytes, bool sequential)
    {
        Profile p;
        try
        {
            p = Profile.Parser.ParseFrom(Plain(bytes)); // refuses text that is no UTF-8
        }
        catch (Exception e) when (e is InvalidProtocolBufferException or InvalidDataException)
        {
            return "no pprof: " + e.Message;
        }
        if (p.StringTable.Count == 0 || p.StringTable[0] != "")
            return "string_table[0]";
        foreach (var type in p.SampleType.Append(p.PeriodType))
            if (!LabelName().IsMatch(p.StringTable[(int)type.Type]) ||
                !LabelName().IsMatch(p.StringTable[(int)type.Unit]))
                return $"type {p.StringTable[(int)type.Type]}";
        if (p.Sample.Count > SamplesMax || p.Sample.Any(s => s.LocationId.Count > DepthMax))
            return "too many samples, or too deep";
        if (p.Sample.Any(s => s.Value.Count != p.SampleType.Count))
            return "number of values";
        return Ids(p, sequential);
    }

    private static string? Ids(Profile p, bool sequential)
    {
        var functions = p.Function.Select(f => f.Id).ToHashSet();
        var locations = p.Location.Select(l => l.Id).ToHashSet();
        if (functions.Contains(0) || locations.Contains(0))
            return "id 0";
        if (p.Sample.Any(s => s.LocationId.Any(id => !locations.Contains(id))))
            return "no such location";
        if (p.Location.Any(l => l.Line.Any(n => !functions.Contains(n.FunctionId))))
            return "no such function";
        foreach (var ids in new[] { p.Mapping.Select(m => m.Id), p.Location.Select(l => l.Id),
                                    p.Function.Select(f => f.Id) })
            if (sequential && ids.Where((id, at) => id != (ulong)at + 1).Any())
                return "ids are not sequential";
        return null;
    }

    private static byte[] Plain(byte[] bytes)
    {
        if (bytes.Length < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b)
            return bytes;
        using var gzip = new System.IO.Compression.GZipStream(
            new MemoryStream(bytes), System.IO.Compression.CompressionMode.Decompress);
        using var all = new MemoryStream();
        gzip.CopyTo(all);
        return all.Length <= BytesMax ? all.ToArray() : throw new InvalidDataException("too large");
    }
}
