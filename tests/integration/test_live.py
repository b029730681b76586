"""The live heap against what the program holds."""

import math

import harness
from harness import for_sure, full, with_retry
from test_events import EventCase

MODE = "ClpTarget.LeakMode."


def of(name):
    """Arrays that were made in a method; what the list of them is kept in is another class."""
    return lambda s: (harness.contains(s.stack, MODE + name)
                      and s.labels["allocation_class"] == "System.Byte[]")


# Of a megabyte, in samples of 100 KB, none may be seen; and a starved program leaks late.
LEAST = 50_000
SAMPLE_BYTES = 102_400
KEPT = 1600 / 5  # samples a second that the library keeps with their stacks


def deviation(live, allocated, seconds):
    """Relative standard deviation of `live` bytes out of `allocated`: each kept sample stands for 1/p others."""
    p = min(1, KEPT * seconds * SAMPLE_BYTES / allocated)
    return math.sqrt(SAMPLE_BYTES / p / live)


class TestLiveHeap(EventCase):
    def leak(self, length, *options, types="liveheap"):
        return self.work("leak", types, length, "--least", LEAST, *options)

    def check(self, recorded, margin):
        profile, truth = recorded.profile, recorded.truth
        self.assertGreaterEqual(truth["leak_objects"], LEAST)
        live = profile.total("inuse_space", where=of("MakeLeak"))
        self.assert_near(live, truth["leak_bytes"], margin, "live bytes of the leak")
        objects = profile.total("inuse_objects", where=of("MakeLeak"))
        self.assert_near(objects, truth["leak_objects"], margin, "live objects of the leak")
        dead = profile.total("inuse_space", where=lambda s: of("MakeChurn")(s) or of("MakeBurst")(s))
        self.assertLess(dead, 0.05 * profile.total("inuse_space"), "bytes of what is dead")
        with for_sure():
            for sample in filter(lambda s: of("MakeLeak")(s) and s.value("inuse_space"), profile.samples):
                self.assertIn(sample.labels["generation"], ("1", "2"))
                self.assertIn(sample.labels["age"], ("under 10 s", "10 s to 1 min", "1 to 10 min"))

    def test_a_leak_beside_churn(self):
        # 80 MB, or 240, in samples of 100 KB: a standard error below 4 %.
        seconds, rate = (120, 2_000) if full() else (4, 20_000)
        with_retry(lambda: self.check(self.leak(seconds, "--leak", rate, "--churn", 200_000), 0.15))

    def test_a_leak_that_starts_when_the_table_is_full(self):
        """1.5 GB of what stays come first: more samples than there are places."""
        recorded = self.leak(120 if full() else 20, "--held", 1_500_000, "--leak", 10_000, "--churn", 200_000,
                             "--bursts", 50, types="liveheap,allocations")
        profile, truth = recorded.profile, recorded.truth
        error = deviation(truth["leak_bytes"], profile.number("alloc_bytes") - truth["held_bytes"],
                          (truth["end_ns"] - truth["begin_ns"]) / 1e9)
        print(f"standard deviation of the leak: {error:.3f}")
        self.check(recorded, 0.15 if full() else 4 * error)
        held = profile.total("inuse_space", where=of("MakeHeld"))
        self.assert_near(held, truth["held_bytes"], 0.15, "live bytes of what came first")


if __name__ == "__main__":
    harness.main()
