#!/usr/bin/env python3
"""An agent that is killed again and again while its targets run: each time they are picked up again, by the library that
is there already, and the numbers of their profiles go on without a gap or a double."""

import glob
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

import harness
import pprof

ROUNDS = int(os.environ.get("CLP_KILLS", "20"))
TARGETS = 5
PICK_UP_SECONDS = 2.0


class TestKills(harness.Case):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="clp-kills-")
        self.addCleanup(shutil.rmtree, self.directory)
        self.config = os.path.join(self.directory, "c.yaml")
        with open(self.config, "w") as file:
            file.write("profile: { period: 1s }\ntargets: { include: ['command:*clp-kills-mark*'] }\n"
                       f"upload: [ {{ kind: directory, path: '{self.directory}/out' }} ]\n"
                       f"spool: {{ dir: '{self.directory}/spool' }}\nstate: {{ dir: '{self.directory}/state' }}\n")

    def agent(self):
        log = open(os.path.join(self.directory, "log"), "a")
        self.addCleanup(log.close)
        process = subprocess.Popen([harness.environment("CLP_CLRPULSE"), "agent", "-c", self.config], stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def profiled(self):
        done = subprocess.run([harness.environment("CLP_CLRPULSE"), "status", "-c", self.config, "--json"],
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
        for path in glob.glob(f"{self.directory}/out/*-wall-*.pb.gz"):
            profile = pprof.load(path)
            told = dict(c.split("=", 1) for c in profile.comments if "=" in c)
            found.setdefault(int(told["process"]), set()).add((int(told["profile_seq"]), profile.time_ns))
        return {pid: [seq for seq, _ in sorted(windows)] for pid, windows in found.items()}

    def test_killed_and_restarted(self):
        # Their own temp directory is in the command line, by which the agent knows them from those of other tests.
        targets = [self.target("spin", "--threads", "1", "--mark", "clp-kills-mark") for _ in range(TARGETS)]
        pids = {t.pid for t in targets}
        waits = []
        for _ in range(ROUNDS):
            agent = self.agent()
            waits.append(self.wait_for_all(pids))
            time.sleep(random.uniform(0, 2.5))  # anywhere in a window, an upload, an attach
            agent.kill()
            agent.wait()
        agent = self.agent()
        self.wait_for_all(pids)
        agent.terminate()
        self.assertEqual(agent.wait(30), 0)
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
