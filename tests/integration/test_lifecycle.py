#!/usr/bin/env python3
"""Coming and going: attach and detach, ends of targets, things that are no target."""

import os
import signal
import statistics
import subprocess
import time

import harness
import pprof
from harness import Case, record_work, timers, wait_for

NO_SUCH_PROCESS = 3
ROUNDS = int(os.environ.get("CLP_ROUNDS", "50" if harness.full() else "10"))


class TestRounds(Case):
    def test_attach_detach(self):
        """Threads, descriptors, memory and signal actions are as after the first round."""
        target = self.target("spin", "--busy", 2, "--sleepers", 4)
        target.begin()
        target.state()  # loads what printing it needs
        before = target.state()
        first = None
        sizes = []
        for number in range(ROUNDS):
            profile = self.record(target, 1).profile()
            self.assertGreater(profile.total(), 0, f"round {number} saw nothing")
            wait_for(lambda: not target.library_runs(), 10, "the library's thread ends")
            look = self.settled(target, first)
            sizes.append(self.rss_kb(target.pid))
            first = first or (look if number == 1 else None)
            if first:
                self.compare(first, look, number)
        self.check_growth(sizes)
        self.compare_actions(before, target.state(), "at the end")
        target.end()
        self.assertEqual(target.quit(5), 5)

    def check_growth(self, sizes):
        # The first rounds warm caches up; later ones must not grow: 16 KB a round would be a leak.
        half = len(sizes) // 2
        early, late = statistics.median(sizes[2:half]), statistics.median(sizes[half:-1])
        print(f"RSS after each round: {sizes} KB")
        self.assertLess(late - early, 512 + 16 * half, f"memory grows with the rounds: {sizes} KB")

    def rss_kb(self, pid):
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Rss:"))

    def settled(self, target, first):
        """Threads with their blocked signals, and descriptors.

        A runtime thread may just be starting or a connection closing: look again in a moment."""
        for _ in range(10):
            names = target.thread_names()
            # The runtime's tiering thread comes and goes by itself.
            look = {"tasks": sorted(n for n in names.values() if not n.startswith(".NET Tiered")),
                    "blocked": {name: target.blocked(tid) for tid, name in names.items()},
                    "fds": target.descriptors()}
            if first is None or (len(look["fds"]) <= len(first["fds"])
                                 and look["tasks"] == first["tasks"]):
                break
            time.sleep(0.3)
        return look

    def compare(self, first, look, number):
        self.assertEqual(first["tasks"], look["tasks"], f"threads, round {number}")
        more = [name for name in look["fds"] if name not in first["fds"]]
        self.assertLessEqual(len(look["fds"]), len(first["fds"]), f"round {number}: {more}")
        for name, blocked in look["blocked"].items():
            self.assertFalse(blocked >> (signal.SIGRTMIN - 1) & 1,
                             f"round {number}: thread {name} has the signal blocked")

    def compare_actions(self, one, other, what):
        self.assertEqual(one["actions"], other["actions"], f"signal actions, {what}")

    def test_timers_deleted(self):
        """No timer outlives a recording: each holds a slot of the user's signal quota."""
        target = self.target("spin", "--busy", 3, "--sleepers", 30)
        target.begin()
        time.sleep(0.5)
        before = timers(target.pid)
        recorder = self.record(target, 4)
        self.wait_for_library(target, recorder)
        self.assertGreater(timers(target.pid), before)
        recorder.profile()
        wait_for(lambda: timers(target.pid) <= before, 30, "all timers are deleted")


class TestWaits(Case):
    def test_eintr(self):
        """Not one EINTR or early return that the unprofiled program does not have."""
        target = self.target("eintr")
        seconds = int(os.environ.get("CLP_EINTR_SECONDS", "60" if harness.full() else "6"))
        target.begin()
        time.sleep(seconds)
        plain = self.sums(target.end())
        other = self.target("eintr")
        got = record_work(self, other, seconds)
        profiled = self.sums(got.truth)
        print("unprofiled", plain, "\nprofiled  ", profiled)
        self.assertGreater(got.profile.total(), 0.9 * harness.thread_cpu(got.truth))
        for call, (calls, eintr, early, errors) in profiled.items():
            self.assertGreater(calls, 20, call)
            self.assertEqual(errors, 0, call)
            self.assertLessEqual(eintr, plain[call][1], f"{call}: EINTR")
            self.assertLessEqual(early, plain[call][2], f"{call}: early returns")

    def sums(self, truth):
        return {c["call"]: (c["calls"], c["eintr"], c["early"], c["errors"]) for c in truth["calls"]}


class TestChildren(Case):
    def test_fork_without_exec(self):
        got = record_work(self, self.target("fork"), 8)
        self.assertGreater(got.truth["forks"], 50)
        self.assertEqual((got.truth["wrong"], got.truth["hung"]), (0, 0), got.truth)

    def test_process_start(self):
        got = record_work(self, self.target("procstart", "--gb", 1), 8)
        self.assertGreater(got.truth["starts"], 50)
        self.assertEqual(got.truth["wrong"], 0)

    def test_exit_code(self):
        """A target that ends while it is recorded ends as it would have."""
        target = self.target("spin")
        target.begin()
        recorder = self.record(target, 30)
        self.wait_for_library(target, recorder)
        before = harness.cpu_ns(target.pid)
        time.sleep(2)
        used = harness.cpu_ns(target.pid) - before
        self.assertEqual(target.quit(42), 42)
        profile = recorder.profile()
        self.assertGreater(profile.total(), used * 0.95, "what was taken before the exit")

    def test_exit_is_quick(self):
        """Being recorded costs a process no more than a moment at its end."""
        def end(profiled):
            target = self.target("spin", "--sleepers", 0)
            target.begin()
            recorder = self.record(target, 30) if profiled else None
            if recorder:
                self.wait_for_library(target, recorder)
            target.end()
            start = time.monotonic()
            target.quit()
            return time.monotonic() - start
        def measure():
            plain = statistics.median(end(False) for _ in range(3))
            recorded = statistics.median(end(True) for _ in range(3))
            print(f"exit {plain:.3f} s, while recorded {recorded:.3f} s")
            self.assertLess(recorded, plain + 0.2)
        harness.with_retry(measure)

    def test_killed(self):
        """Killed in the middle: what was taken is written all the same."""
        target = self.target("spin")
        target.begin()
        recorder = self.record(target, 30)
        self.wait_for_library(target, recorder)
        before = harness.cpu_ns(target.pid)
        time.sleep(2)
        used = harness.cpu_ns(target.pid) - before
        target.process.send_signal(signal.SIGKILL)
        profile = recorder.profile()
        # What the library had not yet written, some tenths of a second at most, is lost.
        self.assertGreater(profile.total(), used * 0.7)
        self.assertTrue(any(harness.contains(s.stack, "ClpTarget.Work.Burn")
                            for s in profile.samples), "names survive the target")


class TestReaders(Case):
    def busy(self):
        target = self.target("spin", "--sleepers", 0)
        target.begin()
        return target

    def test_two_at_once(self):
        """Two recordings of one process both see all of it; the first to end disturbs nobody."""
        target = self.busy()
        starts = [harness.cpu_ns(target.pid)]
        recorders = [self.record(target, 10)]
        self.wait_for_library(target, recorders[0])
        starts.append(harness.cpu_ns(target.pid))
        recorders.append(self.record(target, 4))
        for number in (1, 0):
            profile = recorders[number].profile()
            used = harness.cpu_ns(target.pid) - starts[number]
            # The CPU of the attach before, and of writing the file behind, is not in the profile.
            self.assert_ratio(profile.total() / used, 0.75, 1.02, "CPU of one of two recordings",
                              profile)
            self.assert_ratio(profile.duration_ns / 1e9 / recorders[number].seconds, 0.95, 1.2,
                              "its duration")
        self.assertTrue(target.alive())

    def check_next(self, target):
        """Whatever ended the last recording, the next one works."""
        profile = self.record(target, 3).profile()
        self.assertTrue(any(harness.contains(s.stack, "ClpTarget.Work.Burn")
                            for s in profile.samples), profile.top())

    def test_interrupted(self):
        """Ctrl-C ends a recording early; what was taken is written."""
        target = self.busy()
        recorder = self.record(target, 100)
        self.wait_for_library(target, recorder)
        before = harness.cpu_ns(target.pid)
        time.sleep(3)
        used = harness.cpu_ns(target.pid) - before
        recorder.interrupt()
        recorder.wait(30)
        self.assertGreater(pprof.load(recorder.path).total(), used * 0.97)
        self.check_next(target)

    def test_recorder_killed(self):
        """A recorder that dies leaves the target alone: no timers, nothing at work for nobody."""
        target = self.busy()
        recorder = self.record(target, 100)
        self.wait_for_library(target, recorder)
        self.assertGreater(timers(target.pid), 0)
        recorder.kill()
        wait_for(lambda: timers(target.pid) == 0, 30, "all timers are deleted")
        self.check_next(target)


class TestNoTarget(Case):
    def check_refused(self, pid, code):
        recorder = self.record_pid(pid)
        self.assertEqual(recorder.wait(30), code, recorder.message())
        message = recorder.message().strip()
        self.assertEqual(len(message.splitlines()), 1, f"one sentence, not: {message}")
        self.assertFalse(os.path.exists(recorder.path), "no file without a profile")

    def record_pid(self, pid):
        return harness.Recorder(self, pid, 1)

    def test_not_dotnet(self):
        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.check_refused(process.pid, NO_SUCH_PROCESS)

    def test_no_process(self):
        process = subprocess.Popen(["true"])
        process.wait()
        self.check_refused(process.pid, NO_SUCH_PROCESS)

    def test_stale_and_fake_sockets(self):
        """The socket is chosen by the process's start time, never by age."""
        target = self.target("spin", "--sleepers", 0)
        real = target.diagnostics_socket()
        prefix = os.path.join(target.directory, f"dotnet-diagnostic-{target.pid}-")
        for key in ("1", "99999999999"):
            with open(f"{prefix}{key}-socket", "w"):
                pass
        for dead in range(500):
            with open(os.path.join(target.directory, f"dotnet-diagnostic-{900000 + dead}-1-socket"), "w"):
                pass
        os.utime(f"{prefix}1-socket", (time.time() + 60, time.time() + 60))
        self.assertTrue(os.path.exists(real))
        got = record_work(self, target, 2)
        self.assertGreater(got.profile.total(), 0.9 * harness.thread_cpu(got.truth))

    def test_stopped_among_others(self):
        """A stopped process costs its own deadline, not everybody's."""
        targets = [self.target("spin", "--busy", 1, "--sleepers", 0) for _ in range(5)]
        stopped = targets[2]
        stopped.process.send_signal(signal.SIGSTOP)
        self.addCleanup(stopped.process.send_signal, signal.SIGCONT)
        start = time.monotonic()
        done = subprocess.run([harness.environment("CLP_CLRPULSE"), "ps"], capture_output=True,
                              text=True, timeout=60, env={**os.environ})
        took = time.monotonic() - start
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = {word for line in done.stdout.splitlines() for word in line.split()[:1]}
        for target in targets:
            self.assertIn(str(target.pid), listed, done.stdout)
        self.assertLess(took, 10, "ps waits for a stopped process")


if __name__ == "__main__":
    harness.main()
