#!/usr/bin/env python3
"""Delivery over networks as they are: TLS, proxies, gateways, resolvers that are stuck."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import unittest

from delivery import CLRPULSE, SANITIZED, Case, PlainIntake, environment, main, preload


class NetworkCase(Case):
    def certificate(self, name, names, ca=None, start="20240101000000Z", end="20490101000000Z"):
        """A key and a certificate; signed by `ca`, or by itself."""
        base = f"{self.directory}/{name}"
        subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", f"{base}.key", "-out", f"{base}.csr", "-subj", f"/CN={name}"],
                       check=True, capture_output=True)
        extensions = f"subjectAltName={names}\n" if ca else f"subjectAltName={names}\nbasicConstraints=CA:TRUE\n"
        for path, text in ((f"{base}.ext", extensions), (f"{base}.index", ""), (
                f"{base}.serial", os.urandom(8).hex()), (f"{base}.cnf", (
                f"[ca]\ndefault_ca=d\n[d]\ndatabase={base}.index\nserial={base}.serial\nnew_certs_dir={self.directory}\npolicy=p\n"
                "default_md=sha256\n[p]\ncommonName=supplied\n"))):
            with open(path, "w") as file:
                file.write(text)
        signer = ["-cert", f"{ca}.pem", "-keyfile", f"{ca}.key"] if ca else ["-selfsign", "-keyfile", f"{base}.key"]
        subprocess.run(["openssl", "ca", "-batch", "-config", f"{base}.cnf", "-in", f"{base}.csr", "-out",
                        f"{base}.pem", "-startdate", start, "-enddate", end, "-extfile", f"{base}.ext",
                        "-notext", *signer], check=True, capture_output=True)
        return base

    def tls(self, base, client_ca=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{base}.pem", f"{base}.key")
        if client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(f"{client_ca}.pem")
        return PlainIntake(self, context)

    def check(self, url, env=None, **settings):
        """What `clrpulse check` says about one upload, and whether it found it well."""
        path = f"{self.directory}/check.yaml"
        lines = "".join(f", {key}: '{value}'" for key, value in settings.items())
        with open(path, "w") as file:
            file.write(f"upload:\n  - {{ kind: http, url: '{url}'{lines} }}\n")
        done = subprocess.run([CLRPULSE, "check", "-c", path], capture_output=True, text=True, timeout=60,
                              env=environment(**(env or {})))
        line, = [line for line in done.stdout.splitlines() if " upload http: " in line]
        if line.startswith("error"):
            self.assertEqual(done.returncode, 1)
        return line.startswith("ok"), line

    def check_table(self, rows):
        """(name, words or None for well, url, settings...)."""
        for name, words, url, *rest in rows:
            with self.subTest(name):
                well, line = self.check(url, **(rest[0] if rest else {}))
                self.assertEqual(well, words is None, line)
                self.assertIn(words or "was taken by", line)


class TestTls(NetworkCase):
    def test_each_failure_in_words(self):
        ca, other_ca = self.certificate("ca", "DNS:ca.test"), self.certificate("otherca", "DNS:ca.test")

        def url(base, client_ca=None):
            return f"https://127.0.0.1:{self.tls(base, client_ca).port}/"

        good = self.certificate("good", "IP:127.0.0.1,DNS:good.test", ca)
        wants = url(good, client_ca=ca)
        client, stranger = self.certificate("client", "DNS:x", ca), self.certificate("stranger", "DNS:x", other_ca)
        expired = self.certificate("expired", "IP:127.0.0.1", ca, "20200101000000Z", "20210101000000Z")
        early = self.certificate("early", "IP:127.0.0.1", ca, "20480101000000Z", "20490101000000Z")
        plain = PlainIntake(self)
        trust = {"ca_file": f"{ca}.pem"}
        self.check_table([
            ("own authority, IP address", None, url(good), trust),
            ("authority not named", "name the authority that signed it in ca_file", url(good)),
            ("another authority named", "ca_file", url(good), {"ca_file": f"{other_ca}.pem"}),
            ("expired", "must be renewed", url(expired), trust),
            ("not valid yet", "clock", url(early), trust),
            ("wrong name", "as the certificate does", url(self.certificate("name", "DNS:a.test", ca)), trust),
            ("wrong address", "as the certificate does", url(self.certificate("ip", "IP:127.0.0.2", ca)), trust),
            ("self-signed", "self-signed", url(self.certificate("alone", "IP:127.0.0.1"))),
            ("ca_file missing", "check ca_file", url(good), {"ca_file": f"{self.directory}/none.pem"}),
            ("client certificate", None, wants, {**trust, "cert_file": f"{client}.pem", "key_file": f"{client}.key"}),
            ("no client certificate", "cert_file", wants, trust),
            ("client certificate of a stranger", "cert_file", wants,
             {**trust, "cert_file": f"{stranger}.pem", "key_file": f"{stranger}.key"}),
            ("key of another certificate", "check cert_file and key_file", wants,
             {**trust, "cert_file": f"{client}.pem", "key_file": f"{stranger}.key"}),
            ("cert_file missing", "check cert_file and key_file", wants,
             {**trust, "cert_file": "/none.pem", "key_file": "/none.key"}),
            ("https to a plain port", "scheme and port", f"https://127.0.0.1:{plain.port}/"),
            ("nobody there", "check that it runs", "https://127.0.0.1:1/"),
            ("no such host", "check the host in the url", "https://no-such-host.invalid/"),
        ])

    def test_nothing_is_dropped_for_it(self):
        intake = self.tls(self.certificate("alone", "IP:127.0.0.1"))
        stats, log = self.deliver("http", intake.url("https"), wait_s=1)
        self.assertEqual((stats[0]["sent"], stats[0]["backlog"]), (0, 1), log)

    def closing_server(self, reply):
        """Answers over TLS and cuts the connection without saying so (no close_notify)."""
        base = self.certificate("closing", "IP:127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{base}.pem", f"{base}.key")
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        requests = []

        def serve():
            while True:
                try:
                    raw, _ = listener.accept()
                except OSError:
                    return
                with context.wrap_socket(raw, server_side=True, suppress_ragged_eofs=True) as client:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += client.recv(65536)
                    head, _, body = data.partition(b"\r\n\r\n")
                    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                    while len(body) < length:
                        body += client.recv(65536)
                    requests.append(head)
                    client.sendall(reply)
                    client.shutdown(socket.SHUT_RDWR)  # of TCP: TLS is not told
        threading.Thread(target=serve, daemon=True).start()
        return f"https://127.0.0.1:{listener.getsockname()[1]}/", base, requests

    def test_closed_without_close_notify(self):
        """The status is the answer, however the connection ends: nothing is sent twice."""
        for name, reply in (("length", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
                            ("until the end", b"HTTP/1.1 200 OK\r\n\r\nok"),
                            ("HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\nok"),
                            ("cut short", b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nok")):
            with self.subTest(name):
                url, base, requests = self.closing_server(reply)
                stats, log = self.deliver("http", f"url={url}", f"ca_file={base}.pem", count=3)
                self.assertEqual((stats[0]["sent"], stats[0]["retried"]), (3, 0), log)
                self.assertEqual(len(requests), 21)


class TestProxy(NetworkCase):
    def proxy(self, credentials=None, context=None):
        """A CONNECT proxy that may want a user, and may be spoken to over TLS; all that it was asked for."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        if context:
            listener = context.wrap_socket(listener, server_side=True)
        seen = []

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except ssl.SSLError:
                    continue
                except OSError:
                    return
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(4096)
                seen.append(head.split(b"\r\n")[0].decode())
                if credentials and b"Proxy-Authorization: Basic " + credentials + b"\r\n" not in head:
                    client.sendall(b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n"
                                   b"Content-Length: 0\r\nConnection: close\r\n\r\n")
                    client.close()
                    continue
                if not head.startswith(b"CONNECT"):
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    client.close()
                    continue
                host, port = head.split()[1].decode().split(":")
                server = socket.create_connection((host, int(port)))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                for a, b in ((client, server), (server, client)):
                    threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}", seen

    def socks(self, user, password):
        """A SOCKS 5 proxy (RFC 1928, 1929) that wants a user; the hosts that it was asked for."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        wanted, seen = b"\1%c%s%c%s" % (len(user), user, len(password), password), []

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                client.recv(256)
                client.sendall(b"\5\2")
                right = client.recv(512) == wanted
                client.sendall(b"\1\0" if right else b"\1\1")
                if not right:
                    client.close()
                    continue
                request = client.recv(512)  # 5, CONNECT, 0, kind of address, address, port
                kind, rest = request[3], request[4:]
                host = socket.inet_ntoa(rest[:4]) if kind == 1 else rest[1:1 + rest[0]].decode()
                seen.append(host)
                port = int.from_bytes(rest[-2:], "big")
                server = socket.create_connection(("127.0.0.1", port))
                client.sendall(b"\5\0\0\1\0\0\0\0\0\0")
                for a, b in ((client, server), (server, client)):
                    threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}", seen

    def test_other_kinds_of_proxy(self):
        """SOCKS, with names looked up here or there; and a proxy that itself is spoken to over TLS."""
        base, name = self.certificate("alone", "IP:127.0.0.1"), self.certificate("name", "DNS:a.test")
        trust, intake = {"ca_file": f"{base}.pem"}, PlainIntake(self)
        url = f"http://127.0.0.1:{intake.port}/"
        socks, asked = self.socks(b"me", b"pass")
        tunnel = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tunnel.load_cert_chain(f"{base}.pem", f"{base}.key")
        secure, _ = self.proxy(context=tunnel)
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        other.load_cert_chain(f"{name}.pem", f"{name}.key")
        stranger, _ = self.proxy(context=other)
        self.check_table([
            ("SOCKS 5", None, url, {"proxy": f"socks5://me:pass@{socks}"}),
            ("SOCKS 5, names there", None, f"http://intake.invalid:{intake.port}/",
             {"proxy": f"socks5h://me:pass@{socks}"}),
            ("SOCKS 5, wrong password", "check proxy", url, {"proxy": f"socks5://me:plantedPASS@{socks}"}),
            ("SOCKS 5, nobody there", "proxy if one is set", url, {"proxy": "socks5://127.0.0.1:1"}),
            ("TLS to the proxy", None, f"https://127.0.0.1:{self.tls(base).port}/",
             {**trust, "proxy": f"https://{secure}"}),
            ("TLS to the proxy, not trusted", "name the authority that signed it in ca_file", url,
             {"proxy": f"https://{secure}"}),
            ("TLS to the proxy, wrong name", "as the certificate does", url,
             {"ca_file": f"{name}.pem", "proxy": f"https://{stranger}"}),
            ("unknown kind", "does not have the form", url, {"proxy": "ftp://127.0.0.1:1"}),
        ])
        self.assertEqual(asked, ["127.0.0.1", "intake.invalid"])

    @staticmethod
    def copy(a, b):
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
        except OSError:
            pass
        b.close()

    def test_with_and_without_a_password(self):
        base = self.certificate("alone", "IP:127.0.0.1")
        intake = self.tls(base)
        url, trust = f"https://127.0.0.1:{intake.port}/", {"ca_file": f"{base}.pem"}
        open_proxy, asked = self.proxy()
        closed_proxy, refused = self.proxy(b"bWU6cGFzcw==")  # me:pass
        secret = {"PROXY": f"http://me:pass@{closed_proxy}"}
        self.check_table([
            ("no password wanted", None, url, {**trust, "proxy": f"http://{open_proxy}"}),
            ("password", None, url, {**trust, "proxy": f"http://me:pass@{closed_proxy}"}),
            ("password by name", None, url, {**trust, "proxy": "env:PROXY", "env": secret}),
            ("wrong password", "check proxy, its user and password", url,
             {**trust, "proxy": f"http://me:wrong@{closed_proxy}"}),
            ("no password", "check proxy, its user and password", url, {**trust, "proxy": f"http://{closed_proxy}"}),
            ("of the environment", "check proxy, its user and password", url,
             {**trust, "env": {"https_proxy": f"http://{closed_proxy}"}}),
            ("left out", None, url, {**trust, "env": {"https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}}),
            ("left out by no_proxy", None, url, {**trust, "proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}),
            ("nobody there", "proxy if one is set", url, {**trust, "proxy": "http://127.0.0.1:1"}),
            ("no such proxy", "check proxy", url, {**trust, "proxy": "http://no-such-proxy.invalid:3128"}),
            ("plain http", None, "http://intake.invalid/", {"proxy": f"http://{open_proxy}"}),
            ("plain http, no password", "set proxy", "http://intake.invalid/", {"proxy": f"http://{closed_proxy}"}),
        ])
        self.assertEqual(asked[0], f"CONNECT 127.0.0.1:{intake.port} HTTP/1.1")
        self.assertIn("POST http://intake.invalid/ HTTP/1.1", asked)
        self.assertEqual(len(intake.requests), 5)
        for _, kind, _, _, headers in intake.requests:
            self.assertNotIn("Proxy-Authorization", headers)

    def test_a_password_is_not_shown(self):
        proxy, _ = self.proxy(b"bWU6cGFzcw==")
        for url in ("http://intake.invalid/", "https://intake.invalid/"):
            _, line = self.check(url, proxy=f"http://plantedUSER:plantedPASS@{proxy}")
            self.assertTrue(line.startswith("error"))
            self.assertNotIn("planted", line)


class TestNames(NetworkCase):
    def test_a_stuck_resolver_delays_nobody_else(self):
        """A name that takes 30 s to be looked up, longer than its connection may: others go on."""
        if SANITIZED:
            self.skipTest("a resolver that is preloaded")
        intake = PlainIntake(self)
        words = self.words(0, 12, 250, 3, "http", "url=http://intake.stuck/", "connect_timeout_ms=300", "+", "http",
                           intake.url())
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env=preload("slow-names.so"))
        began = time.monotonic()
        stats = [json.loads(line) for line in process.stdout if line.startswith("{")]
        took = time.monotonic() - began
        process.communicate()
        self.assertEqual(intake.sequences(), list(range(12)))
        self.assertEqual(stats[1]["sent"], 12)
        self.assertEqual((stats[0]["sent"], stats[0]["backlog"]), (0, 12))
        self.assertGreater(stats[0]["retried"], 1)
        self.assertLess(took, 25, "a look-up takes 30")


@unittest.skipUnless(shutil.which("nginx") or os.path.exists("/usr/sbin/nginx"), "nginx is not installed")
class TestNginx(NetworkCase):
    """A gateway that others have written, with its own limits and its own ways to refuse."""

    CONFIG = """
        daemon off; worker_processes 1; error_log {dir}/error.log; pid {dir}/nginx.pid; {user}
        events {{ }}
        http {{
            log_format plain '$server_protocol $status $request_length'; access_log {dir}/access.log plain;
            client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
            uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
            limit_req_zone $server_port zone=one:1m rate=50r/s; limit_req_status 429;
            server {{
                listen 127.0.0.1:{plain};
                location / {{ proxy_pass http://127.0.0.1:{intake}; }}
                location /small {{ client_max_body_size 12k; proxy_pass http://127.0.0.1:{intake}/; }}
                location /limited {{ limit_req zone=one; proxy_pass http://127.0.0.1:{intake}/; }}
                location /gone {{ proxy_pass http://127.0.0.1:{gone}/; }}
                location /moved {{ return 308 http://127.0.0.1:{intake}/; }}
                location /short {{ keepalive_requests 3; proxy_pass http://127.0.0.1:{intake}/; }}
            }}
            server {{
                listen 127.0.0.1:{tls} ssl http2;
                ssl_certificate {server}.pem; ssl_certificate_key {server}.key;
                ssl_client_certificate {ca}.pem; ssl_verify_client on;
                location / {{ proxy_pass http://127.0.0.1:{intake}; }}
            }}
        }}
    """

    @staticmethod
    def free_port():
        with socket.create_server(("127.0.0.1", 0)) as server:
            return server.getsockname()[1]

    def setUp(self):
        super().setUp()
        self.intake = PlainIntake(self)
        self.ca = self.certificate("ca", "DNS:ca.test")
        self.server = self.certificate("server", "IP:127.0.0.1", self.ca)
        self.plain, self.tls_port, self.gone = (self.free_port() for _ in range(3))
        with open(f"{self.directory}/nginx.conf", "w") as file:
            file.write(self.CONFIG.format(dir=self.directory, plain=self.plain, tls=self.tls_port, gone=self.gone,
                                          intake=self.intake.port, server=self.server, ca=self.ca,
                                          user="user root;" if os.getuid() == 0 else ""))
        os.chmod(self.directory, 0o755)
        self.nginx = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-c", f"{self.directory}/nginx.conf"],
                                      stderr=subprocess.DEVNULL)
        self.addCleanup(self.nginx.wait)
        self.addCleanup(self.nginx.terminate)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.tls_port)).close()
                break
            except OSError:
                self.assertLess(time.monotonic(), deadline, "nginx does not start")
                time.sleep(0.02)

    def url(self, path=""):
        return f"url=http://127.0.0.1:{self.plain}/{path}"

    def access(self):
        with open(f"{self.directory}/access.log") as file:
            return [line.split() for line in file]

    def test_too_large(self):
        """413, said while the body is still on its way: learned, folded, and every total kept."""
        stats, log = self.deliver("http", self.url("small"), count="big:20000")
        self.assertEqual(stats[0]["sent"], 1, log)
        self.assertGreater(stats[0]["folded"], 1000)
        self.assertIn("413", [status for _, status, _ in self.access()])
        self.assertIn("they are folded to", log)
        self.assertIn("stacks of 40 frames", log)
        profile, = self.intake.profiles("cpu")
        self.assertEqual(profile.total("cpu"), sum(1 + i % 100 for i in range(20000)))

    def test_too_many(self):
        stats, log = self.deliver("http", self.url("limited"), count=6, wait_s=60)
        self.assertEqual(stats[0]["sent"], 6, log)
        self.assertGreater(stats[0]["retried"], 0)
        self.assertIn("fewer requests", log)
        self.assertEqual(self.intake.sequences(), list(range(6)))
        self.assertEqual(len(self.intake.requests), 42, "each once")

    def test_nobody_behind_it(self):
        stats, log = self.deliver("http", self.url("gone"), wait_s=1)
        self.assertEqual((stats[0]["sent"], stats[0]["backlog"]), (0, 1))
        self.assertIn("answered 502", log)

    def test_moved(self):
        stats, log = self.deliver("http", self.url("moved"))
        self.assertEqual(stats[0]["refused"], 1)
        self.assertIn("use the final URL", log)

    def test_connections_that_end(self):
        stats, log = self.deliver("http", self.url("short"), count=10)
        self.assertEqual((stats[0]["sent"], stats[0]["retried"]), (10, 0), log)
        self.assertEqual(self.intake.sequences(), list(range(10)))

    def test_client_certificates_over_http_2(self):
        client = self.certificate("client", "DNS:client", self.ca)
        url = [f"url=https://127.0.0.1:{self.tls_port}/", f"ca_file={self.ca}.pem"]
        stats, log = self.deliver("http", *url, f"cert_file={client}.pem", f"key_file={client}.key", count=3)
        self.assertEqual(stats[0]["sent"], 3, log)
        self.assertEqual({tuple(line[:2]) for line in self.access()}, {("HTTP/2.0", "200")})
        stats, log = self.deliver("http", *url, first=3)
        self.assertEqual(stats[0]["refused"], 1, log)
        self.assertIn("it wants cert_file and key_file", log)


if __name__ == "__main__":
    main()
