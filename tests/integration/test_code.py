#!/usr/bin/env python3
"""Code that comes and goes under sampling: no crash, no wrong name, hardly any missing."""

import re

import harness
from harness import Case, Recorded

NUMBERED = re.compile(r"(?:^|\.)(Work|Inner|Act|Dyn)(\d+)(Inner)?(?:\(|$)")


class NumberedNames(Case):
    """Rules of the program's names (Collectible.cs): all of one call hold one number, which belongs to
    the thread, and only some follow each other."""

    modulus = 1

    @staticmethod
    def names_of(frames):
        return [match for match in map(NUMBERED.search, frames) if match]

    def check_one_call(self, sample, names):
        numbers = {int(match[2]) for match in names}
        self.assertEqual(len(numbers), 1, f"names of two plug-ins in one call: {sample.stack}")
        kinds = [match[1] + (match[3] or "") for match in names]
        allowed = (["Inner", "Work"], ["Work"], ["DynInner", "Dyn"], ["Dyn"], ["Act"], ["Inner", "Act"])
        self.assertIn(kinds, allowed, f"an impossible call: {sample.stack}")
        if sample.thread():  # what is alive belongs to no thread
            self.check_thread(sample.thread(), names, sample)

    def check_thread(self, thread, names, sample):
        self.assertEqual(int(names[0][2]) % self.modulus, int(thread.rsplit("-", 1)[1]),
                         f"thread {thread} never ran that: {sample.stack} {sample.labels}")


class TestCollectible(NumberedNames):
    def test_names(self):
        contexts, dynamics = (500, 5000) if harness.framework() == "net10.0" else (200, 2000)
        target = self.target("collectible", "--contexts", contexts, "--dynamics", dynamics)
        recorder = self.record(target, 300)
        self.wait_for_library(target, recorder)
        target.begin()
        got = Recorded(None, target.end(240), 0, 0)
        recorder.interrupt()  # the work is of a fixed size
        got.profile = recorder.profile()
        self.assertEqual((got.truth["contexts"], got.truth["dynamics"]), (contexts, dynamics))
        self.modulus = got.truth["modulus"]
        weights = {"right": 0, "missing": 0, "context": 0, "dynamic": 0}
        seen = set()
        for sample in got.profile.samples:
            self.judge(sample, weights, seen)
        whole = weights["right"] + weights["missing"]
        self.assert_ratio(whole / harness.thread_cpu(got.truth), 0.5, 1.0,
                          "time in plug-ins and dynamic methods", got.profile)
        self.assert_ratio(weights["missing"] / whole, 0, 0.01, "plug-in time without names",
                          got.profile)
        self.assertGreater(weights["context"], whole * 0.2)
        self.assertGreater(weights["dynamic"], whole * 0.2)
        # A name that sticks to an address would show a few numbers again and again.
        self.assertGreater(len(seen), (contexts + dynamics / 2) * 0.2, "distinct plug-in and dynamic method numbers")
        self.assertTrue(target.alive())

    def judge(self, sample, weights, seen):
        call = next((i for i, f in enumerate(sample.stack)
                     if harness.pprof.is_function(f, "ClpTarget.CollectibleMode.CallFor")), -1)
        if call <= 0:
            return
        above = sample.stack[:call]
        names = self.names_of(above)
        if any(frame in ("[unknown]", "[dynamic, gone]") for frame in above):
            weights["missing"] += sample.value()
        elif names:
            self.check_one_call(sample, names)
            seen.add((names[0][1][:3], names[0][2]))
            weights["right"] += sample.value()
            kind = "dynamic" if names[0][1] == "Dyn" else "context"
            weights[kind] += sample.value()


if __name__ == "__main__":
    harness.main()
