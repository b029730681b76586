#!/usr/bin/env python3
"""All types of events at once in programs whose code, types and threads come and go.

No crash, no wrong name, no standstill, and no memory that grows. CLP_STRESS_SECONDS is the length of
one test (8)."""

import os
import re
import statistics
import time
import uuid

import harness
import pprof
from harness import wait_for
from test_agent import Agent
from test_code import NumberedNames
from test_events import TYPES

SECONDS = int(os.environ.get("CLP_STRESS_SECONDS", "8"))
ALL_TYPES = "cpu,wall,exceptions,allocations,locks,liveheap,gc"
MB = 1 << 20
NO_STACK = ["[no stack kept]"]
THROWERS = ("ClpTarget.ExceptionsMode.", "Plugin")


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


HEAP_RANGE = 64 << 30  # the collector reserves 256 GB at once; nobody else half as much


def outside_of_heap(pid):
    """Resident bytes but for the collector's heap, which swings by half of what a small program has: mappings without
    a name that lie one behind the other and together are as large as what the collector reserves."""
    total = size = inside = end = 0
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            key, *rest = line.split()
            if not key.endswith(":"):
                low, high = (int(x, 16) for x in key.split("-"))
                if low != end or len(rest) > 4:
                    total -= inside if size >= HEAP_RANGE else 0
                    size = inside = 0
                size += high - low if len(rest) <= 4 else 0
                named, end = len(rest) > 4, high
            elif key == "Rss:":
                total += int(rest[0]) * 1024
                inside += 0 if named else int(rest[0]) * 1024
    return total - (inside if size >= HEAP_RANGE else 0)


class PluginNames(NumberedNames):
    """The rules of NumberedNames for events: Thing<N> and Fail<N> are made in Act<N> alone."""

    LABELS = ("exception_type", "allocation_class")
    TYPE = re.compile(r"(?:Thing|Fail)(\d+)")

    def judge_event(self, sample, found):
        """Adds what an event of a plug-in holds to `found`, after checking it."""
        if sample.stack == NO_STACK:
            return
        names = self.names_of(sample.stack)
        types = [m[1] for m in map(self.TYPE.search, self.texts(sample)) if m]
        found["wrong"] += any(number != names[0][2] for number in types) if names else bool(types)
        if not names:
            return
        self.check_one_call(sample, names)
        for kind in ("exceptions", "alloc_space", "lock_delay", "inuse_space"):
            found[kind] += sample.value(kind)
        if owner := self.names_of(sample.labels.get("lock_owner_stack", "").split("; ")):
            self.check_thread(sample.labels["lock_owner"], owner, sample)
            found["owners"] += 1

    def texts(self, sample):
        return [sample.labels[label] for label in self.LABELS if label in sample.labels]

    def judge_events(self, profile):
        found = {key: 0 for key in ("wrong", "owners", "exceptions", "alloc_space", "lock_delay", "inuse_space")}
        for sample in profile.samples:
            self.judge_event(sample, found)
        self.assertEqual(found["wrong"], 0, "types of another plug-in than the code")
        return found


class Watched(PluginNames):
    """A program under an agent that records all types; profiles are judged and removed as they come."""

    PERIOD = 60 if SECONDS >= 300 else 5
    # Beyond what it needs anyway: names of one target (CLP_BUILD_DEFINITIONS_BYTES), a window, the spool.
    AGENT_MOST_MB = 60
    AGENT_GROWS_MB = 1.5  # from the second third of ten minutes to the last

    def setUp(self):
        self.marker = f"clp-{uuid.uuid4().hex}"
        self.windows = self.most_bytes = 0
        self.thrown, self.stackless, self.found, self.sizes = {}, {}, {}, []

    def start_agent(self, target):
        self.agent = Agent(self, "{{ kind: directory, path: '{dir}/profiles' }}", self.marker, period=self.PERIOD,
                           profile=f", cpu_interval: 1ms, types: [{ALL_TYPES}]")
        # The first window's end: sessions of events run by then.
        wait_for(lambda: self.agent.written("wall") or self.agent.process.poll() is not None,
                 3 * self.PERIOD + 60, "a window")
        self.assertTrue(target.library_runs(), self.agent.text())

    def look(self, target):
        self.assertTrue(target.alive(), "the program died")
        self.assertIsNone(self.agent.process.poll(), "the agent died")
        self.sizes.append((outside_of_heap(target.pid) / MB, resident(self.agent.process.pid) / MB))
        self.take_windows()

    def take_windows(self):
        for path in self.agent.written("*"):
            window = pprof.load(path)
            self.windows += 1
            for key, value in self.judge_events(window).items():
                self.found[key] = self.found.get(key, 0) + value
            for sample in window.samples:
                if sample.value("exceptions"):
                    self.count_thrown(sample, window)
            self.most_bytes = max(self.most_bytes, window.number("library_bytes"))
            os.unlink(path)

    def count_thrown(self, sample, window):
        dropped = {name: window.number(name) for name in ("drop_events", "drop_ring_full")}
        self.assertIn("exception_type", sample.labels, f"{sample.stack}: {sample.value('exceptions')}, {dropped}")
        into = self.stackless if sample.stack == NO_STACK else self.thrown
        if into is self.stackless or any(frame.startswith(THROWERS) for frame in sample.stack):
            name = sample.labels["exception_type"]
            into[name] = into.get(name, 0) + sample.value("exceptions")

    def check_thrown(self, expected):
        """Exact, but that others may have thrown what is left without a stack."""
        low = {name: self.thrown.get(name, 0) for name in expected}
        wrong = {name: (low[name], self.stackless.get(name, 0), count) for name, count in expected.items()
                 if not low[name] <= count <= low[name] + self.stackless.get(name, 0)}
        self.assertEqual(len(wrong), 0, f"with and without a stack, truth: {list(wrong.items())[:8]}")
        self.assertLess(sum(self.stackless.values()), 0.05 * sum(self.thrown.values()) + 1000, "without a stack")

    def end_agent(self, target):
        self.assertEqual(self.agent.stop(), 0, self.agent.text())
        self.take_windows()
        print(f"{self.windows} profiles, library {self.most_bytes / MB:.1f} MB, of plug-ins {self.found}, "
              f"without a stack {sum(self.stackless.values())}")
        wait_for(lambda: not target.library_runs(), 60, "the library goes")

    def check_flat(self):
        """The last third of the time against the second: the first fills tables. Those of the agent take
        some windows."""
        third = len(self.sizes) // 3
        parts = self.sizes[third:2 * third], self.sizes[-third:]
        for i, who in enumerate(("program outside of its heap", "agent")):
            early, late = (statistics.median(size[i] for size in part) for part in parts)
            print(f"MB of the {who}: first {self.sizes[0][i]:.1f}, then {early:.1f}, at the end {late:.1f}, "
                  f"most {max(size[i] for size in self.sizes):.1f}")
            if i == 0 and SECONDS >= 60:
                self.assertLess(late, 1.05 * early + 3, f"memory of the {who}")
            if i == 1 and SECONDS >= 600:
                self.assertLess(late, early + self.AGENT_GROWS_MB, f"memory of the {who}")
        self.assertLess(max(size[1] for size in self.sizes), self.AGENT_MOST_MB, "memory of the agent")


class TestCollectible(Watched):
    CONTEXTS = 2000 if SECONDS >= 60 else 500

    def one_round(self, target):
        target.begin()
        truth = target.end(600)
        self.assertEqual(truth["contexts"], self.CONTEXTS)
        # The program holds objects of the latest 64; nobody may hold others.
        self.assertLessEqual(truth["contexts_left"], 70)
        self.modulus = truth["modulus"]
        return truth

    def test_contexts(self):
        """Collectible contexts that throw, allocate and wait with types of their own."""
        target = self.target("collectible", "--contexts", self.CONTEXTS, "--dynamics", self.CONTEXTS, "--events", 1,
                             "--context-ms", 1, "--dynamic-ms", 1, "--gap", 1, "--gc-rate", 20,
                             "--marker", self.marker)
        plain = self.one_round(target)
        self.start_agent(target)
        rounds, until = 0, time.monotonic() + SECONDS
        while rounds < 1 or time.monotonic() < until:
            truth = self.one_round(target)
            rounds += 1
            self.look(target)
        self.end_agent(target)
        print(f"{rounds} rounds, longest gap {truth['gap']['max_ns'] / 1e6:.0f} ms, before "
              f"{plain['gap']['max_ns'] / 1e6:.0f} ms")
        names = [f"Plugin{n}.Fail{n}" for n in range(self.CONTEXTS)]
        self.check_thrown({name: rounds for name in names})
        for kind in ("alloc_space", "lock_delay", "inuse_space", "owners"):
            self.assertGreater(self.found[kind], 0, kind)
        if rounds >= 6:
            self.check_flat()
        self.assertEqual(target.quit(9), 9)


class TestEverything(Watched):
    PARTS = ("exceptions", "allocations", "locks", "collectible", "churn", "throws")
    STOOD_STILL_MOST_NS = 30_000_000_000  # of the process's CPU

    def check_parts(self, truth):
        for part in self.PARTS:
            for worker in truth[part]["threads"]:
                self.assertNotIn("failure", worker, part)
            self.assertGreater(truth[part]["steps"], 0, part)
            self.assertLess(truth[part]["stood_still_ns"], self.STOOD_STILL_MOST_NS, f"{part} stood still")
        self.assertLessEqual(truth["collectible"]["contexts_left"], 70)
        print({part: (truth[part]["steps"], f"{truth[part]['stood_still_ns'] / 1e9:.1f} s") for part in self.PARTS},
              f"{truth['collections']} collections asked for")

    def check_exceptions(self, truth):
        """Types of the part that throws for the sake of it; exact to the last one."""
        expected = {}
        for site, count in truth["exceptions"]["thrown"].items():
            expected[TYPES[site]] = expected.get(TYPES[site], 0) + count
        self.check_thrown(expected)

    def test_everything(self):
        """The agent beside a program that does all of it as fast as it can."""
        target = self.target("everything", "--gap", 1, "--gc-rate", -1, "--marker", self.marker)
        target.begin()
        time.sleep(SECONDS / 8)
        truth = target.end(600)
        self.check_parts(truth)
        self.modulus = truth["collectible"]["modulus"]
        self.start_agent(target)
        target.begin()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(SECONDS / 60)
            self.look(target)
        truth = target.end(600)
        self.end_agent(target)
        self.check_parts(truth)
        self.check_exceptions(truth)
        self.check_flat()
        self.assertEqual(target.quit(9), 9)


if __name__ == "__main__":
    harness.main()
