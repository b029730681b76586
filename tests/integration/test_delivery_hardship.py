#!/usr/bin/env python3
"""Delivery in hard times: intakes that are down or silent, crashes, full disks, crowds, huge profiles."""

import collections
import glob
import gzip
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest
import zlib

import pprof
from delivery import DELIVER, FULL, SANITIZED, Case, PlainIntake, environment, main, preload


# The receiver's own time does not go faster.
PATIENT = "timeout_ms=3600000"


def memory_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


class TestOutage(Case):
    """Ten minutes without an intake, windows of 2 s, and the pauses that agents make; a third of that, 200 times as
    fast, unless run at full length."""

    def run_through(self, intake, count, period_ms, speed, mend, *more, age_s=3600):
        """Stats at the end, and how much memory grew between a third of the windows and the last."""
        env = {"CLP_DELIVER_RETRY_MS": "0,0", "CLP_DELIVER_AGE_S": str(age_s)}
        env = environment(**env) if FULL else preload("fast-clock.so", CLP_CLOCK_SPEED=str(speed), **env)
        process = subprocess.Popen(self.words(0, count, period_ms, 40000, "http", intake.url(), *more), env=env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        log = []
        reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
        reader.start()
        sizes = {}
        for line in process.stdout:
            if line.startswith("put "):
                at = int(line.split()[1])
                sizes[at] = memory_kib(process.pid) if at in (count // 3, count - 1) else None
                if at == count - 1:
                    mend()
            if line.startswith("{"):
                yield json.loads(line)
        self.assertEqual(process.wait(60), 0)
        reader.join()
        self.grown_kib = sizes[count - 1] - sizes[count // 3]
        self.log = "".join(log)

    def outage(self, status):
        if SANITIZED:
            self.skipTest("a clock that is preloaded, and memory that is counted")
        intake, count = PlainIntake(self), 300 if FULL else 100
        intake.status = status

        def mend():
            self.assertEqual(intake.requests, [])
            intake.status = 200

        stats, = self.run_through(intake, count, 2000, 200, mend, PATIENT)
        print(f"{stats['retried']} tries failed, memory grew by {self.grown_kib} KiB", file=sys.stderr)
        self.assertEqual(stats["sent"], count, self.log)
        self.assertGreater(stats["retried"], 3)
        self.assertLess(self.grown_kib, 4096, "a profile that waits is in the spool and not in memory")
        self.assertEqual(len(intake.requests), count * 7, "each once")
        starts = {seq: start for seq, kind, start, *_ in intake.requests if kind == "cpu"}
        self.assertEqual(sorted(starts), list(range(count)), "without a gap")
        times = [starts[seq] for seq in range(count)]
        self.assertEqual(times, sorted(set(times)), "with their own times")
        return intake.sequences()

    def test_down(self):
        order = self.outage(503)
        self.assertEqual(order, sorted(order), "in order")

    def test_ill(self):
        """500 may be the intake's illness or this profile's fault: to tell, one goes ahead of the others."""
        order = self.outage(500)
        self.assertTrue(any(sorted(rest) == rest for rest in (order[:i] + order[i + 1:] for i in range(len(order)))),
                        order[:20])

    def test_silent_for_an_hour(self):
        """One intake takes requests and never answers; the other one is not delayed."""
        if SANITIZED or FULL:
            self.skipTest("needs the clock that is preloaded")
        silent, well = PlainIntake(self), PlainIntake(self)
        silent.silent = True

        def mend():
            deadline = time.monotonic() + 30
            while len(well.requests) < 120 * 7 and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(well.sequences(), list(range(120)))
            self.assertEqual(silent.requests, [])
            silent.silent = False

        stats = list(self.run_through(silent, 120, 30000, 400, mend, "+", "http", well.url(), PATIENT,
                                      age_s=864000))
        self.assertEqual([s["sent"] for s in stats], [120, 120], self.log)
        self.assertEqual(list(dict.fromkeys(silent.sequences())), list(range(120)))
        self.assertIn("timed out", self.log.lower())
        self.assertGreater(stats[0]["retried"], 10)
        self.assertLess(stats[0]["retried"], 400, "with pauses")
        self.assertEqual(stats[1]["retried"], 0)
        self.assertLess(self.grown_kib, 4096)


class TestCrowd(Case):
    def crowd(self, headers):
        """What 100 agents do whose intake refuses all of them at once: their pauses, from their logs."""
        intake = PlainIntake(self)
        intake.status, intake.headers = 429, headers
        agents = [subprocess.Popen(
            [DELIVER, f"{self.spool}-{i}", "0", "1", "0", "60", "http", intake.url(), f"header=X-Agent: {i}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environment(CLP_DELIVER_RETRY_MS="0,0")) for i in range(100)]
        deadline = time.monotonic() + 60
        while len(set(intake.attempts)) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        intake.status = 200
        logs = [agent.communicate(timeout=90)[1] for agent in agents]
        self.assertEqual(len(set(intake.attempts)), 100)
        came = collections.Counter((agent, kind) for _, kind, _, agent, _ in intake.requests)
        self.assertEqual(len(came), 700)
        self.assertEqual(set(came.values()), {1}, "each profile once")
        return [float(re.search(r"will try again in ([\d.]+) s", log)[1]) for log in logs]

    def check_spread(self, pauses, low):
        """Evenly between low and low + 1 s: no tenth of it has a third of them."""
        self.assertGreaterEqual(min(pauses), low)
        self.assertLessEqual(max(pauses), low + 1.1)
        counts = collections.Counter(int((pause - low) * 10) for pause in pauses)
        self.assertLess(max(counts.values()), 34, sorted(counts.items()))
        self.assertGreater(len(counts), 6)

    def test_they_do_not_come_back_together(self):
        self.check_spread(self.crowd({}), 0.5)

    def test_not_before_the_time_that_was_named(self):
        self.check_spread(self.crowd({"Retry-After": "2"}), 2.5)


class TestCrash(Case):
    def test_killed_at_random(self):
        """kill -9 at random points: what was in the spool arrives, whole; at most the request that was on
        its way at the moment of each kill comes twice."""
        intake = PlainIntake(self)
        rounds = 200 if FULL else 30
        rng, spooled, first = random.Random(7), set(), 0
        upload = ["http", intake.url()]
        for _ in range(rounds):
            process = subprocess.Popen(self.words(first, 1000, 5, 5, *upload), stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True, env=environment())
            self.assertEqual(process.stdout.readline(), "started\n")
            time.sleep(rng.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
            text, _ = process.communicate()
            spooled.update(int(line.split()[1]) for line in text.splitlines() if line.startswith("put "))
            first = max(spooled, default=-1) + 2  # the one after may be in the spool without being said
        stats, log = self.deliver(*upload, first=first, count=1, wait_s=30)
        self.assertEqual(stats[0]["backlog"], 0, log)
        self.assertEqual(intake.broken, 0, "no torn upload")
        for kind in ("cpu", "gc"):
            counts = collections.Counter(intake.sequences(kind))
            self.assertEqual(sorted(spooled - set(counts)), [], "nothing that was spooled is lost")
            self.assertLessEqual(sum(counts.values()) - len(counts), rounds, "at most one twice for each kill")
        self.assertEqual(glob.glob(f"{self.spool}/*.bad"), [])
        self.assertEqual(glob.glob(f"{self.spool}/*.tmp"), [])


class TestDisk(Case):
    def test_full_disk(self):
        """A spool of 256 KiB: older profiles make room, none is torn, all that is left arrives."""
        os.mkdir(self.spool)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.spool],
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a tmpfs cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", self.spool])
        intake = PlainIntake(self)
        intake.status = 503
        process = subprocess.Popen(self.words(0, 200, 5, 30, "http", intake.url()), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("put 199"):
                intake.status = 200
                break
        out, log = process.communicate(timeout=90)
        stats = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.assertEqual(intake.broken, 0)
        sequences = intake.sequences()
        self.assertEqual(sequences, sorted(set(sequences)))
        self.assertEqual(sequences[-1], 199, log)
        self.assertEqual(stats[0]["backlog"], 0, log)
        self.assertIn("the spool was full", log)
        self.assertEqual(os.listdir(self.spool), ["lock"])


class TestDirectory(Case):
    """What may happen to the spool's directory while an agent works; its intake is down meanwhile."""

    def deliver_through(self, happen, **who):
        """Profiles 0 to 9, something that happens, 10 to 39; then the intake is well. What came, the log."""
        count = 40
        intake = PlainIntake(self)
        intake.status = 503
        process = subprocess.Popen(self.words(0, count, 10, 30, "http", intake.url()), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment(), **who)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line == "put 9\n":
                process.send_signal(signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
                happen()
                process.send_signal(signal.SIGCONT)
            if line == f"put {count - 1}\n":
                intake.status = 200
                break
        out, log = process.communicate(timeout=90)
        self.assertEqual(intake.broken, 0)
        stats, = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.assertEqual(stats["backlog"], 0, log)
        sequences = intake.sequences()
        self.assertEqual(sequences, sorted(set(sequences)), log)
        return sequences, log

    def test_removed(self):
        """What was in it is gone and told; what comes later is in a new one."""
        sequences, log = self.deliver_through(lambda: shutil.rmtree(self.spool))
        self.assertEqual(sequences, list(range(sequences[0], 40)), log)
        self.assertGreaterEqual(sequences[0], 10)
        self.assertIn("was removed by somebody", log)
        self.assertNotIn("wait in memory", log)
        self.assertEqual(os.listdir(self.spool), ["lock"])

    def test_moved(self):
        sequences, log = self.deliver_through(lambda: os.rename(self.spool, f"{self.spool}-gone"))
        self.assertEqual(sequences, list(range(40)), log)
        self.assertEqual(os.listdir(f"{self.spool}-gone"), ["lock"])

    def test_crowded_with_strangers(self):
        """Links, pipes, folders and nonsense under names of ours are set aside or left alone; nothing is followed."""
        self.deliver("http", "url=http://127.0.0.1:1/", count=1, wait_s=0)
        name, = glob.glob(f"{self.spool}/*.chunk")
        with open(name, "rb") as file:
            whole = file.read()
        names = [f"{self.spool}/{time.time_ns() + i:020}-stranger-{i}.chunk" for i in range(7)]
        os.symlink(f"{self.directory}/elsewhere", names[0])
        os.mkfifo(names[1])
        os.mkdir(names[2])
        header = struct.unpack("<I", whole[12:16])[0]
        contents = whole[32:32 + header] + gzip.compress(b"no profile at all")
        head = whole[:8] + struct.pack("<IIQI", 1, header, len(contents) - header, zlib.crc32(contents))
        for path, data in ((names[3], head + struct.pack("<I", zlib.crc32(head)) + contents), (names[4], whole[:-1]),
                           (names[5], b""), (names[6], whole), (f"{self.directory}/elsewhere", whole),
                           (f"{self.spool}/{2**63:020}-later-0.chunk", whole)):
            with open(path, "wb") as file:
                file.write(data)
        intake = PlainIntake(self)
        stats, log = self.deliver("http", intake.url(), first=5)
        self.assertEqual(stats[0]["sent"], 4, log)  # two that were copied, the one before, the one of now
        self.assertEqual(stats[0]["damaged"], 1, log)
        self.assertEqual(log.count("cannot be read"), 2, log)
        self.assertEqual(sorted(intake.sequences()), [0, 0, 0, 5])
        self.assertTrue(os.path.exists(f"{self.directory}/elsewhere"))
        self.assertEqual(glob.glob(f"{self.spool}/*.chunk"), [])

    @unittest.skipUnless(os.geteuid() == 0, "only root may mount, and run as another user")
    def test_few_inodes_then_no_rights(self):
        """A disk with few inodes: the oldest give way. Then it is not to be written: profiles wait in memory."""
        os.mkdir(self.spool)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=8,uid=65534", "tmpfs", self.spool],
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a tmpfs cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", self.spool])
        os.chmod(self.directory, 0o755)
        sequences, log = self.deliver_through(lambda: os.chmod(self.spool, 0o555), user=65534, group=65534,
                                              extra_groups=[])
        self.assertEqual(sequences, list(range(sequences[0], 40)), log)
        self.assertGreater(len(sequences), 29)
        self.assertIn("cannot be written (Permission denied): a profile waits in memory", log)
        self.assertIn("the spool was full", log)


class TestSize(Case):
    def test_a_million_stacks(self):
        """50 MB of samples to a limit of 2 MB: taken, with its total, in bounded memory. A tenth of that unless
        at full length."""
        stacks = 1000000 if FULL else 100000
        stats, log = self.deliver("directory", f"path={self.directory}/all", "+", "directory",
                                  f"path={self.directory}/files", "size_max=2000000", count=f"big:{stacks}", wait_s=100)
        path, = glob.glob(f"{self.directory}/files/*cpu*")
        with open(path, "rb") as file:
            data = file.read()
        self.assertLessEqual(len(gzip.decompress(data)), 2000000)
        profile = pprof.Profile(data)
        self.assertEqual(profile.total("cpu"), sum(1 + i % 100 for i in range(stacks)))
        self.assertEqual(profile.number("upload_samples_folded"), stats[1]["folded"])
        note = [comment for comment in profile.comments if comment.startswith("upload_too_large=")]
        self.assertRegex(note[0], r"=65537 samples and \d+ KiB: 65536 stacks of 40 frames on average, 1001 functions")
        self.assertGreater(stats[1]["folded"], 0)
        self.assertIn("stacks of 40 frames", log)
        print(f"peak RSS {stats[1]['rss_kib'] / 1024:.0f} MiB", file=sys.stderr)
        if not SANITIZED:
            self.assertLess(stats[1]["rss_kib"], 100 * 1024)


if __name__ == "__main__":
    main()
