#!/usr/bin/env python3
"""Delivery from outside: independent receivers, crashes, full disks, TLS, proxies, secrets.

`tools/install-receivers` must have put the receivers' packages into the cache; without them the tests
that need them are skipped."""

import base64
import collections
import glob
import gzip
import http.server
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import pprof

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.environ.get("CLP_CACHE") or os.path.expanduser("~/.cache/clrpulse"), "receivers")
DELIVER = os.environ.get("CLP_DELIVER", "")
CLRPULSE = os.environ.get("CLP_CLRPULSE", "")
RUNTIME = "6f1e6b0a-0000-4000-8000-0123456789ab"
SANITIZED = bool(os.environ.get("CLP_SANITIZED"))


def has_node():
    return shutil.which("node") and shutil.which("protoc") and os.path.exists(f"{CACHE}/installed")


def has_dotnet():
    return shutil.which("dotnet") and os.path.exists(f"{CACHE}/dotnet/stamp")


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("DD_")}
    return {**clean, **more}


class Receiver:
    """A receiver in a directory of its own: the one for Node, unless said otherwise."""

    def __init__(self, test, unix=None, dotnet=False):
        self.out = tempfile.mkdtemp(prefix="clp-receiver-")
        test.addCleanup(shutil.rmtree, self.out, ignore_errors=True)
        words = [f"{CACHE}/dotnet/Receiver", self.out] if dotnet else self.node()
        self.process = subprocess.Popen(words + ([unix] if unix else []), stdout=subprocess.PIPE, text=True,
                                        env=environment(DOTNET_EnableDiagnostics="0"))
        test.addCleanup(self.close)
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

    def answer(self, status):
        subprocess.run(["curl", "-sS", "--noproxy", "*", "-X", "POST", "-d", "", self.url(f"/_answer/{status}")],
                       check=True, stdout=subprocess.DEVNULL)

    def taken(self):
        taken = []
        for path in sorted(glob.glob(f"{self.out}/*.json")):
            with open(path) as file:
                taken.append(json.load(file))
        return taken

    def data(self, request, part=None):
        for file in request["files"]:
            if part is None or file["part"] == part:
                with open(f"{self.out}/{file['file']}", "rb") as stream:
                    return stream.read()
        raise AssertionError(f"no part {part}")


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


KNOWN = {
    "process_cpu": ([("cpu", "nanoseconds")], ("cpu", "nanoseconds"), {"cpu": 4000}),
    "wall": ([("wall", "nanoseconds")], ("wall", "nanoseconds"), {"wall": 110}),
    "exception": ([("exception", "count")], ("exception", "count"), {"exception": 5}),
    "mutex": ([("contentions", "count"), ("delay", "nanoseconds")], ("contentions", "count"),
              {"contentions": 3, "delay": 3000}),
    "gc": ([("gc_collections", "count"), ("gc_pause", "nanoseconds")], ("gc_collections", "count"),
           {"gc_collections": 4, "gc_pause": 40}),
}
ALLOC = ([("alloc_objects", "count"), ("alloc_space", "bytes")], ("space", "bytes"),
         {"alloc_objects": 10, "alloc_space": 1000})
INUSE = ([("inuse_objects", "count"), ("inuse_space", "bytes")], ("space", "bytes"),
         {"inuse_objects": 9, "inuse_space": 900})


class KindsCase(Case):
    """Each kind against a receiver that decodes with other people's code and refuses what servers refuse."""
    DOTNET = False

    def receiver(self, unix=None):
        return Receiver(self, unix, self.DOTNET)

    def check_series(self, receiver, kind):
        taken = [r for r in receiver.taken() if r["kind"] == kind]
        self.assertEqual(len(taken), 7)
        memories = []
        for request in taken:
            labels = request["fields"]["labels"]
            name = labels["__name__"]
            data = receiver.data(request)
            if name == "memory":
                memories.append(pprof.Profile(data).sample_types[0][0])
            want = KNOWN.get(name) or (ALLOC if memories[-1] == "alloc_objects" else INUSE)
            profile = self.check_pprof(data, want[0])
            self.assertEqual(profile.period_type, want[1])
            for kind_name, total in want[2].items():
                self.assertEqual(profile.total(kind_name), total)
            for type_name, _ in profile.sample_types:
                self.assertNotIn("-", type_name)
            self.assertEqual(labels["service_name"], "shop")
            self.assertEqual(labels["env"], "production")
            self.assertEqual(labels["version"], "1.2.3")
            self.assertEqual(labels["team"], "payments")
            self.assertEqual(labels["odd_tag"], "x,y z")
            self.assertNotIn("empty", labels)
            for sample in profile.samples:
                self.assertFalse({"thread_id", "exception_message"} & set(sample.labels))
        self.assertEqual(sorted(memories), ["alloc_objects", "inuse_objects"])
        return taken

    def test_pyroscope(self):
        receiver = self.receiver()
        stats, log = self.deliver("pyroscope", f"url={receiver.url('/prefix')}", "tenant=t1", "token=abc")
        self.assertEqual(stats[0]["sent"], 1, log)
        taken = self.check_series(receiver, "pyroscope")
        cpu = next(r for r in taken if r["fields"]["labels"]["__name__"] == "process_cpu")
        self.assertEqual(cpu["headers"]["content-type"], "application/proto")
        self.assertEqual(cpu["headers"]["x-scope-orgid"], "t1")
        self.assertEqual(cpu["headers"]["authorization"], "Bearer abc")
        self.assertNotIn("expect", cpu["headers"])
        labels = [s.labels for s in pprof.Profile(receiver.data(cpu)).samples]
        self.assertIn({"span_id": "00f067aa0ba902b7", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
                       "endpoint": "GET /cart", "exception_type": "System.InvalidOperationException"}, labels)
        self.assertEqual(len({r["fields"]["id"] for r in taken}), 7, "an id for each")

    def test_parca(self):
        receiver = self.receiver()
        stats, log = self.deliver("parca", f"url={receiver.url()}")
        self.assertEqual(stats[0]["sent"], 1, log)
        for request in self.check_series(receiver, "parca"):
            self.assertTrue(request["fields"]["normalized"])

    def check_datadog(self, receiver, request):
        event = request["fields"]["event"]
        tags = dict(t.split(":", 1) for t in event["tags_profiler"].split(","))
        self.assertEqual(event["attachments"], ["metrics.json", "profile.pprof"])
        self.assertEqual(event["family"], "dotnet")
        self.assertRegex(event["start"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$")
        self.assertLess(event["start"], event["end"])
        want = {"service": "shop", "env": "production", "version": "1.2.3", "host": "node-1", "language": "dotnet",
                "runtime-id": RUNTIME, "profile_seq": "0", "process_id": "7", "team": "payments"}
        self.assertEqual({k: tags.get(k) for k in want}, want)
        for tag in event["tags_profiler"].split(","):
            self.assertRegex(tag, r"^[a-zA-Z][^\s]{0,198}[^:]$")
        self.assertEqual(request["fields"]["names"][0], ["event", "event.json"])
        self.assertEqual(request["headers"]["dd-evp-origin"], "clrpulse")
        self.assertEqual(request["headers"]["datadog-entity-id"], "in-4711")
        profile = self.check_pprof(receiver.data(request, "profile.pprof"), [
            ("exception", "count"), ("alloc-samples", "count"), ("alloc-size", "bytes"), ("lock-count", "count"),
            ("lock-time", "nanoseconds"), ("inuse-objects", "count"), ("inuse-space", "bytes"),
            ("gc-count", "count"), ("gc-pause", "nanoseconds"), ("wall", "nanoseconds"), ("cpu", "nanoseconds")])
        self.assertEqual(profile.total("cpu"), 4000)
        labels = next(s.labels for s in profile.samples if s.labels)
        self.assertEqual(labels["thread id"], "17")
        self.assertEqual(labels["thread name"], "w\u00f6rker")
        self.assertEqual(labels["span id"], 0x00f067aa0ba902b7)
        self.assertEqual(labels["local root span id"], 0x00f067aa0ba902b7)
        self.assertEqual(labels["trace endpoint"], "GET /cart")
        self.assertEqual(labels["exception message"], 'no "cart"')
        metrics = dict(json.loads(receiver.data(request, "metrics.json")))
        self.assertEqual(metrics["process_cpu"], 4000)
        self.assertEqual(metrics["gc.pause_ratio"], 0.25)
        self.assertEqual(event["endpoint_counts"], {"GET /cart": 12})

    def test_datadog_agent(self):
        receiver = self.receiver()
        stats, log = self.deliver("datadog", env={"DD_AGENT_HOST": "127.0.0.1",
                                                  "DD_TRACE_AGENT_PORT": str(receiver.port)})
        self.assertEqual(stats[0]["sent"], 1, log)
        request = receiver.taken()[0]
        self.assertEqual(request["url"], "/profiling/v1/input")
        self.assertNotIn("dd-api-key", request["headers"])
        self.check_datadog(receiver, request)

    def test_datadog_socket(self):
        path = f"{self.directory}/apm.socket"
        receiver = self.receiver(path)
        stats, log = self.deliver("datadog", env={"DD_TRACE_AGENT_URL": f"unix://{path}"})
        self.assertEqual(stats[0]["sent"], 1, log)
        self.assertEqual(stats[0]["where"], f"unix://{path}")
        self.check_datadog(receiver, receiver.taken()[0])

    def test_datadog_agentless(self):
        receiver = self.receiver()
        stats, log = self.deliver("datadog", f"url={receiver.url()}", "api_key=env:SOME_KEY",
                                  env={"SOME_KEY": "k3y"})
        self.assertEqual(stats[0]["sent"], 1, log)
        request = receiver.taken()[0]
        self.assertEqual(request["url"], "/api/v2/profile")
        self.assertEqual(request["headers"]["dd-api-key"], "k3y")
        self.check_datadog(receiver, request)

    def test_http(self):
        receiver = self.receiver()
        stats, log = self.deliver("http", f"url={receiver.url('/plain')}", "header=X-Token: file:" + self.secret(),
                                  "+", "http", f"url={receiver.url('/plain/form')}", "format=multipart")
        self.assertEqual([s["sent"] for s in stats], [1, 1], log)
        taken = [r for r in receiver.taken() if r["url"] == "/plain"]
        self.assertEqual([r["headers"]["clrpulse-kind"] for r in taken],
                         ["cpu", "wall", "exceptions", "allocations", "locks", "liveheap", "gc"])
        self.assertEqual(taken[0]["headers"]["x-token"], "fr0m-file")
        self.assertEqual(taken[0]["headers"]["clrpulse-runtime-id"], RUNTIME)
        profile = self.check_pprof(receiver.data(taken[0]), [("cpu", "nanoseconds")])
        self.assertEqual(profile.samples[0].labels["thread_id"], 17)
        self.assertEqual(len(receiver.taken()), 14)

    def secret(self):
        path = f"{self.directory}/secret"
        with open(path, "w") as file:
            file.write("fr0m-file\n")
        return path

    def test_otlp(self):
        receiver = self.receiver()
        stats, log = self.deliver("otlp", f"url={receiver.url()}", "otlp_version=2")
        self.assertEqual(stats[0]["sent"], 1, log)
        request = receiver.taken()[0]
        self.assertEqual(request["headers"]["content-type"], "application/x-protobuf")
        self.assertEqual(request["headers"]["otlp-profiles-development-version"], "2")
        self.assertFalse(request["fields"]["unknown"], "fields that the schema does not have")
        self.check_otlp(request["fields"]["message"])

    def check_otlp(self, message):
        """Of the decoded message as JSON: 64-bit numbers are texts, bytes are base64."""
        d = message["dictionary"]
        strings, attributes = d["stringTable"], d["attributeTable"]
        self.assertEqual(strings[0], "")
        self.assertEqual(len(set(strings)), len(strings), "no text twice")
        self.assertEqual(d["mappingTable"][0]["memoryStart"], "0")
        self.assertEqual(d["locationTable"][0]["lines"], [])
        self.assertEqual(d["functionTable"][0]["nameStrindex"], 0)
        self.assertEqual(d["stackTable"][0]["locationIndices"], [])
        self.assertEqual(attributes[0], {"keyStrindex": 0, "unitStrindex": 0})
        self.assertEqual(d["linkTable"][0], {"traceId": base64.b64encode(bytes(16)).decode(),
                                             "spanId": base64.b64encode(bytes(8)).decode()})
        resource = message["resourceProfiles"][0]
        about = {a["key"]: next(iter(a["value"].values())) for a in resource["resource"]["attributes"]}
        want = {"service.name": "shop", "service.version": "1.2.3", "service.instance.id": RUNTIME,
                "deployment.environment.name": "production", "host.name": "node-1", "process.pid": "7",
                "process.runtime.name": ".NET", "process.runtime.version": "10.0.1", "team": "payments"}
        self.assertEqual({key: about.get(key) for key in want}, want)
        totals, links, stacks, keys = {}, set(), set(), set()
        for profile in resource["scopeProfiles"][0]["profiles"]:
            kind = strings[profile["sampleType"]["typeStrindex"]]
            totals[kind] = sum(int(s["values"][0]) for s in profile["samples"])
            self.assertEqual(len(base64.b64decode(profile["profileId"])), 16)
            self.assertNotEqual(profile["periodType"]["typeStrindex"], 0)
            self.assertLess(abs(int(profile["timeUnixNano"]) / 1e9 - time.time()), 120)
            self.assertEqual(profile["durationNano"], "1000000000")
            for sample in profile["samples"]:
                self.assertEqual(len(sample["values"]), 1)
                stacks.add(sample["stackIndex"])
                link = d["linkTable"][sample["linkIndex"]]
                links.add((base64.b64decode(link["traceId"]).hex(), base64.b64decode(link["spanId"]).hex()))
                names = [strings[attributes[i]["keyStrindex"]] for i in sample["attributeIndices"]]
                self.assertEqual(len(set(names)), len(names))
                keys.update(names)
        self.assertEqual(totals, {"cpu": 4000, "wall": 110, "exceptions": 5, "alloc_objects": 10,
                                  "alloc_space": 1000, "lock_contentions": 3, "lock_delay": 3000,
                                  "inuse_objects": 9, "inuse_space": 900, "gc_collections": 4, "gc_pause": 40})
        self.assertEqual(links, {("0" * 32, "0" * 16), ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")})
        self.assertTrue({"thread.id", "thread.name", "exception.type", "exception.message"} <= keys)
        self.assertFalse({"trace_id", "span_id"} & keys, "they are in the link")
        self.assertEqual(stacks, set(range(1, len(d["stackTable"]))), "no stack that nobody uses")
        names = [[strings[d["functionTable"][d["locationTable"][i]["lines"][0]["functionIndex"]]["nameStrindex"]]
                  for i in stack["locationIndices"]] for stack in d["stackTable"]]
        self.assertIn(["Shop.Cart.Add", "qsort", "Shop.Main"], names)
        types = {(strings[attributes[i]["keyStrindex"]], attributes[i]["value"]["stringValue"])
                 for location in d["locationTable"] for i in location["attributeIndices"]}
        self.assertEqual(types, {("profile.frame.type", "native"), ("profile.frame.type", "dotnet")})
        build = attributes[d["mappingTable"][1]["attributeIndices"][0]]
        self.assertEqual(strings[build["keyStrindex"]], "process.executable.build_id.gnu")
        self.assertEqual(build["value"]["stringValue"], "0123456789abcdef")

    def test_all_at_once(self):
        receiver = self.receiver()
        url = f"url={receiver.url()}"
        stats, log = self.deliver("pyroscope", url, "+", "parca", url, "+", "otlp", url, "+", "datadog", url, "+",
                                  "http", f"url={receiver.url('/plain')}", "+", "directory",
                                  f"path={self.directory}/files", count=20)
        self.assertEqual([s["sent"] for s in stats], [20] * 6, log)
        kinds = collections.Counter(r["kind"] for r in receiver.taken())
        self.assertEqual(kinds, {"pyroscope": 140, "parca": 140, "http": 140, "otlp": 20, "datadog": 20})
        self.assertEqual(len(os.listdir(f"{self.directory}/files")), 140)
        self.assertEqual(os.listdir(self.spool), ["lock"])


@unittest.skipUnless(has_node(), "tools/install-receivers has not run, or had no npm")
class TestKinds(KindsCase):
    pass


@unittest.skipUnless(has_dotnet(), "tools/install-receivers has not run")
class TestKindsDotnet(KindsCase):
    DOTNET = True


del KindsCase


@unittest.skipUnless(has_node(), "tools/install-receivers has not run, or had no npm")
class TestClients(Case):
    """What other profilers' own clients really send passes the same checks: the receiver is no invention."""

    BUSY = """
        const until = Date.now() + 6000;
        (function burn() {
            let x = 0;
            for (let i = 0; i < 3e6; i++) x += Math.sqrt(i);
            if (Date.now() < until) setTimeout(burn, 1);
            else process.exit(0);
        })();
    """

    def run_client(self, code, receiver, **env):
        path = f"{self.directory}/client.js"
        with open(path, "w") as file:
            file.write(code + self.BUSY)
        done = subprocess.run(["node", path], capture_output=True, text=True, timeout=90, cwd=self.directory,
                              env=environment(NODE_PATH=f"{CACHE}/node_modules", **env))
        self.assertEqual(done.returncode, 0, done.stderr)
        return receiver.taken()

    def test_dd_trace(self):
        receiver = Receiver(self)
        taken = self.run_client("require('dd-trace').init({ profiling: true });", receiver,
                                DD_TRACE_AGENT_URL=receiver.url(), DD_PROFILING_ENABLED="true",
                                DD_PROFILING_UPLOAD_PERIOD="2", DD_SERVICE="shop")
        forms = [r for r in taken if r["kind"] == "datadog"]
        self.assertTrue(forms, "dd-trace's own profiles are taken")
        self.assertIn("service:shop", forms[0]["fields"]["event"]["tags_profiler"])

    def test_pyroscope_nodejs(self):
        receiver = Receiver(self)
        code = f"""const p = require('@pyroscope/nodejs');
            p.init({{ serverAddress: '{receiver.url()}', appName: 'shop', flushIntervalMs: 1500 }});
            p.start();"""
        taken = [r for r in self.run_client(code, receiver) if r["kind"] == "ingest"]
        self.assertTrue(taken, "its profiles are taken")
        self.assertIn("format=pprof", taken[0]["url"])
        pprof.Profile(receiver.data(taken[0]))


class PlainIntake:
    """A receiver without packages: keeps heads and profiles; can be told to fail."""

    def __init__(self, test, context=None):
        self.requests, self.status, self.broken = [], 200, 0
        intake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if intake.status == 200:
                    try:
                        pprof.Profile(body)
                    except Exception:
                        intake.broken += 1
                    intake.requests.append((int(self.headers["Clrpulse-Seq"]), self.headers["Clrpulse-Kind"],
                                            self.headers["Clrpulse-Start"]))
                self.send_response(intake.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # clients are killed here
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)

    def sequences(self, kind="cpu"):
        return [seq for seq, what, _ in self.requests if what == kind]


class TestOutage(Case):
    def test_intake_comes_back(self):
        """Down while 300 windows end (as 10 minutes with a period of 2 s), then up."""
        intake = PlainIntake(self)
        intake.status = 503
        threading.Timer(8, lambda: setattr(intake, "status", 200)).start()
        stats, log = self.deliver("http", f"url=http://127.0.0.1:{intake.port}/", count=300, period_ms=15,
                                  wait_s=60)
        self.assertEqual(stats[0]["sent"], 300, log)
        self.assertGreater(stats[0]["retried"], 3)
        self.assertEqual(intake.sequences(), list(range(300)), "each once, in order")
        self.assertEqual(len(intake.requests), 300 * 7)
        starts = [start for _, kind, start in intake.requests if kind == "cpu"]
        self.assertEqual(starts, sorted(starts), "with their own times")
        if not SANITIZED:
            self.assertLess(stats[0]["rss_kib"], 60 * 1024)


class TestCrash(Case):
    def test_killed_at_random(self):
        """kill -9 at random points: what was in the spool arrives, whole; at most the request that was on
        its way at the moment of each kill comes twice."""
        intake = PlainIntake(self)
        rounds = int(os.environ.get("CLP_KILLS", "200"))
        rng, spooled, first = random.Random(7), set(), 0
        upload = ["http", f"url=http://127.0.0.1:{intake.port}/"]
        for _ in range(rounds):
            process = subprocess.Popen(self.words(first, 1000, 5, 5, *upload), stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True, env=environment())
            self.assertEqual(process.stdout.readline(), "started\n")
            time.sleep(rng.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
            text, _ = process.communicate()
            spooled.update(int(line.split()[1]) for line in text.splitlines() if line.startswith("put "))
            first = max(spooled, default=-1) + 2  # the one after may be in the spool without being said
        stats, log = self.deliver(*upload, first=first, count=1, wait_s=30)
        self.assertEqual(stats[0]["backlog"], 0, log)
        self.assertEqual(intake.broken, 0, "no torn upload")
        for kind in ("cpu", "gc"):
            counts = collections.Counter(intake.sequences(kind))
            self.assertEqual(sorted(spooled - set(counts)), [], "nothing that was spooled is lost")
            self.assertLessEqual(sum(counts.values()) - len(counts), rounds, "at most one twice for each kill")
        self.assertEqual(glob.glob(f"{self.spool}/*.bad"), [])
        self.assertEqual(glob.glob(f"{self.spool}/*.tmp"), [])


class TestDisk(Case):
    def test_full_disk(self):
        """A spool of 256 KiB: older profiles make room, none is torn, all that is left arrives."""
        os.mkdir(self.spool)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.spool],
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a tmpfs cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", self.spool])
        intake = PlainIntake(self)
        intake.status = 503
        threading.Timer(4, lambda: setattr(intake, "status", 200)).start()
        stats, log = self.deliver("http", f"url=http://127.0.0.1:{intake.port}/", count=200, period_ms=5,
                                  wait_s=30)
        self.assertEqual(intake.broken, 0)
        sequences = intake.sequences()
        self.assertEqual(sequences, sorted(set(sequences)))
        self.assertEqual(sequences[-1], 199, log)
        self.assertEqual(stats[0]["backlog"], 0, log)
        self.assertIn("the spool was full", log)
        self.assertEqual(os.listdir(self.spool), ["lock"])


class TestSize(Case):
    def test_a_million_stacks(self):
        """50 MB of samples to a limit of 2 MB: taken, with its total, in bounded memory."""
        stats, log = self.deliver("directory", f"path={self.directory}/all", "+", "directory",
                                  f"path={self.directory}/files", "size_max=2000000", count="big", wait_s=100)
        path, = glob.glob(f"{self.directory}/files/*cpu*")
        with open(path, "rb") as file:
            data = file.read()
        self.assertLessEqual(len(gzip.decompress(data)), 2000000)
        self.assertEqual(pprof.Profile(data).total("cpu"), sum(1 + i % 100 for i in range(1000000)))
        self.assertGreater(stats[1]["folded"], 0)
        self.assertIn("stacks of 40 frames", log)
        print(f"peak RSS {stats[1]['rss_kib'] / 1024:.0f} MiB", file=sys.stderr)
        if not SANITIZED:
            self.assertLess(stats[1]["rss_kib"], 100 * 1024)


class TestNetwork(Case):
    def certificate(self, name, names, days=10, ca=None):
        """A key and a certificate; signed by `ca`, or by itself."""
        base = f"{self.directory}/{name}"
        signed = ["-CA", f"{ca}.pem", "-CAkey", f"{ca}.key"] if ca else []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{base}.key",
                        "-out", f"{base}.pem", "-days", str(days), "-subj", f"/CN={name}",
                        "-addext", f"subjectAltName={names}", *signed], check=True, capture_output=True)
        return base

    def tls(self, base):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{base}.pem", f"{base}.key")
        return PlainIntake(self, context)

    def fails(self, words, *upload):
        stats, log = self.deliver(*upload, wait_s=2)
        self.assertEqual(stats[0]["sent"], 0)
        self.assertIn(words, log)
        self.assertEqual(stats[0]["backlog"], 1, "nothing is dropped for it")

    def test_tls(self):
        ca = self.certificate("ca", "DNS:ca.test")
        good = self.tls(self.certificate("good", "IP:127.0.0.1", ca=ca))
        stats, log = self.deliver("http", f"url=https://127.0.0.1:{good.port}/", f"ca_file={ca}.pem")
        self.assertEqual(stats[0]["sent"], 1, log)
        shutil.rmtree(self.spool)
        self.fails("in ca_file", "http", f"url=https://127.0.0.1:{good.port}/")
        shutil.rmtree(self.spool)
        wrong = self.tls(self.certificate("wrong", "DNS:other.test", ca=ca))
        self.fails("as the certificate does", "http", f"url=https://127.0.0.1:{wrong.port}/", f"ca_file={ca}.pem")
        shutil.rmtree(self.spool)
        alone = self.tls(self.certificate("alone", "IP:127.0.0.1"))
        self.fails("self-signed", "http", f"url=https://127.0.0.1:{alone.port}/")

    def proxy(self, password):
        """A CONNECT proxy that wants a user, on a port of its own."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        seen = []

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(4096)
                seen.append(head.split(b"\r\n")[0].decode())
                if b"Proxy-Authorization: Basic " + password not in head:
                    client.sendall(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")
                    client.close()
                    continue
                host, port = head.split()[1].decode().split(":")
                server = socket.create_connection((host, int(port)))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                for a, b in ((client, server), (server, client)):
                    threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1], seen

    @staticmethod
    def copy(a, b):
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
        except OSError:
            pass
        b.close()

    def test_proxy(self):
        base = self.certificate("alone", "IP:127.0.0.1")
        intake = self.tls(base)
        port, seen = self.proxy(b"bWU6cGFzcw==")  # me:pass
        url = [f"url=https://127.0.0.1:{intake.port}/", f"ca_file={base}.pem"]
        stats, log = self.deliver("http", *url, f"proxy=http://me:pass@127.0.0.1:{port}")
        self.assertEqual(stats[0]["sent"], 1, log)
        self.assertEqual(seen[0], f"CONNECT 127.0.0.1:{intake.port} HTTP/1.1")
        shutil.rmtree(self.spool)
        stats, log = self.deliver("http", *url, env={"https_proxy": f"http://127.0.0.1:{port}"}, wait_s=2)
        self.assertEqual(stats[0]["sent"], 0, "without its password it does not let us through")
        self.assertIn("407", log)
        shutil.rmtree(self.spool)
        stats, log = self.deliver("http", *url, env={"https_proxy": f"http://127.0.0.1:{port}",
                                                     "no_proxy": "127.0.0.1"})
        self.assertEqual(stats[0]["sent"], 1, log)


class TestSecrets(Case):
    def test_nothing_is_shown(self):
        intake = PlainIntake(self)
        intake.status = 401
        path = f"{self.directory}/token"
        with open(path, "w") as file:
            file.write("plantedFILE\n")
        url = f"url=http://plantedUSER:plantedPASS@127.0.0.1:{intake.port}/x?k=plantedQUERY"
        words = self.words(0, 3, 0, 5, "http", url, "header=X-Key: env:SOME_KEY", f"token=file:{path}",
                           "+", "pyroscope", f"url=http://127.0.0.1:1/", "user=u", "password=env:SOME_KEY")
        done = subprocess.run(words, capture_output=True, text=True, timeout=60,
                              env=environment(SOME_KEY="plantedENV"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("answered 401", done.stderr)
        seen = done.stdout + done.stderr
        for file in glob.glob(f"{self.spool}/*"):
            with open(file, "rb") as stream:
                seen += stream.read().decode(errors="replace")
        for secret in ("FILE", "ENV", "PASS", "QUERY", "USER"):
            self.assertNotIn("planted" + secret, seen)

    def test_spool_command(self):
        """ls, show, drop and flush on what an intake that is down left behind."""
        intake = PlainIntake(self)
        intake.status = 503
        self.deliver("http", f"url=http://127.0.0.1:{intake.port}/", count=3, wait_s=1)
        config = f"{self.directory}/c.yaml"
        with open(config, "w") as file:
            file.write(f"spool: {{ dir: {self.spool} }}\nupload:\n  - {{ kind: http, url: "
                       f"'http://127.0.0.1:{intake.port}/' }}\n")

        def spool(*words):
            return subprocess.run([CLRPULSE, "spool", *words, "-c", config], capture_output=True, text=True,
                                  timeout=90, env=environment())

        listed = spool("ls").stdout.splitlines()
        self.assertEqual(len(listed), 4, listed)
        name = listed[1].split()[4]
        shown = spool("show", name).stdout
        self.assertIn("profile_seq      0", shown)
        self.assertIn("service          shop", shown)
        self.assertEqual(spool("show", name, "-o", f"{self.directory}/p").returncode, 0)
        with open(f"{self.directory}/p", "rb") as file:
            self.assertEqual(pprof.Profile(file.read()).total("cpu"), 4000)
        self.assertEqual(spool("drop", name).returncode, 0)
        missing = spool("show", name)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("spool ls", missing.stderr)
        self.assertEqual(spool("frobnicate").returncode, 2)
        intake.status = 200
        flushed = spool("flush")
        self.assertEqual(flushed.returncode, 0, flushed.stderr)
        self.assertEqual(intake.sequences(), [1, 2])


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.testsRun == len(result.skipped) else 0)
