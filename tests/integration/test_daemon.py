#!/usr/bin/env python3
"""The agent as something to leave running, against a stand-in for its targets (tests/tools/fake-library.c): windows,
numbers, clocks, states, settings, the end, status and check.

No .NET is needed, so these also run under the sanitizers."""

import fcntl
import glob
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import harness
import pprof
import test_session
from test_session import CLRPULSE

SANITIZED = bool(os.environ.get("CLP_SANITIZED"))
HOUR = 3600 * 10**9


def load_chunk(path):
    """The profile of a file of the spool, whose head is drawn in docs/spool.md."""
    with open(path, "rb") as file:
        chunk = file.read()
    header_bytes, profile_bytes = struct.unpack_from("<IQ", chunk, 12)
    if len(chunk) != 32 + header_bytes + profile_bytes:
        raise ValueError(f"{path} is not as long as it says")
    return pprof.Profile(chunk[32 + header_bytes:])


class Window:
    """One profile that was written, as its comments tell about it."""

    def __init__(self, path):
        profile = load_chunk(path) if path.endswith(".chunk") else pprof.load(path)
        told = dict(c.split("=", 1) for c in profile.comments if "=" in c)
        self.path = path
        self.total = profile.total()
        self.start, self.end = profile.time_ns, profile.time_ns + profile.duration_ns
        self.duration = profile.duration_ns / 1e9
        self.pid = int(told["process"])
        self.runtime_id, self.seq = told["runtime_id"], int(told["profile_seq"])
        self.comments = profile.comments


class DaemonCase(test_session.Case):
    def config(self, upload=None, period="1s", include=None, extra=""):
        path = os.path.join(self.directory, "c.yaml")
        include = include or f"command:*{self.tmp}*"  # no stand-ins of other tests
        upload = upload or f"{{ kind: directory, path: '{self.directory}/out' }}"
        with open(path, "w") as file:
            file.write(f"profile: {{ period: {period} }}\ntargets: {{ include: ['{include}'] }}\n"
                       f"upload: [ {upload} ]\nspool: {{ dir: '{self.directory}/spool' }}\n"
                       f"state: {{ dir: '{self.directory}/state' }}\n{extra}")
        return path

    def agent(self, *options, env=None, **settings):
        config = self.config(**settings)
        if not hasattr(self, "log"):
            self.log = open(os.path.join(self.directory, "log"), "a+")
            self.addCleanup(self.log.close)
        process = subprocess.Popen([CLRPULSE, "agent", "-c", config, *options], stderr=self.log,
                                   env={**os.environ, "CLRPULSE_LIBRARY": self.library,
                                        **(env or {})})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_for(lambda: self.answers() or process.poll() is not None, "the agent answers")
        return process

    def answers(self):
        return self.run_clrpulse("status", "-c", f"{self.directory}/c.yaml").returncode == 0

    def has_socket(self):
        return os.path.exists(f"{self.directory}/state/agent.sock")

    def text(self):
        return harness.written(self.log)

    def wait_for(self, condition, what, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}: not within {seconds} s\n{self.text() if hasattr(self, 'log') else ''}")
            time.sleep(0.02)

    def stop(self, process, seconds=30):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(seconds), 0, self.text())

    def windows(self, where="out", kind="cpu"):
        """A window is one file for each kind of profile, or one chunk of the spool for all."""
        directory = f"{self.directory}/{where}"
        names = os.listdir(directory) if os.path.isdir(directory) else []
        found = [Window(os.path.join(directory, n)) for n in names
                 if n.endswith(".chunk") or (n.endswith(".pb.gz") and f"-{kind}-" in n)]
        return sorted(found, key=lambda w: (w.runtime_id, w.seq))

    def status(self):
        done = self.run_clrpulse("status", "-c", f"{self.directory}/c.yaml", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def member(self, pid):
        return next((m for m in self.status()["targets"] if m["pid"] == pid), None)

    def state(self, pid):
        member = self.member(pid)
        return member["state"] if member else None

    def assert_numbered(self, windows, count):
        """Per runtime instance 0..n, each once."""
        numbers = {}
        for window in windows:
            numbers.setdefault(window.runtime_id, []).append(window.seq)
        self.assertEqual(len(numbers), count, numbers)
        for found in numbers.values():
            self.assertEqual(found, list(range(len(found))), numbers)

    def assert_no_overlap(self, windows):
        for one in windows:
            self.assertGreater(one.end, one.start)
            for other in windows:
                if one is not other and one.runtime_id == other.runtime_id:
                    self.assertTrue(one.end <= other.start or other.end <= one.start,
                                    (one.path, other.path))


class TestWindows(DaemonCase):
    def test_numbers_over_kills_and_restarts(self):
        """The agent is killed twice, the target is started again once: no number twice, none missing,
        and no gap but where nobody was there to look."""
        first = self.start()
        agent = self.agent()
        for round_number in range(2):
            before = len(self.windows())
            self.wait_for(lambda: len(self.windows()) >= before + 2, "two windows")
            time.sleep(0.3)  # amid a window
            agent.kill()
            agent.wait()
            agent = self.agent()
            if round_number == 0:
                self.wait_for(lambda: self.state(first.pid) == "profiling", "it is found again")
                first.terminate()
                first.wait()
                second = self.start()
        self.wait_for(lambda: len({w.runtime_id for w in self.windows() if w.pid == second.pid}) == 1
                      and len([w for w in self.windows() if w.pid == second.pid]) >= 4, "both live")
        self.stop(agent)
        windows = self.windows()
        self.assert_numbered(windows, 2)
        self.assert_no_overlap(windows)
        gaps = [two.start - one.end for one, two in zip(windows, windows[1:])
                if one.runtime_id == two.runtime_id]
        self.assertLessEqual(sum(gap != 0 for gap in gaps), 2, f"only a kill makes a gap: {gaps}")

    def test_state_of_the_end(self):
        """A target that ends leaves no file with its number behind."""
        target = self.start("--exit-after", "1500")
        agent = self.agent(period="60s")
        target.wait(20)
        self.wait_for(lambda: self.state(target.pid) == "gone", "it is seen to be gone")
        self.assertEqual(os.listdir(f"{self.directory}/state/seq"), [])
        windows = self.windows()
        self.assertEqual([w.seq for w in windows], [0])
        self.assertEqual([w.seq for w in self.windows(kind="wall")], [0])
        self.assertLess(windows[0].duration, 3, "a short job's profile is as long as the job")
        self.stop(agent)

    @unittest.skipIf(SANITIZED, "the clock is a preloaded library")
    def test_wall_clock_is_set(self):
        """An hour forth, an hour back and a little back: no window overlaps, each step is told."""
        clock = os.path.join(self.directory, "clock")

        def set_clock(ns):
            with open(clock, "r+b" if os.path.exists(clock) else "wb") as file:
                file.write(struct.pack("<q", ns))

        set_clock(0)
        target = self.start()
        agent = self.agent(env={"LD_PRELOAD": os.environ["CLP_STEP_CLOCK"],
                                "CLP_CLOCK_FILE": clock})
        begin = time.monotonic()

        def two_windows():
            count = len(self.windows()) + 2
            self.wait_for(lambda: len(self.windows()) >= count, "two windows")

        for ns in (HOUR, 0, -2 * 10**9, -HOUR, 0):
            two_windows()
            set_clock(ns)
        two_windows()
        self.stop(agent)
        windows = self.windows()
        self.assert_numbered(windows, 1)
        self.assert_no_overlap(windows)
        self.assertTrue(all(w.duration < 2 for w in windows), [w.duration for w in windows])
        text = self.text()
        for step in (r"\+3600\.\d+", r"-3600\.\d+", r"-2\.\d+"):
            self.assertRegex(text, f"the wall clock was set by {step} s")
        self.assertRegex(text, r"profiles stay 2\.\d+ s ahead")
        seen = sum(w.duration for w in windows)
        self.assertAlmostEqual(seen, time.monotonic() - begin, delta=3)
        self.assertAlmostEqual(sum(w.total for w in windows) / 1e9, seen / 10, delta=seen / 40)
        self.assertIsNone(target.poll())

    def test_agent_is_stopped(self):
        """SIGSTOP and SIGCONT: one long window, nothing lost, told."""
        self.start()
        agent = self.agent()
        self.wait_for(lambda: len(self.windows()) >= 2, "two windows")
        agent.send_signal(signal.SIGSTOP)
        seconds = int(os.environ.get("CLP_STOP_SECONDS", "7"))
        time.sleep(seconds)
        agent.send_signal(signal.SIGCONT)
        time.sleep(2.5)
        self.stop(agent)
        windows = self.windows()
        self.assert_numbered(windows, 1)
        self.assert_no_overlap(windows)
        self.assertTrue(all(one.end == two.start for one, two in zip(windows, windows[1:])))
        self.assertGreater(max(w.duration for w in windows), seconds - 1)
        told = re.search(r"has not run for ([0-9.]+) s", self.text())
        self.assertTrue(told, self.text())
        self.assertAlmostEqual(float(told[1]), seconds, delta=1.5)
        seen = sum(w.duration for w in windows)
        self.assertAlmostEqual(sum(w.total for w in windows) / 1e9, seen / 10, delta=seen / 40)


class TestTargets(DaemonCase):
    def test_new_ones_within_a_second(self):
        agent = self.agent()
        for _ in range(3):
            begin = time.monotonic()
            target = self.start()
            self.wait_for(lambda: self.state(target.pid) == "profiling", "found")
            self.assertLess(time.monotonic() - begin, 1.5 if not SANITIZED else 4)
        self.stop(agent)

    def test_a_shell_that_becomes_a_target(self):
        """exec after the scan has lost interest."""
        agent = self.agent()
        script = f"sleep 4.5; exec {test_session.FAKE} --tmp {self.tmp}"
        process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE,
                                   env={**os.environ, "TMPDIR": self.tmp})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        process.stdout.readline()
        begin = time.monotonic()
        self.wait_for(lambda: self.state(process.pid) == "profiling", "found")
        self.assertLess(time.monotonic() - begin, 2.5)
        self.stop(agent)

    def test_states_and_reasons(self):
        """Each kind of target has its state and its reason, and none delays another."""
        stopped = self.start()
        stopped.send_signal(signal.SIGSTOP)
        self.addCleanup(stopped.send_signal, signal.SIGCONT)
        hostile, refusing = self.start("--garbage"), self.start("--refuse", "not today")
        silent, old = self.start("--no-connect"), self.start("--version", "6.0.1")
        good = [self.start() for _ in range(3)]
        agent = self.agent()
        for target in good:
            self.wait_for(lambda t=target: self.state(t.pid) == "profiling", "the good ones", 5)
        expected = {stopped: "is stopped; let it run", hostile: "nonsense",
                    refusing: "refused: not today", old: "oldest that can be profiled",
                    silent: "did not report back"}
        for target, reason in expected.items():
            self.wait_for(lambda t=target: self.state(t.pid) == "refused", reason, 20)
            self.assertIn(reason, self.member(target.pid)["reason"])
        self.assertIsNone(self.member(hostile.pid)["retry_in_seconds"], "never again")
        self.assertGreater(self.member(refusing.pid)["retry_in_seconds"], 30)
        stopped.send_signal(signal.SIGCONT)
        self.wait_for(lambda: self.state(stopped.pid) == "profiling", "it runs again", 40)
        self.stop(agent)
        for target in good:
            durations = [w.duration for w in self.windows() if w.pid == target.pid][:-1]
            self.assertGreater(len(durations), 5)
            self.assertLess(max(durations), 2.5 if not SANITIZED else 4, "on time")

    def test_four_readers_are_there(self):
        """It is profiled soon after one of them has left."""
        target = self.start("--full", "5000")
        agent = self.agent()
        self.wait_for(lambda: self.state(target.pid) == "refused", "the refusal", 4)
        self.assertIn("refused: no place", self.member(target.pid)["reason"])
        self.wait_for(lambda: self.state(target.pid) == "profiling", "a place", 20)
        self.stop(agent)

    def test_attempts_go_on(self):
        """One that fails is tried again, later each time."""
        target = self.start("--leave-after", "100")
        agent = self.agent()
        self.wait_for(lambda: (self.member(target.pid) or {}).get("failures", 0) >= 1, "the first")
        self.wait_for(lambda: self.text().count("left the process") >= 2, "the second", 10)
        self.stop(agent)

    def test_one_that_waits_is_let_go(self):
        agent = self.agent()
        process = self.start(prefix=("env", "DOTNET_DefaultDiagnosticPortSuspend=1"))
        begin = time.monotonic()
        self.assertEqual(process.stdout.readline(), "resumed\n")
        self.assertLess(time.monotonic() - begin, 1.5)
        other = self.start()
        self.wait_for(lambda: self.state(other.pid) == "profiling", "the other")
        self.stop(agent)
        other.terminate()
        self.assertEqual(other.stdout.read(), "", "nobody is let go who did not wait")

    def test_identity(self):
        """What intakes want to know comes from settings and from the target's environment."""
        target = self.start(prefix=("env", "DD_SERVICE=Fake", "DD_ENV=test", "DD_VERSION=1.2",
                                    "DD_TAGS=team:a,zone:b", "DD_GIT_COMMIT_SHA=abc123"))
        agent = self.agent(extra="service: { env: prod, tags: { team: conf } }\n")
        self.wait_for(lambda: self.windows(), "a window")
        member = self.member(target.pid)
        self.stop(agent)
        self.assertEqual((member["service"], member["env"], member["version"]), ("Fake", "prod", "1.2"))
        self.assertEqual(member["tags"], {"team": "conf", "zone": "b"})
        self.assertEqual(member["host"], socket.gethostname())
        self.assertRegex(member["runtime_id"], r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        comments = self.windows()[0].comments
        for line in ("service=Fake", "env=prod", "version=1.2", "tag=team:conf", "tag=zone:b",
                     "git_commit=abc123", f"host={socket.gethostname()}"):
            self.assertIn(line, comments)


    def test_ends_at_every_moment(self):
        """From its first moment to amid its first window: each is seen to go, and nothing stays."""
        agent = self.agent(period="60s")
        before = len(os.listdir(f"/proc/{agent.pid}/fd"))
        ended = []
        for moment in range(1, 400, 15):
            target = self.start("--exit-after", str(moment))
            if moment % 2:
                target.kill()
            target.wait()
            ended.append(target.pid)
        last = self.start()
        self.wait_for(lambda: self.state(last.pid) == "profiling", "the agent is well")
        last.kill()
        last.wait()
        self.wait_for(lambda: all(self.state(pid) in (None, "gone") for pid in [*ended, last.pid]),
                      "all are gone")
        self.wait_for(lambda: len(os.listdir(f"/proc/{agent.pid}/fd")) <= before, "descriptors")
        self.assertEqual(os.listdir(f"{self.directory}/state/seq"), [])
        self.stop(agent)

    def test_a_large_environment(self):
        """A megabyte, and values beyond all sense in the variables that are read."""
        noise = "".join(chr(33 + i * 7 % 90) for i in range(60000))
        variables = [f"X{i}={noise}{noise}" for i in range(8)]
        variables += [f"DD_TAGS={','.join(f'k{i}:v{i}' for i in range(4000))},,:,:x,y:,{noise}",
                      f"DD_GIT_COMMIT_SHA={noise}", "DD_GIT_REPOSITORY_URL=https://u:p@h/" + "r" * 90000,
                      f"DD_ENV={noise}", f"OTEL_RESOURCE_ATTRIBUTES=a=%2,b=%zz,%41=%42,{noise}",
                      f"DD_VERSION={'é' * 50000}"]
        target = self.start(prefix=("env", *variables))
        agent = self.agent()
        self.wait_for(lambda: self.windows(), "a window")
        member = self.member(target.pid)
        self.stop(agent)
        self.assertEqual(member["service"], "Fake")
        self.assertEqual(len(member["tags"]), 64)
        self.assertEqual(member["tags"]["k0"], "v0")
        self.assertTrue(all(len(line.encode()) < 700 for line in self.windows()[0].comments))
        self.assertNotIn("u:p@", str(self.windows()[0].comments))


class TestSettings(DaemonCase):
    def test_read_anew(self):
        first = self.start()
        agent = self.agent(period="60s")
        self.wait_for(lambda: self.state(first.pid) == "profiling", "profiling")
        self.config(period="1s")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: len(self.windows()) >= 2, "windows of the new length")
        self.assertEqual(self.status()["period_ns"], 10**9)
        # A bad one changes nothing and says where it is bad.
        with open(f"{self.directory}/c.yaml", "a") as file:
            file.write("targest: {}\n")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: "stay as they were" in self.text(), "the refusal")
        self.assertRegex(self.text(), r"c\.yaml:6: targest is no section; did you mean targets\?")
        before = len(self.windows())
        self.wait_for(lambda: len(self.windows()) >= before + 2, "it goes on")
        # Destinations that cannot be used: nothing changes either.
        self.config(upload="{ kind: directory, path: /proc/no/such }")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: "cannot make the directory /proc/no/such" in self.text(), "told")
        # Another destination.
        self.config(upload=f"{{ kind: directory, path: '{self.directory}/new' }}")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.windows("new"), "the new destination")
        # And one that is not wanted any more.
        self.config(include="other")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.state(first.pid) == "seen", "left alone")
        self.assertIn("nothing in targets.include matches", self.member(first.pid)["reason"])
        self.config()
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.state(first.pid) == "profiling", "wanted again", 10)
        self.stop(agent)
        self.assert_numbered(self.windows() + self.windows("new"), 1)

    def assert_numbered(self, windows, count):
        # The last destination was replaced by the standard one again.
        super().assert_numbered(sorted(windows, key=lambda w: (w.runtime_id, w.seq)), count)

    def waiting(self):
        return self.status()["uploads"][0]["waiting"]

    def locked(self, name):
        with open(f"{self.directory}/{name}/lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def reload(self, agent, extra="", **settings):
        done = self.text().count("the settings were read anew")
        path = self.config(**settings)
        with open(path) as file:
            text = file.read().replace(f"{self.directory}/spool", f"{self.directory}/{self.spool}")
        with open(path, "w") as file:
            file.write(text)
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.text().count("the settings were read anew") > done, "a reload")

    def test_what_waits_moves_along(self):
        """A wrong address is put right and the spool moved, twice; the last time into memory and back."""
        self.start()
        down = "{ kind: http, url: 'http://127.0.0.1:9/' }"
        agent = self.agent(upload=down)
        self.spool = "spool"
        for spool in ("other", "file/none", "other"):  # a directory below a file: only memory is left
            with open(f"{self.directory}/file", "w"):
                pass
            before = self.waiting()
            self.wait_for(lambda: self.waiting() > before, "one more that waits")
            waited, was = self.waiting(), self.spool
            self.spool = spool
            self.reload(agent, upload=down)
            if spool == "file/none":
                self.assertTrue(os.listdir(f"{self.directory}/{was}"), "no rename leads into memory")
                continue
            self.assertGreaterEqual(self.waiting(), waited if was == "spool" else 1)
            self.assertTrue(self.locked(spool))
            if was == "spool":
                self.assertFalse(self.locked(was), "free for another agent")
                self.assertEqual(glob.glob(f"{self.directory}/{was}/*.chunk"), [])
        self.reload(agent, upload=None)
        self.wait_for(lambda: self.waiting() == 0 and self.windows(), "all of it")
        self.stop(agent)
        self.assert_numbered(self.windows(), 1)
        self.assertNotIn("lost", self.text())

    def test_log_for_machines(self):
        """log.format json: each line one object, what a target says of itself included; one place in
        the code writes ten lines a minute (what it says of those held back: test-log.c)."""
        agent = self.agent(extra="log: { format: json, level: info }\n")
        for _ in range(13):
            target = self.start("--exit-after", "1")
            self.wait_for(lambda t=target: self.state(t.pid) in ("profiling", "gone"), "met")
        lines = [json.loads(line) for line in self.text().splitlines()]
        self.assertEqual({tuple(line) for line in lines}, {("time", "level", "message")})
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("error", "warning", "info"))
        met = [line for line in lines if line["message"].startswith("profiling process")]
        self.assertEqual(len(met), 10, "no more a minute")
        self.config(period="2s", extra="log: { format: text }\n")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: "info the settings were read anew" in self.text(), "text again")
        self.stop(agent)

    def test_command_line_wins(self):
        self.start()
        agent = self.agent("--set", "profile.period=2s", "--set", "service.env=cli",
                           env={"CLRPULSE_PROFILE_PERIOD": "60s"})
        self.wait_for(lambda: self.windows(), "a window")
        self.assertEqual(self.status()["period_ns"], 2 * 10**9)
        self.assertIn("env=cli", self.windows()[0].comments)
        self.stop(agent)

    def test_errors(self):
        """Each with its place and what was probably meant; exit code 2."""
        table = [
            ("profile:\n  perod: 1s\n", [], r"c\.yaml:2: profile\.perod is no setting; did you mean"),
            ("profle: {}\n", [], r"c\.yaml:1: profle is no section; did you mean profile\?"),
            ("profile: { period: fast }\n", [], r"c\.yaml:1: profile\.period is a duration"),
            ("profile: { period: 2h }\n", [], r"must be between 1s and 3600s"),
            ("profile: { types: [cpy] }\n", [], r"'cpy' cannot be recorded; did you mean cpu\?"),
            ("log: { level: loud }\n", [], r"'loud' is no log level"),
            ("log: { format: xml }\n", [], r"'xml' is no log format"),
            ("upload: [ { kind: htpp, url: x } ]\n", [], r"did you mean http"),
            ("upload: [ { kind: http } ]\n", [], r"c\.yaml:1: an upload of kind http needs a url"),
            ("targets: { include: [] }\n", [], r"targets\.include is empty"),
            ("targets: { diagnostic_port: x }\n", [], r"diagnostic_port must be an absolute path"),
            ("state: { dir: x }\n", [], r"state\.dir must be an absolute path"),
            ("spool: { dir: x }\n", [], r"spool\.dir must be an absolute path"),
            ("a: [\n", [], r"c\.yaml:2: not YAML"),
            ("", ["--set", "profile.perod=1s"], r"--set: profile\.perod is no setting; did you mean "
                                               r"profile\.period\?"),
            ("", ["--set", "profile.period=x"], r"--set profile\.period: profile\.period is a duration"),
            ("", ["--set", "period"], r"'period' is no setting; write section\.key=value"),
            ("", ["--sett", "a=b"], r"agent takes no option --sett; did you mean --set\?"),
            ("profile: { period: 1s, cpu_interval: 500ms }\n", [], r"cpu_interval is too long"),
        ]
        path = os.path.join(self.directory, "c.yaml")
        for text, options, pattern in table:
            with self.subTest(text=text, options=options):
                with open(path, "w") as file:
                    file.write(text)
                self.assert_sentence(self.run_clrpulse("agent", "-c", path, *options), 2, pattern)


class TestEnd(DaemonCase):
    def black_hole(self):
        """An intake that takes connections and never answers."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        taken = []
        threading.Thread(target=lambda: [taken.append(server.accept()) for _ in range(100)],
                         daemon=True).start()
        return server.getsockname()[1]

    def test_intake_never_answers(self):
        """Five seconds at most, and every profile is in the spool."""
        self.start()
        stopped = self.start()
        port = self.black_hole()
        agent = self.agent(upload=f"{{ kind: http, url: 'http://127.0.0.1:{port}/' }}")
        time.sleep(4)
        stopped.send_signal(signal.SIGSTOP)  # and a target that does not answer either
        self.addCleanup(stopped.send_signal, signal.SIGCONT)
        time.sleep(0.2)
        written = sum(m["windows"] for m in self.status()["targets"])
        begin = time.monotonic()
        self.stop(agent, 10)
        self.assertLess(time.monotonic() - begin, 5 if not SANITIZED else 8)
        windows = self.windows("spool")
        self.assertGreaterEqual(len(windows), written + 1)
        self.assert_numbered(windows, 2)
        self.assertNotIn("is lost", self.text())

    def test_spool_cannot_be_written(self):
        """What is lost is counted and told."""
        self.start()
        port = self.black_hole()
        agent = self.agent("--set", "spool.dir=/proc/no/such",
                           upload=f"{{ kind: http, url: 'http://127.0.0.1:{port}/' }}")
        time.sleep(3)
        self.stop(agent, 10)
        self.assertRegex(self.text(), r"error \d+ profiles are lost: they could not be delivered, "
                                      r"nor written to the spool")


class TestStatus(DaemonCase):
    def test_text_and_json(self):
        target = self.start()
        agent = self.agent()
        self.wait_for(lambda: len(self.windows()) >= 3, "three windows")
        self.wait_for(lambda: self.status()["uploads"][0]["delivered"] > 2, "their delivery")
        status, member = self.status(), self.member(target.pid)
        self.assertEqual(status["pid"], agent.pid)
        self.assertEqual(status["configuration"], f"{self.directory}/c.yaml")
        self.assertGreater(status["resident_bytes"], 10**6)
        self.assertGreaterEqual(member["windows"], 3)
        self.assertEqual(member["next_seq"], member["windows"])
        self.assertGreater(member["samples"], 100)
        self.assertGreater(member["counters"]["sampled_cpu"], 10**8)
        self.assertGreater(status["uploads"][0]["delivered"], 2)
        self.assertEqual(status["uploads"][0]["lost"], 0)
        done = self.run_clrpulse("status", "-c", f"{self.directory}/c.yaml")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"clrpulse \S+, process {agent.pid}, up")
        self.assertRegex(done.stdout, rf"{target.pid} profiling .* 10\.0\.1 .* Fake")
        audit = self.run_clrpulse("check", "--audit", "-c", f"{self.directory}/c.yaml")
        self.assertEqual((audit.returncode, audit.stderr), (0, ""))
        self.assertRegex(audit.stdout, rf"process {target.pid} \(Fake\)\n  cpu +profiles \d+\.\d+ s, "
                                       r"kernel \d+\.\d+ s: .*\n  wall +profiles \d+\.\d+ s, "
                                       r"kernel \d+\.\d+ s: ")
        self.assertRegex(audit.stdout, r"  threads +library 0, kernel 2\n")
        self.stop(agent)

    def test_no_agent(self):
        config = self.config()
        done = self.run_clrpulse("status", "-c", config)
        self.assert_sentence(done, 1, "no agent runs with the state directory")
        done = self.run_clrpulse("check", "--audit", "-c", config, "-p", str(os.getpid()))
        self.assert_sentence(done, 2, "--audit is about all processes of the agent: leave out -p")

    def test_second_agent(self):
        agent = self.agent()
        done = self.run_clrpulse("agent", "-c", f"{self.directory}/c.yaml")
        self.assertEqual(done.returncode, 1)
        self.assertIn("another agent runs with the state directory", done.stderr)
        self.assertIsNone(agent.poll())
        done = self.run_clrpulse("agent", "-c", f"{self.directory}/c.yaml", "--set",
                                 f"state.dir={self.directory}/state2")
        self.assert_sentence(done, 1, "another agent uses the spool .*: stop it, or give this one")
        self.stop(agent)
        self.assertFalse(self.has_socket(), "nothing is left behind")


class TestCheck(DaemonCase):
    def check(self, *options):
        return self.run_clrpulse("check", "-c", self.config(), *options)

    def test_good_process(self):
        target = self.start()
        done = self.check("-p", str(target.pid))
        self.assertRegex(done.stdout, rf"ok +process {target.pid} \(fake-library\) can be profiled, "
                                      r"\.NET 10\.0\.1")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_all_processes(self):
        target = self.start()
        self.assertRegex(self.check().stdout, rf"process {target.pid} ")

    def test_what_a_process_shows(self):
        """Facts as the system gives them; every sentence is tested in test-check.c."""
        for variable, pattern in (("CLRPULSE_DISABLE=1", "error .*CLRPULSE_DISABLE=1"),
                                  ("DOTNET_EnableDiagnostics_Profiler=0", "warning .*Profiler=0"),
                                  ("DOTNET_DiagnosticPorts=/x.sock", "warning .*/x.sock"),
                                  ("CORECLR_ENABLE_PROFILING=1", "note .*side by side")):
            with self.subTest(variable=variable):
                target = self.start(prefix=("env", variable))
                done = self.check("-p", str(target.pid))
                self.assertRegex(done.stdout, pattern)
                self.assertEqual(done.returncode, 1 if pattern.startswith("error") else 0)

    def test_stopped(self):
        target = self.start()
        target.send_signal(signal.SIGSTOP)
        self.addCleanup(target.send_signal, signal.SIGCONT)
        done = self.check("-p", str(target.pid))
        self.assertRegex(done.stdout, rf"error .*is stopped; let it run \(kill -CONT {target.pid}\)")
        self.assertEqual(done.returncode, 1)

    def test_no_dotnet_and_no_process(self):
        done = self.check("-p", str(os.getpid()))
        self.assertRegex(done.stdout, "error .*is not a .NET process")
        self.assertEqual(done.returncode, 3)  # as `record` has it
        self.assertEqual(self.check("-p", "999999999").returncode, 3)

    def test_configuration(self):
        path = os.path.join(self.directory, "bad.yaml")
        with open(path, "w") as file:
            file.write("a: 1\n")
        done = self.run_clrpulse("check", "-c", path)
        self.assertRegex(done.stdout, r"error .*bad\.yaml:1: a is no section")
        self.assertEqual(done.returncode, 2)

    def test_uploads(self):
        """A test profile goes to each; what fails counts as an error. A check of one process sends none."""
        out = f"{self.directory}/out"
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        done = self.run_clrpulse("check", "-c", self.config(
            upload=f"{{ kind: directory, path: '{out}' }}, "
                   f"{{ kind: http, url: 'http://127.0.0.1:{port}/' }}"))
        self.assertRegex(done.stdout, rf"ok +upload directory: a test profile was taken by .*{out}")
        self.assertRegex(done.stdout, r"error +upload http: ")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(os.listdir(out)), 1)
        self.check("-p", str(os.getpid()))
        self.assertEqual(len(os.listdir(out)), 1)

    def test_settings_and_directories(self):
        target = self.start()
        done = self.run_clrpulse("check", "-c", self.config(include="nothing"), "-p", str(target.pid))
        self.assertRegex(done.stdout, "note .*left alone: nothing in targets.include")
        with open(f"{self.directory}/file", "w"):
            pass
        path = self.config(extra="")
        with open(path) as file:
            text = file.read().replace(f"{self.directory}/state", f"{self.directory}/file/state")
        with open(path, "w") as file:
            file.write(text)
        done = self.run_clrpulse("check", "-c", path, "-p", str(target.pid))
        self.assertRegex(done.stdout, r"error +state\.dir cannot be used")
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
