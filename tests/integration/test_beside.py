#!/usr/bin/env python3
"""Beside another profiler: a main profiler that came before or comes after ours."""

import mmap
import os
import struct
import tempfile
import time

import harness
from harness import AttachError, Case, attach_profiler, contains, timers, wait_for

PEER = "6f1d5a3e-7c42-4b8e-9a55-0d7c9b1e2f34"
FIELDS = ("detach", "active", "jit_finished", "exceptions", "threads_created", "modules",
          "collections", "error")
DETACHED, SHUT_DOWN = 2, 3


class Counts:
    """The shared file in which the peer counts its callbacks."""

    def __init__(self, test):
        handle, self.path = tempfile.mkstemp(prefix="clp-peer-")
        test.addCleanup(os.unlink, self.path)
        os.ftruncate(handle, 4096)
        self.memory = mmap.mmap(handle, 4096)
        os.close(handle)

    def get(self, name):
        return struct.unpack_from("<Q", self.memory, 8 * FIELDS.index(name))[0]

    def detach(self):
        struct.pack_into("<Q", self.memory, 0, 1)

    def all(self):
        return {name: self.get(name) for name in FIELDS}


class TestBeside(Case):
    MODE = ("storm", "--threads", 2, "--gc-rate", 20)

    def started_with_peer(self, counts):
        return self.target(*self.MODE, env={
            "CORECLR_ENABLE_PROFILING": "1",
            "CORECLR_PROFILER": "{" + PEER + "}",
            "CORECLR_PROFILER_PATH": harness.environment("CLP_PEER"),
            "CLP_PEER_COUNTS": counts.path,
        })

    def attach_peer(self, target, counts):
        attach_profiler(target, PEER, harness.environment("CLP_PEER"),
                        counts.path.encode() + b"\0")
        wait_for(lambda: counts.get("active") == 1, 10, "the peer is at work")

    def round(self, target, counts, seconds=3):
        """One round of exceptions and collections: the peer counts every one of them."""
        before = counts.all()
        target.begin()
        time.sleep(seconds)
        truth = target.end()
        loops = sum(worker["loops"] for worker in truth["threads"])
        self.assertEqual(counts.get("exceptions") - before["exceptions"], loops, "exceptions")
        self.assertGreaterEqual(counts.get("collections") - before["collections"],
                                truth["collections"], "collections")
        self.assertEqual(truth["wrong"], 0)
        self.assertEqual(counts.get("error"), 0, f"0x{counts.get('error'):08x}")
        return truth

    def recorded_round(self, target, counts, recorder):
        """The same under a recording, which has to be as good as without a neighbour."""
        self.wait_for_library(target, recorder)
        truth = self.round(target, counts, 4)
        self.check_profile(recorder.finish(), truth)

    def check_profile(self, profile, truth, named=0.99):
        mine = profile.total(where=lambda s: (s.thread() or "").startswith("storm-"))
        plain = profile.total(where=lambda s: contains(s.stack, "ClpTarget.StormMode.Plain")
                              and contains(s.stack, "ClpTarget.Worker.Live"))
        self.assert_ratio(mine / harness.thread_cpu(truth), 0.95, 1.05, "CPU of the storm threads",
                          profile)
        self.assert_share(plain, mine, named, "storm threads under Plain", profile)

    def test_peer_first_at_start(self):
        counts = Counts(self)
        target = self.started_with_peer(counts)
        self.assertEqual(counts.get("active"), 1, "the peer is loaded")
        self.assertGreater(counts.get("modules"), 0)
        self.round(target, counts)
        for _ in range(2):
            self.recorded_round(target, counts, self.record(target, 120))
        self.round(target, counts)  # ours has gone: the peer still gets everything
        self.assertEqual(target.quit(3), 3)
        self.assertEqual(counts.get("active"), SHUT_DOWN)

    def test_peer_first_by_attach(self):
        counts = Counts(self)
        target = self.target(*self.MODE)
        self.attach_peer(target, counts)
        self.recorded_round(target, counts, self.record(target, 120))
        self.round(target, counts)
        self.assertEqual(target.quit(3), 3)

    def test_peer_second_by_attach(self):
        counts = Counts(self)
        target = self.target(*self.MODE)
        recorder = self.record(target, 120)
        self.wait_for_library(target, recorder)
        self.attach_peer(target, counts)
        self.recorded_round(target, counts, recorder)
        self.round(target, counts)
        self.assertEqual(target.quit(3), 3)

    def test_peer_leaves_while_recorded(self):
        """The runtime loses count of ours then, and calls us no more until the agent has attached a
        stand-in.  Time is never lost meanwhile; names of new code come after it."""
        counts = Counts(self)
        target = self.target(*self.MODE)
        self.attach_peer(target, counts)
        recorder = self.record(target, 120)
        self.wait_for_library(target, recorder)
        counts.detach()
        wait_for(lambda: counts.get("active") == DETACHED, 10, "the peer has gone")
        target.begin()
        time.sleep(6)
        truth = target.end()
        self.check_profile(recorder.finish(), truth, named=0.9)
        self.check_gone(target)
        self.recorded_without_peer(target)
        self.assertEqual(target.quit(3), 3)

    def recorded_without_peer(self, target):
        recorder = self.record(target, 120)
        self.wait_for_library(target, recorder)
        target.begin()
        time.sleep(2)
        truth = target.end()
        self.check_profile(recorder.finish(), truth)
        self.check_gone(target)

    def check_gone(self, target):
        """The library leaves on its own terms also when a main profiler left before it."""
        end = time.monotonic() + 2
        while target.alive() and time.monotonic() < end:
            time.sleep(0.1)
        if not target.alive():
            self.fail(f"our detach killed it: {target.describe_end()}")
        self.assertEqual(timers(target.pid), 0, "timers after the recording")

    def test_peer_came_and_went(self):
        """A main profiler was there and left before ours ever came."""
        counts = Counts(self)
        target = self.target(*self.MODE)
        self.attach_peer(target, counts)
        counts.detach()
        wait_for(lambda: counts.get("active") == DETACHED, 10, "the peer has gone")
        for _ in range(2):
            self.recorded_without_peer(target)
        self.assertEqual(target.quit(3), 3)

    def test_second_attach_of_ours(self):
        """The library attached once more, by hand and with data that means nothing: refused, and
        the recording at work does not notice."""
        target = self.target("spin", "--sleepers", 0)
        recorder = self.record(target, 120)
        self.wait_for_library(target, recorder)
        target.begin()
        path, clsid = target.library_path(), harness.environment("CLP_CLSID")
        for data in (b"", b"x" * 152):
            with self.assertRaises(AttachError):
                attach_profiler(target, clsid, path, data)
        time.sleep(2)
        truth = target.end()
        profile = recorder.finish()
        self.assert_ratio(profile.total() / harness.thread_cpu(truth), 0.97, 1.2,
                          "CPU of the recording that was under way", profile)
        self.assertEqual(target.quit(0), 0)


if __name__ == "__main__":
    harness.main()
