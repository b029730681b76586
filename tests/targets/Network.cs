using System;
using System.IO;
using System.Net;
using System.Net.Http;
using System.Net.Security;
using System.Net.Sockets;
using System.Security.Authentication;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using System.Text;
using System.Text.Json;
using System.Threading;

namespace ClpTarget;

// Requests over loopback, plain and with TLS, each over a connection of its own: what the event sources of
// System.Net have to tell.
internal sealed class NetworkMode : Mode
{
    private const string Reply = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    private readonly TcpListener plain = new(IPAddress.Loopback, 0), secret = new(IPAddress.Loopback, 0);
    private readonly Crew crew = new();
    private X509Certificate2? certificate;
    private HttpClient? client;
    private long requests;

    public NetworkMode(Options options) { }

    public override void Prepare()
    {
        certificate = MakeCertificate();
        client = new HttpClient(new SocketsHttpHandler
        {
            UseProxy = false,
            SslOptions = new SslClientAuthenticationOptions
            {
                RemoteCertificateValidationCallback = (_, _, _, _) => true,
                EnabledSslProtocols = SslProtocols.Tls12,
            },
        });
        plain.Start();
        secret.Start();
        Serve(plain, stream => stream);
        Serve(secret, stream =>
        {
            var tls = new SslStream(stream);
            tls.AuthenticateAsServer(certificate);
            return tls;
        });
        crew.Add("client", Request);
    }

    private static X509Certificate2 MakeCertificate()
    {
        using ECDsa key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        var request = new CertificateRequest("CN=localhost", key, HashAlgorithmName.SHA256);
        using X509Certificate2 made = request.CreateSelfSigned(DateTimeOffset.UtcNow.AddDays(-1), DateTimeOffset.UtcNow.AddDays(1));
        byte[] bytes = made.Export(X509ContentType.Pfx);
#pragma warning disable SYSLIB0057 // its successor came with .NET 9
        return new X509Certificate2(bytes);
#pragma warning restore SYSLIB0057
    }

    private static void Serve(TcpListener listener, Func<Stream, Stream> wrap)
    {
        var thread = new Thread(() =>
        {
            while (true)
            {
                try
                {
                    using TcpClient one = listener.AcceptTcpClient();
                    using Stream stream = wrap(one.GetStream());
                    Answer(stream);
                }
                catch (Exception e) when (e is IOException or AuthenticationException)
                {
                }
                catch (SocketException)
                {
                    return;
                }
            }
        }) { IsBackground = true };
        thread.Start();
    }

    private static void Answer(Stream stream)
    {
        var head = new StringBuilder();
        var buffer = new byte[4096];
        while (!head.ToString().Contains("\r\n\r\n"))
        {
            int n = stream.Read(buffer);
            if (n == 0)
                return;
            head.Append(Encoding.ASCII.GetString(buffer, 0, n));
        }
        stream.Write(Encoding.ASCII.GetBytes(Reply));
    }

    private int PlainPort => ((IPEndPoint)plain.LocalEndpoint).Port;
    private int SecretPort => ((IPEndPoint)secret.LocalEndpoint).Port;

    private void Request(Worker worker)
    {
        while (!worker.Stop)
        {
            client!.GetStringAsync($"http://127.0.0.1:{PlainPort}/plain?question=1").GetAwaiter().GetResult();
            client.GetStringAsync($"https://localhost:{SecretPort}/secret").GetAwaiter().GetResult();
            requests += 2;
            Thread.Sleep(20);
        }
    }

    public override void Begin() => crew.Begin();
    public override void End() => crew.End();

    public override void Describe(Utf8JsonWriter json)
    {
        json.WriteNumber("requests", requests);
        json.WriteNumber("plain_port", PlainPort);
        json.WriteNumber("secret_port", SecretPort);
        crew.Describe(json);
    }
}
