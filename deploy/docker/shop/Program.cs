// A service with something to find in its profile: pricing uses the CPU, the stock is waited for.
using System.Diagnostics;

namespace Shop;

public static class Program
{
    public static void Main(string[] arguments)
    {
        WebApplication app = WebApplication.CreateBuilder(arguments).Build();
        // The request's name, as OpenTelemetry's instrumentation would set it: profiles show it as `endpoint`.
        app.Use(async (context, next) =>
        {
            await next(context);
            Activity.Current?.SetTag("http.route", (context.GetEndpoint() as RouteEndpoint)?.RoutePattern.RawText);
        });
        app.MapGet("/orders/{id}", async (int id) => new { id, price = Pricing.PriceOf(id), stock = await Stock.CountAsync(id) });
        app.MapGet("/health", () => "ok");
        app.Run();
    }
}

internal static class Pricing
{
    /// <summary>About a twentieth of a second of work.</summary>
    public static double PriceOf(int id)
    {
        double sum = id;
        for (int i = 1; i < 3_000_000; i++)
        {
            sum += Math.Sqrt(i + sum) % 7;
        }
        return Math.Round(sum % 1000, 2);
    }
}

internal static class Stock
{
    public static async Task<int> CountAsync(int id)
    {
        await Task.Delay(20);
        return id % 17;
    }
}
