#!/usr/bin/env python3
"""Every command that the README shows is run as it stands there, with a real process's number; none
may be shown that is not run here."""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import harness
from harness import Case, wait_for

SOURCE = harness.environment("CLP_SOURCE")
SECONDS = 60


def shown():
    """The commands of console blocks and of the table of commands, in their order."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    blocks = re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.split("\n") if line.strip()]
    commands = [re.sub(r"\s+#.*$", "", line.removeprefix("$ ")).strip() for line in lines]
    rows = re.findall(r"^\| `(clrpulse [^`]*)` \|", text, re.M)
    return list(dict.fromkeys(commands + [row.replace("\\|", "|") for row in rows]))


class TestReadme(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="clp-readme-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        tools = os.path.join(self.folder, "bin")
        os.mkdir(tools)
        os.symlink(harness.environment("CLP_CLRPULSE"), os.path.join(tools, "clrpulse"))
        self.env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}",
                    "PPROF_TMPDIR": self.folder}

    def run_line(self, line, code=0):
        done = subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, env=self.env, cwd=self.folder, timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, code, f"{line}: {done.stdout}{done.stderr}")
        return done.stdout

    def profile(self, name):
        with gzip.open(os.path.join(self.folder, name)) as file:
            self.assertGreater(len(file.read()), 1000, name)
        os.unlink(os.path.join(self.folder, name))

    # ---- one for each command of the README ----

    def ps(self, pid):
        self.assertIn(str(pid), self.run_line("clrpulse ps"))
        self.assertIn(pid, [p["pid"] for p in json.loads(self.run_line("clrpulse ps --json"))])

    def record(self, pid):
        self.run_line(f"clrpulse record -p {pid} -d 2 -o orders.pb.gz")
        if shutil.which("go"):
            self.assertIn("ClpTarget", self.run_line("go tool pprof -symbolize=none -top orders.pb.gz"))
            self.run_line("go tool pprof -symbolize=none -tags -tagfocus "
                          "'trace_id=4bf92f3577b34da6a3ce929d0e0e4736' orders.pb.gz")
        self.profile("orders.pb.gz")

    def eventpipe(self, pid):
        self.run_line(f"clrpulse record -p {pid} --engine eventpipe -d 2 -o events.pb.gz")
        self.profile("events.pb.gz")

    def events(self, pid):
        self.run_line(f"clrpulse events record -p {pid} -d 1 -o a.nettrace --rundown "
                      "--providers Microsoft-DotNETCore-SampleProfiler")
        self.assertTrue(self.run_line("clrpulse events show a.nettrace"))
        self.run_line("clrpulse events replay a.nettrace -o a.pb.gz")
        self.profile("a.pb.gz")

    def run_command(self, _):
        program = os.path.join(harness.environment("CLP_TARGETS"), harness.framework(), "ClpTarget")
        self.run_line(f"clrpulse run -o run.pb.gz -- {program} spin --duration 2")
        self.profile("run.pb.gz")
        self.run_line(f"clrpulse run -- {program} nonsense", code=2)

    def check(self, pid):
        self.assertIn("can be profiled", self.run_line(f"clrpulse check -p {pid}"))
        self.run_line("clrpulse check -p 999999999", code=3)
        self.run_line("clrpulse check || [ $? -eq 1 ]")  # this machine may lack something

    def agent(self, pid):
        """The agent, and what asks it: status, spool, check --audit."""
        with open(os.path.join(self.folder, "clrpulse.yaml"), "w", encoding="utf-8") as file:
            file.write(f"profile: {{ period: 2s }}\ntargets: {{ include: ['*{self.mark}*'] }}\n"
                       f"state: {{ dir: {self.folder}/state }}\n"
                       f"spool: {{ dir: {self.folder}/spool }}\n"
                       f"upload: [ {{ kind: directory, path: {self.folder}/profiles }} ]\n")
        with open(os.path.join(self.folder, "log"), "w+b") as log:
            agent = subprocess.Popen(["clrpulse", "agent", "-c", "clrpulse.yaml"], env=self.env,
                                     cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(lambda: "profiling" in self.run_line("clrpulse status -c clrpulse.yaml || true"),
                     30, "the agent profiles")
            rows = json.loads(self.run_line("clrpulse status --json -c clrpulse.yaml"))
            self.assertIn(str(pid), json.dumps(rows))
            self.run_line("clrpulse check --audit -c clrpulse.yaml || [ $? -eq 1 ]")
            wait_for(lambda: any(files for _, _, files in os.walk(f"{self.folder}/profiles")), 30,
                     "a profile is delivered")
            self.run_line("clrpulse spool ls -c clrpulse.yaml")
            self.run_line("clrpulse spool flush -c clrpulse.yaml")
            self.run_line("clrpulse spool drop --all -c clrpulse.yaml")
        finally:
            agent.send_signal(signal.SIGTERM)
            code = agent.wait(SECONDS)
        self.assertEqual(code, 0)

    def spool(self, _):
        self.run_line("clrpulse spool show nothing -c clrpulse.yaml", code=1)

    def dev(self, _):
        """`./dev demo` and the rest build and test everything: here, that there are such commands."""
        usage = subprocess.run([os.path.join(SOURCE, "dev")], capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, check=False).stderr
        for name in ("demo", "test", "matrix"):
            self.assertRegex(usage, rf"(?m)^\s*\./dev {name}\b")

    def test_commands(self):
        # What the README's own words are run by.
        ways = {"./dev demo": self.dev, "./dev test": self.dev,
                "clrpulse ps": self.ps, "clrpulse ps [--json]": self.ps,
                "clrpulse record -p 4242": self.record, "clrpulse record -p PID --engine": self.eventpipe,
                "clrpulse record -p PID [-d": self.record, "go tool pprof": self.record,
                "clrpulse events record|show|replay": self.events,
                "clrpulse run": self.run_command, "clrpulse agent": self.agent,
                "clrpulse status": self.agent, "clrpulse check": self.check,
                "clrpulse spool": self.spool}
        wanted = {}
        for command in shown():
            way = [ways[key] for key in sorted(ways, key=len, reverse=True) if command.startswith(key)]
            self.assertTrue(way, f"the README shows `{command}`, which no test runs")
            wanted.setdefault(way[0], []).append(command)
        self.assertGreater(len(wanted), 8)
        self.mark = f"readme-{os.getpid()}"
        target = self.target("spin", "--mark", self.mark)
        target.begin()
        order = [self.dev, self.ps, self.check, self.record, self.eventpipe, self.events,
                 self.run_command, self.agent, self.spool]
        self.assertEqual(set(order), set(wanted), "a way that the README does not need")
        for way in order:
            with self.subTest(commands=wanted[way]):
                way(target.pid)
        with contextlib.suppress(RuntimeError):
            target.end()


if __name__ == "__main__":
    harness.main()
