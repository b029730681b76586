#!/usr/bin/env python3
"""The agent: every period a profile of every target, to a directory and over HTTP."""

import glob
import http.server
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

import harness
import pprof
from harness import Case, wait_for

PERIOD = 3


class Agent:
    def __init__(self, test, upload, marker, period=PERIOD, more="", profile=""):
        self.directory = tempfile.mkdtemp(prefix="clp-agent-")
        test.addCleanup(self.close)
        self.config = os.path.join(self.directory, "clrpulse.yaml")
        with open(self.config, "w") as file:
            file.write(f"profile: {{ period: {period}s{profile} }}\n"
                       f"targets: {{ include: ['*{marker}*']{more.format(dir=self.directory)} }}\n"
                       f"upload: [ {upload.format(dir=self.directory)} ]\n"
                       f"state: {{ dir: {self.directory}/state }}\n"
                       f"spool: {{ dir: {self.directory}/spool }}\n")
        self.log = open(os.path.join(self.directory, "log"), "a+b")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [harness.environment("CLP_CLRPULSE"), "agent", "-c", self.config, "--detach-on-exit"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def profiles(self, kind="cpu"):
        """(seq, profile) of all that was written, in order."""
        found = []
        for path in self.written(kind):
            profile = pprof.load(path)
            found.append((profile.number("profile_seq"), profile))
        return sorted(found, key=lambda one: one[0])

    def written(self, kind="cpu"):
        """Profiles of a kind: a window is one file for each."""
        return sorted(glob.glob(f"{self.directory}/profiles/**/*-{kind}-*.pb.gz", recursive=True))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def text(self):
        return harness.written(self.log)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class TestAgent(Case):
    DIRECTORY = "{{ kind: directory, path: '{dir}/profiles' }}"

    def setUp(self):
        # Only the programs of this test are to be profiled, told by a word on their command line.
        self.marker = f"clp-{uuid.uuid4().hex}"

    def busy(self, *options):
        target = self.target("spin", "--sleepers", 2, "--marker", self.marker, *options)
        target.begin()
        return target

    def check_windows(self, profiles, used):
        """Windows of the right length, one after the other, with all that the target used."""
        profiles.sort(key=lambda profile: profile.time_ns)
        for profile in profiles[1:-1]:
            self.assert_ratio(profile.duration_ns / 1e9, PERIOD * 0.9, PERIOD * 1.3, "a window")
        for one, other in zip(profiles, profiles[1:]):
            self.assertLess(abs(one.time_ns + one.duration_ns - other.time_ns), 0.5e9,
                            "neither a gap nor an overlap between windows")

        self.assert_ratio(sum(profile.total() for profile in profiles) / used, 0.8, 1.02,
                          "CPU in all windows")

    def check_audit(self, agent, target):
        """`check --audit`: what the profiles hold beside what the kernel has counted."""
        done = subprocess.run([harness.environment("CLP_CLRPULSE"), "check", "--audit", "-c",
                               agent.config], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        print(done.stdout)
        for kind, low, high in (("cpu", 90, 103), ("wall", 85, 103)):
            share = re.search(rf"process {target.pid} .*\n(?:  .*\n)*  {kind} +profiles [0-9.]+ s, "
                              r"kernel [0-9.]+ s: ([0-9.]+) %", done.stdout)
            self.assertTrue(share, done.stdout)
            self.assert_ratio(float(share[1]) / 100, low / 100, high / 100, f"{kind} of the kernel's")
        threads = re.search(r"threads +library (\d+), kernel (\d+)", done.stdout)
        self.assertTrue(threads, done.stdout)
        self.assertLess(abs(int(threads[1]) - int(threads[2])), 3, done.stdout)

    def test_directory(self):
        target = self.busy()
        before = harness.cpu_ns(target.pid)
        agent = Agent(self, self.DIRECTORY, self.marker)
        wait_for(lambda: len(agent.written()) >= 3 or agent.process.poll() is not None,
                 PERIOD * 3 + 20, "three profiles")
        self.check_audit(agent, target)
        time.sleep(1)
        self.assertEqual(agent.stop(), 0, agent.text())
        files = agent.written()
        self.assertGreaterEqual(len(files), 4, "the window that was open at the end is written")
        self.check_windows([pprof.load(path) for path in files],
                           harness.cpu_ns(target.pid) - before)
        wait_for(lambda: not target.library_runs(), 10, "the library goes with the agent")
        target.end()
        self.assertEqual(target.quit(6), 6)

    def test_http(self):
        received = []

        class Intake(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Clrpulse-Kind"] == "cpu":
                    received.append((self.path, dict(self.headers), body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Intake)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = self.busy()
        before = harness.cpu_ns(target.pid)
        url = f"http://127.0.0.1:{server.server_port}/in"
        agent = Agent(self, f"{{{{ kind: http, url: '{url}', headers: ['X-Token: secret'] }}}}",
                      self.marker)
        wait_for(lambda: len(received) >= 2 or agent.process.poll() is not None, PERIOD * 2 + 20,
                 "two profiles")
        self.assertEqual(agent.stop(), 0, agent.text())
        self.assertTrue(all(path.startswith("/in") for path, _, _ in received))
        self.assertTrue(all(headers.get("X-Token") == "secret" for _, headers, _ in received))
        self.assertNotIn("secret", agent.text())
        self.check_windows([pprof.Profile(body) for _, _, body in received],
                           harness.cpu_ns(target.pid) - before)

    def test_several_targets(self):
        """Two targets at once, and one that comes and ends while the agent runs."""
        targets = [self.busy("--busy", 1) for _ in range(2)]
        agent = Agent(self, self.DIRECTORY, self.marker)
        wait_for(lambda: all(t.library_runs() for t in targets), 30, "both are profiled")
        late = self.busy("--busy", 1)
        wait_for(late.library_runs, 30, "a target that came later is found")
        time.sleep(PERIOD + 1)
        self.assertEqual(late.quit(8), 8)
        time.sleep(PERIOD)
        for target in targets:
            self.assertTrue(target.alive())
        self.assertEqual(agent.stop(), 0, agent.text())
        names = " ".join(agent.written())
        for target in [*targets, late]:
            self.assertRegex(names, rf"\D{target.pid}\D", "a file for each target")

    def test_numbers_survive(self):
        """An agent that is killed and loses its files: the library has kept the number."""
        target = self.busy("--busy", 1)
        agent = Agent(self, self.DIRECTORY, self.marker, period=1)
        wait_for(lambda: len(agent.written()) >= 2, 30, "two profiles")
        time.sleep(0.4)
        agent.kill()
        shutil.rmtree(f"{agent.directory}/state")
        before = len(agent.written())
        agent.start()
        wait_for(lambda: len(agent.written()) >= before + 2, 30, "two more")
        self.assertEqual(agent.stop(), 0, agent.text())
        numbers = [seq for seq, _ in agent.profiles()]
        self.assertEqual(numbers, list(range(len(numbers))), agent.text())
        self.assertEqual(target.quit(3), 3)

    def test_restarts(self):
        """A period of 2 s for a minute; the target is started again once, the agent is killed and
        started again twice."""
        length = 60 if harness.full() else 16
        agent = Agent(self, self.DIRECTORY, self.marker, period=2)
        begin, kills, targets = time.monotonic(), 0, [self.busy("--busy", 1)]
        for share in (0.3, 0.5, 0.7):
            wait_for(lambda: any(f"-{targets[-1].pid}-" in os.path.basename(p)
                                 for p in agent.written()), 30, "it is profiled")
            time.sleep(max(0.0, begin + share * length - time.monotonic()))
            if share == 0.5:
                self.assertEqual(targets[0].quit(4), 4)
                targets.append(self.busy("--busy", 1))
            else:
                agent.kill()
                agent.start()
                kills += 1
        time.sleep(max(4.0, begin + length - time.monotonic()))
        self.assertEqual(agent.stop(), 0, agent.text())
        self.assertEqual(kills, 2)
        for kind in ("cpu", "wall"):
            self.check_restarts(agent, targets, kind)

    def check_restarts(self, agent, targets, kind):
        """Per instance 0..n; windows abut, but for one gap a kill."""
        gaps = 0
        for target in targets:
            found = sorted(((seq, p) for seq, p in agent.profiles(kind)
                            if f"process={target.pid}" in p.comments), key=lambda one: one[0])
            self.assertEqual([seq for seq, _ in found], list(range(len(found))), agent.text())
            self.assertGreater(len(found), 2)
            for (_, one), (_, other) in zip(found, found[1:]):
                self.assertGreaterEqual(other.time_ns, one.time_ns + one.duration_ns, "an overlap")
                gaps += other.time_ns > one.time_ns + one.duration_ns
            for _, profile in found:
                self.assertLess(profile.duration_ns, 3.5e9)
        self.assertLessEqual(gaps, 2, "only a kill makes a gap")

    def job_seconds(self, agent):
        """From a job's last word to its end: alone, or under the agent."""
        target = self.target("spin", "--busy", 1, "--marker", self.marker if agent else "none",
                             duration=3 if harness.full() else 2)
        target.truth(60)
        begin = time.monotonic()
        target.process.stdin.close()
        target.process.wait(20)
        took = time.monotonic() - begin
        if agent:
            wait_for(lambda: any(f"-{target.pid}-" in os.path.basename(p)
                                 for p in agent.written()), 10, "its profile")
        return took

    def test_short_jobs_end_in_time(self):
        """In pairs, without and with the agent: at most 100 ms later."""
        agent = Agent(self, self.DIRECTORY, self.marker, period=60)

        def measure():
            pairs = [(self.job_seconds(None), self.job_seconds(agent)) for _ in range(7)]
            late = statistics.median(profiled - plain for plain, profiled in pairs)
            print(f"a job ends {late * 1000:.1f} ms later; pairs "
                  f"{[(round(a * 1000), round(b * 1000)) for a, b in pairs]} ms")
            self.assertLess(late, 0.1)
        harness.with_retry(measure)
        self.assertEqual(agent.stop(), 0, agent.text())

    def test_short_job(self):
        """A job of three seconds in a period of sixty arrives whole and is not held up."""
        agent = Agent(self, self.DIRECTORY, self.marker, period=60)
        time.sleep(1)
        target = self.target("spin", "--busy", 1, "--marker", self.marker, duration=3)
        truth = target.truth(60)
        begin = time.monotonic()
        target.process.stdin.close()
        target.process.wait(20)
        end_seconds = time.monotonic() - begin
        wait_for(agent.written, 10, "its profile")
        (seq, profile), = agent.profiles()
        self.assertEqual(seq, 0)
        # All since the library came, which on a busy machine may be well into the job.
        used = profile.number("process_cpu")
        self.assert_ratio(profile.total() / used, 0.97, 1.01, "CPU of the job", profile)
        self.assertGreater(profile.total(), 0.3 * harness.thread_cpu(truth))
        self.assertLess(end_seconds, 5, "the end of the process")
        self.assertEqual(agent.stop(), 0, agent.text())

    def test_waiting_for_a_port(self):
        """Programs that wait at their start for our port, also for an agent that comes later."""
        agent = Agent(self, self.DIRECTORY, self.marker, period=2,
                      more=", diagnostic_port: '{dir}/port'")
        port = f"{agent.directory}/port"
        wait_for(lambda: os.path.exists(port), 10, "the port")
        begin = time.monotonic()
        first = self.target("spin", "--busy", 1, "--marker", self.marker,
                            env={"DOTNET_DiagnosticPorts": port})
        self.assertLess(time.monotonic() - begin, 5, "it started at once")
        wait_for(first.library_runs, 10, "it is profiled")
        agent.kill()
        late = []
        thread = threading.Thread(target=lambda: late.append(self.target(
            "spin", "--busy", 1, "--marker", self.marker, env={"DOTNET_DiagnosticPorts": port})))
        thread.start()
        time.sleep(2)
        self.assertEqual(late, [], "it waits: the agent was killed")
        agent.start()
        thread.join(20)
        self.assertEqual(len(late), 1, agent.text())
        wait_for(late[0].library_runs, 10, "it is profiled")
        self.assertEqual(agent.stop(), 0, agent.text())

    def test_run(self):
        """`clrpulse run`: from the first instruction, with the exit code and the signals."""
        program = os.path.join(harness.environment("CLP_TARGETS"), harness.framework(), "ClpTarget")
        directory = tempfile.mkdtemp(prefix="clp-run-")
        self.addCleanup(shutil.rmtree, directory, True)
        path = os.path.join(directory, "run.pb.gz")
        environment = {**os.environ, "TMPDIR": directory}

        def start(*command):
            process = subprocess.Popen(
                [harness.environment("CLP_CLRPULSE"), "run", "-o", path, "--", *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment, text=True)
            self.addCleanup(process.kill)
            self.assertIn("ready", process.stdout.readline())
            process.stdin.write("begin\n")
            process.stdin.flush()
            self.assertIn("begun", process.stdout.readline())
            return process

        process = start(program, "spin", "--busy", "1")
        time.sleep(2)
        out, errors = process.communicate("end\nquit 9\n", timeout=60)
        self.assertEqual((process.returncode, errors), (9, ""))
        profile = pprof.load(path)
        used = profile.number("process_cpu")
        self.assert_ratio(profile.total() / used, 0.97, 1.01, "CPU accounted for", profile)
        truth = next(json.loads(line)["truth"] for line in out.splitlines() if '"truth"' in line)
        self.assertGreater(profile.total(), 0.98 * truth["process_cpu_ns"], "nothing is missing")
        # Under a shell, and ended by a signal that is passed on.
        process = start("sh", "-c", f"exec {program} spin --busy 1")
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (-signal.SIGTERM, 143))
        self.assertGreater(pprof.load(path).total(), 0.1e9)  # of a second, on a busy machine
        self.assertEqual([n for n in os.listdir(directory) if n.startswith("clrpulse-")
                          and not n.endswith(".gz")], [], "nothing is left behind")

    def run_script(self, script, directory):
        path = os.path.join(directory, "run.pb.gz")
        process = subprocess.Popen(
            [harness.environment("CLP_CLRPULSE"), "run", "-o", path, "--", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": directory}, text=True)
        self.addCleanup(process.kill)
        return process, path

    def test_run_descendants(self):
        """A command that is no .NET program: its first .NET descendant is recorded, to its end, and the
        command's own exit code counts. One that is .NET itself: never a child of it instead."""
        program = os.path.join(harness.environment("CLP_TARGETS"), harness.framework(), "ClpTarget")
        directory = tempfile.mkdtemp(prefix="clp-run-")
        self.addCleanup(shutil.rmtree, directory, True)
        job = f"{program} spin --busy 1 --sleepers"
        process, path = self.run_script(
            f"{job} 3 --duration 1 & first=$!; echo $first; wait $first; {job} 4 --duration 1; exit 5",
            directory)
        out, errors = process.communicate(timeout=90)
        self.assertEqual((process.returncode, errors), (5, ""))
        profile = pprof.load(path)
        names = {sample.thread() for sample in profile.samples}
        self.assertIn("sleeper-2", names)
        self.assertNotIn("sleeper-3", names, "the first one, and nothing of the second")
        # The stand-in for a .NET program that does not let the library in; its child would.
        os.remove(path)
        fake = harness.environment("CLP_FAKE")
        process, path = self.run_script(
            f"({job} 3 --duration 1 >/dev/null; echo child done) & "
            f"exec {fake} --tmp {directory} --no-connect", directory)
        self.assertIn("ready", process.stdout.readline())
        self.assertIn("child done", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertIn("nothing was recorded", errors)
        self.assertFalse(os.path.exists(path), "the child is not who was meant")

    @unittest.skipUnless(shutil.which("go"), "go tool pprof is not installed")
    def test_go_reads_it(self):
        """`go tool pprof` takes the file without a warning and sees the same total."""
        recorder = self.record(self.busy(), 4)
        profile = recorder.profile()
        done = subprocess.run(
            ["go", "tool", "pprof", "-symbolize=none", "-top", "-unit=ms", "-nodecount=50",
             recorder.path], capture_output=True, text=True, timeout=60,
            env={**os.environ, "HOME": os.path.dirname(recorder.path)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotRegex(done.stderr.lower(), "warn|error|fail|cannot|missing")
        self.assertIn("ClpTarget.Work.Burn", done.stdout)
        total = re.search(r"of ([0-9.]+)ms total", done.stdout)
        self.assertTrue(total, done.stdout)
        self.assert_ratio(float(total[1]) * 1e6 / profile.total(), 0.999, 1.001, "total in pprof")


if __name__ == "__main__":
    harness.main()
