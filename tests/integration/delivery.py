"""What the tests of delivery share: the tool that stands in for an agent, and receivers.

`tools/install-receivers` must have put the receivers' packages into the cache; without them the tests
that need them are skipped."""

import glob
import gzip
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import pprof

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.environ.get("CLP_CACHE") or os.path.expanduser("~/.cache/clrpulse"), "receivers")
DELIVER = os.environ.get("CLP_DELIVER", "")
CLRPULSE = os.environ.get("CLP_CLRPULSE", "")
RUNTIME = "6f1e6b0a-0000-4000-8000-0123456789ab"
SANITIZED = bool(os.environ.get("CLP_SANITIZED"))
FULL = os.environ.get("CLP_DELIVERY_FULL") == "1"  # in real time, at full length: ./dev stress


def needs(*programs, file, why):
    """Skips a test where something is missing, with the reason. CI installs all of it: there the test fails."""
    found = all(map(shutil.which, programs)) and os.path.exists(f"{CACHE}/{file}")
    return unittest.skipUnless(found or os.environ.get("CI") == "true", why)


needs_node = needs("node", "protoc", file="installed", why="tools/install-receivers has not run, or had no npm")
needs_dotnet = needs("dotnet", file="dotnet/stamp", why="tools/install-receivers has not run")


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("DD_")}
    return {**clean, **more}


class Receiver:
    """A receiver in a directory of its own: the one for Node, unless said otherwise."""

    def __init__(self, add_cleanup, unix=None, dotnet=False):
        self.out = tempfile.mkdtemp(prefix="clp-receiver-")
        add_cleanup(shutil.rmtree, self.out, ignore_errors=True)
        words = [f"{CACHE}/dotnet/Receiver", self.out] if dotnet else self.node()
        self.process = subprocess.Popen(words + ([unix] if unix else []), stdout=subprocess.PIPE, text=True,
                                        env=environment(DOTNET_EnableDiagnostics="0"))
        add_cleanup(self.close)
        self.port = int(self.process.stdout.readline())

    def node(self):
        descriptors = f"{self.out}/descriptors"
        protos = ["push.proto", "parca.proto", "check.proto", "profile.proto"]
        subprocess.run(["protoc", f"--proto_path={HERE}/receiver", "--include_imports",
                        f"--descriptor_set_out={descriptors}", *protos], check=True)
        return ["node", f"{HERE}/receiver/receiver.js", CACHE, descriptors, self.out]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def url(self, path=""):
        return f"http://127.0.0.1:{self.port}{path}"

    def taken(self):
        taken = []
        for path in sorted(glob.glob(f"{self.out}/*.json")):
            with open(path) as file:
                taken.append(json.load(file))
        return taken

    def forget(self):
        for path in glob.glob(f"{self.out}/*.*"):
            os.remove(path)

    def data(self, request, part=None):
        for file in request["files"]:
            if part is None or file["part"] == part:
                with open(f"{self.out}/{file['file']}", "rb") as stream:
                    return stream.read()
        raise AssertionError(f"no part {part}")


def preload(library, **more):
    """An environment with a library of tests/tools in front of the others."""
    path = os.path.join(os.path.dirname(os.path.dirname(DELIVER)), "tools", library)
    if not os.path.exists(path):
        raise RuntimeError(f"{path} is missing")  # the loader would go on without it
    return environment(LD_PRELOAD=path, **more)


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="clp-delivery-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.spool = f"{self.directory}/spool"

    def words(self, first, count, period_ms, wait_s, *upload):
        return [DELIVER, self.spool, str(first), str(count), str(period_ms), str(wait_s), *upload]

    def deliver(self, *upload, first=0, count=1, period_ms=0, wait_s=20, env=None):
        done = subprocess.run(self.words(first, count, period_ms, wait_s, *upload), capture_output=True,
                              text=True, timeout=wait_s + 60, env=environment(**(env or {})))
        self.assertEqual(done.returncode, 0, done.stderr)
        stats = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return stats, done.stderr

    def check_pprof(self, data, types):
        """Every rule that some intake has, and Go's own reader."""
        profile = pprof.Profile(data)
        plain = gzip.decompress(data)
        self.assertEqual(profile.sample_types, types)
        ids = {4: [], 5: [], 3: []}
        for number, value in pprof.fields(plain):
            if number in ids:
                ids[number].append(dict(pprof.fields(value))[1])
        for number, found in ids.items():
            self.assertEqual(found, list(range(1, len(found) + 1)), f"ids of field {number}")
        for sample in profile.samples:
            self.assertTrue(any(sample.values.values()))
            self.assertTrue(all(v >= 0 for v in sample.values.values()))
        self.assertEqual(profile.default_sample_type, types[-1][0])
        if shutil.which("go"):
            path = f"{self.directory}/profile.pb.gz"
            with open(path, "wb") as file:
                file.write(data)
            done = subprocess.run(["go", "tool", "pprof", "-symbolize=none", "-raw", path], capture_output=True,
                                  text=True, env=environment(HOME=self.directory))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("Samples:", done.stdout)
        return profile


class PlainIntake:
    """A receiver without packages: keeps heads and profiles; can be told to fail, or to say nothing."""

    def __init__(self, test, context=None):
        self.requests, self.status, self.broken = [], 200, 0
        self.headers, self.body = {}, b""
        self.echo = False  # answers with what it was asked
        self.large = []  # (kind, body) of those beyond 10,000 bytes
        self.attempts = []  # all requests, refused ones as well: the header X-Agent
        self.windows = {}  # (start, length) in ns as the profile itself has them, by runtime and number
        self.silent, self.end = False, threading.Event()
        intake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                agent, status = self.headers["X-Agent"], intake.status
                intake.attempts.append(agent)
                if intake.silent:
                    intake.end.wait()
                    self.close_connection = True
                    return
                if status == 200:
                    try:
                        profile = pprof.Profile(body)
                        key = (self.headers["Clrpulse-Runtime-Id"], int(self.headers["Clrpulse-Seq"]))
                        intake.windows.setdefault(key, set()).add((profile.time_ns, profile.duration_ns))
                    except Exception:
                        intake.broken += 1
                    if len(body) > 10000:
                        intake.large.append((self.headers["Clrpulse-Kind"], body))
                    intake.requests.append((int(self.headers["Clrpulse-Seq"]), self.headers["Clrpulse-Kind"],
                                            self.headers["Clrpulse-Start"], agent, self.headers))
                self.send_response(status)
                for name, value in intake.headers.items():
                    self.send_header(name, value)
                answer = f"you sent {self.requestline}\n{self.headers}".encode() if intake.echo else intake.body
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 256

            def handle_error(self, *_):
                pass  # clients are killed here

        self.server = Server(("127.0.0.1", 0), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)
        test.addCleanup(self.end.set)

    def url(self, scheme="http"):
        return f"url={scheme}://127.0.0.1:{self.port}/"

    def profiles(self, kind):
        return [pprof.Profile(body) for what, body in self.large if what == kind]

    def sequences(self, kind="cpu"):
        return [request[0] for request in self.requests if request[1] == kind]


def main():
    result = unittest.main(module="__main__", exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.testsRun == len(result.skipped) else 0)
