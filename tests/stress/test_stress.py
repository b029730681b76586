#!/usr/bin/env python3
"""Programs that do what a sampler in the process is most dangerous for.

Rounds without and with a recording alternate in one process, so that what profiling adds is told
from what the machine does.  CLP_STRESS_SECONDS is the length of one test (20)."""

import os
import signal
import statistics
import subprocess
import time

import harness
from harness import Case, wait_for

SECONDS = int(os.environ.get("CLP_STRESS_SECONDS", "20"))
PAIRS = 2 if SECONDS < 60 else 4
MILLISECOND = 1_000_000


class Rounds:
    """The truths of both kinds of rounds."""

    def __init__(self):
        self.plain, self.recorded, self.profiles = [], [], []

    def merged(self, key, field, recorded):
        truths = self.recorded if recorded else self.plain
        return [truth[key][field] for truth in truths if truth.get(key, {}).get(field) is not None]


class TestStress(Case):
    INTERVAL = "1ms"  # below the kernel's tick, so the timers fire at each tick

    flood_rate = 0  # directed signals for each thread and second, by the test build of the library

    def environment(self):
        env = {"CLRPULSE_PROFILE_CPU_INTERVAL": self.INTERVAL}
        if self.flood_rate:
            env["CLRPULSE_LIBRARY"] = harness.environment("CLP_TEST_LIBRARY")
        return env

    def start_flood(self, target):
        if not self.flood_rate:
            return None
        process = subprocess.Popen(
            [harness.environment("CLP_FLOOD"), str(target.pid), str(self.flood_rate)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end_flood(self, flood, seconds):
        if flood:
            flood.send_signal(signal.SIGTERM)
            sent = int(flood.communicate(timeout=20)[0])
            print(f"{sent} directed signals")
            self.assertGreater(sent, self.flood_rate * seconds, "the signals did not arrive")

    def run_rounds(self, *mode, env=None, gc_rate=1):
        target = self.target(*mode, "--gap", 1, "--gc-rate", gc_rate, env=env)
        seconds = SECONDS / (2 * PAIRS)
        rounds = Rounds()
        for _ in range(PAIRS):
            target.begin()
            time.sleep(seconds)
            rounds.plain.append(target.end())
            rounds.recorded.append(self.recorded_round(target, seconds, rounds))
        self.check_left_alone(target)
        self.assertEqual(target.quit(9), 9, "the exit code")
        return rounds

    def recorded_round(self, target, seconds, rounds):
        wait_for(lambda: not target.library_runs(), 60, "the last recording's library thread ends")
        recorder = self.record(target, int(seconds) + harness.MARGIN_SECONDS, env=self.environment())
        self.wait_for_library(target, recorder)
        flood = self.start_flood(target)
        target.begin()
        time.sleep(seconds)
        truth = target.end()
        self.end_flood(flood, seconds)
        self.assertTrue(recorder.running(), recorder.message())
        rounds.profiles.append(recorder.profile())
        return truth

    def check_left_alone(self, target):
        """No thread has the shared signal blocked, and its action is the runtime's own again."""
        self.assertTrue(target.alive())
        state = target.state()
        bit = 1 << (state["sigrtmin"] - 1)
        for task in state["tasks"]:
            if task["name"] != "clrpulse":
                self.assertFalse(int(task["blocked"], 16) & bit, f"signal blocked in {task}")

    def check_progress(self, rounds):
        """What a recording adds to the worst pauses, from medians over the rounds."""
        for key, field, margin in (("gap", "p999_ns", 5 * MILLISECOND),
                                   ("gc_pause", "p99_ns", 5 * MILLISECOND)):
            plain, recorded = (rounds.merged(key, field, kind) for kind in (False, True))
            print(f"{key} {field}: plain {plain}, recorded {recorded}")
            # A machine on which the plain rounds differ much cannot show less than that.
            margin += max(plain) - min(plain)
            self.assertLessEqual(statistics.median(recorded), statistics.median(plain) + margin,
                                 f"{key} {field} grows under the recording")

    def check_sampled(self, rounds, least_share=0.5):
        for truth, profile in zip(rounds.recorded, rounds.profiles):
            share = profile.total() / truth["process_cpu_ns"]
            self.assertGreater(share, least_share, f"hardly anything was sampled\n{profile.top(5)}")

    def storm(self, variant, env=None):
        def measure():
            rounds = self.run_rounds("storm", "--variant", variant, env=env)
            for truth in rounds.plain + rounds.recorded:
                self.assertEqual(truth["wrong"], 0, "wrong results")
                self.assertGreater(sum(w["loops"] for w in truth["threads"]), 1000)
            self.check_sampled(rounds)
            self.check_progress(rounds)
        harness.with_retry(measure)

    def test_null_references(self):
        self.storm("plain")

    def test_null_references_deep(self):
        self.storm("deep")

    def test_null_references_vector(self):
        self.storm("vector")

    def test_null_references_server_gc(self):
        self.storm("plain", env={"DOTNET_gcServer": "1", "DOTNET_GCHeapCount": "2"})

    def test_directed(self):
        self.flood_rate = 1000
        self.storm("plain")

    def test_directed_deep(self):
        self.flood_rate = 1000
        self.storm("deep")

    def test_directed_vector(self):
        self.flood_rate = 1000
        self.storm("vector")

    def test_natives(self):
        def measure():
            rounds = self.run_rounds("natives")
            for truth in rounds.recorded:
                seconds = (truth["end_ns"] - truth["begin_ns"]) / 1e9
                # Three busy threads share two cores with the starters.
                self.assertGreater(truth["started"] / seconds, 200, "thread starts a second")
                self.assertGreater(truth["loads"], 100)
            # A lock that the handler held would stop the process for good.
            worst = max(rounds.merged("gap", "max_ns", True))
            self.assertLess(worst, 1000 * MILLISECOND, "progress stopped")
            self.check_progress(rounds)
        harness.with_retry(measure)

    def test_fork(self):
        rounds = self.run_rounds("fork")
        for truth in rounds.plain + rounds.recorded:
            self.assertGreater(truth["forks"], 100)
            self.assertEqual((truth["wrong"], truth["hung"]), (0, 0), truth)

    def test_process_start(self):
        rounds = self.run_rounds("procstart", "--gb", 4)
        for truth in rounds.plain + rounds.recorded:
            self.assertGreater(truth["starts"], 100)
            self.assertEqual(truth["wrong"], 0, "wrong exit codes")

    def test_chain(self):
        rounds = self.run_rounds("chain", gc_rate=300)
        self.check_sampled(rounds)

    def test_churn(self):
        rounds = self.run_rounds("churn", "--rate", 500, "--cpu-ms", 1)
        for truth in rounds.recorded:
            self.assertGreater(truth["started"], 100)

    def test_waking(self):
        """Threads that wake every 20 us at forty depths, while others come and go: a stack that was
        read across a wake-up would be of two depths."""
        rounds = self.run_rounds("waking", "--wakers", 4, "--churn", 500)
        deeper, wake = "ClpTarget.WakingMode.Deeper", "ClpTarget.WakingMode.Wake"
        waits = 0
        for profile, truth in zip(rounds.profiles, rounds.recorded):
            self.assertGreater(truth["wakes"], 1000)
            for sample in profile.samples:
                if not (sample.thread() or "").startswith("waker-") or \
                        sample.labels.get("wait") != "sleep" or \
                        not harness.contains(sample.stack, deeper):
                    continue
                waits += 1
                frames = [f for f in sample.stack if f.startswith("ClpTarget.WakingMode.")]
                depth = sum(f.startswith(deeper) for f in frames)
                self.assertEqual([f.startswith(wake) for f in frames], [False] * depth + [True],
                                 sample.stack)
                self.assertLessEqual(depth, 40, sample.stack)
                self.assertNotIn("[incomplete stack]", sample.stack)
                self.assertNotIn("[unknown]", sample.stack)
                self.assertTrue(harness.contains(sample.stack, "ClpTarget.Worker.Live"))
        self.assertGreater(waits, 50, "hardly a stack of a sleeping waker was seen")


if __name__ == "__main__":
    harness.main()
