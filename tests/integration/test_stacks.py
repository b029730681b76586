#!/usr/bin/env python3
"""Stacks: their roots, their frames, in the right order."""

import re

import harness
import pprof
from harness import Case, contains, is_label, record_work

SECONDS = harness.seconds(15)


def position(stack, name):
    for at, frame in enumerate(stack):
        if pprof.is_function(frame, name):
            return at
    return -1


class TestRoots(Case):
    def check(self, env=None, seconds=SECONDS):
        got = record_work(self, self.target("stacks", env=env), seconds)
        profile = got.profile
        whole = profile.total(where=lambda s: not harness.without_stack(s))
        self.assert_share(harness.rooted(profile), whole, 0.995, "stacks with a root", profile)
        # The library's own thread is told by its time alone; what it may cost is another test's.
        others = [s for s in profile.samples if s.thread() != "clrpulse"]
        labelled = sum(s.value() for s in others if harness.without_stack(s))
        self.assert_ratio(labelled / sum(s.value() for s in others), 0, 0.05,
                          "time without a stack", profile)
        self.check_unlabelled(profile)
        self.check_work(got)
        print(*(c for c in profile.comments if c.startswith("samples")), sep="; ")
        return got

    def check_unlabelled(self, profile):
        root = harness.thread_root(profile)
        for sample in profile.samples:
            end = sample.stack[-1]
            good = end == root or end in harness.NATIVE_START or contains(sample.stack, harness.MAIN)
            self.assertTrue(good or is_label(end), f"neither root nor label: {sample.stack}")

    def check_work(self, got):
        """Each thread's time is under its own Run, and no other's."""
        kinds = {"linq": "Linq", "json": "Json", "regex": "Regex", "generics": "Generic",
                 "exceptions": "Exception", "osr": "Osr", "dynamic": "Dynamic",
                 "dispatch": "Dispatch", "recursion": "Recursion", "stackalloc": "Stackalloc"}
        for thread, kind in kinds.items():
            own = f"ClpTarget.{kind}Work.Run"
            mine = [s for s in got.profile.samples if s.thread() == thread and s.value() > 0
                    and not harness.without_stack(s)]
            self.assertTrue(mine, f"no sample of thread {thread}")
            whole = sum(s.value() for s in mine)
            other = [s for s in mine if not contains(s.stack, own)]
            share = 1 - sum(s.value() for s in other) / whole
            wrong = "\n".join(f"{s.value() / 1e6:.1f} ms {s.stack}" for s in other[:5])
            # Starting the thread's body and asking whether to stop is all that it does besides; of
            # the few dozen samples of a thread, a single one there is more than that share.
            self.assertTrue(all(contains(s.stack, "ClpTarget.Worker.Live") or is_label(s.stack[-1])
                                for s in other), wrong)
            if len(other) > 1:
                self.assertGreaterEqual(share, 0.98, f"thread {thread} under {own}:\n{wrong}")

    def test_default(self):
        got = self.check()
        self.check_recursion(got.profile)
        self.check_async(got.profile)
        self.check_dynamic(got.profile)

    def test_untiered(self):
        self.check(env={"DOTNET_TieredCompilation": "0"}, seconds=8)

    def test_server_gc(self):
        self.check(env={"DOTNET_gcServer": "1", "DOTNET_GCHeapCount": "2"}, seconds=8)

    def check_recursion(self, profile):
        down = "ClpTarget.RecursionWork.Down"
        deep = [s for s in profile.samples if s.thread() == "recursion"
                and s.stack and pprof.is_function(s.stack[0], "ClpTarget.Work.Burn")]
        self.assertTrue(deep, "no sample at the end of the recursion")
        whole = sum(s.value() for s in deep)
        exact = sum(s.value() for s in deep
                    if sum(pprof.is_function(f, down) for f in s.stack) == 901)
        self.assert_share(exact, whole, 0.995, "recursion with all its 901 frames", profile)

    def check_async(self, profile):
        # On a busy machine there are too few samples for every method to be among them.
        methods = ("Outer", "Middle", "Inner", "Values") if profile.total() > 5e9 else ()
        for method in methods:
            self.assertTrue(any(frame.startswith(f"ClpTarget.AsyncWork.{method}")
                                for s in profile.samples for frame in s.stack),
                            f"no frame of AsyncWork.{method}")
        raw = {(frame, system) for s in profile.samples for frame, system in zip(s.stack, s.system)
               if frame.startswith("ClpTarget.AsyncWork.") and re.search(r"MoveNext\b", frame)}
        self.assertFalse(raw, "a state machine is shown as its MoveNext")

    def check_dynamic(self, profile):
        for name in ("ExpressionLoop", "DynamicLoop"):
            weight = profile.total(where=lambda s, n=name: n in s.stack)
            mine = profile.total(where=lambda s: s.thread() == "dynamic")
            self.assert_ratio(weight / mine, 0.1, 0.9, f"time in {name}", profile)


class TestOrder(Case):
    def test_qsort(self):
        """managed -> libc qsort -> managed comparer -> managed helper."""
        got = record_work(self, self.target("qsort"), harness.seconds(10))
        for thread in ("unmanaged", "delegate"):
            kind = thread.capitalize()
            helper = [s for s in got.profile.samples if s.thread() == thread
                      and contains(s.stack, "ClpTarget.QsortMode.Helper")]
            whole = sum(s.value() for s in helper)
            right = sum(s.value() for s in helper if self.in_order(s.stack, kind))
            self.assert_share(right, whole, 0.99, f"qsort through {thread}", got.profile)
            mine = got.profile.total(where=lambda s, t=thread: s.thread() == t)
            self.assertGreater(whole / mine, 0.5, "the helper is where the time goes")

    def in_order(self, stack, kind):
        helper = position(stack, "ClpTarget.QsortMode.Helper")
        compare = position(stack, f"ClpTarget.QsortMode.Compare{kind}")
        sort = position(stack, f"ClpTarget.QsortMode.Sort{kind}")
        native = [frame for frame in stack[compare + 1:sort]
                  if "qsort" in frame or "msort" in frame or frame.startswith("libc.so.6!")]
        return helper >= 0 and compare == helper + 1 and sort > compare and bool(native)

    def test_osr(self):
        """A long loop, replaced on the stack: its caller is there, the method is there once."""
        got = record_work(self, self.target("osr"), harness.seconds(10))
        for worker in got.truth["threads"]:
            caller, loop = (f"ClpTarget.OsrLoops.{name}" for name in worker["expect"])
            mine = [s for s in got.profile.samples
                    if s.thread() == worker["name"] and contains(s.stack, loop)]
            whole = sum(s.value() for s in mine)
            right = sum(s.value() for s in mine if self.once_under(s.stack, caller, loop))
            self.assert_share(right, whole, 0.999, f"OSR loop {loop}", got.profile)
            thread = got.profile.total(where=lambda s, n=worker["name"]: s.thread() == n)
            self.assertGreater(whole / thread, 0.95, f"time of {worker['name']} in its loop")

    def once_under(self, stack, caller, loop):
        at = position(stack, loop)
        times = sum(pprof.is_function(frame, loop) for frame in stack)
        return times == 1 and at + 1 < len(stack) and pprof.is_function(stack[at + 1], caller)

    def test_deep(self):
        for depth in (50, 500, 5000):
            with self.subTest(depth=depth):
                got = record_work(self, self.target("deep", "--depth", depth), 4)
                self.check_depth(got.profile, depth)

    def check_depth(self, profile, depth):
        leaf = [s for s in profile.samples if contains(s.stack, "ClpTarget.DeepMode.Leaf")]
        self.assertTrue(leaf, "no sample in the leaf")
        for sample in leaf:
            frames = sum(pprof.is_function(f, "ClpTarget.DeepMode.Down") for f in sample.stack)
            if sample.stack[-1] == "[truncated]":
                self.assertGreater(depth, 1024, "cut although the depth is supported")
                self.assertGreaterEqual(len(sample.stack), 1024)
            else:
                self.assertEqual(frames, depth, sample.stack[:4] + sample.stack[-4:])


class TestChain(Case):
    """A fixed chain while garbage collections suspend the thread in the middle of it."""

    METHODS = ("Fourth", "Third", "Second", "First", "Drive")

    def exact(self, stack, kind):
        """All frames of the chain that are there are its end towards the root, without a hole."""
        chain = [f"ClpTarget.{kind}.{name}" for name in self.METHODS]
        there = [frame for frame in stack
                 if any(pprof.is_function(frame, name) for name in chain)]
        at = next(i for i, frame in enumerate(stack) if frame in there)
        run = stack[at:at + len(there)]
        return run == there and len(there) <= len(chain) and all(
            pprof.is_function(frame, name)
            for frame, name in zip(there, chain[len(chain) - len(there):]))

    def check(self, *options, kinds, env=None):
        got = record_work(self, self.target("chain", *options, env=env), harness.seconds(10))
        for thread, kind in kinds:
            mine = [s for s in got.profile.samples if s.thread() == thread
                    and any(frame.startswith(f"ClpTarget.{kind}.") for frame in s.stack)]
            whole = sum(s.value() for s in mine)
            right = sum(s.value() for s in mine if self.exact(s.stack, kind))
            wrong = [s.stack[:14] for s in mine if not self.exact(s.stack, kind)][:5]
            print("\n".join(map(str, wrong)))
            self.assert_share(right, whole, 0.999, f"{kind} {options} {env}", got.profile)
            self.check_rest(got.profile, thread, kind)
        return got

    def check_rest(self, profile, thread, kind):
        """Outside its chain a thread has little to do; a chain that was lost would show here."""
        mine = [s for s in profile.samples if s.thread() == thread and not harness.without_stack(s)]
        rest = [s for s in mine if not any(f.startswith(f"ClpTarget.{kind}.") for f in s.stack)]
        print("\n".join(f"  outside: {s.value() / 1e6:.1f} ms {s.stack[:10]}" for s in rest[:10]))
        known = sum(s.value() for s in rest if contains(s.stack, "ClpTarget.Worker.Live")
                    and not any(is_label(frame) for frame in s.stack))
        whole = sum(s.value() for s in mine)
        lost = sum(s.value() for s in rest) - known
        self.assert_ratio(lost / whole, 0, 0.001, f"{thread}: chains lost", profile)
        self.assert_ratio(known / whole, 0, 0.05, f"{thread}: time outside", profile)

    BOTH = (("straight", "StraightChain"), ("loop", "LoopChain"))
    ALLOCATING = (("alloc-0", "AllocChain"), ("alloc-1", "AllocChain"))
    SERVER = {"DOTNET_gcServer": "1", "DOTNET_GCHeapCount": "2"}

    def test_rate_10(self):
        self.check("--gc-rate", 10, kinds=self.BOTH)

    def test_rate_300(self):
        self.check("--gc-rate", 300, kinds=self.BOTH)

    def test_rate_highest(self):
        got = self.check("--gc-rate", -1, kinds=self.BOTH)
        waits = got.profile.total(where=lambda s: s.labels.get("wait") == "gc")
        print(f"waiting for a collection: {waits / 1e6:.1f} ms")
        # A wait has little CPU of its own: a short measurement may hold none.
        if harness.thread_cpu(got.truth) > 8e9:
            self.assertGreater(waits, 0, "no sample says that it waits for a collection")

    def test_allocating(self):
        self.check("--kind", "alloc", kinds=self.ALLOCATING,
                   env={"DOTNET_GCgen0size": "0x40000"})

    def test_server_10(self):
        self.check("--gc-rate", 10, kinds=self.BOTH, env=self.SERVER)

    def test_server_highest(self):
        self.check("--gc-rate", -1, kinds=self.BOTH, env=self.SERVER)

    def test_untiered_highest(self):
        self.check("--gc-rate", -1, kinds=self.BOTH, env={"DOTNET_TieredCompilation": "0"})


if __name__ == "__main__":
    harness.main()
