#!/usr/bin/env python3
"""Samples know their span: the start-up hook in a running process, with no change to the application."""

import json
import os
import shutil
import subprocess
import tempfile
import time

import harness
import pprof
from harness import Case, environment, framework, full, seconds, wait_for

HEX = set("0123456789abcdef")


def hook_path():
    return os.path.join(os.path.dirname(environment("CLP_LIBRARY")), "Clrpulse.Spans.dll")


def comments_about_spans(profile):
    return [c for c in profile.comments if c.startswith("spans=none")]


def in_method(sample, name):
    return any(("RequestsMode." + name) in frame for frame in sample.stack)


class SpanCase(Case):
    def hook_loaded(self, target):
        with open(f"/proc/{target.pid}/maps") as maps:
            return "Clrpulse.Spans.dll" in maps.read()

    def hook_runs(self, target, recorder):
        """It is loaded, and a moment later the first activity is followed."""
        self.wait_for_library(target, recorder)
        wait_for(lambda: self.hook_loaded(target), 30, "the start-up hook")


class TestCell(SpanCase):
    def test_follows_activity(self):
        """Comparisons of the native cell with Activity.Current, none different; 100,000 at full length."""
        rounds = 450 if full() else 60
        target = self.target("spanchecks", "--rounds", rounds)
        recorder = self.record(target, 300)
        self.hook_runs(target, recorder)
        target.begin()
        truth = target.end(280)
        recorder.interrupt()
        profile = recorder.profile()
        self.assertEqual(truth["wrong"], 0, truth["first_wrong"])
        self.assertGreaterEqual(truth["checks"], 222 * rounds)
        self.assertGreater(truth["in_span"], truth["checks"] / 2)
        self.assertLess(truth["in_span"], truth["checks"])
        self.assertEqual(comments_about_spans(profile), [])

class TestSpans(SpanCase):
    def recorded(self, *options, length=None, env=None):
        target = self.target("requests", "--hooked", 1, *options)
        length = length or seconds(12)
        recorder = self.record(target, length, env=env)
        self.hook_runs(target, recorder)
        target.begin()
        profile = recorder.profile()
        truth = target.end()
        self.assertTrue(target.alive(), "the target lives")
        return profile, truth

    def test_samples_carry_their_request(self):
        profile, truth = self.recorded()
        roots = set(truth["roots"])
        for method, route in (("SlowEndpoint", "/slow/{id}"), ("FastEndpoint", "/fast/{id}")):
            inside = [s for s in profile.samples if in_method(s, method)]
            whole = sum(s.value() for s in inside)
            self.assertGreater(whole, 2e8, method)
            known = sum(s.value() for s in inside if s.labels.get("local_root_span_id") in roots)
            self.assertGreater(known, 0.99 * whole, f"{method}: samples with their request's ids")
            named = sum(s.value() for s in inside if s.labels.get("endpoint") == route)
            self.assertGreater(named, 0.97 * whole, f"{method}: samples with the route")
            wrong = [s.labels for s in inside
                     if s.labels.get("endpoint") not in (route, "HttpRequestIn", None)]
            self.assertEqual(wrong, [])
        for sample in profile.samples:
            if in_method(sample, "Outside"):
                self.assertNotIn("span_id", sample.labels, "after the request's end")
            if "span_id" in sample.labels:
                self.assertEqual(len(sample.labels["trace_id"]), 32)
                self.assertEqual(len(sample.labels["span_id"]), 16)
                self.assertLessEqual(set(sample.labels["trace_id"] + sample.labels["span_id"]), HEX)
        parts = {s.labels["span_id"] for s in profile.samples
                 if in_method(s, "FastEndpoint") and "span_id" in s.labels}
        self.assertTrue(parts - roots, "spans inside a request have ids of their own")

    def test_no_tracer_no_activity(self):
        profile, truth = self.recorded("--tracer", "0", length=seconds(5))
        self.assertGreater(truth["asked"], 50)
        self.assertEqual(truth["made"], 0, "activities that would not exist without us")
        self.assertFalse(truth["listeners"])
        self.assertGreater(sum(s.value() for s in profile.samples if in_method(s, "SlowEndpoint")), 0)
        self.assertEqual([s.labels for s in profile.samples if "trace_id" in s.labels], [])

    def test_twice(self):
        """A second session finds the hook at work; both targets' labels are right."""
        target = self.target("requests")
        first = self.record(target, seconds(10))
        self.hook_runs(target, first)
        target.begin()
        second = self.record(target, 4)
        for profile in (second.profile(), first.profile()):
            self.assertEqual(comments_about_spans(profile), [])
            self.assertGreater(len([s for s in profile.samples if "span_id" in s.labels]), 10)
        target.end()
        again = self.record(target, 3)
        target.begin()
        self.assertGreater(len([s for s in again.profile().samples if "span_id" in s.labels]), 5)
        target.end()

    def test_switched_off(self):
        target = self.target("requests")
        recorder = self.record(target, 4, "--no-startup-hook")
        target.begin()
        profile = recorder.profile()
        self.assertEqual(len(comments_about_spans(profile)), 1)
        self.assertEqual([s for s in profile.samples if "trace_id" in s.labels], [])
        with open(f"/proc/{target.pid}/maps") as maps:
            self.assertNotIn("Clrpulse.Spans.dll", maps.read())
        target.end()

    def test_bad_files_are_never_sent(self):
        """Missing, unreadable, cut, another assembly: nothing is sent, the reason is told."""
        good = hook_path()
        with open(good, "rb") as f:
            data = f.read()
        cases = {
            "missing": None,
            "is not the file that belongs": data[:-1],
            "is not the file": data[:5000] + b"X" + data[5001:],
        }
        for reason, content in cases.items():
            with self.subTest(reason=reason), tempfile.TemporaryDirectory() as folder:
                library = shutil.copy(environment("CLP_LIBRARY"),
                                      os.path.join(folder, "libclrpulse.so"))
                if content is not None:
                    with open(os.path.join(folder, "Clrpulse.Spans.dll"), "wb") as f:
                        f.write(content)
                target = self.target("requests")
                recorder = self.record(target, 3, env={"CLRPULSE_LIBRARY": library})
                target.begin()
                told = comments_about_spans(recorder.profile())
                self.assertEqual(len(told), 1)
                self.assertIn("cannot read" if content is None else reason, told[0])
                target.end()
                self.assertTrue(target.alive())

    def run_requests(self, folder, *options):
        """The profile of requests under `clrpulse run`, and what the program knows of them."""
        path = os.path.join(folder, "run.pb.gz")
        program = os.path.join(environment("CLP_TARGETS"), framework(), "ClpTarget")
        process = subprocess.Popen(
            [environment("CLP_CLRPULSE"), "run", "-o", path, *options, "--", program, "requests"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": folder})
        try:
            self.assertIn("ready", process.stdout.readline())
            process.stdin.write("begin\n")
            process.stdin.flush()
            time.sleep(4)
            out, _ = process.communicate("end\nquit 0\n", timeout=60)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 0)
        truth = next(json.loads(line)["truth"] for line in out.splitlines() if '"truth"' in line)
        return pprof.load(path), truth

    def test_run(self):
        """Under `clrpulse run` the hook comes through the environment, unless it is not wanted."""
        with tempfile.TemporaryDirectory() as folder:
            profile, truth = self.run_requests(folder)
            self.assertEqual(comments_about_spans(profile), [])
            inside = [s for s in profile.samples if in_method(s, "SlowEndpoint")]
            whole = sum(s.value() for s in inside)
            self.assertGreater(whole, 1e8)
            known = sum(s.value() for s in inside
                        if s.labels.get("local_root_span_id") in truth["roots"])
            self.assertGreater(known, 0.99 * whole, "also of the first request")
            profile, _ = self.run_requests(folder, "--no-startup-hook")
            self.assertEqual(comments_about_spans(profile),
                             ["spans=none: --no-startup-hook was given"])
            self.assertEqual([s.labels for s in profile.samples if "trace_id" in s.labels], [])

    def test_copy_goes_away(self):
        """A target that does not see our file gets a copy, which is gone afterwards."""
        with tempfile.TemporaryDirectory() as temp:
            os.chmod(temp, 0o700)
            target = self.target("requests", env={"TMPDIR": temp})
            recorder = self.record(target, 6)
            self.hook_runs(target, recorder)
            target.begin()
            profile = recorder.profile()
            self.assertGreater(len([s for s in profile.samples if "span_id" in s.labels]), 5)
            target.end()
            left = [n for n in os.listdir(temp) if n.startswith("clrpulse-")]
            self.assertEqual(left, [])

    def test_switched_off_by_the_application(self):
        """Trimmed applications answer the command and run nothing: told, and harmless."""
        folder = os.path.join(environment("CLP_TARGETS"), framework())
        with tempfile.TemporaryDirectory() as copy:
            here = os.path.join(copy, "app")
            shutil.copytree(folder, here, symlinks=True)
            config = os.path.join(here, "ClpTarget.runtimeconfig.json")
            with open(config) as f:
                text = f.read()
            text = text.replace('"configProperties": {',
                                '"configProperties": {"System.StartupHookProvider.IsSupported": '
                                'false,', 1)
            self.assertIn("IsSupported", text)
            with open(config, "w") as f:
                f.write(text)
            process = subprocess.Popen([os.path.join(here, "ClpTarget"), "requests"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                process.stdout.readline()
                recorder = harness.Recorder(self, process.pid, 9)
                told = comments_about_spans(recorder.profile())
                self.assertEqual(len(told), 1)
                self.assertIn("did not run it", told[0])
                self.assertIsNone(process.poll(), "the target lives")
            finally:
                process.stdin.close()
                process.wait(20)
                process.stdout.close()


class TestCost(Case):
    def test_switch(self):
        """Printed, and bounded far above what it should be: the machine is shared."""
        target = self.target("switchcost")
        target.begin()
        without = target.end()["nanoseconds"]
        recorder = self.record(target, 30)
        TestSpans.hook_runs(self, target, recorder)
        target.begin()
        with_hook = target.end()["nanoseconds"]
        recorder.interrupt()
        recorder.profile()
        print(f"{framework()}: entering and leaving a context: {without:.1f} ns, with the hook "
              f"{with_hook:.1f} ns")
        self.assertGreater(with_hook, 0)
        self.assertLess(with_hook - without, 500)


if __name__ == "__main__":
    harness.main()
