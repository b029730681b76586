"""Profiles of events against what the programs print: exceptions, allocations, waits, collections."""

import contextlib
import os
import re
import subprocess
import sys
import time

import harness
from harness import Case, MARGIN_SECONDS, Recorder, for_sure, framework, full, record_work, with_retry

MODE = "ClpTarget.ExceptionsMode."
TYPES = {
    "Site0": "System.InvalidOperationException", "Site1": "System.ArgumentException",
    "Site2": "System.FormatException", "Site3": "System.InvalidOperationException",
    "Site4": "ClpTarget.Ошибка", "Site5": "ClpTarget.GetterThrows",
    "Rare": "System.TimeoutException",
}


def sums(profile, kind, key):
    """The values of a kind, added up by what `key` makes of a sample."""
    result = {}
    for sample in profile.samples:
        if sample.value(kind):
            result[key(sample)] = result.get(key(sample), 0) + sample.value(kind)
    return result


def leaf(sample):
    return sample.stack[0].rsplit(".", 1)[-1]


def leaf_of_mode(sample):
    """The topmost frame of the test program."""
    return next((f.rsplit(".", 1)[-1] for f in sample.stack if f.startswith("ClpTarget.")), None)


def by_type(truth):
    """How many exceptions of each type were thrown."""
    result = {}
    for site, count in truth["thrown"].items():
        if count:
            result[TYPES[site]] = result.get(TYPES[site], 0) + count
    return result


def owner_stack(sample):
    """The label, as a list, leaf first."""
    text = sample.labels.get("lock_owner_stack", "")
    return text.split("; ") if text else []


class EventCase(Case):
    def work(self, mode, types, length, *options):
        target = self.target(mode, *options)
        recorded = record_work(self, target, length, "--types", types)
        self.assertTrue(target.alive(), "the target died")
        return recorded

    def assert_near(self, got, truth, share, what):
        self.assertGreater(truth, 0, what)
        self.assert_ratio(got / truth, 1 - share, 1 + share, what)


class TestExceptions(EventCase):
    def check_sites(self, profile, truth):
        thrown = {k: v for k, v in truth["thrown"].items() if v}
        self.assertEqual(sums(profile, "exceptions", leaf), thrown)
        self.assertEqual(profile.number("exceptions"), sum(thrown.values()))
        for sample in profile.samples:
            self.assertEqual(sample.labels["exception_type"], TYPES[leaf(sample)])
            self.assertTrue(harness.contains(sample.stack, "ClpTarget.Worker.Live"), sample.stack)
            self.assertIn(sample.labels["thread_name"], ("thrower-0", "thrower-1"))

    def test_each_is_counted_where_it_was_thrown(self):
        recorded = self.work("exceptions", "exceptions", 4, "--rate", 500)
        self.check_sites(recorded.profile, recorded.truth)
        self.assertEqual(recorded.truth["thrown"]["Rare"], 1)
        messages = sums(recorded.profile, "exceptions", lambda s: s.labels["exception_message"])
        self.assertIn("сообщение 消息 🎉", messages)
        self.assertIn("from the field", messages)
        self.assertEqual(recorded.truth["getter_runs"], 0)

    def test_each_is_counted_on_a_busy_machine(self):
        """The library's thread waits for a CPU when the first throws come: none may get lost until then. For how long it
        waits is up to the scheduler: until it has learned the way through the runtime, the places of so many throws as its
        ring does not hold are told apart by chance. Their number is exact all the same."""
        for _ in range(4):
            with_retry(self.beside_spinners)

    def beside_spinners(self):
        target = self.target("exceptions", "--rate", 500)
        recorder = Recorder(self, target.pid, MARGIN_SECONDS, "--types", "exceptions")
        self.wait_for_library(target, recorder)
        with self.spinners(4 * len(os.sched_getaffinity(0))):
            target.begin()
            time.sleep(3)
            truth = target.end()
        profile = recorder.finish()
        with for_sure():
            self.assertEqual(profile.number("exceptions"), sum(truth["thrown"].values()))
        self.check_sites(profile, truth)

    @contextlib.contextmanager
    def spinners(self, count):
        processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def test_a_storm_is_counted_exactly_and_split_by_chance(self):
        self.check_storm(self.work("exceptions", "exceptions", 6, "--rate", 0, "--threads", 2), 0.08)

    def test_200000_a_second(self):
        """For 20 seconds, beside other work of the threads that throw."""
        recorded = self.work("exceptions", "exceptions", 20, "--busy", 100_000, "--threads", 2)
        self.check_storm(recorded, 0.06)
        self.assertGreater(sum(recorded.truth["thrown"].values()), 500_000)

    def check_storm(self, recorded, margin):
        thrown = {k: v for k, v in recorded.truth["thrown"].items() if v}
        self.assertEqual(sums(recorded.profile, "exceptions",
                              lambda s: s.labels.get("exception_type")), by_type(recorded.truth))
        # In the first milliseconds, until the way through the runtime is known, places of one type
        # are told apart by chance.
        sites = sums(recorded.profile, "exceptions", leaf)
        self.assertEqual(set(sites), set(thrown))
        for site, count in thrown.items():
            self.assert_near(sites[site], count, 0.01, site)
        total = recorded.profile.total("exceptions")
        # Every fourth throw comes through ViaA.
        via_a = recorded.profile.total(
            "exceptions", where=lambda s: harness.contains(s.stack, MODE + "ViaA"))
        self.assert_ratio(via_a / total, 0.25 - margin, 0.25 + margin, "share of one of two callers")

    def test_methods_that_threads_run_before_they_are_told(self):
        """One thread compiles a method, and before it tells the library, the other one throws in it."""
        target = self.target("exceptions", "--rate", 0, "--threads", 2, env={"CLP_TEST_COMPILED_LATE_MS": "100"})
        recorded = record_work(self, target, 1, "--types", "exceptions", env={
            "CLRPULSE_LIBRARY": harness.environment("CLP_TEST_LIBRARY")})
        thrown = {k: v for k, v in recorded.truth["thrown"].items() if v}
        sites = sums(recorded.profile, "exceptions", leaf)
        self.assertEqual(sum(sites.values()), sum(thrown.values()))
        self.assertEqual(set(sites), set(thrown))

    def test_long_messages_are_cut(self):
        recorded = self.work("exceptions", "exceptions", 3, "--rate", 20, "--messages", "long")
        profile, truth = recorded.profile, recorded.truth
        count = sum(v for k, v in truth["thrown"].items() if k != "Rare")
        self.assertEqual(sums(profile, "exceptions", leaf), {"ThrowLong": count, "Rare": 1})
        # Where the runtime tells of rethrows at all.
        self.assertIn(profile.number("exceptions_rethrown"), (0, truth["rethrown"]))
        self.assertLess(profile.number("library_bytes"), 12 << 20)
        for sample in profile.samples:
            message = sample.labels["exception_message"]
            self.assertLessEqual(len(message.encode()), 256)
            if leaf(sample) == "ThrowLong":
                # The runtime ends a message at its first NUL.
                number = int(re.match("\ufffd([0-9]+)", message).group(1))
                rest = "" if number % 2 == 0 else "ж"
                self.assertEqual(set(message[1 + len(str(number)):]), set(rest))


class TestAllocations(EventCase):
    # Beside its own work the program reads commands and writes its truth; and the last bytes of the
    # runtime's threads that end are not counted.
    MORE, LESS = 128 << 10, 4 << 10

    def check_total(self, profile, bytes_):
        """GC.GetTotalAllocatedBytes(precise) around the work is what the profile has."""
        with for_sure():
            got = profile.total("alloc_space")
            self.assertLess(got, bytes_ + self.MORE)
            self.assertGreater(got, bytes_ - self.LESS)
            self.assertLess(abs(got - profile.number("alloc_bytes_counted")), self.LESS)

    def check(self, recorded, kind_of_error):
        truth = recorded.truth["allocated"]
        profile = recorded.profile
        total = sum(c["bytes"] for c in truth.values())
        got = profile.total("alloc_space")
        self.assert_near(got, total, 0.02, "bytes of all classes")
        if framework() != "net8.0":
            self.check_total(profile, recorded.truth["process_bytes"])
        with for_sure():
            self.assert_near(profile.number("alloc_bytes"), got, 1e-6, "control total")
        classes = sums(profile, "alloc_space", lambda s: s.labels["allocation_class"])
        objects = sums(profile, "alloc_objects", lambda s: s.labels["allocation_class"])
        makers = {"Small": "MakeSmall", "System.Byte[]": "MakeMiddle", "System.Int32[,]": "MakeBig"}
        for name, what in truth.items():
            if kind_of_error is not None:
                self.assert_near(classes.get(name, 0), what["bytes"], kind_of_error, f"bytes of {name}")
                self.assert_near(objects.get(name, 0), what["objects"], kind_of_error,
                                 f"objects of {name}")
            made = sums(profile, "alloc_space",
                        lambda s: leaf_of_mode(s) if s.labels["allocation_class"] == name else None)
            made.pop(None, None)
            with for_sure():
                self.assertEqual(max(made, key=made.get), makers[name])

    def measure(self, *options):
        recorded = self.work("allocations", "allocations", 1, "--rounds", 5, *options)
        # AllocationTick is taken when a thread's buffer is filled again: which class is then met is
        # no random choice. Only the bytes in all are right.
        self.check(recorded, 0.1 if framework() == "net10.0" else None)

    def test_classes_one_after_the_other(self):
        with_retry(lambda: self.measure())

    def test_classes_mixed(self):
        with_retry(lambda: self.measure("--alternate", 1))

    def test_totals_are_exact(self):
        """After two gigabytes, twice, while another recording has both; 20 MB are 200 samples."""
        target = self.target("allocations", "--rounds", 1, "--alternate", 1, "--small", 90_000,
                             "--middle", 9_000, "--big", 90, "--before", 2_000)
        beside = Recorder(self, target.pid, 60, "--types", "allocations")
        self.wait_for_library(target, beside)
        both = 0
        for _ in range(2):
            recorded = record_work(self, target, 0.3, "--types", "allocations")
            self.check_total(recorded.profile, recorded.truth["process_bytes"])
            both += recorded.truth["process_bytes"]
        self.check_total(beside.finish(), both)

    def test_totals_of_server_gc(self):
        target = self.target("allocations", "--rounds", 1, env={"DOTNET_gcServer": "1"})
        recorded = record_work(self, target, 1, "--types", "allocations")
        self.check_total(recorded.profile, recorded.truth["process_bytes"])

    def test_totals_of_a_single_file(self):
        target = self.target("allocations", "--rounds", 1, kind="single")
        recorded = record_work(self, target, 1, "--types", "allocations")
        self.check_total(recorded.profile, recorded.truth["process_bytes"])

    def test_threads_that_come_and_go(self):
        """What threads have allocated that ended in the epoch is known by samples: a standard
        deviation of 2.4 percent here."""
        recorded = self.work("allocations", "allocations", 2, "--rounds", 1, "--short", 20_000)
        profile, truth = recorded.profile, recorded.truth["process_bytes"]
        self.assert_near(profile.total("alloc_space"), truth, 0.12, "bytes of short lives")
        self.assertLess(profile.number("alloc_bytes_counted"), truth / 2)

    def test_heaps_are_told_apart(self):
        recorded = self.work("allocations", "allocations", 1, "--small", 2000, "--middle", 2000,
                             "--big", 2000)
        heaps = sums(recorded.profile, "alloc_space", lambda s: s.labels.get("heap"))
        self.assertGreater(heaps.get("large", 0), 0.8 * sum(heaps.values()), heaps)


class TestLocks(EventCase):
    def check_turns(self, shorts):
        recorded = self.work("turns", "locks", 0, "--long", 2000, "--short", shorts)
        profile, waits = recorded.profile, recorded.truth["waits"]
        counts = sums(profile, "lock_contentions", leaf_of_mode)
        times = sums(profile, "lock_delay", leaf_of_mode)
        with for_sure():
            self.assertEqual(set(counts), set(waits))
            self.assertEqual(sum(counts.values()), 1 + shorts)
            self.assertEqual(profile.number("lock_contentions"), recorded.truth["contentions"])
            self.assertEqual(profile.number("lock_delay"), sum(times.values()))
            for name, wait in waits.items():
                # Whole numbers of samples that stand for a few waits and a half.
                self.assertLessEqual(abs(counts[name] - wait["count"]), 2, name)
                self.assertGreaterEqual(times[name], wait["least_ns"], name)
                self.assertLessEqual(times[name], wait["most_ns"], name)
            for sample in profile.samples:
                if leaf_of_mode(sample) == "WaitLong":
                    self.assertEqual(sample.labels["lock_owner_id"], recorded.truth["holder_tid"])
                    self.assertEqual(sample.labels["lock_owner"], "long-holder")
        for name, wait in waits.items():
            self.assert_near(times[name], wait["time_ns"], 0.02, f"time of {name}")

    def test_one_long_wait_and_many_short_ones(self):
        """A waiter that gets no CPU when the wait is over measures too long a one itself."""
        with_retry(lambda: self.check_turns(20_000 if full() else 400))

    def test_more_threads_wait_than_have_room(self):
        """For how their stacks began; and those are so deep that they are more than an epoch's memory, and than the
        ring to a reader: counts and times are exact all the same, of waits that go on and of those that are over."""
        threads = 2000
        target = self.target("pile", "--threads", threads, "--depth", 250)
        first, second = (Recorder(self, target.pid, MARGIN_SECONDS, "--types", "locks") for _ in range(2))
        for reader in (first, second):
            self.wait_for_library(target, reader)
        began = time.monotonic()
        target.begin()  # all of them are blocked
        blocked = time.monotonic()
        time.sleep(0.5)
        least = time.monotonic() - blocked
        profile = first.finish()
        most = time.monotonic() - began
        self.check_pile(profile, threads, threads * least * 1e9, threads * most * 1e9)
        truth = target.end()
        self.assertEqual(truth["waits"], threads)
        self.check_pile(second.finish(), threads, truth["least_ns"], truth["most_ns"])

    def check_pile(self, profile, threads, least_ns, most_ns):
        self.assertEqual(profile.total("lock_contentions"), threads)
        self.assertEqual(profile.number("lock_contentions"), threads)
        delay = profile.total("lock_delay")
        self.assertTrue(least_ns <= delay <= most_ns, (least_ns, delay, most_ns))
        self.assertEqual(profile.number("lock_delay"), delay)
        self.assertEqual(set(sums(profile, "lock_delay", leaf_of_mode)), {"Wait", None})
        self.assertLessEqual(len(profile.samples), 2 * threads)
        self.assertLess(profile.number("library_bytes"), 16 << 20)

    def test_a_deadlock_is_in_the_profile(self):
        target = self.target("deadlock")
        recorder = Recorder(self, target.pid, MARGIN_SECONDS, "--types", "locks")
        self.wait_for_library(target, recorder)
        began = time.monotonic()
        target.begin()
        time.sleep(2)
        profile = recorder.finish()
        most = time.monotonic() - began
        tids = {name: tid for tid, name in target.thread_names().items()}
        waits = {}
        for sample in profile.samples:
            waits[leaf_of_mode(sample)] = sample
        self.assertEqual(set(waits), {"TakeA", "TakeB"})
        self.assertEqual(waits["TakeA"].labels["lock_owner_id"], tids["dead-b"])
        self.assertEqual(waits["TakeA"].labels["lock_owner"], "dead-b")
        self.assertEqual(waits["TakeB"].labels["lock_owner_id"], tids["dead-a"])
        self.assertIn("ClpTarget.DeadlockMode.TakeB", owner_stack(waits["TakeA"]))
        self.assertIn("ClpTarget.DeadlockMode.TakeA", owner_stack(waits["TakeB"]))
        for sample in waits.values():
            self.assertEqual(sample.value("lock_contentions"), 1)
            self.assert_ratio(sample.value("lock_delay") / 1e9, 1.5, most, "seconds of an open wait")
            self.assertTrue(harness.contains(sample.stack, "ClpTarget.Worker.Live"), sample.stack)


class TestWaits(EventCase):
    def test_handles_and_monitors(self):
        recorded = self.work("handles", "waits,locks", 2, "--rounds", 50)
        profile, truth = recorded.profile, recorded.truth
        counts = sums(profile, "waits", leaf_of_mode)
        times = sums(profile, "wait_time", leaf_of_mode)
        for name, key in (("WaitEvent", "event_ns"), ("WaitMonitor", "monitor_ns")):
            self.assertEqual(counts[name], truth["rounds"], name)
            self.assert_near(times[name], truth[key], 0.02, f"time of {name}")
        self.assertEqual(counts["WaitOpen"], 1)  # it never ends
        self.assertGreaterEqual(times["WaitOpen"], truth["open_ns"])
        self.assertEqual(profile.total("waits"), profile.number("waits"))
        self.assertEqual(profile.total("lock_contentions"), 0)
        for sample in profile.samples:
            self.assertTrue(sample.stack[0].startswith(("System.Threading.", "ClpTarget.")), sample.stack)

    def test_of_an_earlier_recording(self):
        """What a thread waits for when a recording ends is none of the next one's."""
        target = self.target("handles", "--rounds", 5)
        first, second = (record_work(self, target, 1, "--types", "waits") for _ in range(2))
        self.assertGreater(sums(first.profile, "wait_time", leaf_of_mode)["WaitOpen"], 0)
        self.assertNotIn("WaitOpen", sums(second.profile, "wait_time", leaf_of_mode))
        counts = sums(second.profile, "waits", leaf_of_mode)
        self.assertEqual([counts[name] for name in ("WaitEvent", "WaitMonitor")], [5, 5])

    def test_refused_before_9(self):
        target = self.target("handles", tfm="net8.0")
        recorder = Recorder(self, target.pid, 1, "--types", "cpu,waits")
        self.assertEqual(recorder.wait(), 5)
        self.assertRegex(recorder.message(), "runs .NET 8[.0-9]*, which does not tell of waits for handles")
        recorder = Recorder(self, target.pid, 1, "--engine", "eventpipe", "--types", "waits")
        self.assertEqual(recorder.wait(), 2)
        self.assertIn("eventpipe does not tell of waits and liveheap", recorder.message())
        self.assertTrue(target.alive())


class TestMetrics(EventCase):
    def test_totals_are_the_runtimes(self):
        recorded = self.work("metrics", "exceptions,gc", 1)
        profile, truth = recorded.profile, recorded.truth
        self.assertEqual(profile.number("exceptions[System.FormatException]"), truth["format_exceptions"])
        self.assertEqual(profile.number("exceptions[System.TimeoutException]"), truth["timeout_exceptions"])
        for generation in range(3):
            self.assertEqual(profile.number(f"gc_collections_gen{generation}"),
                             truth["collections"][generation])
        # A collection may do more than it was asked for; which one is what the runtime says of it.
        pauses = [profile.number(f"gc_pause_gen{generation}") for generation in range(3)]
        self.assertEqual(sum(pauses), profile.number("gc_pause"))
        self.assert_near(pauses[1], truth["pause_ns"][1], 0.05, "pauses of generation 1")
        for name, size in zip(("gen0", "gen1", "gen2", "large", "pinned"), truth["heap_bytes"]):
            self.assertEqual(profile.number(f"heap_{name}") or 0, size, name)
        self.assertEqual(profile.number("threads_pool"), truth["pool_threads"])
        self.assertGreaterEqual(profile.number("threads_managed"),
                                truth["pool_threads"] + len(truth["threads"]))


class TestCollections(EventCase):
    def test_each_is_counted_with_its_pause(self):
        with_retry(lambda: self.check(30))

    def test_a_storm(self):
        """One after the other."""
        with_retry(lambda: self.check(300, "--rest", 0))

    def check(self, rounds, *options):
        """A thread that loses its CPU between the runtime's look at the clock and ours makes one of the two longer."""
        recorded = self.work("collections", "gc", 1, "--rounds", rounds, *options)
        with for_sure():
            self.check_counts(recorded.profile, recorded.truth, rounds)
        self.assert_near(recorded.profile.total("gc_pause"), recorded.truth["pause_ns"], 0.02, "pauses")

    def check_counts(self, profile, truth, rounds):
        generations = sums(profile, "gc_collections", lambda s: s.labels["gc_generation"])
        self.assertEqual([generations.get(str(g), 0) for g in range(3)], truth["collections"])
        stopping = profile.total("gc_pause", where=lambda s: s.stack[0] == "[threads being stopped]")
        self.assertEqual(profile.total("gc_pause"), profile.number("gc_pause"))
        self.assertEqual(stopping, profile.number("gc_suspension"))
        self.assertGreater(stopping, 0)
        self.assertLess(stopping, profile.total("gc_pause"))
        # The collector may do more than it was asked for, so not each is of that generation.
        induced = sums(profile, "gc_collections",
                       lambda s: leaf_of_mode(s) if s.labels.get("gc_reason") == "induced" else None)
        self.assertEqual({k: v for k, v in induced.items() if k},
                         {f"Collect{generation}": rounds for generation in range(3)})


class TestTogether(EventCase):
    def test_types_come_and_go(self):
        """Another reader asks for other types and leaves, over and over: the first one loses nothing."""
        target = self.target("exceptions", "--rate", 2000)
        first = Recorder(self, target.pid, 60, "--types", "exceptions")
        self.wait_for_library(target, first)
        target.begin()
        self.assertEqual(harness.timers(target.pid), 0, "exceptions alone need no timers")
        others = ["locks,gc", "allocations,liveheap"]
        if framework() != "net8.0":
            others.append("waits")
        for types in others:
            second = Recorder(self, target.pid, 1, "--types", types)
            self.assertEqual(second.wait(), 0, second.message())
        harness.wait_for(lambda: harness.timers(target.pid) == 0, 30, "timers go with the locks")
        truth = target.end()
        profile = first.finish()
        self.assertEqual(profile.sample_types, [("exceptions", "count")])
        # Places of one type may be told apart by chance at first. A crowded ring may drop stacks, but no type.
        self.assertEqual(sums(profile, "exceptions", lambda s: s.labels.get("exception_type")), by_type(truth))

    def test_what_is_dropped_keeps_its_type(self):
        """The library's thread gets no time while 200 types are thrown and allocated for the first time."""
        target = self.target("kinds")
        recorder = Recorder(self, target.pid, 120, "--types", "exceptions,allocations")
        self.wait_for_library(target, recorder)
        loop = next(tid for tid, name in target.thread_names().items() if name == "clrpulse")
        with harness.held(loop, asleep=True):
            target.begin()
            truth = target.end()
        profile = recorder.finish()
        self.assertEqual(len(truth["thrown"]), 200)
        self.assertGreater(profile.number("drop_events"), 0)
        self.assertEqual(sums(profile, "exceptions", lambda s: s.labels.get("exception_type")), truth["thrown"])
        self.assertEqual(profile.number("exceptions"), sum(truth["thrown"].values()))
        lost = [s for s in profile.samples if s.stack == ["[no stack kept]"]]
        self.assertGreater(sum(s.value("exceptions") for s in lost), 0)
        classes = [s.labels.get("allocation_class", "") for s in lost if s.value("alloc_space")]
        self.assertEqual([c for c in classes if not c], [])
        self.assertGreater(len([c for c in classes if c.startswith("Kinds.Kind")]), 0)
        self.assertEqual(profile.total("alloc_space"), profile.number("alloc_bytes"))

    def test_all_types_and_detach(self):
        target = self.target("allocations", "--rounds", 2)
        for _ in range(3):
            recorder = Recorder(self, target.pid, MARGIN_SECONDS, "--types",
                                "cpu,exceptions,allocations,locks,gc")
            self.wait_for_library(target, recorder)
            target.begin()
            target.end()
            profile = recorder.finish()
            self.assertGreater(profile.total("alloc_space"), 0)
            self.assertGreater(profile.total("cpu"), 0)
            self.assertGreater(profile.total("gc_collections"), 0)
            harness.wait_for(lambda: not target.library_runs(), 30, "the end of the library")
        self.assertEqual(target.quit(7), 7)


if __name__ == "__main__":
    harness.main()
