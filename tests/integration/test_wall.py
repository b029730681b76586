#!/usr/bin/env python3
"""Wall time: shares, lives, labels, cost, and that nobody is woken for it."""

import os
import signal
import time

import harness
import pprof
from harness import Case, cpu_ns, for_sure, record_work, wait_for, with_retry

SECONDS = harness.seconds(20)


def wall_by(profile, key, thread=None, under=None):
    """Wall time by a function of the sample; of one thread only, under one method only."""
    sums = {}
    for sample in profile.samples:
        if ((thread is None or sample.thread() == thread)
                and (under is None or harness.contains(sample.stack, under))):
            sums[key(sample)] = sums.get(key(sample), 0) + sample.value("wall")
    return sums


def switches(pid, tid):
    """How often a thread has been woken: each voluntary switch is the end of a wait."""
    with open(f"/proc/{pid}/task/{tid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))


class TestShares(Case):
    def test_four_sleeps(self):
        def measure():
            got = record_work(self, self.target("shares"), 20)
            slept = got.truth["slept_ns"]
            methods = [f"ClpTarget.SharesMode.Sleep{ms}" for ms in (10, 20, 30, 40)]
            sums = [sum(s.value("wall") for s in got.profile.samples
                        if harness.contains(s.stack, method)) for method in methods]
            # A machine that is busy lets the thread wait for a CPU after each sleep, as long after a
            # short one as after a long one: that is no sleep, and the stopwatch cannot tell.
            asleep = [sum(s.value("wall") for s in got.profile.samples
                          if harness.contains(s.stack, method) and s.labels.get("wait") == "sleep")
                      for method in methods]
            for got_ns, true, method in zip(asleep, (10, 20, 30, 40), methods):
                share = 100 * got_ns / sum(asleep)
                print(f"{method}: {share:.2f} % of {true:.2f} %")
                self.assertAlmostEqual(share, true, delta=1.0, msg=method)
            self.assert_ratio(sum(sums) / sum(slept), 0.95, 1.02, "all four sleeps", got.profile)
        with_retry(measure)


class TestLives(Case):
    def check_asleep(self, got, least):
        window = got.profile.duration_ns
        walls = wall_by(got.profile, lambda s: s.thread())
        cpus = got.profile.by_thread()
        self.assertGreaterEqual(len(got.truth["asleep"]), least)
        for name in got.truth["asleep"]:
            self.assert_ratio(walls.get(name, 0) / window, 0.995, 1.005, f"wall of {name}")
        for name, wall in walls.items():
            self.assertGreaterEqual(wall, cpus.get(name, 0), f"{name}: wall time below CPU time")

    def test_four_asleep(self):
        self.check_asleep(record_work(self, self.target("lives", "--sleepers", 4), 5), 4)

    def test_half_a_second(self):
        """The window begins when the library tells, however long sessions of events take to start after the greeting."""
        target = self.target("lives", "--sleepers", 4)
        types = "cpu,wall,exceptions,allocations,locks,liveheap,gc"
        profile = self.record(target, 0.5, "--types", types).profile()
        self.assertGreaterEqual(profile.duration_ns, 5e8)
        walls = wall_by(profile, lambda s: s.thread())
        asleep = [wall for name, wall in walls.items() if name and name.startswith("asleep")]
        self.assertEqual(len(asleep), 4)
        self.assert_ratio(min(asleep) / profile.duration_ns, 0.985, 1.005, "wall of the least")
        self.assert_ratio(max(asleep) / profile.duration_ns, 0.985, 1.005, "wall of the most")

    def test_stopped_at_the_end(self):
        """What it had not told is missing, and that is said."""
        target = self.target("lives", "--sleepers", 4)
        recorder = self.record(target, harness.MARGIN_SECONDS, "--types", "cpu,wall")
        self.wait_for_library(target, recorder)
        os.kill(target.pid, signal.SIGSTOP)
        profile = recorder.finish()
        os.kill(target.pid, signal.SIGCONT)
        self.assertRegex(recorder.message(), "process [0-9]+ did not answer at the recording's end")
        self.assertIn("window_end=not confirmed by the library", profile.comments)

    def test_forty_asleep(self):
        self.check_asleep(record_work(self, self.target("lives", "--sleepers", 40), 5), 40)

    def test_come_and_go(self):
        """Each thread's wall time is its life, to 0.5 %."""
        def measure():
            target = self.target("lives", "--sleepers", 4, "--life-ms", 300)
            got = record_work(self, target, 10)
            with for_sure():
                self.check_asleep(got, 4)
            walls = wall_by(got.profile, lambda s: s.thread())
            self.assertGreater(len(got.truth["lives"]), 10)
            with for_sure():  # the last one too, which has just ended when the recording does
                shortest = min(walls.get(life["name"], 0) / life["life_ns"] for life in got.truth["lives"])
                self.assertGreater(shortest, 0.9)
            for life in got.truth["lives"]:
                # What the runtime does for a thread before its first line and after its last is
                # part of its life, and not of its own stopwatch.
                self.assert_ratio(walls.get(life["name"], 0) / life["life_ns"], 0.995,
                                  1.005 + 1.5e6 / life["life_ns"], life["name"], got.profile)
        with_retry(measure)

    def test_frozen(self):
        """A process that is stopped for two seconds was frozen for so long, every thread of it."""
        target = self.target("lives", "--sleepers", 4)
        recorder = self.record(target, 8)
        self.wait_for_library(target, recorder)
        os.kill(target.pid, 19)
        time.sleep(2)
        os.kill(target.pid, 18)
        profile = recorder.profile()
        for name in ("asleep-0", "asleep-2"):
            sums = wall_by(profile, lambda s: s.stack[0], name)
            self.assert_ratio(sums.get("[frozen]", 0) / 2e9, 0.9, 1.1, f"frozen time of {name}")
            self.assert_ratio(sum(sums.values()) / profile.duration_ns, 0.995, 1.005, name)


class TestLabels(Case):
    def is_still(self, target):
        """It has compiled what its threads run, and they have spun enough."""
        before = cpu_ns(target.pid)
        time.sleep(0.2)
        return cpu_ns(target.pid) - before < 20_000_000  # one tick

    def test_kinds(self):
        """Every kind of wait has its word, and its stack."""
        target = self.target("waits")
        target.begin()
        wait_for(lambda: self.is_still(target), 30, "all threads wait")
        recorder = self.record(target, 6)
        profile = recorder.profile()
        kinds = target.end()["kinds"]
        self.assertGreater(len(kinds), 45)
        for name, wait in kinds.items():
            sums = wall_by(profile, lambda s: s.labels.get("wait"), name)
            whole = sum(sums.values())
            self.assert_share(sums.get(wait, 0), whole, 0.99, f"{name} waits as {wait}")
            self.assert_ratio(whole / profile.duration_ns, 0.995, 1.005, f"life of {name}")
            named = sum(s.value("wall") for s in profile.samples if s.thread() == name and
                        any(f.startswith("ClpTarget.WaitKindsMode") for f in s.stack))
            self.assert_share(named, whole, 0.99, f"{name} is rooted in its own code")
        idle = wall_by(profile, lambda s: s.labels.get("wait"), ".NET TP Worker")
        self.assertGreater(idle.get("idle", 0), 0.9 * profile.duration_ns)

    def test_idle_left_out(self):
        target = self.target("waits")
        target.begin()
        profile = self.record(target, 3, "--idle", "drop").profile()
        target.end()
        self.assertEqual([s for s in profile.samples if s.labels.get("wait") == "idle"], [])
        self.assertGreater(profile.number("agent_idle_left_out"), 5 * profile.duration_ns)

    def test_gc(self):
        """Threads that a collection suspended wait for it, and for nothing else."""
        got = record_work(self, self.target("chain", "--gc-rate", 300), 6)
        sums = wall_by(got.profile, lambda s: s.labels.get("wait"))
        print({str(wait): round(ns / 1e9, 3) for wait, ns in sums.items()})
        self.assertGreater(sums.get("gc", 0), 1e6)

    def test_convoy(self):
        def measure():
            got = record_work(self, self.target("stopwatch", "--convoy", 8), SECONDS)
            locked = sum(s.value("wall") for s in got.profile.samples
                         if harness.contains(s.stack, "ClpTarget.StopwatchMode.Convoy")
                         and s.labels.get("wait") == "lock")
            true = sum(w["ns"] for w in got.truth["waited"])
            self.assert_ratio(locked / true, 0.97, 1.03, "time before the lock", got.profile)
        with_retry(measure)

    def test_half_load(self):
        def measure():
            got = record_work(self, self.target("stopwatch", "--convoy", 0, "--half", 2), SECONDS)
            slept = sum(s.value("wall") for s in got.profile.samples
                        if harness.contains(s.stack, "ClpTarget.StopwatchMode.Half")
                        and s.labels.get("wait") == "sleep")
            true = sum(w["ns"] for w in got.truth["waited"])
            self.assert_ratio(slept / true, 0.97, 1.03, "time asleep at half load", got.profile)
        with_retry(measure)

    def test_starved(self):
        """Busy threads on too few CPUs: what the kernel counts as waiting for a CPU."""
        def measure():
            target = self.target("stopwatch", "--convoy", 0, "--half", 8)
            got = record_work(self, target, SECONDS)
            names = {w["name"] for w in got.truth["waited"]}
            waited = sum(s.value("wall") for s in got.profile.samples
                         if s.thread() in names and s.labels.get("wait") == "cpu-wait")
            true = sum(w["run_delay_ns"] for w in got.truth["waited"])
            self.assertGreater(true, 1e9, "the machine has too many CPUs for this test")
            self.assert_ratio(waited / true, 0.95, 1.05, "runnable without a CPU", got.profile)
        with_retry(measure)

    def test_spinner_and_sleepers(self):
        def measure():
            got = record_work(self, self.target("spin", "--busy", 1), SECONDS)
            window = got.profile.duration_ns
            walls = wall_by(got.profile, lambda s: s.thread())
            for worker in got.truth["threads"] + got.truth["sleepers"]:
                self.assert_ratio(walls[worker["name"]] / window, 0.995, 1.005, worker["name"])
            labels = {0: "sleep", 1: "event", 2: "event", 3: "io"}
            for i, worker in enumerate(got.truth["sleepers"]):
                # Before the round begins and after its end it waits for the program's word.
                sums = wall_by(got.profile, lambda s: s.labels.get("wait"), worker["name"],
                               "ClpTarget.SpinMode.Sleep")
                # A busy machine lets it wait for a CPU after each sleep; test_starved tells whether
                # that is counted right.
                own = sum(sums.values()) - sums.get("cpu-wait", 0)
                self.assert_share(sums.get(labels[i % 4], 0), own, 0.97,
                                  f"{worker['name']} waits as {labels[i % 4]}", got.profile)
        with_retry(measure)


class TestQuiet(Case):
    def test_nobody_is_woken(self):
        """Threads that are asleep for good are not scheduled once while they are watched."""
        target = self.target("lives", "--sleepers", 40)
        tids = [tid for tid, name in target.thread_names().items() if name.startswith("asleep-")]
        self.assertEqual(len(tids), 40)
        recorder = self.record(target, 6)
        self.wait_for_library(target, recorder)
        before = {tid: switches(target.pid, tid) for tid in tids}
        time.sleep(3)
        after = {tid: switches(target.pid, tid) for tid in tids}
        self.assertEqual(before, after)
        profile = recorder.profile()
        self.assertGreater(profile.number("wall_visits"), 40)

    def cost(self, sleepers, seconds):
        """CPU of library and command for so many sleeping threads, as a share of one core, after
        what happens once is over."""
        target = self.target("lives", "--sleepers", sleepers)
        settle = 5 if sleepers < 100 else 20  # until each has been seen, and is seen rarely
        recorder = self.record(target, seconds + settle + 3)
        self.wait_for_library(target, recorder)
        time.sleep(settle)
        began = time.monotonic()
        library_cpu, own_cpu = self.library_cpu(target), self.fine_cpu(recorder.process.pid)
        time.sleep(seconds)
        took = time.monotonic() - began
        library_cpu = self.library_cpu(target) - library_cpu
        own_cpu = self.fine_cpu(recorder.process.pid) - own_cpu
        profile = recorder.profile()
        self.assertGreater(profile.number("wall_wait"), 0.99 * sleepers * profile.duration_ns)
        print(f"{sleepers} sleepers: library {library_cpu / took / 1e7:.4f} %, "
              f"command {own_cpu / took / 1e7:.4f} % of a core")
        return (library_cpu + own_cpu) / took / 1e9

    def library_cpu(self, target):
        """CPU time of the library's own thread in nanoseconds; nobody else does anything for us
        while all threads sleep."""
        tid = next(tid for tid, name in target.thread_names().items() if name == "clrpulse")
        with open(f"/proc/{target.pid}/task/{tid}/schedstat") as file:
            return int(file.read().split()[0])

    def fine_cpu(self, pid):
        """CPU time of a process in nanoseconds, by its clock and not in ticks."""
        return int(time.clock_gettime_ns((~pid << 3) | 2))

    def test_cost_eight(self):
        def measure():
            self.assert_ratio(self.cost(8, SECONDS), 0, 0.001, "cost of 8 idle threads")
        with_retry(measure)

    def test_cost_two_thousand(self):
        def measure():
            self.assert_ratio(self.cost(2000, SECONDS), 0, 0.005, "cost of 2,000 sleeping threads")
        with_retry(measure)


class TestTypes(Case):
    def test_types_and_periods(self):
        target = self.target("spin", "--busy", 1, "--sleepers", 2)
        target.begin()
        recorder = self.record(target, 3, "--split", "--types", "wall,cpu")
        self.assertEqual(recorder.wait(), 0, recorder.message())
        base = recorder.path[:-len(".pb.gz")]
        wall, cpu = pprof.load(base + ".wall.pb.gz"), pprof.load(base + ".cpu.pb.gz")
        self.assertEqual((wall.sample_types, wall.period_type),
                         ([("wall", "nanoseconds")], ("wall", "nanoseconds")))
        self.assertEqual((cpu.sample_types, cpu.period_type),
                         ([("cpu", "nanoseconds")], ("cpu", "nanoseconds")))
        busy = "busy-0"
        running = sum(s.value("cpu") for s in cpu.samples if s.thread() == busy)
        living = sum(s.value("wall") for s in wall.samples if s.thread() == busy)
        self.assertGreaterEqual(living, running)
        self.assertGreater(running, 0)
        only = self.record(target, 2, "--types", "wall").profile()
        self.assertEqual(only.sample_types, [("wall", "nanoseconds")])
        target.end()


if __name__ == "__main__":
    harness.main()
