#!/usr/bin/env python3
"""The tests' own judges, on stacks that are known to be right or wrong."""

import contextlib
import gzip
import unittest

import harness
import pprof
import test_code
import test_stacks
from pprof import Sample


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


class TestReader(unittest.TestCase):
    STRINGS = ("", "cpu", "nanoseconds", "Leaf", "Root", "thread_name", "main", "note", "raw.Leaf",
               "thread_id", "libx.so", "abcd")

    def message(self):
        value_type = field(1, 1) + field(2, 2)
        lines = [field(4, field(1, 1) + field(2, 7)), field(4, field(1, 2))]
        text = field(1, 5) + field(2, 6)
        number = field(1, 9) + field(3, 300)
        sample = (field(1, varint(1) + varint(2)) + field(2, varint(12_000_000))
                  + field(3, text) + field(3, number))
        return (field(1, value_type) + field(2, sample)
                + field(3, field(1, 1) + field(2, 4096) + field(5, 10) + field(6, 11))
                + field(4, field(1, 1) + field(2, 1) + lines[0])
                + field(4, field(1, 2) + lines[1])
                + field(5, field(1, 1) + field(2, 3) + field(3, 8))
                + field(5, field(1, 2) + field(2, 4))
                + b"".join(field(6, text.encode()) for text in self.STRINGS)
                + field(9, 5) + field(10, 20) + field(11, value_type) + field(12, 10_000_000)
                + field(13, varint(7)) + field(14, 1))

    def check(self, profile):
        self.assertEqual(profile.sample_types, [("cpu", "nanoseconds")])
        self.assertEqual(profile.comments, ["note"])
        self.assertEqual((profile.time_ns, profile.duration_ns, profile.period), (5, 20, 10_000_000))
        self.assertEqual(profile.mappings[1]["build_id"], "abcd")
        sample, = profile.samples
        self.assertEqual(sample.stack, ["Leaf", "Root"])
        self.assertEqual(sample.system[0], "raw.Leaf")
        self.assertEqual(sample.labels, {"thread_name": "main", "thread_id": 300})
        self.assertEqual(profile.total(), 12_000_000)

    def test_read(self):
        self.check(pprof.Profile(self.message()))
        self.check(pprof.Profile(gzip.compress(self.message())))

    def test_broken(self):
        data = self.message()
        with self.assertRaises((ValueError, IndexError, KeyError)):
            pprof.Profile(data[:len(data) // 2])

    def test_names(self):
        self.assertTrue(pprof.is_function("A.B(int)", "A.B"))
        self.assertTrue(pprof.is_function("A.B<int>", "A.B"))
        self.assertFalse(pprof.is_function("A.Bc", "A.B"))


class TestJudges(unittest.TestCase):
    CHAIN = ["ClpTarget.LoopChain.Fourth", "ClpTarget.LoopChain.Third", "ClpTarget.LoopChain.Second",
             "ClpTarget.LoopChain.First", "ClpTarget.LoopChain.Drive"]
    ROOT = ["ClpTarget.Worker.Live", "libc.so.6!0x1"]

    def test_chain(self):
        judge = test_stacks.TestChain("check").exact
        for cut in range(len(self.CHAIN)):
            for leaf in ([], ["libcoreclr.so!0x5", "[stub]"]):
                self.assertTrue(judge(leaf + self.CHAIN[cut:] + self.ROOT, "LoopChain"))
        for wrong in (self.CHAIN[:2] + self.CHAIN[3:], self.CHAIN[:4],
                      self.CHAIN[:2] + ["[hijacked caller]"] + self.CHAIN[2:],
                      self.CHAIN[:1] + self.CHAIN, self.CHAIN[::-1]):
            self.assertFalse(judge(wrong + self.ROOT, "LoopChain"), wrong)

    def test_osr(self):
        judge = test_stacks.TestOrder("in_order").once_under
        self.assertTrue(judge(["Work.Step", "Loop", "Caller"] + self.ROOT, "Caller", "Loop"))
        self.assertFalse(judge(["Loop", "Loop", "Caller"] + self.ROOT, "Caller", "Loop"))
        self.assertFalse(judge(["Loop"] + self.ROOT, "Caller", "Loop"))

    def test_qsort(self):
        judge = test_stacks.TestOrder("in_order").in_order
        mode = "ClpTarget.QsortMode."
        right = [mode + "Helper", mode + "CompareDelegate", "[stub]", "libc.so.6!0x42f80",
                 "qsort", mode + "SortDelegate"]
        self.assertTrue(judge(right + self.ROOT, "Delegate"))
        self.assertFalse(judge(right[:3] + right[5:] + self.ROOT, "Delegate"))
        self.assertFalse(judge(right[1:] + self.ROOT, "Delegate"))
        self.assertFalse(judge(right[:4], "Delegate"))
        self.assertFalse(judge(right[::-1], "Delegate"))

    def test_collectible(self):
        case = test_code.TestCollectible("test_names")
        case.modulus = 2

        def judge(*frames, thread="collect-1"):
            weights = {"right": 0, "missing": 0, "context": 0, "dynamic": 0}
            stack = [*frames, "ClpTarget.CollectibleMode.CallFor", "root"]
            case.judge(Sample(stack, stack, {"cpu": 5}, {"thread_name": thread}), weights, set())
            return weights
        self.assertEqual(judge("Plugin7.Worker.Inner7", "Plugin7.Worker.Work7")["context"], 5)
        self.assertEqual(judge("Dyn3Inner", "Dyn3")["dynamic"], 5)
        self.assertEqual(judge("[dynamic, gone]")["missing"], 5)
        for wrong in (("Plugin7.Worker.Inner7", "Plugin9.Worker.Work9"), ("Dyn3Inner", "Dyn5"),
                      ("Dyn4",), ("Dyn3Inner", "Plugin3.Worker.Work3")):
            with self.assertRaises(AssertionError):
                judge(*wrong)


class TestRetry(unittest.TestCase):
    def tried(self, sure):
        """How often a measurement is tried that fails each time."""
        tries = []

        def measure():
            tries.append(1)
            with harness.for_sure() if sure else contextlib.nullcontext():
                self.fail("no such luck")
        with self.assertRaises(AssertionError):
            harness.with_retry(measure)
        return len(tries)

    def test_retry(self):
        self.assertEqual(self.tried(sure=False), 3)
        self.assertEqual(self.tried(sure=True), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
