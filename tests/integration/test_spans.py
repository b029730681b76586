#!/usr/bin/env python3
"""Samples know their span: the start-up hook in a running process, with no change to the application."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness
import pprof
from harness import environment, framework, full, seconds, wait_for
from test_agent import Agent

HEX = set("0123456789abcdef")
ANOTHER_BUILD = "another build of Clrpulse.Spans.dll is in the process"


def hook_path():
    return os.path.join(os.path.dirname(environment("CLP_LIBRARY")), "Clrpulse.Spans.dll")


def write_other_build(path):
    """The hook as another compilation makes it: of the same name, with another module version id (ECMA-335, II.24.2:
    the first of the metadata's GUIDs)."""
    with open(hook_path(), "rb") as f:
        data = bytearray(f.read())
    root, name = data.index(b"BSJB"), data.index(b"#GUID\0")
    guids = root + int.from_bytes(data[name - 8:name - 4], "little")
    data[guids] ^= 0xff
    with open(path, "wb") as f:
        f.write(data)
    return path


def comments_about_spans(profile):
    return [c for c in profile.comments if c.startswith("spans=none")]


def in_method(sample, name):
    return any(("RequestsMode." + name) in frame for frame in sample.stack)


class SpanCase(harness.Case):
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
        rounds = 460 if full() else 60
        target = self.target("spanchecks", "--rounds", rounds)
        recorder = self.record(target, 300)
        self.hook_runs(target, recorder)
        target.begin()
        truth = target.end(280)
        recorder.interrupt()
        profile = recorder.profile()
        self.assertEqual(truth["wrong"], 0, truth["first_wrong"])
        self.assertGreaterEqual(truth["checks"], 100_000 if full() else 13_000)
        self.assertGreater(truth["in_span"], truth["checks"] / 2)
        self.assertLess(truth["in_span"], truth["checks"])
        self.assertEqual(comments_about_spans(profile), [])

    def test_thousands_of_threads(self):
        """At once, each in a span of its own. (Beyond 16,384 threads have no cell: tests/unit/test-spans.c.)"""
        target = self.target("spanchecks", "--rounds", 10, "--crowd", 4000)
        recorder = self.record(target, 300)
        self.hook_runs(target, recorder)
        target.begin()
        truth = target.end()
        recorder.interrupt()
        profile = recorder.profile()
        self.assertEqual(truth["wrong"], 0, truth["first_wrong"])
        self.assertGreater(truth["checks"], 8000)
        self.assertEqual(comments_about_spans(profile), [])
        self.assertEqual(target.quit(5), 5, "the target lives")


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

    def test_a_span_left_open(self):
        """A request that ends while one of its spans is current has its route all the same."""
        profile, truth = self.recorded("--forgets", 1, length=seconds(6))
        inside = [s for s in profile.samples if in_method(s, "SlowEndpoint") or in_method(s, "FastEndpoint")]
        whole = sum(s.value() for s in inside)
        self.assertGreater(whole, 2e8)
        named = sum(s.value() for s in inside if s.labels.get("endpoint") in ("/slow/{id}", "/fast/{id}"))
        self.assertGreater(named, 0.95 * whole)
        self.assertEqual([s.labels for s in profile.samples
                          if in_method(s, "Outside") and "span_id" in s.labels], [])

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
        self.assertFalse(self.hook_loaded(target))
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
        recorded = []
        for reason, content in cases.items():
            folder = tempfile.mkdtemp(prefix="clp-bad-hook-")
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            library = shutil.copy(environment("CLP_LIBRARY"), os.path.join(folder, "libclrpulse.so"))
            if content is not None:
                with open(os.path.join(folder, "Clrpulse.Spans.dll"), "wb") as f:
                    f.write(content)
            target = self.target("requests")
            recorder = self.record(target, 3, env={"CLRPULSE_LIBRARY": library})
            target.begin()
            recorded.append((reason, target, recorder))
        for reason, target, recorder in recorded:
            with self.subTest(reason=reason):
                told = comments_about_spans(recorder.profile())
                self.assertEqual(len(told), 1)
                self.assertIn("cannot read" if reason == "missing" else reason, told[0])
                target.end()
                self.assertEqual(target.quit(5), 5, "the target lives")

    def run_requests(self, folder, *options, kind="", env=None):
        """The profile of requests under `clrpulse run`, and what the program knows of them."""
        path = os.path.join(folder, "run.pb.gz")
        program = os.path.join(environment("CLP_TARGETS"), kind + framework(), "ClpTarget")
        process = subprocess.Popen(
            [environment("CLP_CLRPULSE"), "run", "-o", path, *options, "--", program, "requests"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": folder, **(env or {})})
        try:
            process.stdin.write("begin\n")
            process.stdin.flush()
            ready = json.loads(process.stdout.readline())
            wait_for(lambda: harness.cpu_ns(ready["pid"]) > 1.5e9, 60, "work")
            out, _ = process.communicate("end\nquit 0\n", timeout=60)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 0)
        self.assertEqual(os.listdir(folder), ["run.pb.gz"], "no copy is left")
        truth = next(json.loads(line)["truth"] for line in out.splitlines() if '"truth"' in line)
        return pprof.load(path), truth

    def check_run(self, **keywords):
        """Requests from the first line of Main on, all of whose samples have their ids."""
        with tempfile.TemporaryDirectory() as folder:
            profile, truth = self.run_requests(folder, **keywords)
        self.assertEqual(comments_about_spans(profile), [])
        inside = [s for s in profile.samples if in_method(s, "SlowEndpoint")]
        self.assertGreater(sum(s.value() for s in inside), 1e8)
        self.assertEqual([s.labels for s in inside
                          if s.labels.get("local_root_span_id") not in truth["roots"]], [])
        return truth

    def test_run(self):
        """Under `clrpulse run` the hook runs before Main."""
        self.check_run()

    def test_run_of_other_kinds(self):
        """A single file, one that brings a hook of its own, a trimmed one, and without the hook."""
        self.check_run(kind="single-")
        other = os.path.join(environment("CLP_TARGETS"), framework(), "ClpTarget.dll")
        self.assertTrue(self.check_run(env={"DOTNET_STARTUP_HOOKS": other})["other_hook"])
        for reason, kind, options in (("published trimmed", "trimmed-", ()),
                                      ("--no-startup-hook was given", "", ("--no-startup-hook",))):
            with tempfile.TemporaryDirectory() as folder:
                profile, _ = self.run_requests(folder, *options, kind=kind)
            told = comments_about_spans(profile)
            self.assertEqual(len(told), 1)
            self.assertIn(reason, told[0])
            self.assertEqual([s.labels for s in profile.samples if "trace_id" in s.labels], [])

    def test_run_beside_odd_hooks(self):
        """Whatever DOTNET_STARTUP_HOOKS says: the program runs as it does without us."""
        publish = os.path.join(environment("CLP_TARGETS"), framework())
        other = os.path.join(publish, "ClpTarget.dll")
        for hooks in ("", ":", other + ":", ":" + other, other + ":" + other, "ClpTarget", hook_path(),
                      hook_path() + ":" + other):
            with self.subTest(hooks=hooks):
                truth = self.check_run(env={"DOTNET_STARTUP_HOOKS": hooks})
                self.assertEqual(truth["other_hook"], "ClpTarget" in hooks)
        with tempfile.TemporaryDirectory() as beside, tempfile.TemporaryDirectory() as folder:
            other_build = write_other_build(os.path.join(beside, "Clrpulse.Spans.dll"))
            # It follows the spans itself, and ours is not brought beside it, also where a symlink leads to it.
            link = os.path.join(folder, "Clrpulse.Spans.dll")
            os.symlink(other_build, link)
            for hooks in (other_build, link):
                self.check_run(env={"DOTNET_STARTUP_HOOKS": hooks})
            # A missing file ends the program in any case, and so says its runtime.
            env = {**os.environ, "DOTNET_STARTUP_HOOKS": os.path.join(beside, "missing.dll")}
            program = [os.path.join(publish, "ClpTarget"), "requests"]
            alone, under = (subprocess.run([*command, *program], stdin=subprocess.DEVNULL, capture_output=True,
                                           text=True, env=env, timeout=60)
                            for command in ((), (environment("CLP_CLRPULSE"), "run", "-o",
                                                 os.path.join(folder, "none.pb.gz"), "--")))
            self.assertEqual((under.returncode, alone.returncode), (-signal.SIGABRT, -signal.SIGABRT))
            for done in (alone, under):
                self.assertIn("missing.dll", done.stderr)

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


class TestHook(SpanCase):
    """Ways in which a process can be, and in which the hook can fail: it works or says why not."""

    def check_labels(self, target, seconds=4, **keywords):
        """Records requests; they carry their ids."""
        recorder = self.record(target, seconds, **keywords)
        target.begin()
        profile = recorder.profile()
        truth = target.end()
        self.assertEqual(comments_about_spans(profile), [])
        labelled = [s for s in profile.samples if s.labels.get("local_root_span_id") in truth["roots"]]
        self.assertGreater(len(labelled), 3)
        self.assertEqual(target.quit(5), 5, "the target lives and ends by itself")
        return truth

    def requests(self, **keywords):
        return self.target("requests", "--hooked", 1, **keywords)

    def test_beside_another_hook(self):
        program = os.path.join(environment("CLP_TARGETS"), framework(), "ClpTarget.dll")
        truth = self.check_labels(self.requests(env={"DOTNET_STARTUP_HOOKS": program}))
        self.assertTrue(truth["other_hook"])

    def test_another_build(self):
        """A runtime refuses a second assembly of one name, and some end with that: nothing is sent."""
        with tempfile.TemporaryDirectory() as folder:
            other_build = write_other_build(os.path.join(folder, "Clrpulse.Spans.dll"))
            targets = [self.target("requests", env={"DOTNET_STARTUP_HOOKS": other_build})]
            # One that is referred to, and not loaded.
            program = os.path.join(folder, "program")
            shutil.copytree(os.path.join(environment("CLP_TARGETS"), framework()), program, symlinks=True)
            shutil.copy(other_build, program)
            targets.append(harness.Target(self, "requests", program=os.path.join(program, "ClpTarget")))
            # One that is loaded, and is not there any more.
            os.mkdir(os.path.join(folder, "gone"))
            gone = write_other_build(os.path.join(folder, "gone", "Clrpulse.Spans.dll"))
            targets.append(self.target("requests", env={"DOTNET_STARTUP_HOOKS": gone}))
            os.unlink(gone)
            recorders = [self.record(target, 3) for target in targets]
            reasons = [ANOTHER_BUILD, ANOTHER_BUILD, "cannot be compared with the file of this clrpulse: No such file"]
            for target, recorder, reason in zip(targets, recorders, reasons):
                told = comments_about_spans(recorder.profile())
                self.assertEqual(len(told), 1)
                self.assertIn(reason, told[0])
                self.assertEqual(target.quit(5), 5, "the target lives")

    def test_nobody_loaded_activities(self):
        """The process has not loaded System.Diagnostics.DiagnosticSource: the hook does."""
        target = self.target("spin", "--sleepers", 2)
        def loaded():
            with open(f"/proc/{target.pid}/maps") as maps:
                return "System.Diagnostics.DiagnosticSource.dll" in maps.read()
        self.assertFalse(loaded())
        recorder = self.record(target, 60)
        self.hook_runs(target, recorder)
        recorder.interrupt()
        self.assertEqual(comments_about_spans(recorder.profile()), [])
        self.assertTrue(loaded())
        self.assertEqual(target.quit(5), 5)

    def test_suspended_at_start(self):
        """The agent lets it go and follows its spans."""
        with tempfile.TemporaryDirectory() as temp:
            program = os.path.join(environment("CLP_TARGETS"), framework(), "ClpTarget")
            marker = f"clp-{os.getpid()}-{time.monotonic_ns()}"
            env = {k: v for k, v in os.environ.items() if not k.startswith(("DOTNET_", "CORECLR_"))}
            process = subprocess.Popen([program, "requests", "--hooked", "1", "--marker", marker],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env={**env, "TMPDIR": temp, "DOTNET_DefaultDiagnosticPortSuspend": "1"})
            try:
                agent = Agent(self, "{{ kind: directory, path: '{dir}/profiles' }}", marker)
                self.assertIn("ready", process.stdout.readline())
                process.stdin.write("begin\n")
                process.stdin.flush()
                wait_for(lambda: len(agent.written()) >= 2, 60, "two windows")
                out, _ = process.communicate("end\nquit 4\n", timeout=60)
                self.assertEqual(process.returncode, 4)
                agent.stop()
            finally:
                process.kill()
                process.wait()
            roots = next(json.loads(line)["truth"] for line in out.splitlines() if '"truth"' in line)["roots"]
            samples = [s for _, profile in agent.profiles() for s in profile.samples]
            self.assertGreater(len([s for s in samples if s.labels.get("local_root_span_id") in roots]), 3)

    def test_switched_off_for_the_agent(self):
        target = self.target("requests", "--marker", f"clp-{os.getpid()}-off")
        target.begin()
        agent = Agent(self, "{{ kind: directory, path: '{dir}/profiles' }}", f"clp-{os.getpid()}-off",
                      more=", startup_hook: false")
        wait_for(lambda: len(agent.written()) >= 1, 60, "a window")
        self.assertFalse(self.hook_loaded(target))
        agent.stop()
        self.assertEqual([s for _, p in agent.profiles() for s in p.samples if "trace_id" in s.labels], [])
        target.end()

    def foreign(self, *wrapper):
        """Requests of a program in a folder that any user may read, started through `wrapper`."""
        folder = tempfile.mkdtemp(prefix="clp-foreign-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        library = os.path.join(folder, "library")
        os.mkdir(library, 0o700)
        for path in (environment("CLP_LIBRARY"), hook_path()):
            shutil.copy(path, library)
        program = os.path.join(folder, "program")
        shutil.copytree(os.path.join(environment("CLP_TARGETS"), framework()), program, symlinks=True)
        temp = os.path.join(folder, "temp")
        os.mkdir(temp)
        for path in (folder, program):
            os.chmod(path, 0o755)
        os.chmod(temp, 0o777)
        command = [w.format(library=library) for w in wrapper]
        target = harness.Target(self, "requests", "--hooked", 1, env={"TMPDIR": temp}, tfm=framework(),
                                prefix=command, program=os.path.join(program, "ClpTarget"))
        return target, os.path.join(library, "libclrpulse.so"), temp

    @unittest.skipUnless(os.geteuid() == 0, "changes users")
    def test_another_user(self):
        """Our file lies where the target's user may not read it."""
        target, library, temp = self.foreign("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        self.check_labels(target, env={"CLRPULSE_LIBRARY": library})
        self.assertEqual([n for n in os.listdir(temp) if n.startswith("clrpulse-")], [])

    @unittest.skipUnless(os.geteuid() == 0, "changes mounts")
    def test_other_mounts(self):
        """The target has something else where our file lies."""
        target, library, _ = self.foreign("unshare", "-m", "sh", "-c",
                                          "mount -t tmpfs none {library} && exec \"$@\"", "sh")
        self.check_labels(target, env={"CLRPULSE_LIBRARY": library})

    def own_library(self):
        """The library and the hook in a folder of their own."""
        folder = tempfile.mkdtemp(prefix="clp-own-library-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return shutil.copy(environment("CLP_LIBRARY"), folder), shutil.copy(hook_path(), folder)

    def test_unreadable_files_are_never_sent(self):
        library, hook = self.own_library()
        os.chmod(hook, 0)
        # Root reads every file, unless it has no right to.
        prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
        target = self.target("requests")
        recorder = self.record(target, 3, env={"CLRPULSE_LIBRARY": library}, prefix=prefix)
        told = comments_about_spans(recorder.profile())
        self.assertEqual(len(told), 1)
        self.assertIn("Permission denied", told[0])
        self.assertFalse(self.hook_loaded(target))
        self.assertEqual(target.quit(5), 5, "the target lives")

    def test_brought_by_another_session(self):
        """A session that cannot bring the hook has spans all the same once another has, and says so."""
        library, hook = self.own_library()
        os.unlink(hook)
        target = self.target("requests")
        recorder = self.record(target, 60, env={"CLRPULSE_LIBRARY": library})
        self.wait_for_library(target, recorder)
        time.sleep(1)
        self.assertFalse(self.hook_loaded(target))
        other = self.record(target, 60)
        self.hook_runs(target, other)
        target.begin()
        wait_for(lambda: harness.cpu_ns(target.pid) > 2e9, 60, "work")
        target.end()
        for session in (recorder, other):
            session.interrupt()
            profile = session.profile()
            self.assertEqual(comments_about_spans(profile), [])
            self.assertGreater(len([s for s in profile.samples if "span_id" in s.labels]), 5)
        self.assertEqual(target.quit(5), 5, "the target lives")

    def test_removed_at_any_moment(self):
        """The file goes away while the hook is brought in: it runs, or was never sent."""
        def placed(target):
            return (any(n.startswith("clrpulse-spans-") for n in os.listdir(target.directory))
                    or self.hook_loaded(target))
        moments = [lambda target, c=c: wait_for(lambda: c(target), 30, "its moment")
                   for c in (harness.Target.library_path, placed, self.hook_loaded)]
        moments += [lambda target, ms=ms: time.sleep(ms / 1e3) for ms in range(0, 250, 40)]
        ran = 0
        for number, moment in enumerate(moments):
            library, hook = self.own_library()
            target = self.target("requests")
            recorder = self.record(target, 3, env={"CLRPULSE_LIBRARY": library})
            moment(target)
            os.unlink(hook)
            told = comments_about_spans(recorder.profile())
            self.assertEqual(bool(told), not self.hook_loaded(target), told)
            for reason in told:
                self.assertIn("cannot read", reason)
            ran += not told
            self.assertEqual(target.quit(5), 5, f"the target lives, moment {number}")
        print(f"{framework()}: the hook ran in {ran} of {len(moments)} processes")
        self.assertGreater(ran, 0)
        self.assertLess(ran, len(moments))

    def test_check_names_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            library = shutil.copy(environment("CLP_LIBRARY"), os.path.join(folder, "libclrpulse.so"))
            dll = os.path.join(folder, "Clrpulse.Spans.dll")
            def check():
                done = subprocess.run([environment("CLP_CLRPULSE"), "check"], capture_output=True, text=True,
                                      env={**os.environ, "CLRPULSE_LIBRARY": library}, timeout=60)
                return done.stdout + done.stderr
            self.assertIn("cannot read", check())
            with open(dll, "wb") as f:
                f.write(b"MZ")
            self.assertIn("is not the file that belongs to this clrpulse", check())
            shutil.copy(hook_path(), dll)
            self.assertNotIn("labels of requests", check())

    def publish(self, kind):
        return self.target("requests", "--hooked", 1, kind=kind)

    def test_single_file(self):
        self.check_labels(self.publish("single"))

    def test_trimmed(self):
        """Trimming has taken start-up hooks away: told, and harmless."""
        target = self.target("requests", kind="trimmed")
        recorder = self.record(target, 9)
        told = comments_about_spans(recorder.profile())
        self.assertEqual(len(told), 1)
        self.assertIn("did not run it", told[0])
        self.assertEqual(target.quit(5), 5)


class TestOwnSpans(SpanCase):
    def test_calls(self):
        """Programs without Activity: the C# call, and the C call as docs/examples/span.c has it."""
        target = self.target("ownspans", "--assembly", hook_path(), "--native", environment("CLP_SPAN_EXAMPLE"))
        recorder = self.record(target, 60, "--no-startup-hook")
        self.wait_for_library(target, recorder)
        target.begin()
        wait_for(lambda: harness.cpu_ns(target.pid) > 3e9, 60, "work")
        truth = target.end()
        recorder.interrupt()
        profile = recorder.profile()
        self.assertEqual(target.quit(5), 5)
        self.assertEqual(truth["wrong"], "")
        for frame, trace, first, count, endpoint in (
                ("InImport", "00000000000000a1" "00000000000000b2", 0x1000, truth["imports"], "import"),
                ("orders_process", "00000000000000c3" "00000000000000d4", 0x2000, truth["orders"],
                 "process order")):
            inside = [s for s in profile.samples if any(frame in f for f in s.stack)]
            whole = sum(s.value() for s in inside)
            self.assertGreater(whole, 2e8, frame)
            right = sum(s.value() for s in inside if s.labels.get("trace_id") == trace
                        and first <= int(s.labels["span_id"], 16) < first + count
                        and s.labels.get("local_root_span_id") == s.labels["span_id"]
                        and s.labels.get("endpoint") == endpoint)
            self.assertGreater(right, 0.95 * whole, frame)
        self.assertEqual([s.labels for s in profile.samples if "trace_id" in s.labels
                          and any("OwnSpansMode.Outside" in f for f in s.stack)], [])


class TestCost(SpanCase):
    def test_switch(self):
        """Printed, and bounded far above what it should be: the machine is shared."""
        target = self.target("switchcost")
        target.begin()
        without = target.end()
        recorder = self.record(target, 30)
        self.hook_runs(target, recorder)
        target.begin()
        with_hook = target.end()
        recorder.interrupt()
        recorder.profile()
        for key, what, most in (("nanoseconds", "entering and leaving a context", 500),
                                ("activity_nanoseconds", "an activity from start to end", 3000)):
            print(f"{framework()}: {what}: {without[key]:.1f} ns, with the hook {with_hook[key]:.1f} ns")
            self.assertGreater(with_hook[key], 0)
            self.assertLess(with_hook[key] - without[key], most)


if __name__ == "__main__":
    harness.main()
