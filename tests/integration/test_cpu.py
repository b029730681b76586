#!/usr/bin/env python3
"""CPU time: the sum, its split over threads, threads that come and go."""

import harness
from harness import Case, for_sure, record_work, with_retry

SECONDS = harness.seconds(20)


class TestCpu(Case):
    def check_total(self, got, tolerance, what):
        # All CPU of the work is inside the recording; the attach itself may or may not be counted.
        total = got.profile.total()
        self.assert_ratio(total / got.work_cpu, 1 - tolerance,
                          (1 + tolerance) * got.whole_cpu / got.work_cpu, what, got.profile)

    def check_threads(self, got, key, tolerance):
        threads = got.profile.by_thread()
        for worker in got.truth[key]:
            used = worker["cpu_end_ns"] - worker["cpu_begin_ns"]
            self.assert_ratio(threads.get(worker["name"], 0) / used, 1 - tolerance, 1 + tolerance,
                              f"thread {worker['name']}", got.profile)

    def test_spin(self):
        def measure():
            target = self.target("spin")
            got = record_work(self, target, SECONDS)
            self.check_total(got, 0.01, "CPU of 3 busy threads and 30 sleepers")
            self.check_threads(got, "threads", 0.015)
            total, threads = got.profile.total(), got.profile.by_thread()
            for sleeper in got.truth["sleepers"]:
                self.assertLess(threads.get(sleeper["name"], 0), total * 0.001, sleeper["name"])
            self.check_names(got)
        with_retry(measure)

    def check_names(self, got):
        busy = {worker["name"]: worker for worker in got.truth["threads"]}
        named = sum(s.value() for s in got.profile.samples if s.thread() in busy
                    and all(harness.contains(s.stack, f) for f in busy[s.thread()]["expect"]))
        whole = got.profile.total(where=lambda s: s.thread() in busy)
        self.assert_share(named, whole, 0.99, "busy threads inside Spin > Burn", got.profile)
        tids = {s.thread(): s.labels.get("thread_id") for s in got.profile.samples}
        with for_sure():
            for name, worker in busy.items():
                self.assertEqual(tids[name], worker["tid"], f"thread_id of {name}")

    def test_overcommit(self):
        def measure():
            got = record_work(self, self.target("overcommit"), SECONDS)
            self.check_total(got, 0.01, "CPU of 4 busy threads on 2 cores")
            self.check_threads(got, "threads", 0.015)
        with_retry(measure)

    def test_churn(self):
        def measure():
            got = record_work(self, self.target("churn", "--rate", 200), SECONDS)
            self.assertGreater(got.truth["started"], SECONDS * 100, "the machine is too slow")
            self.check_total(got, 0.02, "CPU of 200 thread starts a second")
        with_retry(measure)

    def test_names(self):
        target = self.target("names")
        got = record_work(self, target, 8)
        threads = {name: cpu for name, cpu in got.profile.by_thread().items() if name}
        for name in ("plain", "emoji \U0001F525\U0001F680 \u00e4\u00f6\u00fc",
                     "longer than the kernel's fifteen bytes", "n" * 300):
            # In full, whether it was given before the attach or after it.
            self.check_name(threads, lambda got, n=name: got == n)
            self.check_name(threads, lambda got, n="late " + name: got == n)
        for name in threads:
            name.encode()  # no lone surrogate
        self.assertTrue(target.alive())

    def check_name(self, threads, fits):
        # Thirteen equal threads: half of a thirteenth leaves room for noise.
        cpu = sum(value for name, value in threads.items() if fits(name))
        self.assertGreater(cpu, sum(threads.values()) / 26, threads)


if __name__ == "__main__":
    harness.main()
