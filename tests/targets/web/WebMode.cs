using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Diagnostics.Metrics;
using System.Net;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using OpenTelemetry.Trace;

namespace ClpTarget;

// The server runs from before "ready" on; `begin` forgets what it has counted.
internal sealed class WebMode : Mode
{
    private readonly int port;
    private readonly bool tracer;
    private readonly Dictionary<string, Served> served = new()
    {
        ["/burn/{ms}"] = new Served(),
        ["/sleep/{ms}"] = new Served(),
        ["/mixed/{id}"] = new Served(),
    };

    public WebMode(Options options)
    {
        port = options.Count("port", 0);
        tracer = options.Text("tracer", "otel") == "otel";
    }

    public override void Prepare()
    {
        WebApplicationBuilder builder = WebApplication.CreateSlimBuilder();
        // A logger alone makes ASP.NET Core create activities.
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(k => k.Listen(IPAddress.Loopback, port));
        if (tracer)
            builder.Services.AddOpenTelemetry().WithTracing(
                t => t.AddAspNetCoreInstrumentation().AddSource(Endpoints.Source.Name));
        WebApplication app = builder.Build();
        app.MapGet("/plain", () => "plain");
        app.MapGet("/load/{every:min(1)}", Endpoints.LoadEndpoint);
        app.MapGet("/burn/{ms}", (int ms) => Sync("/burn/{ms}", Endpoints.BurnEndpoint, ms));
        app.MapGet("/sleep/{ms}", (int ms) => Sync("/sleep/{ms}", Endpoints.SleepEndpoint, ms));
        app.MapGet("/mixed/{id}", (int id) =>
        {
            served["/mixed/{id}"].Note(Activity.Current);
            return Endpoints.MixedEndpoint(id);
        });
        ListenToDurations();
        app.Start();
    }

    private string Sync(string route, Func<int, string> endpoint, int ms)
    {
        served[route].Note(Activity.Current);
        return endpoint(ms);
    }

    // The server's own measure of each request.
    private void ListenToDurations()
    {
        var listener = new MeterListener
        {
            InstrumentPublished = static (instrument, l) =>
            {
                if (instrument.Name == "http.server.request.duration")
                    l.EnableMeasurementEvents(instrument);
            },
        };
        listener.SetMeasurementEventCallback<double>((_, seconds, tags, _) =>
        {
            foreach (KeyValuePair<string, object?> tag in tags)
                if (tag.Key == "http.route" && tag.Value is string route
                    && served.TryGetValue(route, out Served? s))
                    s.Took(seconds);
        });
        listener.Start();
    }

    public override void Begin()
    {
        foreach (Served s in served.Values)
            s.Reset();
        Interlocked.Exchange(ref Endpoints.Made, 0);
        Interlocked.Exchange(ref Endpoints.Loads, 0);
    }

    public override void End() { }

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("made", Interlocked.Read(ref Endpoints.Made));
        json.WriteNumber("loads", Interlocked.Read(ref Endpoints.Loads));
        json.WriteBoolean("listeners", Endpoints.Source.HasListeners());
        json.WriteStartObject("served");
        foreach ((string route, Served s) in served)
        {
            json.WritePropertyName(route);
            s.Write(json);
        }
        json.WriteEndObject();
    }
}
