// A second receiver beside receiver.js, made of other parts: ASP.NET Core's server and form reader, gRPC's
// own server for Parca's call, Google's protobuf. Keeps every request that it took, in the same files.
//
//     Receiver OUT [unix socket]
//
// Prints its port.
using System.IO.Compression;
using System.Text.Json;
using Checks.Otlp;
using Checks.Parca;
using Checks.Push;
using Google.Protobuf;
using Grpc.Core;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;

var builder = WebApplication.CreateBuilder(new WebApplicationOptions { ApplicationName = "Receiver" });
builder.Logging.ClearProviders();
builder.WebHost.ConfigureKestrel(kestrel =>
{
    if (args.Length > 1)
        kestrel.ListenUnixSocket(args[1], listen => listen.Protocols = HttpProtocols.Http1);
    else
        kestrel.Listen(System.Net.IPAddress.Loopback, 0, listen => listen.Protocols = HttpProtocols.Http1);
});
builder.Services.AddGrpc();
builder.Services.AddSingleton(new Keeper(args[0]));
var app = builder.Build();
app.UseRouting();
app.UseGrpcWeb(new GrpcWebOptions { DefaultEnabled = true });
app.MapGrpcService<ProfileStore>();
app.MapPost("/push.v1.PusherService/Push", Handlers.Push);
app.MapPost("/prefix/push.v1.PusherService/Push", Handlers.Push);
app.MapPost("/v1development/profiles", Handlers.Otlp);
app.MapPost("/profiling/v1/input", Handlers.Datadog);
app.MapPost("/api/v2/profile", Handlers.Datadog);
app.MapPost("/plain/{**rest}", Handlers.Plain);
await app.StartAsync();
var address = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>()!.Addresses.First();
Console.WriteLine(args.Length > 1 ? 0 : new Uri(address).Port);
await app.WaitForShutdownAsync();

sealed class Keeper(string directory)
{
    private int count;

    public void Keep(string kind, HttpRequest request, object fields, params (string Name, byte[] Data)[] files)
    {
        var name = $"{Interlocked.Increment(ref count):D6}";
        var kept = files.Select((file, at) =>
        {
            File.WriteAllBytes($"{directory}/{name}-{at}.bin", file.Data);
            return new { part = file.Name, file = $"{name}-{at}.bin" };
        }).ToArray();
        var headers = request.Headers.ToDictionary(h => h.Key.ToLowerInvariant(), h => h.Value.ToString());
        File.WriteAllText($"{directory}/{name}.part", JsonSerializer.Serialize(
            new { kind, url = request.Path + request.QueryString, headers, fields, files = kept }));
        File.Move($"{directory}/{name}.part", $"{directory}/{name}.json");
    }
}

sealed class ProfileStore(Keeper keeper) : ProfileStoreService.ProfileStoreServiceBase
{
    public override Task<WriteRawResponse> WriteRaw(WriteRawRequest request, ServerCallContext context)
    {
        foreach (var series in request.Series)
        {
            var labels = series.Labels.Labels.Select(l => (l.Name, l.Value)).ToList();
            var profile = series.Samples.Single().RawProfile.ToByteArray();
            if ((Rules.OfLabels(labels) ?? Rules.OfProfile(profile, true)) is { } why)
                throw new RpcException(new Status(StatusCode.InvalidArgument, why));
            keeper.Keep("parca", context.GetHttpContext().Request,
                new { labels = labels.ToDictionary(l => l.Name, l => l.Value), normalized = request.Normalized },
                ("profile", profile));
        }
        return Task.FromResult(new WriteRawResponse());
    }
}

static class Handlers
{
    private static async Task<byte[]> Body(HttpRequest request)
    {
        Stream from = request.Body;
        if (request.Headers.ContentEncoding == "gzip")
            from = new GZipStream(from, CompressionMode.Decompress);
        using var all = new MemoryStream();
        await from.CopyToAsync(all);
        return all.ToArray();
    }

    // A unary call of the Connect protocol: the message is the body, an error is JSON.
    public static async Task<IResult> Push(HttpRequest request, Keeper keeper)
    {
        if (request.ContentType != "application/proto")
            return Results.StatusCode(415);
        var push = PushRequest.Parser.ParseFrom(await Body(request));
        foreach (var series in push.Series)
        {
            var labels = series.Labels.Select(l => (l.Name, l.Value)).ToList();
            var profile = series.Samples.Single().RawProfile.ToByteArray();
            if ((Rules.OfLabels(labels) ?? Rules.OfProfile(profile, false)) is { } why)
                return Results.Json(new { code = "invalid_argument", message = why }, statusCode: 400);
            keeper.Keep("pyroscope", request,
                new { labels = labels.ToDictionary(l => l.Name, l => l.Value), id = series.Samples[0].ID },
                ("profile", profile));
        }
        return Results.Bytes([], "application/proto");
    }

    public static async Task<IResult> Otlp(HttpRequest request, Keeper keeper)
    {
        var data = await Body(request);
        var message = ExportProfilesServiceRequest.Parser.ParseFrom(data);
        // What the schema does not have would still be there; then the sizes differ.
        var known = ExportProfilesServiceRequest.Parser.WithDiscardUnknownFields(true).ParseFrom(data);
        var json = new JsonFormatter(JsonFormatter.Settings.Default.WithFormatDefaultValues(true)).Format(message);
        keeper.Keep("otlp", request, new
        {
            message = JsonDocument.Parse(json).RootElement,
            unknown = known.CalculateSize() != message.CalculateSize(),
        }, ("body", data));
        return Results.Bytes([], "application/x-protobuf");
    }

    public static async Task<IResult> Datadog(HttpRequest request, Keeper keeper)
    {
        var form = await request.ReadFormAsync();
        var files = new List<(string, byte[])>();
        foreach (var file in form.Files)
        {
            using var all = new MemoryStream();
            await file.CopyToAsync(all);
            files.Add((file.Name, all.ToArray()));
        }
        var have = files.Select(f => f.Item1).ToHashSet();
        if (!have.Contains("event"))
            return Results.BadRequest("no event");
        using var parsed = JsonDocument.Parse(files.First(f => f.Item1 == "event").Item2);
        var e = parsed.RootElement;
        if (e.GetProperty("version").GetString() != "4" ||
            string.IsNullOrEmpty(e.GetProperty("tags_profiler").GetString()) ||
            !e.GetProperty("attachments").EnumerateArray().All(a => have.Contains(a.GetString()!)))
            return Results.BadRequest("bad event");
        keeper.Keep("datadog", request, new
        {
            @event = e, names = form.Files.Select(f => new[] { f.Name, f.FileName }),
        }, files.ToArray());
        return Results.StatusCode(202);
    }

    public static async Task<IResult> Plain(HttpRequest request, Keeper keeper)
    {
        keeper.Keep("http", request, new { }, ("body", await Body(request)));
        return Results.Ok();
    }
}
