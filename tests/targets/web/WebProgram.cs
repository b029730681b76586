// A web server with known truth, of the same commands as ClpTarget (see Program.cs there):
//
//   ClpWeb web --port N [--tracer otel|none]
//
// With `otel` the OpenTelemetry SDK and its ASP.NET Core instrumentation make an activity for each
// request; with `none` nothing does.

using System;
using System.IO;

namespace ClpTarget;

internal static class WebProgram
{
    private static int Main(string[] args)
    {
        if (args.Length == 0 || args[0] != "web")
        {
            Console.Error.WriteLine("usage: ClpWeb web --port N [--tracer otel|none]");
            return 2;
        }
        var options = new Options(args);
        var session = new Session("web", options, new WebMode(options));
        session.Ready();
        return session.Obey(new StreamReader(Console.OpenStandardInput()));
    }
}
