"""What the owner of a lock did while others waited for it."""

import harness
from harness import for_sure, with_retry
from test_events import EventCase, leaf_of_mode, owner_stack

MODE = "ClpTarget.OwnersMode."


class TestOwners(EventCase):
    def check(self, recorded, least):
        """`least`: the share of waits over 1 ms that have an owner's stack at all."""
        profile = recorded.profile
        known = right = waits = 0
        for sample in profile.samples:
            if leaf_of_mode(sample) != "WaitFor":
                continue
            count = sample.value("lock_contentions")
            waits += count
            stack = owner_stack(sample)
            if not stack:
                continue
            known += count
            number = int(sample.labels["thread_name"].rsplit("-", 1)[1])
            hold = MODE + ("HoldA" if number % 2 == 0 else "HoldB")
            right += count * (hold in stack and MODE + "Hold" in stack)
            self.assertEqual(sample.labels["lock_owner"], f"holder-{number}")
        self.assertGreater(waits, 50)
        self.assert_ratio(known / waits, least, 1.001, "waits with an owner's stack")
        self.assert_ratio(right / known, 0.95, 1, "right ones of them")

    def test_an_owner_that_sleeps(self):
        self.check(self.work("owners", "locks", 3, "--pairs", 2, "--hold", 60), 0.3)

    def test_an_owner_that_computes(self):
        """Each CPU sample of the owner comes at a random instant of its time on a CPU."""
        self.check(self.work("owners", "cpu,locks", 3, "--pairs", 2, "--hold", 50, "--busy", 1), 0.3)

    def crowd(self):
        recorded = self.work("owners", "locks", 4, "--crowd", 300, "--hold", 1)
        profile = recorded.profile
        with for_sure():
            self.assertEqual(profile.total("lock_contentions"), profile.number("lock_contentions"))
        self.assert_ratio(profile.total("lock_delay") / recorded.truth["waited_ns"], 0.98, 1.02,
                          "time of all waits")
        known = right = 0
        for sample in profile.samples:
            stack = owner_stack(sample)
            known += bool(stack)
            right += MODE + "Pass" in stack
        self.assertGreater(known, 10)
        self.assert_ratio(right / known, 0.95, 1, "owners' stacks that are the holder's")

    def test_a_crowd_on_one_lock(self):
        """Between one owner and the next, who is woken, nobody has it: longer on a busy machine."""
        with_retry(self.crowd)


if __name__ == "__main__":
    harness.main()
