#!/usr/bin/env python3
"""Delivery from outside: independent receivers, crashes, full disks, TLS, proxies, secrets.

`tools/install-receivers` must have put the receivers' packages into the cache; without them the tests
that need them are skipped."""

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


def has_receivers():
    return shutil.which("node") and shutil.which("protoc") and os.path.exists(f"{CACHE}/installed")


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("DD_")}
    return {**clean, **more}


class Receiver:
    """The Node receiver in a directory of its own."""

    def __init__(self, test, unix=None):
        self.out = tempfile.mkdtemp(prefix="clp-receiver-")
        test.addCleanup(shutil.rmtree, self.out, ignore_errors=True)
        descriptors = f"{self.out}/descriptors"
        protos = ["push.proto", "parca.proto"]
        subprocess.run(["protoc", f"--proto_path={HERE}/receiver", "--include_imports",
                        f"--descriptor_set_out={descriptors}", *protos], check=True)
        words = ["node", f"{HERE}/receiver/receiver.js", CACHE, descriptors, self.out]
        self.process = subprocess.Popen(words + ([unix] if unix else []), stdout=subprocess.PIPE, text=True,
                                        env=environment())
        test.addCleanup(self.close)
        self.port = int(self.process.stdout.readline())

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


@unittest.skipUnless(has_receivers(), "tools/install-receivers has not run")
class TestKinds(Case):
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
        receiver = Receiver(self)
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
        receiver = Receiver(self)
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
        self.assertIn(["process_cpu", 4000], json.loads(receiver.data(request, "metrics.json")))

    def test_datadog_agent(self):
        receiver = Receiver(self)
        stats, log = self.deliver("datadog", env={"DD_AGENT_HOST": "127.0.0.1",
                                                  "DD_TRACE_AGENT_PORT": str(receiver.port)})
        self.assertEqual(stats[0]["sent"], 1, log)
        request = receiver.taken()[0]
        self.assertEqual(request["url"], "/profiling/v1/input")
        self.assertNotIn("dd-api-key", request["headers"])
        self.check_datadog(receiver, request)

    def test_datadog_socket(self):
        path = f"{self.directory}/apm.socket"
        receiver = Receiver(self, unix=path)
        stats, log = self.deliver("datadog", env={"DD_TRACE_AGENT_URL": f"unix://{path}"})
        self.assertEqual(stats[0]["sent"], 1, log)
        self.assertEqual(stats[0]["where"], f"unix://{path}")
        self.check_datadog(receiver, receiver.taken()[0])

    def test_datadog_agentless(self):
        receiver = Receiver(self)
        stats, log = self.deliver("datadog", f"url={receiver.url()}", "api_key=env:SOME_KEY",
                                  env={"SOME_KEY": "k3y"})
        self.assertEqual(stats[0]["sent"], 1, log)
        request = receiver.taken()[0]
        self.assertEqual(request["url"], "/api/v2/profile")
        self.assertEqual(request["headers"]["dd-api-key"], "k3y")
        self.check_datadog(receiver, request)

    def test_http(self):
        receiver = Receiver(self)
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
        receiver = Receiver(self)
        stats, log = self.deliver("otlp", f"url={receiver.url()}", "otlp_version=2")
        self.assertEqual(stats[0]["sent"], 1, log)
        request = receiver.taken()[0]
        self.assertEqual(request["headers"]["content-type"], "application/x-protobuf")
        self.assertEqual(request["headers"]["otlp-profiles-development-version"], "2")
        done = subprocess.run(["protoc", f"--proto_path={HERE}/receiver", "check.proto",
                               f"--descriptor_set_out={self.directory}/d", "--include_imports"], check=True)
        self.assertEqual(done.returncode, 0)
        self.check_otlp(self.decode(receiver.data(request)))

    def decode(self, data):
        """By protobuf's own Python runtime, from a schema that is not the agent's."""
        os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        except ImportError:
            self.skipTest("python3-protobuf is not installed")
        pool = descriptor_pool.DescriptorPool()
        with open(f"{self.directory}/d", "rb") as file:
            for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
                pool.Add(one)
        name = "opentelemetry.check.ExportProfilesServiceRequest"
        kind = message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(name))
        message = kind.FromString(data)
        self.assertFalse(message.UnknownFields() if hasattr(message, "UnknownFields") else ())
        return message

    def check_otlp(self, message):
        d = message.dictionary
        text = lambda i: d.string_table[i]
        self.assertEqual(d.string_table[0], "")
        self.assertEqual(len(set(d.string_table)), len(d.string_table), "no text twice")
        for table in (d.mapping_table, d.location_table, d.function_table, d.stack_table, d.attribute_table):
            self.assertEqual(table[0].ByteSize(), 0, "entry 0 is the zero value")
        self.assertEqual(d.link_table[0].trace_id, bytes(16))
        self.assertEqual(d.link_table[0].span_id, bytes(8))
        resource = message.resource_profiles[0]
        attributes = {a.key: a.value.string_value or a.value.int_value for a in resource.resource.attributes}
        self.assertEqual(attributes["service.name"], "shop")
        self.assertEqual(attributes["service.instance.id"], RUNTIME)
        self.assertEqual(attributes["deployment.environment.name"], "production")
        self.assertEqual(attributes["process.pid"], 7)
        totals, links, used = {}, set(), collections.defaultdict(set)
        for profile in resource.scope_profiles[0].profiles:
            kind = text(profile.sample_type.type_strindex)
            totals[kind] = sum(s.values[0] for s in profile.samples)
            self.assertEqual(len(profile.profile_id), 16)
            self.assertTrue(profile.HasField("period_type"))
            self.assertGreater(profile.time_unix_nano, 1 << 60)
            for sample in profile.samples:
                self.assertEqual(len(sample.values), 1)
                used["stack"].add(sample.stack_index)
                used["attribute"].update(sample.attribute_indices)
                links.add(d.link_table[sample.link_index].span_id.hex())
                keys = [text(d.attribute_table[i].key_strindex) for i in sample.attribute_indices]
                self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual(totals, {"cpu": 4000, "wall": 110, "exceptions": 5, "alloc_objects": 10,
                                  "alloc_space": 1000, "lock_contentions": 3, "lock_delay": 3000,
                                  "inuse_objects": 9, "inuse_space": 900, "gc_collections": 4, "gc_pause": 40})
        self.assertEqual(links, {"0000000000000000", "00f067aa0ba902b7"})
        self.assertEqual(used["stack"], set(range(1, len(d.stack_table))), "no stack that nobody uses")
        names = [[text(d.function_table[l.lines[0].function_index].name_strindex)
                  for l in (d.location_table[i] for i in s.location_indices)] for s in d.stack_table[1:]]
        self.assertIn(["Shop.Cart.Add", "qsort", "Shop.Main"], names)
        types = {text(d.attribute_table[i].key_strindex) + "=" + d.attribute_table[i].value.string_value
                 for l in d.location_table[1:] for i in l.attribute_indices}
        self.assertEqual(types, {"profile.frame.type=native", "profile.frame.type=dotnet"})
        build = d.attribute_table[d.mapping_table[1].attribute_indices[0]]
        self.assertEqual(build.value.string_value, "0123456789abcdef")

    def test_all_at_once(self):
        receiver = Receiver(self)
        url = f"url={receiver.url()}"
        stats, log = self.deliver("pyroscope", url, "+", "parca", url, "+", "otlp", url, "+", "datadog", url, "+",
                                  "http", f"url={receiver.url('/plain')}", "+", "directory",
                                  f"path={self.directory}/files", count=20)
        self.assertEqual([s["sent"] for s in stats], [20] * 6, log)
        kinds = collections.Counter(r["kind"] for r in receiver.taken())
        self.assertEqual(kinds, {"pyroscope": 140, "parca": 140, "http": 140, "otlp": 20, "datadog": 20})
        self.assertEqual(len(os.listdir(f"{self.directory}/files")), 140)
        self.assertEqual(os.listdir(self.spool), ["lock"])
