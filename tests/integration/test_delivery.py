#!/usr/bin/env python3
"""Delivery from outside: every kind against independent receivers, and what is shown to people."""

import base64
import collections
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pprof
from delivery import (CACHE, CLRPULSE, RUNTIME, Case, PlainIntake, Receiver, environment, main, needs_dotnet,
                      needs_node)

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
    shared = None

    def receiver(self, unix=None):
        """One for all tests of the class, which forgets what the one before has sent; but for a socket's."""
        if unix:
            return Receiver(self.addCleanup, unix, self.DOTNET)
        if not self.shared:
            type(self).shared = Receiver(self.addClassCleanup, None, self.DOTNET)
        self.shared.forget()
        return self.shared

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


@needs_node
class TestKinds(KindsCase):
    pass


@needs_dotnet
class TestKindsDotnet(KindsCase):
    DOTNET = True


del KindsCase


@needs_node
class TestClients(Case):
    """What other profilers' own clients really send passes the same checks: the receiver is no invention."""

    BUSY = """
        (function burn() {
            let x = 0;
            for (let i = 0; i < 3e6; i++) x += Math.sqrt(i);
            setTimeout(burn, 1);
        })();
    """

    def run_client(self, code, receiver, kind, **env):
        """Until something of that kind was taken."""
        path = f"{self.directory}/client.js"
        with open(path, "w") as file:
            file.write(code + self.BUSY)
        with open(f"{self.directory}/client.log", "w+") as log:
            process = subprocess.Popen(["node", path], stdout=log, stderr=log, cwd=self.directory,
                                       env=environment(NODE_PATH=f"{CACHE}/node_modules", **env))
            deadline = time.monotonic() + 60
            taken = []
            while not taken and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
                taken = [request for request in receiver.taken() if request["kind"] == kind]
            process.kill()
            process.wait()
            log.seek(0)
            self.assertTrue(taken, f"its profiles are taken; it said: {log.read()}")
        return taken

    def test_dd_trace(self):
        receiver = Receiver(self.addCleanup)
        forms = self.run_client("require('dd-trace').init({ profiling: true });", receiver, "datadog",
                                DD_TRACE_AGENT_URL=receiver.url(), DD_PROFILING_ENABLED="true",
                                DD_PROFILING_UPLOAD_PERIOD="2", DD_SERVICE="shop")
        self.assertIn("service:shop", forms[0]["fields"]["event"]["tags_profiler"])

    def test_pyroscope_nodejs(self):
        receiver = Receiver(self.addCleanup)
        code = f"""const p = require('@pyroscope/nodejs');
            p.init({{ serverAddress: '{receiver.url()}', appName: 'shop', flushIntervalMs: 1500 }});
            p.start();"""
        taken = self.run_client(code, receiver, "ingest")
        self.assertEqual(taken[0]["fields"]["query"]["name"].split("{")[0], "shop")
        pprof.Profile(receiver.data(taken[0]))


class Agent:
    """A real agent without targets, which takes up what is in the spool."""

    def __init__(self, test, uploads, env=None):
        self.test, self.directory = test, test.directory
        self.config = f"{test.directory}/clrpulse.yaml"
        self.env = environment(**(env or {}))
        with open(self.config, "w") as file:
            file.write("targets: { include: ['*no such process*'] }\nupload:\n")
            file.writelines(f"  - {upload}\n" for upload in uploads)
            file.write(f"state: {{ dir: {test.directory}/state }}\nspool: {{ dir: {test.spool} }}\n"
                       "health: { listen: '127.0.0.1:0' }\n")
        self.log = open(f"{test.directory}/log", "wb")
        self.process = subprocess.Popen([CLRPULSE, "agent", "-c", self.config], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env=self.env)
        test.addCleanup(self.close)

    def metrics(self):
        with open(f"{self.directory}/log") as log:
            port = re.search(r"/metrics answer on .* \(port (\d+)\)", log.read())[1]
        done = subprocess.run(["curl", "-sSf", "--noproxy", "*", f"http://127.0.0.1:{port}/metrics"], check=True,
                              capture_output=True, text=True)
        return done.stdout

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def run(self, *words):
        return subprocess.run([CLRPULSE, *words, "-c", self.config], capture_output=True, text=True, timeout=90,
                              env=self.env)

    def uploads(self):
        done = self.run("status", "--json")
        return json.loads(done.stdout)["uploads"] if done.returncode == 0 else None

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not ((uploads := self.uploads()) and condition(uploads)):
            with open(f"{self.directory}/log") as log:
                self.test.assertLess(time.monotonic(), deadline, f"{uploads} {log.read()}")
            time.sleep(0.1)
        return uploads


class TestPeople(Case):
    """What people are told."""

    def leave_behind(self, *intakes, count=3):
        """Profiles in the spool that none of these intakes has."""
        upload = []
        for intake in intakes:
            intake.status = 503
            upload += ["+", "http", intake.url()]
        self.deliver(*upload[1:], count=count, wait_s=0)
        for intake in intakes:
            intake.status = 200

    def test_status(self):
        refuses, down, well = PlainIntake(self), PlainIntake(self), PlainIntake(self)
        self.leave_behind(refuses, down, well)
        refuses.status, refuses.body, down.status = 403, b"not you", 503
        agent = Agent(self, [f"{{ kind: http, url: 'http://127.0.0.1:{intake.port}/' }}"
                             for intake in (refuses, down, well)])
        told = agent.wait_for(lambda u: u[0]["refused"] == 3 and u[1]["retries"] > 1 and u[2]["delivered"] == 3)
        self.assertEqual([u["delivered"] for u in told], [0, 0, 3])
        self.assertEqual([u["waiting"] for u in told], [0, 3, 0])
        self.assertEqual(told[0]["dropped"]["refused"], 3)
        self.assertGreater(told[1]["waiting_bytes"], 1000)
        self.assertIn("answered 403 (check the user, password, token or key): not you", told[0]["last_error"])
        self.assertIn("answered 503", told[1]["last_error"])
        self.assertEqual(told[2]["last_error"], "")
        text = agent.run("status").stdout
        for words in ("3 delivered, 0 waiting", "0 delivered, 3 waiting", "3 refused", "not you", "answered 503"):
            self.assertIn(words, text)
        self.assertEqual(well.sequences(), [0, 1, 2])
        down.status = 200
        self.assertEqual(agent.run("spool", "flush").returncode, 0)
        told = agent.wait_for(lambda u: u[1]["delivered"] == 3)
        self.assertEqual(told[1]["last_error"], "", "all is well again")
        self.assertEqual(down.sequences(), [0, 1, 2])

    def test_a_thousand_at_the_start(self):
        """An agent that finds 1,000 profiles is up at once, and has them all in its hands."""
        intake = PlainIntake(self)
        self.leave_behind(intake, count=1)
        intake.status = 503
        name, = glob.glob(f"{self.spool}/*.chunk")
        start, runtime, _ = os.path.basename(name).split("-")
        for i in range(1, 1000):
            shutil.copyfile(name, f"{self.spool}/{int(start) + i:020}-{runtime}-{i}.chunk")
        agent = Agent(self, [f"{{ kind: http, url: 'http://127.0.0.1:{intake.port}/' }}"])
        agent.wait_for(lambda u: True)
        with open(f"/proc/{agent.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        print(f"up with 1,000 profiles after {used:.2f} s of CPU", file=sys.stderr)
        self.assertLess(used, 1)
        self.assertEqual(agent.uploads()[0]["waiting"], 1000)
        with open(glob.glob(f"{self.directory}/state/seq/*")[0]) as file:
            self.assertEqual(file.read(), "1000\n", "the next number of a program that it may find")

    def test_two_agents(self):
        """The second one with the same spool goes away with a sentence; the first one goes on."""
        intake = PlainIntake(self)
        self.leave_behind(intake)
        intake.status = 503
        agent = Agent(self, [f"{{ kind: http, url: 'http://127.0.0.1:{intake.port}/' }}"])
        agent.wait_for(lambda u: u[0]["waiting"] == 3)
        done = subprocess.run([CLRPULSE, "agent", "-c", agent.config], capture_output=True, text=True, timeout=60,
                              env={**agent.env, "CLRPULSE_STATE_DIR": f"{self.directory}/other"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"another agent uses the spool {self.spool}: stop it, or give this one its own spool.dir",
                      done.stderr)
        intake.status = 200
        self.assertEqual(agent.run("spool", "flush").returncode, 0)
        agent.wait_for(lambda u: u[0]["delivered"] == 3)
        self.assertEqual(intake.sequences(), [0, 1, 2])

    @needs_dotnet
    def test_check(self):
        """One test profile to each upload; one line each, in words."""
        receiver, intake = Receiver(self.addCleanup, dotnet=True), PlainIntake(self)
        intake.status, intake.body = 401, b"who are you?"
        with open(f"{self.directory}/file", "w"):
            pass
        uploads = [
            ("pyroscope", f"url: '{receiver.url()}'", "ok", "was taken by"),
            ("datadog", f"url: '{receiver.url()}'", "ok", "was taken by"),
            ("otlp", f"url: '{receiver.url()}'", "ok", "was taken by"),
            ("parca", f"url: '{receiver.url()}'", "ok", "was taken by"),
            ("pyroscope", f"url: '{receiver.url('/elsewhere')}'", "error", "check the path of the URL"),
            ("http", f"url: 'http://127.0.0.1:{intake.port}/'", "error", "token or tenant): who are you?"),
            ("parca", f"url: '{receiver.url()}', token: 'env:CLP_NO_SUCH'", "error", "is not set"),
            ("directory", f"path: '{self.directory}/file/below'", "error", "Not a directory"),
        ]
        config = f"{self.directory}/check.yaml"
        with open(config, "w") as file:
            file.write("upload:\n" + "".join(f"  - {{ kind: {kind}, {more} }}\n" for kind, more, *_ in uploads))
        done = subprocess.run([CLRPULSE, "check", "-c", config], capture_output=True, text=True, timeout=90,
                              env=environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = [line for line in done.stdout.splitlines() if " upload " in line]
        self.assertEqual(len(lines), len(uploads), done.stdout)
        for line, (kind, _, word, words) in zip(lines, uploads):
            self.assertRegex(line, f"^{word} +upload {kind}: ")
            self.assertIn(words, line)
        self.assertEqual(sorted(r["kind"] for r in receiver.taken()), ["datadog", "otlp", "parca", "pyroscope"])

    def test_spool_command(self):
        """ls, show, drop and flush on what an intake that is down left behind."""
        intake = PlainIntake(self)
        intake.status = 503
        self.deliver("http", intake.url(), count=3, wait_s=1)
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


    def test_spool_that_is_not_ours(self):
        """What cannot be read, written or removed is told with its own exit code, and never taken for done."""
        intake = PlainIntake(self)
        intake.status = 503
        self.deliver("http", intake.url(), count=3, wait_s=0)
        intake.status = 200
        config = f"{self.directory}/c.yaml"
        with open(config, "w") as file:
            file.write(f"spool: {{ dir: {self.spool} }}\nstate: {{ dir: {self.directory} }}\nupload:\n  - {{ kind: http, "
                       f"url: 'http://127.0.0.1:{intake.port}/' }}\n")
        os.chmod(self.directory, 0o755)
        os.chmod(self.spool, 0o555)
        for name in os.listdir(self.spool):
            os.chmod(f"{self.spool}/{name}", 0o444)
        nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}

        def spool(*words, **who):
            return subprocess.run([CLRPULSE, "spool", *words, "-c", config], capture_output=True, text=True,
                                  timeout=90, env=environment(), **who)

        self.assertEqual(len(spool("ls", **nobody).stdout.splitlines()), 4)
        flushed = spool("flush", **nobody)
        self.assertEqual(flushed.returncode, 4, flushed)
        self.assertEqual(flushed.stderr, f"clrpulse: cannot use the spool {self.spool}: Permission denied\n")
        self.assertNotIn("nothing is left", flushed.stdout)
        self.assertEqual(intake.requests, [])
        dropped = spool("drop", "--all", **nobody)
        self.assertEqual(dropped.returncode, 4)
        self.assertEqual(dropped.stderr.count("cannot remove"), 1)
        self.assertIn("2 others cannot be removed either", dropped.stderr)
        self.assertEqual(dropped.stdout, "0 dropped\n")
        os.chmod(self.spool, 0o755)
        # The first of all names; and one that a terminal would obey.
        os.mkdir(f"{self.spool}/0.chunk")
        with open(f"{self.spool}/\033[31mred.chunk", "w"):
            pass
        listed = spool("ls").stdout
        self.assertNotIn("\033", listed)
        self.assertIn("?[31mred (", listed)
        dropped = spool("drop", "--all")
        self.assertEqual(dropped.returncode, 1, dropped)
        self.assertIn("cannot remove 0.chunk: Is a directory", dropped.stderr)
        self.assertEqual(dropped.stdout, "4 dropped\n")
        self.assertEqual(sorted(os.listdir(self.spool)), ["0.chunk", "lock"])


class TestSecrets(Case):
    """Secrets are planted everywhere that takes one; nothing that anybody may see shows them."""

    def plant(self):
        intake = PlainIntake(self)
        intake.status = 403
        intake.echo = True
        path = f"{self.directory}/secret"
        with open(path, "w") as file:
            file.write("plantedFILE\n")
        url = f"http://plantedUSER:plantedPASS@127.0.0.1:{intake.port}/x?k=plantedQUERY"
        return intake, url, path

    def test_of_the_agent(self):
        intake, url, path = self.plant()
        upload = ["http", f"url={url}"]
        intake.status = 503
        self.deliver(*upload, count=3, wait_s=0)
        intake.status = 403
        agent = Agent(self, [
            f"{{ kind: http, url: '{url}', headers: ['X-Key: env:SOME_KEY', 'X-Literal: plantedLITERAL'], "
            f"token: 'file:{path}' }}",
            f"{{ kind: pyroscope, url: 'http://127.0.0.1:1/', user: u, password: 'env:SOME_KEY' }}",
            f"{{ kind: datadog, url: 'http://127.0.0.1:{intake.port}/', api_key: 'file:{path}' }}",
            f"{{ kind: otlp, url: 'http://intake.invalid/', proxy: "
            "'http://plantedUSER:plantedPASS@127.0.0.1:1' }",
            # What the parser of URLs refuses, or takes apart in another way than was meant.
            "{ kind: otlp, url: 'http://127.0.0.1:1/', proxy: 'http://plantedUSER:plantedPASS/ss@127.0.0.1:9' }",
            "{ kind: parca, url: 'http://127.0.0.1:1/', proxy: 'http://u:77/plantedPASS@127.0.0.1:9' }",
            f"{{ kind: pyroscope, url: 'http://127.0.0.1:{intake.port}/', user: u, password: 'env:SOME_KEY' }}",
            "{ kind: http, url: 'https://127.0.0.1:1/' }"],
            env={"SOME_KEY": "plantedENV", "https_proxy": "gopher://plantedUSER:plantedPASS@127.0.0.1:9"})
        agent.wait_for(lambda u: all(u[i]["refused"] == 3 for i in (0, 2, 6)) and
                       all(u[i]["retries"] for i in (1, 3, 4, 5, 7)))
        seen = {"status": agent.run("status").stdout, "status --json": agent.run("status", "--json").stdout}
        seen["/metrics"] = agent.metrics()
        self.assertIn("# TYPE clrpulse_", seen["/metrics"])
        for words in (["check"], ["spool", "ls"], ["spool", "flush"]):
            done = agent.run(*words)
            seen[" ".join(words)] = done.stdout + done.stderr
        name = seen["spool ls"].splitlines()[1].split()[4]
        seen["spool show"] = agent.run("spool", "show", name).stdout
        self.assertIn("profile_seq", seen["spool show"])
        self.assertIn("you sent POST /x?k=***", seen["check"])
        self.assertEqual(seen["status"].count("http://user:password@host:port"), 3, seen["status"])
        basics = [base64.b64encode(pair).decode() for pair in (b"u:plantedENV", b"plantedUSER:plantedPASS")]
        seen["argv"], variables = self.beginning_of(agent.process.pid)
        self.assertIn("clrpulse.yaml", seen["argv"])
        # Who starts the agent with a secret in a variable has it there; what is in files stays out.
        self.assertIn("SOME_KEY=plantedENV", variables)
        for word in ("plantedFILE", "plantedLITERAL", "plantedQUERY"):
            self.assertNotIn(word, variables)
        for path in (glob.glob(f"{self.spool}/*") + glob.glob(f"{self.directory}/state/**", recursive=True) +
                     [f"{self.directory}/log"]):
            if os.path.isfile(path):
                with open(path, "rb") as stream:
                    seen[path] = stream.read().decode(errors="replace")
        self.assertIn("answered 403", seen[f"{self.directory}/log"])
        for where, text in seen.items():
            self.assertNotIn("planted", text, where)
            for basic in basics:
                self.assertNotIn(basic, text, where)
        heads = [headers for *_, headers in intake.requests]
        self.assertEqual(heads, [], "nothing was taken here")

    @staticmethod
    def beginning_of(pid):
        """What a core file has of the arguments and of the environment: the memory from arg_start to arg_end, and
        from env_start to env_end."""
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        bounds = [int(field) for field in fields[45:49]]  # fields 48 to 51
        with open(f"/proc/{pid}/mem", "rb") as memory:
            texts = []
            for start, end in (bounds[:2], bounds[2:]):
                memory.seek(start)
                texts.append(memory.read(end - start).decode(errors="replace"))
        return texts

    def test_they_reach_the_intake(self):
        intake, url, path = self.plant()
        intake.status = 200
        stats, log = self.deliver("http", f"url={url}", "header=X-Key: env:SOME_KEY", f"token=file:{path}",
                                  env={"SOME_KEY": "plantedENV"})
        self.assertEqual(stats[0]["sent"], 1, log)
        headers = intake.requests[0][4]
        self.assertEqual(headers["X-Key"], "plantedENV")
        self.assertEqual(headers["Authorization"], "Bearer plantedFILE")


if __name__ == "__main__":
    main()
