#!/usr/bin/env python3
"""Coming and going: attach and detach, ends of targets, things that are no target."""

import os
import signal
import statistics
import subprocess
import time

import harness
import pprof
from harness import Case, record_work, wait_for

NO_SUCH_PROCESS = 3
ROUNDS = int(os.environ.get("CLP_ROUNDS", "50"))


class TestRounds(Case):
    def test_attach_detach(self):
        """Threads, descriptors, memory and signal actions are as after the first round."""
        target = self.target("spin", "--busy", 2, "--sleepers", 4)
        target.begin()
        before = target.state()
        first, sizes = None, []
        for number in range(ROUNDS):
            profile = self.record(target, 1).profile()
            self.assertGreater(profile.total(), 0, f"round {number} saw nothing")
            wait_for(lambda: not target.library_runs(), 10, "the library's thread ends")
            state = target.state()
            sizes.append(state["rss_kb"])
            if number == 1:
                first = state
            elif first:
                self.compare(first, state, number)
        self.compare_actions(before, first, "after the first rounds")
        # The first rounds warm caches up; later ones must not grow.
        half = len(sizes) // 2
        self.assertLess(statistics.median(sizes[half:]), statistics.median(sizes[2:half]) + 1024,
                        f"memory grows with the rounds: {sizes} KB")
        target.end()
        self.assertEqual(target.quit(5), 5)

    def compare(self, first, state, number):
        self.assertEqual(sorted(t["name"] for t in first["tasks"]),
                         sorted(t["name"] for t in state["tasks"]), f"threads, round {number}")
        self.assertLessEqual(state["fds"], first["fds"] + 1, f"descriptors, round {number}")
        self.compare_actions(first, state, f"round {number}")
        for task in state["tasks"]:
            blocked = int(task["blocked"], 16)
            self.assertFalse(blocked >> (state["sigrtmin"] - 1) & 1,
                             f"round {number}: thread {task['name']} has the signal blocked")

    def compare_actions(self, one, other, what):
        self.assertEqual(one["actions"], other["actions"], f"signal actions, {what}")

    def test_timers_deleted(self):
        """No timer outlives a recording: each holds a slot of the user's signal quota."""
        target = self.target("spin", "--busy", 3, "--sleepers", 30)
        target.begin()
        time.sleep(0.5)
        before = self.timers(target.pid)
        self.record(target, 2).profile()
        wait_for(lambda: self.timers(target.pid) <= before, 10, "all timers are deleted")

    def timers(self, pid):
        with open(f"/proc/{pid}/timers") as file:
            return sum(line.startswith("ID:") for line in file)


class TestWaits(Case):
    def test_eintr(self):
        """Not one EINTR or early return that the unprofiled program does not have."""
        target = self.target("eintr")
        seconds = int(os.environ.get("CLP_EINTR_SECONDS", "20"))
        target.begin()
        time.sleep(seconds)
        plain = self.sums(target.end())
        other = self.target("eintr")
        got = record_work(self, other, seconds)
        profiled = self.sums(got.truth)
        print("unprofiled", plain, "\nprofiled  ", profiled)
        self.assertGreater(got.profile.total(), seconds * 1e8)
        for call, (calls, eintr, early, errors) in profiled.items():
            self.assertGreater(calls, 50, call)
            self.assertEqual(errors, 0, call)
            self.assertLessEqual(eintr, plain[call][1], f"{call}: EINTR")
            self.assertLessEqual(early, plain[call][2], f"{call}: early returns")

    def sums(self, truth):
        return {c["call"]: (c["calls"], c["eintr"], c["early"], c["errors"]) for c in truth["calls"]}


class TestChildren(Case):
    def test_fork_without_exec(self):
        got = record_work(self, self.target("fork"), 8)
        self.assertGreater(got.truth["forks"], 200)
        self.assertEqual((got.truth["wrong"], got.truth["hung"]), (0, 0), got.truth)

    def test_process_start(self):
        got = record_work(self, self.target("procstart", "--gb", 1), 8)
        self.assertGreater(got.truth["starts"], 200)
        self.assertEqual(got.truth["wrong"], 0)

    def test_exit_code(self):
        """A target that ends while it is recorded ends as it would have."""
        target = self.target("spin")
        target.begin()
        recorder = self.record(target, 30)
        wait_for(target.library_runs, 20, "the library's thread")
        time.sleep(1)
        self.assertEqual(target.quit(42, seconds=20), 42)
        profile = recorder.profile()
        self.assertGreater(profile.total(), 1e9, "what was taken before the exit is in the file")

    def test_exit_is_quick(self):
        """Being recorded costs a process no more than a moment at its end."""
        def end(profiled):
            target = self.target("spin", "--sleepers", 0)
            target.begin()
            recorder = self.record(target, 30) if profiled else None
            if recorder:
                wait_for(target.library_runs, 20, "the library's thread")
            time.sleep(1)
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
        wait_for(target.library_runs, 20, "the library's thread")
        time.sleep(2)
        target.process.send_signal(signal.SIGKILL)
        profile = recorder.profile()
        self.assertGreater(profile.total(), 1e9)
        self.assertTrue(any(harness.contains(s.stack, "ClpTarget.Work.Burn")
                            for s in profile.samples), "names survive the target")


class TestReaders(Case):
    def test_two_at_once(self):
        """Two recordings of one process both see all of it; the first to end disturbs nobody."""
        target = self.target("spin", "--sleepers", 0)
        target.begin()
        long = self.record(target, 10)
        wait_for(target.library_runs, 20, "the library's thread")
        time.sleep(1)
        short = self.record(target, 4)
        for recorder, seconds in ((short, 4), (long, 10)):
            profile = recorder.profile()
            self.assert_ratio(profile.total() / (profile.duration_ns * 2), 0.9, 1.05,
                              f"CPU in the recording of {seconds} s per core", profile)
            self.assert_ratio(profile.duration_ns / 1e9 / seconds, 0.95, 1.2, "its duration")
        self.assertTrue(target.alive())

    def test_interrupted(self):
        """Ctrl-C ends a recording early; what was taken is written."""
        target = self.target("spin", "--sleepers", 0)
        target.begin()
        recorder = self.record(target, 60)
        wait_for(target.library_runs, 20, "the library's thread")
        time.sleep(3)
        recorder.process.send_signal(signal.SIGINT)
        recorder.wait(20)
        self.assertGreater(pprof.load(recorder.path).total(), 2e9)

    def test_recorder_killed(self):
        """A recorder that dies leaves the target alone: no timers, no thread at work for nobody."""
        target = self.target("spin")
        target.begin()
        recorder = self.record(target, 60)
        wait_for(target.library_runs, 20, "the library's thread")
        time.sleep(1)
        recorder.process.kill()
        timers = TestRounds.timers
        wait_for(lambda: timers(self, target.pid) == 0, 15, "timers are gone")
        profile = self.record(target, 3).profile()
        self.assertGreater(profile.total(), 3e9, "the next recording works")


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
        self.assertGreater(got.profile.total(), 1e9)

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
