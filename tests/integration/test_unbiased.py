"""Values against the truth over many runs: are they right in the mean?

The rule, for each quantity: the relative errors of RUNS runs have the mean m and the standard error
e; the quantity passes where m + t * e < margin and m - t * e > -margin, which are two one-sided
t-tests at the level ALPHA, divided by the number of quantities of its kind (Bonferroni). A bias of
the margin's size passes with a probability of at most ALPHA, however large the spread is."""

import math
import os
import statistics

import harness
from harness import framework
from test_events import EventCase, leaf_of_mode, sums
from test_live import of

RUNS = int(os.environ.get("CLP_RUNS", "30"))
ALPHA = 0.05
MARGIN = 0.02
MARGIN_LIVE = 0.04


def t_quantile(p, df):
    """Of Student's distribution: the expansion around the normal one (Abramowitz and Stegun 26.7.5),
    right to 0.001 from 10 degrees of freedom on."""
    z = statistics.NormalDist().inv_cdf(p)
    return (z + (z ** 3 + z) / (4 * df) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * df ** 2)
            + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * df ** 3))


class TestUnbiased(EventCase):
    def equivalent(self, errors, margin):
        """`errors`: by quantity, one for each run."""
        worst = []
        for name, each in errors.items():
            self.assertGreaterEqual(len(each), RUNS, name)
            mean, error = statistics.mean(each), statistics.stdev(each) / math.sqrt(len(each))
            reach = t_quantile(1 - ALPHA / len(errors), len(each) - 1) * error
            print(f"{name}: {len(each)} runs, mean error {mean:+.4f} +- {reach:.4f}, "
                  f"of one run {statistics.stdev(each):.4f}")
            if abs(mean) + reach >= margin:
                worst.append(f"{name}: {mean:+.4f} +- {reach:.4f} is not within {margin}")
        self.assertFalse(worst, worst)

    def runs(self, work, values, margin, count=RUNS):
        """A run whose events began to come when the work was under way is made anew: what was not
        seen is told, and no matter of the estimators."""
        errors, done = {}, 0
        for seed in range(2 * count):
            recorded = work(seed)
            self.doCleanups()
            if recorded.profile.number("events_late"):
                continue
            for name, (got, truth) in values(recorded).items():
                self.assertGreater(truth, 0, name)
                errors.setdefault(name, []).append(got / truth - 1)
            done += 1
            if done == count:
                break
        self.equivalent(errors, margin)

    def allocations(self, recorded):
        profile, truth = recorded.profile, recorded.truth["allocated"]
        result = {"bytes of all classes": (profile.total("alloc_space"),
                                           sum(c["bytes"] for c in truth.values()))}
        if framework() == "net10.0":  # before, the split over classes is no random choice
            got = sums(profile, "alloc_space", lambda s: s.labels["allocation_class"])
            for name, what in truth.items():
                result[f"bytes of {name}"] = (got.get(name, 0), what["bytes"])
        return result

    def locks(self, recorded):
        got = sums(recorded.profile, "lock_delay", leaf_of_mode)
        return {"time of short waits": (got.get("WaitShort", 0), recorded.truth["short_ns"]),
                "time of long waits": (got.get("WaitLong", 0), recorded.truth["long_ns"])}

    def live(self, recorded):
        return {"live bytes of the leak": (recorded.profile.total("inuse_space", where=of("MakeLeak")),
                                           recorded.truth["leak_bytes"])}

    def test_allocations(self):
        self.runs(lambda seed: self.work("allocations", "allocations", 0.1, "--rounds", 5,
                                         "--alternate", seed % 2), self.allocations, MARGIN)

    def test_lock_time(self):
        # The error of one run is some 4 %.
        self.runs(lambda seed: self.work("mixedlocks", "locks", 2, "--groups", 12, "--seed", seed),
                  self.locks, MARGIN, 2 * RUNS)

    def test_lock_time_of_many(self):
        """300 locks, some ten waits each, so that one or two of each are kept: 6 % in one run."""
        self.runs(lambda seed: self.work("mixedlocks", "locks", 6, "--groups", 300, "--rest", 200, "--seed", seed),
                  self.locks, MARGIN, 3 * RUNS)

    def test_live_heap(self):
        self.runs(lambda seed: self.work("leak", "liveheap", 2, "--leak", 60_000, "--churn", 100_000),
                  self.live, MARGIN_LIVE, 2 * RUNS)


if __name__ == "__main__":
    harness.main()
