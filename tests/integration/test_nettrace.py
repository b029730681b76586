#!/usr/bin/env python3
"""Our reader and Microsoft's TraceEvent on the same files: streams of this runtime, recorded by us, one of
them of a process that was killed."""

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import wait_for
from test_eventpipe import EXCEPTIONS, EventCase

EVERYTHING = ("Microsoft-Windows-DotNETRuntime:0x8000C0DD:5,Microsoft-DotNETCore-SampleProfiler,"
              "System.Threading.Tasks.TplEventSource:0xffffffff:5,"
              "System.Runtime::4:EventCounterIntervalSec=1")
BUFFER_MB = 230  # nearly what a raw recording asks for


def trace_summary(test):
    """The tool on top of TraceEvent, built into the cache; skipped where its package cannot be had."""
    cache = os.path.dirname(harness.environment("CLP_TARGETS"))
    folder = os.path.join(cache, "tools", "TraceSummary")
    program = os.path.join(folder, "TraceSummary")
    source = os.path.join(harness.environment("CLP_SOURCE"), "tests", "nettrace", "TraceSummary")
    newest = max(os.path.getmtime(os.path.join(source, name)) for name in os.listdir(source))
    if os.path.exists(program) and os.path.getmtime(program) > newest:
        return program
    if not shutil.which("dotnet"):
        test.skipTest("no .NET SDK")
    done = subprocess.run(
        ["dotnet", "publish", source, f"-p:ClpObj={os.path.join(cache, 'tools', '.TraceSummary')}",
         "-p:UseSharedCompilation=false", "-c", "Release", "-o", folder],
        capture_output=True, text=True, env={**os.environ, "MSBUILDDISABLENODEREUSE": "1"})
    if done.returncode != 0 and ("NU1101" in done.stdout or "NU1301" in done.stdout):
        test.skipTest("the package of TraceEvent cannot be had")
    test.assertEqual(done.returncode, 0, done.stdout)
    os.utime(program)
    return program


class TraceCase(EventCase):
    def compare(self, *paths, options=()):
        source = harness.environment("CLP_SOURCE")
        done = subprocess.run([sys.executable, os.path.join(source, "tests", "nettrace", "compare.py"),
                               *options, harness.environment("CLP_NETTRACE_SUMMARY"), trace_summary(self),
                               *paths], capture_output=True, text=True)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def record_big(self, target, path):
        """A stream of more than 100 MB, in which all kinds of events are."""
        recorder = self.start_events("record", "-p", target.pid, "--providers", EVERYTHING, "--rundown", "-o", path)
        wait_for(lambda: os.path.exists(path) and os.path.getsize(path) > 105 << 20, 240, "105 MiB")
        recorder.send_signal(signal.SIGINT)
        self.assertEqual(recorder.wait(60), 0)


class TestTraceEvent(TraceCase):
    def test_same(self):
        target = self.target("throws")
        target.begin()
        whole, cut = self.path("whole.nettrace"), self.path("cut.nettrace")
        self.events("record", "-p", target.pid, "--providers", EVERYTHING, "--rundown", "-d", 1, "-o", whole)
        recorder = self.start_events("record", "-p", target.pid, "--providers", EVERYTHING, "-o", cut)
        wait_for(lambda: os.path.exists(cut) and os.path.getsize(cut) > 1000000, 30, "the stream")
        target.process.kill()
        self.assertEqual(recorder.wait(30), 0)
        self.compare(whole, cut, *self.shortened(whole))

    def test_big(self):
        """Above 100 MB, and one whose reader stood still until the runtime dropped events."""
        target = self.target("throws")
        target.begin()
        big, gaps = self.path("big.nettrace"), self.path("gaps.nettrace")
        self.record_big(target, big)
        recorder = self.start_events("record", "-p", target.pid, "--providers", EVERYTHING, "-o", gaps)
        wait_for(lambda: os.path.exists(gaps) and os.path.getsize(gaps) > 1 << 20, 60, "the stream")
        recorder.send_signal(signal.SIGSTOP)
        full = self.memory(target) + (BUFFER_MB << 20)
        wait_for(lambda: self.memory(target) > full, 240, "a full buffer")
        time.sleep(3)  # that events are dropped cannot be seen from outside; it is checked below
        recorder.send_signal(signal.SIGCONT)
        time.sleep(2)
        recorder.send_signal(signal.SIGINT)
        self.assertEqual(recorder.wait(60), 0)
        out = self.compare(big, gaps)
        self.assertRegex(out, r"gaps\.nettrace: .*lost [1-9]")

    def memory(self, target):
        with open(f"/proc/{target.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    def shortened(self, path):
        """Copies that end inside a block, and behind the last byte of one whose end tag is missing: what a
        writer leaves that is killed between two of its writes."""
        with open(path, "rb") as file:
            data = file.read()
        tag = data.index(b"\x06\x05\x05\x01", len(data) // 2)
        for name, end in (("untagged.nettrace", tag), ("inside.nettrace", tag - 1)):
            with open(self.path(name), "wb") as file:
                file.write(data[:end])
            yield self.path(name)


class TestDotnetTrace(EventCase):
    """Files of ours that the runtime's own tool reads, and the other way round."""

    SAMPLER = "Microsoft-DotNETCore-SampleProfiler"
    BURN = "ClpTarget.Work.Burn"

    def setUp(self):
        super().setUp()
        self.tool = harness.dotnet_trace()
        if not self.tool:
            self.skipTest("dotnet-trace cannot be had")
        self.work = self.target("spin", "--busy", 1, "--sleepers", 1)
        self.work.begin()

    def trace(self, *arguments):
        done = subprocess.run([self.tool, *map(str, arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120,
                              env={**os.environ, "TMPDIR": self.work.directory})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_it_reads_ours(self):
        path, converted = self.path("ours.nettrace"), self.path("ours.speedscope.json")
        self.events("record", "-p", self.work.pid, "--providers", self.SAMPLER, "--rundown", "-d", 2, "-o", path)
        self.trace("convert", path, "--format", "Speedscope", "-o", self.path("ours"))
        with open(converted, encoding="utf-8-sig") as file:
            shown = json.load(file)
        names = [frame["name"] for frame in shown["shared"]["frames"]]
        burn = [i for i, name in enumerate(names) if self.BURN in name]
        self.assertTrue(burn, names)
        opened = [e["frame"] for p in shown["profiles"] for e in p["events"] if e["type"] == "O"]
        self.assertTrue(set(burn) & set(opened), "no stack has the work")

    def test_we_read_its(self):
        path = self.path("its.nettrace")
        self.trace("collect", "-p", self.work.pid, "--providers", f"{EXCEPTIONS},{self.SAMPLER}",
                   "--duration", "00:00:00:02", "-o", path)
        kinds, times = {}, {}
        for line in self.events("show", path, "--json").stdout.splitlines():
            event = json.loads(line)
            kinds[event["provider"], event["name"]] = kinds.get((event["provider"], event["name"]), 0) + 1
            if event["name"] == "ThreadSample":
                times.setdefault(event["thread"], []).append(datetime.datetime.fromisoformat(event["time"]))
        self.assertGreater(kinds[self.SAMPLER, "ThreadSample"], 20)
        for thread, at in times.items():
            if len(at) > 1:
                print(f"thread {thread}: {(len(at) - 1) / (at[-1] - at[0]).total_seconds():.0f} samples a second")
        self.assertIn(("Microsoft-Windows-DotNETRuntimeRundown", "MethodDCEndVerbose"), kinds)
        self.events("replay", path, "-o", self.path("its.pb.gz"))
        profile = harness.pprof.load(self.path("its.pb.gz"))
        burn = sum(s.value("wall") for s in profile.samples if self.BURN in s.stack)
        self.assert_ratio(burn / profile.duration_ns, 0.7, 1.05, "wall of the work", profile)


if __name__ == "__main__":
    harness.main()
