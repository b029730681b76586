#!/usr/bin/env python3
"""The engine that loads nothing, and raw event streams: truths, names, and a target that must not care
who reads it or dies while reading."""

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

import harness
from harness import Case, cpu_ns, wait_for, with_retry
from test_code import TestCollectible

EXCEPTIONS = "Microsoft-Windows-DotNETRuntime:0x8000:2"
SEVERAL = EXCEPTIONS + (",Microsoft-DotNETCore-SampleProfiler,"
                        "System.Runtime::4:EventCounterIntervalSec=1")


class EventCase(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # Where sessions are noted: nobody else's.
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.folder}

    def path(self, name):
        return os.path.join(self.folder, name)

    def events(self, *arguments, code=0, seconds=120):
        done = subprocess.run([harness.environment("CLP_CLRPULSE"), "events", *map(str, arguments)],
                              capture_output=True, text=True, timeout=seconds, env=self.environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def start_events(self, *arguments):
        process = subprocess.Popen([harness.environment("CLP_CLRPULSE"), "events", *map(str, arguments)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=self.environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def noted_sessions(self):
        folder = self.path("clrpulse")
        return os.listdir(folder) if os.path.isdir(folder) else []


class ProcessClock:
    """CPU of a process by wall time, so that any window of it can be asked for afterwards."""

    def __init__(self, pid):
        self.pid, self.points, self.stop = pid, [], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop.wait(0.05):
            self.points.append((time.time_ns(), cpu_ns(self.pid)))

    def end(self):
        self.stop.set()
        self.thread.join()

    def at(self, when):
        before = max((p for p in self.points if p[0] <= when), default=self.points[0])
        after = min((p for p in self.points if p[0] >= when), default=self.points[-1])
        if after[0] == before[0]:
            return before[1]
        part = (when - before[0]) / (after[0] - before[0])
        return before[1] + (after[1] - before[1]) * part


class TestEngine(EventCase):
    def test_spin(self):
        with_retry(self.measure_spin)

    def measure_spin(self):
        target = self.target("spin")
        target.begin()
        clock = ProcessClock(target.pid)
        recorder = self.record(target, harness.seconds(15), "--engine", "eventpipe",
                               env=self.environment)
        profile = recorder.profile()
        clock.end()
        truth = target.end()
        self.assertIsNone(target.library_path())
        start, length = profile.time_ns, profile.duration_ns
        used = clock.at(start + length) - clock.at(start)
        self.assert_ratio(profile.total("cpu") / used, 0.95, 1.05, "CPU by the process clock", profile)
        managed = [s for s in profile.samples if s.value("wall") > 0]
        wall = profile.by_thread("wall")
        for worker in truth["threads"] + truth["sleepers"]:
            self.assert_ratio(wall.get(worker["name"], 0) / length, 0.95, 1.03,
                              f"wall of {worker['name']}", profile)
        cpu = profile.by_thread("cpu")
        sleepers = sum(cpu.get(worker["name"], 0) for worker in truth["sleepers"])
        self.assert_ratio(sleepers / profile.total("cpu"), 0, 0.02, "CPU of sleepers", profile)
        burn = sum(s.value("cpu") for s in managed if "ClpTarget.Work.Burn" in s.stack)
        self.assert_ratio(burn / profile.total("cpu"), 0.9, 1, "CPU in the work", profile)

    def test_refused(self):
        target = self.target("spin", env={"DOTNET_EnableDiagnostics_Profiler": "0"})
        target.begin()
        recorder = self.record(target, 3, env=self.environment)
        profile = recorder.profile()
        self.assertIn("taking the engine eventpipe", recorder.message())
        self.assertGreater(profile.total("wall"), 0)
        self.assertFalse(target.library_runs())
        target.end()
        self.assertEqual(target.quit(), 0)

    def test_deep(self):
        target = self.target("deep")
        target.begin()
        profile = self.record(target, 3, "--engine", "eventpipe", env=self.environment).profile()
        cut = [s for s in profile.samples if s.stack[-1] == "[truncated]"]
        self.assertTrue(cut, profile.top())
        self.assertTrue(all(len(s.stack) == 101 for s in cut))
        self.assertTrue(any(c.startswith("stacks_truncated=") for c in profile.comments))
        target.end()


class TestNames(EventCase, TestCollectible):
    """Dynamic methods and plug-ins that come and go: never another's name."""

    def test_names(self):
        contexts, dynamics = (200, 10000) if harness.framework() == "net10.0" else (100, 2000)
        target = self.target("collectible", "--contexts", contexts, "--dynamics", dynamics,
                             "--dynamic-ms", 2)
        recorder = self.record(target, 300, "--engine", "eventpipe", env=self.environment)
        time.sleep(1.5)
        target.begin()
        self.modulus = target.end(240)["modulus"]
        recorder.interrupt()
        weights = {"right": 0, "missing": 0, "context": 0, "dynamic": 0}
        seen = set()
        profile = recorder.profile()
        for sample in profile.samples:
            if sample.value("cpu") > 0:
                self.judge(sample, weights, seen)
        whole = weights["right"] + weights["missing"]
        self.assertGreater(whole, 0)
        self.assert_ratio(weights["missing"] / whole, 0, 0.05, "time without names", profile)
        self.assertGreater(len(seen), 50)
        self.assertTrue(target.alive())


class TestEvents(EventCase):
    def test_round_trip(self):
        target = self.target("stacks")
        target.begin()
        path = self.path("trace.nettrace")
        self.events("record", "-p", target.pid, "--providers", SEVERAL, "--rundown", "-d", 1.4, "-o", path)
        shown = self.events("show", path, "--json")
        kinds = {}
        last = ""
        for line in shown.stdout.splitlines():
            event = json.loads(line)
            self.assertGreaterEqual(event["time"], last)
            last = event["time"]
            kinds.setdefault((event["provider"], event["name"]), event)
        thrown = kinds[("Microsoft-Windows-DotNETRuntime", "ExceptionThrown")]
        self.assertRegex(thrown["payload"]["ExceptionType"], r"^(System|ClpTarget)\.")
        self.assertTrue(thrown["stack"])
        counter = kinds[("System.Runtime", "EventCounters")]
        self.assertIn("Name", counter["payload"]["value"]["Payload"])
        self.assertIn(("Microsoft-Windows-DotNETRuntimeRundown", "MethodDCEndVerbose"), kinds)
        for name in ("one", "two"):
            self.events("replay", path, "-o", self.path(name))
        with open(self.path("one"), "rb") as one, open(self.path("two"), "rb") as two:
            self.assertEqual(one.read(), two.read())
        profile = harness.pprof.load(self.path("one"))
        self.assertGreater(profile.total("exceptions"), 0)
        self.assertGreater(profile.total("wall"), 0)
        target.end()

    def test_refusals(self):
        target = self.target("spin")
        self.assertIn("no level", self.events("record", "-p", target.pid, "--providers", "A:1:9",
                                              code=2).stderr)
        self.assertIn("needs a file", self.events("show", code=2).stderr)
        self.assertIn("cannot read", self.events("show", "/nonexistent", code=1).stderr)
        self.assertIn("does not begin", self.events("show", "/etc/passwd", code=1).stderr)
        self.assertIn("no process", self.events("record", "-p", 4194304, "--providers", "A", code=3).stderr)
        self.assertTrue(target.alive())

    def test_killed_target(self):
        target = self.target("throws")
        target.begin()
        path = self.path("trace.nettrace")
        recorder = self.start_events("record", "-p", target.pid, "--providers", EXCEPTIONS, "-o", path)
        wait_for(lambda: os.path.exists(path) and os.path.getsize(path) > 100000, 30, "the stream")
        target.process.kill()
        self.assertEqual(recorder.wait(30), 0)
        self.assertIn("partial", self.events("show", path).stderr)

    def test_stopped_reader(self):
        """A reader that does not read blocks nobody, and its own end is not lost."""
        target = self.target("throws")
        target.begin()
        recorder = self.start_events("record", "-p", target.pid, "--providers", EXCEPTIONS, "-d", 2,
                                     "-o", self.path("trace.nettrace"))
        wait_for(lambda: self.noted_sessions(), 30, "the session")
        recorder.send_signal(signal.SIGSTOP)
        time.sleep(5)
        other = self.path("other.nettrace")
        self.events("record", "-p", target.pid, "--providers", EXCEPTIONS, "-d", 1, "-o", other)
        self.assertGreater(os.path.getsize(other), 10000)
        recorder.send_signal(signal.SIGCONT)
        self.assertEqual(recorder.wait(30), 0)
        target.end()
        self.assertEqual(target.quit(), 0)

    def test_killed_reader(self):
        """kill -9 at random moments: the next command stops what was left, the target never cares."""
        target = self.target("spin")
        target.begin()
        sockets = sum("socket:" in link for link in target.descriptors())
        random.seed(9)
        for _ in range(25):
            recorder = self.start_events("record", "-p", target.pid, "--providers",
                                         "System.Runtime::4", "-o", self.path("x.nettrace"))
            time.sleep(random.uniform(0.0, 0.25))
            recorder.kill()
            recorder.wait()
        self.events("record", "-p", target.pid, "--providers", EXCEPTIONS, "-d", 0.5, "-o",
                    self.path("y.nettrace"))
        self.assertEqual(self.noted_sessions(), [])
        wait_for(lambda: sum("socket:" in link for link in target.descriptors()) <= sockets, 10,
                 "the streams of those killed")
        target.end()
        self.assertEqual(target.quit(), 0)


del TestCollectible

if __name__ == "__main__":
    harness.main()
