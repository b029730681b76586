#!/usr/bin/env python3
"""An agent that is killed again and again while its targets run: each time they are picked up again, by the library that
is there already, and the numbers of their profiles go on without a gap or a double."""

import json
import os
import random
import subprocess
import time
import uuid

import harness
from test_agent import Agent

ROUNDS = int(os.environ.get("CLP_KILLS", "20"))
TARGETS = 5
PICK_UP_SECONDS = 2.0


class TestKills(harness.Case):
    def profiled(self):
        done = subprocess.run([harness.environment("CLP_CLRPULSE"), "status", "-c", self.agent.config, "--json"],
                              capture_output=True, text=True)
        if done.returncode:
            return set()
        return {t["pid"] for t in json.loads(done.stdout)["targets"] if t["state"] == "profiling"}

    def wait_for_all(self, pids):
        began = time.monotonic()
        harness.wait_for(lambda: self.profiled() >= pids, 30, "all targets under profile")
        return time.monotonic() - began

    def libraries(self, pid):
        """How many times the library is mapped to be executed."""
        with open(f"/proc/{pid}/maps") as maps:
            return sum("libclrpulse.so" in line and " r-xp " in line for line in maps)

    def numbers(self):
        """Of each process; what was sent twice, because nobody lived to note that it was sent, counts once."""
        found = {}
        for seq, profile in self.agent.profiles("wall"):
            found.setdefault(profile.number("process"), set()).add((seq, profile.time_ns))
        return {pid: [seq for seq, _ in sorted(windows)] for pid, windows in found.items()}

    def test_killed_and_restarted(self):
        marker = f"clp-{uuid.uuid4().hex}"
        targets = [self.target("spin", "--threads", "1", "--marker", marker) for _ in range(TARGETS)]
        pids = {t.pid for t in targets}
        waits = []
        self.agent = Agent(self, "{{ kind: directory, path: '{dir}/profiles' }}", marker, period=1)
        for _ in range(ROUNDS):
            waits.append(self.wait_for_all(pids))
            time.sleep(random.uniform(0, 2.5))  # anywhere in a window, an upload, an attach
            self.agent.kill()
            self.agent.start()
        self.wait_for_all(pids)
        self.assertEqual(self.agent.stop(), 0, self.agent.text())
        print(f"picked up again within {max(waits[1:]):.2f} s at most, "
              f"{sum(waits[1:]) / len(waits[1:]):.2f} s on average")
        for target in targets:
            self.assertTrue(target.alive())
            self.assertEqual(self.libraries(target.pid), 1)
            self.assertEqual([d for d in os.listdir(target.directory) if d.startswith("clrpulse-")
                              and time.time() - os.stat(f"{target.directory}/{d}").st_mtime > 120], [])
        numbers = self.numbers()
        self.assertEqual(set(numbers), pids)
        for pid, seqs in numbers.items():
            self.assertEqual(seqs, list(range(len(seqs))), pid)
        self.assertLess(sorted(waits[1:])[-1], PICK_UP_SECONDS)


if __name__ == "__main__":
    harness.main()
