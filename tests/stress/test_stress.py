#!/usr/bin/env python3
"""Programs that do what a sampler in the process is most dangerous for.

Rounds without and with a recording alternate in one process, so that what profiling adds is told
from what the machine does.  CLP_STRESS_SECONDS is the length of one test (8)."""

import os
import random
import signal
import statistics
import subprocess
import time
import uuid

import harness
import pprof
from harness import Case, wait_for
from test_agent import Agent

SECONDS = int(os.environ.get("CLP_STRESS_SECONDS", "8"))
PAIRS = 1 if SECONDS < 20 else 2 if SECONDS < 60 else 4
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

    types = "cpu,wall"
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
        with harness.for_sure():
            self.check_left_alone(target)
            self.assertEqual(target.quit(9), 9, "the exit code")
        return rounds

    def recorded_round(self, target, seconds, rounds):
        wait_for(lambda: not target.library_runs(), 60, "the last recording's library thread ends")
        recorder = self.record(target, int(seconds) + harness.MARGIN_SECONDS, "--types", self.types,
                               env=self.environment())
        self.wait_for_library(target, recorder)
        flood = self.start_flood(target)
        target.begin()
        time.sleep(seconds)
        truth = target.end()
        self.end_flood(flood, seconds)
        rounds.profiles.append(recorder.finish())
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
            if SECONDS < 20:
                continue  # too few pauses to compare
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
                with harness.for_sure():
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

    EVENTS = "cpu,exceptions,allocations,locks,gc"

    def events(self, *mode, gc_rate=300):
        self.types = self.EVENTS
        rounds = self.run_rounds(*mode, gc_rate=gc_rate)
        for profile in rounds.profiles:
            self.assertGreater(profile.total("gc_collections"), 100)
            self.assertGreater(profile.total("alloc_space"), 0)
        return rounds

    def test_event_filters(self):
        """Filters run amid collections: what ends a process that is asked for exceptions by the
        event mask (dotnet/runtime 132462)."""
        rounds = self.events("throws")
        for profile in rounds.profiles:
            self.assertGreater(profile.total("exceptions"), 1000)

    def test_event_exceptions(self):
        rounds = self.events("exceptions", "--rate", 0, "--threads", 4)
        for truth, profile in zip(rounds.recorded, rounds.profiles):
            self.assertEqual(profile.total("exceptions"), sum(truth["thrown"].values()))

    def test_event_churn(self):
        self.events("churn", "--rate", 500, "--cpu-ms", 1)

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

    def test_span_storm(self):
        """Activities as nobody expects them, while recordings come, go and are killed halfway."""
        target = self.target("spanstorm")
        target.begin()
        end, rounds, endpoints = time.monotonic() + SECONDS, 0, set()
        while time.monotonic() < end or rounds < 4:
            recorder = self.record(target, 1)
            if rounds % 2:
                time.sleep(random.uniform(0, 0.5))
                recorder.kill()
            else:
                samples = recorder.profile().samples
                endpoints |= {s.labels["endpoint"] for s in samples if "endpoint" in s.labels}
            recorder.close()
            if not target.alive():
                self.fail(target.describe_end())
            rounds += 1
        truth = target.end()
        print(f"{rounds} recordings, {truth['done']} rounds of work, {truth['threads_started']} threads, "
              f"{len(endpoints)} endpoints")
        self.assertEqual(truth["wrong"], 0, truth["first_wrong"])
        self.assertIn("ordinary", endpoints)
        self.assertLessEqual(max(len(name.encode()) for name in endpoints), 200)
        self.assertEqual(target.quit(7), 7)


class TestAgent(Case):
    """Many targets of three runtimes, some of which come and go all the time, one of which is stopped."""

    LONG = SECONDS >= 300
    PERIOD = 60 if LONG else 5  # the default, where there is time for several
    RUNTIMES = ("net10.0", "net9.0", "net8.0")

    def start(self, marker, tfm):
        target = self.target("spin", "--busy", 0, "--sleepers", 4, "--marker", marker, tfm=tfm)
        target.begin()
        return target

    def agent_numbers(self, pid):
        with open(f"/proc/{pid}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        return {"rss_mb": int(status["VmRSS"].split()[0]) / 1024,
                "threads": int(status["Threads"]),
                "fds": len(os.listdir(f"/proc/{pid}/fd"))}

    def test_many_targets(self):
        count = 40 if SECONDS >= 60 else 12
        marker = f"clp-{uuid.uuid4().hex}"
        targets = [self.start(marker, self.RUNTIMES[i % 3]) for i in range(count)]
        stopped = targets.pop()
        agent = Agent(self, TestAgent.upload(), marker, period=self.PERIOD)
        for target in [*targets, stopped]:
            wait_for(target.library_runs, 60, "it is profiled")
        os.kill(stopped.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, stopped.pid, signal.SIGCONT)
        time.sleep(10)
        before, begin, numbers = harness.cpu_ns(agent.process.pid), time.monotonic(), []
        while time.monotonic() - begin < SECONDS:
            brief = self.start(marker, self.RUNTIMES[len(numbers) % 3])
            time.sleep(0.7)  # found, profiled and gone: with its start a second and a bit
            brief.close()
            numbers.append(self.agent_numbers(agent.process.pid))
        seconds = time.monotonic() - begin
        share = (harness.cpu_ns(agent.process.pid) - before) / 1e9 / seconds
        print(f"{count} targets, {len(numbers)} more that came and went, {seconds:.0f} s, a profile "
              f"each {self.PERIOD} s: {share * 100:.2f} % of a core")
        self.check_flat(numbers)
        if self.LONG:  # within a minute the attaches and the short period are most of it
            self.assertLess(share, 0.015)
        os.kill(stopped.pid, signal.SIGCONT)
        self.assertEqual(agent.stop(), 0, agent.text())
        self.check_on_time(agent, targets, seconds)

    def check_flat(self, numbers):
        """The last third of the time against the second: the first fills caches."""
        third = max(1, len(numbers) // 3)
        for key, slack in (("rss_mb", 4), ("threads", 0), ("fds", 6)):
            early, late = (statistics.median(n[key] for n in part)
                           for part in (numbers[third:2 * third] or numbers, numbers[-third:]))
            print(f"{key}: first {numbers[0][key]:.1f}, then {early:.1f}, at the end {late:.1f}, "
                  f"most {max(n[key] for n in numbers):.1f}")
            self.assertLessEqual(late, early + slack, key)
        self.assertLess(max(n["rss_mb"] for n in numbers), 60)

    def check_on_time(self, agent, targets, seconds):
        """Every target has a window each period, without gap: its threads waited all the time."""
        for target in targets:
            windows = sorted((pprof.load(p) for p in agent.written("wall")
                              if f"-{target.pid}-" in os.path.basename(p)), key=lambda w: w.time_ns)
            self.assertGreaterEqual(len(windows), int(seconds) // self.PERIOD)
            for window in windows[:-1]:
                self.assertLess(window.duration_ns / 1e9, self.PERIOD + 1)
            for one, other in zip(windows, windows[1:]):
                self.assertEqual(other.time_ns, one.time_ns + one.duration_ns)

    def test_agent_is_stopped(self):
        """SIGSTOP for as long as the ring of a busy target is full many times over: the time that
        found no room is in the samples that did."""
        marker = f"clp-{uuid.uuid4().hex}"
        target = self.target("stacks", "--marker", marker)
        target.begin()
        agent = Agent(self, TestAgent.upload(), marker, period=5)
        wait_for(lambda: agent.written(), 60, "a window")
        before = harness.cpu_ns(target.pid)
        os.kill(agent.process.pid, signal.SIGSTOP)
        time.sleep(SECONDS)
        os.kill(agent.process.pid, signal.SIGCONT)
        stopped = harness.cpu_ns(target.pid) - before
        windows = len(agent.written())
        wait_for(lambda: len(agent.written()) > windows + 1, 60, "windows after that")
        self.assertEqual(agent.stop(), 0, agent.text())
        self.assertIn("the agent has not run for", agent.text())
        profiles = sorted((p for _, p in agent.profiles()), key=lambda p: p.time_ns)
        for one, other in zip(profiles, profiles[1:]):
            self.assertEqual(other.time_ns, one.time_ns + one.duration_ns, "windows abut")
        longest = max(profiles, key=lambda p: p.duration_ns)
        self.assertGreater(longest.duration_ns / 1e9, SECONDS)
        used = sum(p.number("process_cpu") for p in profiles)
        total = sum(p.total() for p in profiles)
        self.assertGreater(total, 0.9 * stopped)
        self.assert_ratio(total / used, 0.97, 1.01, f"CPU of {SECONDS} s without the agent")

    @staticmethod
    def upload():
        return "{{ kind: directory, path: '{dir}/profiles' }}"


if __name__ == "__main__":
    harness.main()
