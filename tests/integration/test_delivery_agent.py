#!/usr/bin/env python3
"""Delivery by the agent itself, from running .NET programs: killed at any moment, with an intake that is away, with a
slow disk."""

import glob
import json
import os
import random
import re
import subprocess
import sys
import time
import uuid

import harness
import test_agent
from delivery import FULL, PlainIntake, environment, preload
from harness import wait_for

PERIOD = 1


class Agent(test_agent.Agent):
    """Each start has a number, which goes with what it sends."""
    starts = 0

    def __init__(self, test, intakes, marker, period=PERIOD):
        uploads = ", ".join(f"{{{{ kind: http, url: 'http://127.0.0.1:{intake.port}/', "
                            f"headers: ['X-Agent: env:AGENT'] }}}}" for intake in intakes)
        self.env = None
        super().__init__(test, uploads, marker, period)

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen([harness.environment("CLP_CLRPULSE"), "agent", "-c", self.config],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={**(self.env or environment()), "AGENT": str(self.starts)})

    def spooled(self, ending="chunk"):
        """(start, runtime, number) of what is in the spool now, as its names say."""
        found = set()
        for path in glob.glob(f"{self.directory}/spool/*.{ending}"):
            start, runtime, seq = re.fullmatch(r"(\d+)-(.*)-(\d+)", os.path.basename(path)[:-len(ending) - 1]).groups()
            found.add((int(start), runtime.replace("_", "-"), int(seq)))
        return found

    def uploads(self):
        done = subprocess.run([harness.environment("CLP_CLRPULSE"), "status", "-c", self.config, "--json"],
                              capture_output=True, text=True)
        return json.loads(done.stdout)["uploads"] if done.returncode == 0 else []

    def flush(self):
        subprocess.run([harness.environment("CLP_CLRPULSE"), "spool", "flush", "-c", self.config], check=True,
                       capture_output=True)

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


class Case(harness.Case):
    def setUp(self):
        self.marker = f"clp-{uuid.uuid4().hex}"

    def sleepers(self, count):
        """Programs that wait: each window has their wall time."""
        return [self.target("spin", "--busy", 0, "--sleepers", 2, "--marker", self.marker) for _ in range(count)]

    def check_numbers(self, intake):
        """Each window's number once, none left out, every profile whole: {runtime: windows in order}."""
        self.assertEqual(intake.broken, 0, "no torn upload")
        windows = {}
        for (runtime, seq), found in intake.windows.items():
            self.assertEqual(len(found), 1, f"number {seq} stands for two windows")
            windows.setdefault(runtime, {})[seq], = found
        for runtime, found in windows.items():
            self.assertEqual(sorted(found), list(range(len(found))), "numbers without a gap")
            ordered = [found[seq] for seq in range(len(found))]
            for (start, length), (other, _) in zip(ordered, ordered[1:]):
                self.assertGreaterEqual(other, start + length, "windows with their own times")
            windows[runtime] = ordered
        return windows

    def finish(self, agent):
        wait_for(lambda: (uploads := agent.uploads()) and not any(u["waiting"] for u in uploads), 150, "all is sent")
        self.assertEqual(agent.stop(), 0, agent.text())
        # Windows that were open at the end went on the agent's last way, or wait for another start.
        self.assertEqual(agent.spooled("bad"), set())


class TestKilled(Case):
    def repeated(self, intake):
        """Profiles that came twice. Only what was on its way when the agent was killed may: so it is the last
        that that agent has sent for this target; all before it was noted before the next one went."""
        sent, twice = {}, 0
        for seq, kind, _, agent, headers in intake.requests:
            sent.setdefault(headers["Clrpulse-Runtime-Id"], {}).setdefault(int(agent), []).append((seq, kind))
        for runtime, by_agent in sent.items():
            last = {}  # the agent that sent it last
            for agent, keys in sorted(by_agent.items()):
                self.assertEqual(len(set(keys)), len(keys), "twice by one agent")
                for key in keys:
                    if key in last:
                        self.assertEqual(by_agent[last[key]][-1], key, f"{runtime}: sent again although it was noted")
                        twice += 1
                    last[key] = agent
        return twice

    def check(self, agent, intakes, spooled, kills):
        arrived = set()
        for intake in intakes:
            windows = self.check_numbers(intake)
            self.assertEqual(len(windows), 2)
            for runtime, ordered in windows.items():
                arrived.update((intake.port, start, runtime, seq) for seq, (start, _) in enumerate(ordered))
            twice = self.repeated(intake)
            print(f"{sum(map(len, windows.values()))} windows, {twice} requests came twice in {kills} kills",
                  file=sys.stderr)
            self.assertLessEqual(twice, 2 * kills, "one for each target and kill at most")
        wanted = {(intake.port, *chunk) for intake in intakes for chunk in spooled}
        self.assertEqual(sorted(wanted - arrived), [], "nothing that was spooled is lost")

    def test_anywhere(self):
        """kill -9 at random moments of windows, attaches, writes and uploads; one intake comes and goes."""
        rounds, rng, spooled = 200 if FULL else 5, random.Random(11), set()
        self.sleepers(2)
        intakes = [PlainIntake(self), PlainIntake(self)]
        agent = Agent(self, intakes, self.marker)
        for _ in range(rounds):
            intakes[1].status = rng.choice((200, 503))
            time.sleep(rng.uniform(0, 2.5))
            agent.kill()
            spooled |= agent.spooled()
            agent.start()
        intakes[1].status = 200
        wait_for(lambda: all(len(intake.windows) >= 4 for intake in intakes), 60, "some windows of both targets")
        self.finish(agent)
        self.assertEqual(agent.spooled("tmp"), set())
        self.check(agent, intakes, spooled, rounds)

    def test_between_spool_and_number(self):
        """Killed while the disk still works on a spooled profile: its number is taken all the same."""
        self.sleepers(2)
        intakes = [PlainIntake(self)]
        agent = Agent(self, intakes, self.marker)
        wait_for(lambda: len(intakes[0].windows) >= 2, 60, "the first windows")
        self.assertEqual(agent.stop(), 0, agent.text())
        before, agent.env = agent.spooled(), preload("slow-sync.so", CLP_SYNC_MS="1500")
        agent.start()
        wait_for(lambda: agent.spooled() - before, 30, "a profile in the spool")
        agent.kill()
        spooled, agent.env = agent.spooled(), None
        self.assertEqual(len(spooled - before), 1)
        (_, runtime, seq), = spooled - before
        agent.start()
        wait_for(lambda: (runtime, seq + 1) in intakes[0].windows, 30, "the next window")
        self.finish(agent)
        self.check(agent, intakes, spooled, 1)


class TestAway(Case):
    def test_outage(self):
        """Ten minutes without an intake, windows of 2 s: all arrive, once, in order, with their own times; another
        intake does not notice. Some seconds of that unless run at full length."""
        period, windows = (2, 300) if FULL else (1, 4)
        self.sleepers(2)
        away, well = PlainIntake(self), PlainIntake(self)
        away.status = 503
        agent = Agent(self, [away, well], self.marker, period)
        sizes = {}
        for count in (windows // 3, windows):
            wait_for(lambda n=count: len(well.windows) >= 2 * n, 2 * period * windows + 60, f"{count} windows")
            sizes[count] = agent.resident_kib()
        self.assertEqual(away.requests, [])
        self.assertGreaterEqual(len(agent.spooled()), 2 * windows - 2)
        away.status = 200
        if not FULL:
            agent.flush()  # the pauses that agents make take longer
        self.finish(agent)
        told = [self.check_numbers(intake) for intake in (away, well)]
        self.assertEqual(sorted(told[0]), sorted(told[1]))
        for intake in (away, well):
            keys = [(headers["Clrpulse-Runtime-Id"], seq, kind) for seq, kind, _, _, headers in intake.requests]
            self.assertEqual(len(set(keys)), len(keys), "each once")
            for runtime, ordered in told[1].items():
                self.assertGreaterEqual(len(ordered), windows - 1)
                numbers = [seq for one, seq, _ in keys if one == runtime]
                self.assertEqual(numbers, sorted(numbers), "in order")
        for runtime, ordered in told[0].items():
            self.assertEqual(ordered, told[1][runtime][:len(ordered)], "original times")
        grown = sizes[windows] - sizes[windows // 3]
        print(f"{len(away.windows)} windows of 2 targets; the agent grew by {grown} KiB", file=sys.stderr)
        if FULL:
            self.assertLess(grown, 1024, "memory is flat")


if __name__ == "__main__":
    harness.main()
