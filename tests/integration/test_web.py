#!/usr/bin/env python3
"""A web server under load: OpenTelemetry and ASP.NET Core as people have them, wrk as the world."""

import contextlib
import email
import gzip
import http.server
import json
import shutil
import socket
import subprocess
import threading
import urllib.request

import harness
import pprof
from harness import full, seconds, wait_for, with_retry
from test_agent import Agent
from test_spans import SpanCase, comments_about_spans

BURN, SLEEP, MIXED = "/burn/{ms}", "/sleep/{ms}", "/mixed/{id}"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Load:
    """A running wrk."""

    def __init__(self, test, port, path, connections, length):
        if not shutil.which("wrk"):
            raise RuntimeError("wrk is missing: run ./dev setup")
        self.process = subprocess.Popen(
            ["wrk", "-t1", f"-c{connections}", f"-d{length}s", "--timeout", "10s",
             f"http://127.0.0.1:{port}{path}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        test.addCleanup(self.close)

    def result(self):
        out, _ = self.process.communicate(timeout=120)
        if self.process.returncode != 0 or "Requests/sec" not in out or "Non-2xx" in out:
            raise AssertionError(f"wrk: {out}")
        return float(out.split("Requests/sec:")[1].split()[0])

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(ValueError):
            self.process.stdout.close()


class WebCase(SpanCase):
    def web(self, tracer="otel", **keywords):
        port = free_port()
        target = self.target("web", "--port", port, "--tracer", tracer, kind="web",
                             name="ClpWeb", **keywords)
        target.port = port
        return target

    def load(self, target, path, connections, length):
        return Load(self, target.port, path, connections, length)


def is_under(sample, name):
    """Under the method itself, or its state machine's MoveNext by the same name."""
    return any(frame == "ClpTarget.Endpoints." + name for frame in sample.stack)


def under(profile, *methods):
    return [s for s in profile.samples if any(is_under(s, m) for m in methods)]


def ids_of(sample):
    return f"{sample.labels.get('trace_id')}/{sample.labels.get('local_root_span_id')}"


def share(samples, condition, kind="cpu"):
    whole = sum(s.value(kind) for s in samples)
    return sum(s.value(kind) for s in samples if condition(s)) / whole if whole else 0


class TestWeb(WebCase):
    MIXED_METHODS = ("MixedBefore", "MixedAfterAwait", "MixedPart", "MixedBeforeThrow", "MixedAfterThrow")
    MIXED_EVENTS = (("exceptions", "MixedThrows"), ("alloc_space", "MixedAllocates"),
                    ("lock_contentions", "MixedLocks"))

    def check_ids(self, profile, truth):
        for methods, route in ((("BurnEndpoint",), BURN), (self.MIXED_METHODS, MIXED)):
            served = set(truth["served"][route]["ids"])
            inside = under(profile, *methods)
            self.assertGreater(sum(s.value() for s in inside), 1e8, route)
            for kind in ("cpu", "wall"):
                self.assertGreater(share(inside, lambda s: ids_of(s) in served, kind), 0.99,
                                   f"{route}: {kind} samples with the ids of a request to it")
            wrong = [s.labels for s in inside if "trace_id" in s.labels and ids_of(s) not in served]
            self.assertEqual(wrong, [], "never another request's ids")
            # Requests that are under way when the recording ends have the name they began with.
            self.assertGreater(share(inside, lambda s: s.labels.get("endpoint") == route), 0.9)

    def test_under_load(self):
        """Attached amid requests: all their samples carry the ids of their request, others none."""
        target = self.web()
        target.begin()
        loads = [self.load(target, "/burn/10", 1, 120), self.load(target, "/mixed/7", 1, 120)]
        wait_for(lambda: harness.cpu_ns(target.pid) > 2e9, 60, "load")
        first = self.record(target, 60)
        self.hook_runs(target, first)
        profile = self.record(target, seconds(10), "--types",
                              "cpu,wall,exceptions,allocations,locks").profile()
        first.interrupt()
        whole = first.profile()
        for load in loads:
            load.close()
        truth = target.end()
        self.check_ids(profile, truth)
        self.assertEqual(comments_about_spans(whole), [])
        self.assertEqual([s.labels for s in whole.samples
                          if is_under(s, "AfterRequest") and "trace_id" in s.labels], [])
        self.assertGreater(sum(s.value() for s in under(whole, "AfterRequest")), 0)
        # Awaits, fans out and throws: one local root for all, and spans of their own for parts.
        roots = {i.split("/")[1] for i in truth["served"][MIXED]["ids"]}
        for method, own in (("MixedPart", True), ("MixedBeforeThrow", True), ("MixedBefore", False),
                            ("MixedAfterThrow", False)):
            inside = [s for s in under(profile, method) if "span_id" in s.labels]
            # What runs before StartActivity has returned is the request's itself.
            got = share(inside, lambda s: (s.labels["span_id"] not in roots) == own)
            self.assertGreater(got, 0.9, f"{method}: whether it has a span of its own ({own})")
        for kind, method in self.MIXED_EVENTS:
            inside = [s for s in profile.samples
                      if s.value(kind) and any(method in frame for frame in s.stack)]
            self.assertTrue(inside, kind)
            self.assertEqual([s.labels for s in inside
                              if s.labels.get("local_root_span_id") not in roots], [], kind)
        self.check_one_request(profile, roots)

    def check_one_request(self, profile, roots):
        """Of a request that many samples saw, all kinds are under its one local root."""
        kinds = {}
        for sample in profile.samples:
            root = sample.labels.get("local_root_span_id")
            if root in roots:
                kinds.setdefault(root, set()).update(
                    kind for kind in ("cpu", "wall", *(k for k, _ in self.MIXED_EVENTS))
                    if sample.value(kind))
        most = max(kinds.values(), key=len)
        self.assertEqual(most, {"cpu", "wall", *(k for k, _ in self.MIXED_EVENTS)})

    def test_shares(self):
        """Handlers that do not await: wall time by endpoint is what the server measures itself."""
        with_retry(self.measure_shares)

    def measure_shares(self):
        target = self.web()
        recorder = self.record(target, 90)
        self.hook_runs(target, recorder)
        # Its first requests compile; they are served, measured and sampled like all others.
        target.begin()
        length = 15
        loads = [self.load(target, "/burn/20", 1, length), self.load(target, "/sleep/30", 2, length)]
        for load in loads:
            load.result()
        truth = target.end()
        recorder.interrupt()
        profile = recorder.profile()
        server = {r: truth["served"][r]["seconds"] for r in (BURN, SLEEP)}
        wall = {r: profile.total("wall", lambda s, r=r: s.labels.get("endpoint") == r) / 1e9
                for r in server}
        for route in server:
            self.assertGreater(truth["served"][route]["asked"], 50)
            self.assert_ratio(wall[route] / sum(wall.values()) / (server[route] / sum(server.values())),
                              0.97, 1.03, f"share of {route}, profile / server", profile)
            print(f"wall of {route}, profile / server: {wall[route] / server[route]:.4f}")

    def test_no_tracer(self):
        """Nobody traces: no labels, and no activity that would not exist without us."""
        target = self.web("none")
        recorder = self.record(target, 60)
        self.hook_runs(target, recorder)
        target.begin()
        loads = [self.load(target, "/burn/10", 1, 3), self.load(target, "/mixed/7", 1, 3)]
        for load in loads:
            load.result()
        truth = target.end()
        recorder.interrupt()
        profile = recorder.profile()
        for route in (BURN, MIXED):
            self.assertGreater(truth["served"][route]["asked"], 20)
            self.assertEqual(truth["served"][route]["ids"], [], "activities of ASP.NET Core")
        self.assertEqual(truth["made"], 0, "activities of the application")
        self.assertFalse(truth["listeners"])
        self.assertGreater(sum(s.value() for s in under(profile, "BurnEndpoint")), 1e8)
        self.assertEqual([s.labels for s in profile.samples
                          if "trace_id" in s.labels or "endpoint" in s.labels], [])


class DatadogIntake(http.server.BaseHTTPRequestHandler):
    """Keeps the parts of each upload."""
    taken = []

    def do_POST(self):
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = email.message_from_bytes(head + body)
        self.taken.append({part.get_filename(): part.get_payload(decode=True)
                           for part in message.get_payload()})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class TestAgentsView(WebCase):
    """What the agent makes of it over its windows."""

    def setUp(self):
        DatadogIntake.taken = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), DatadogIntake)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def get(self, target, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{target.port}{path}", timeout=60) as answer:
            answer.read()

    def windows(self):
        """(event, profile) of each upload."""
        for parts in DatadogIntake.taken:
            data = next(v for k, v in parts.items() if k.endswith(".pprof"))
            event = parts["event.json"]
            if event[:2] == b"\x1f\x8b":
                event = gzip.decompress(event)
            yield json.loads(event), pprof.Profile(data)

    def counts(self):
        counts = {}
        for event, _ in self.windows():
            for name, n in (event["endpoint_counts"] or {}).items():
                counts[name] = counts.get(name, 0) + n
        return counts

    def test_late_names_and_counts(self):
        """A request over a window's end has its route in both; Datadog gets numbers and counts."""
        target = self.web()
        agent = Agent(self, f"{{{{ kind: datadog, url: 'http://127.0.0.1:{self.server.server_port}' }}}}",
                      f"--port {target.port}")
        wait_for(lambda: self.hook_loaded(target), 60, "the start-up hook")
        target.begin()
        for _ in range(20):  # of 3 s and less: most go over a window's end
            self.get(target, "/sleep/2400")
            self.get(target, "/burn/20")
            if len(DatadogIntake.taken) >= (3 if full() else 1):
                break
        truth = target.end()
        asked = {route: truth["served"][route]["asked"] for route in (SLEEP, BURN)}
        wait_for(lambda: self.counts() == asked or agent.process.poll() is not None, 60,
                 f"windows that count {asked}")
        self.assertEqual(agent.stop(), 0, agent.text())
        self.assertEqual(self.counts(), asked, "and not more")
        windows = list(self.windows())
        self.assertGreaterEqual(len(windows), 2, agent.text())
        seen, routes = {}, set()
        for number, (_, profile) in enumerate(windows):
            for sample in under(profile, "SleepEndpoint"):
                self.assertIsInstance(sample.labels["span id"], int)
                seen.setdefault(sample.labels["local root span id"], set()).add(number)
                routes.add(sample.labels.get("trace endpoint"))
        roots = {int(i.split("/")[1], 16) for i in truth["served"][SLEEP]["ids"]}
        self.assertLessEqual(set(seen), {r - (1 << 64) if r >> 63 else r for r in roots} | roots)
        self.assertEqual(routes, {SLEEP}, "of all windows, also where the request had not ended yet")
        self.assertTrue(any(len(s) > 1 for s in seen.values()), "a request over a window's end")


if __name__ == "__main__":
    harness.main()
