#!/usr/bin/env python3
"""The command against a stand-in for a target (tests/tools/fake-library.c): hand-shake, windows, ends, refusals.

No .NET is needed, so these also run under the sanitizers."""

import glob
import json
import os
import resource
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import pprof

CLRPULSE = os.environ["CLP_CLRPULSE"]
FAKE = os.environ["CLP_FAKE"]
SPIN, MAIN = "Fake.Work.Spin", "Fake.Program.Main"
OTHER_UID = 54321
IS_ROOT = os.geteuid() == 0


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="clp-session-")
        os.chmod(self.directory, 0o755)
        self.addCleanup(shutil.rmtree, self.directory, True)
        # What is loaded into a stand-in is never run: any file will do.
        self.library = os.path.join(self.directory, "libclrpulse.so")
        with open(self.library, "wb") as file:
            file.write(b"library")
        self.tmp = os.path.join(self.directory, "tmp")
        os.mkdir(self.tmp)
        os.chmod(self.tmp, 0o1777)

    def start(self, *options, prefix=(), **keywords):
        """A stand-in in our own temp directory; its pid is that of the command itself (exec)."""
        process = subprocess.Popen([*prefix, FAKE, "--tmp", self.tmp, *options], text=True,
                                   stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": self.tmp},
                                   **keywords)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        line = process.stdout.readline()
        self.assertTrue(line.startswith("ready"), line)
        return process

    def run_clrpulse(self, *arguments, prefix=(), seconds=60):
        return subprocess.run([*prefix, CLRPULSE, *arguments], capture_output=True, text=True,
                              timeout=seconds, cwd=self.directory,
                              env={**os.environ, "CLRPULSE_LIBRARY": self.library})

    def record(self, pid, *options, prefix=()):
        self.path = os.path.join(self.directory, "profile.pb.gz")
        return self.run_clrpulse("record", "-p", str(pid), "-o", self.path, *options, prefix=prefix)

    def assert_sentence(self, done, code, pattern):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, pattern)

    def assert_nothing_left(self):
        self.assertEqual(glob.glob(f"{self.tmp}/clrpulse-*"), [], "files of the attach")


class TestRecord(Case):
    def test_profile(self):
        target = self.start()
        done = self.record(target.pid, "-d", "1")
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", ""))
        profile = pprof.load(self.path)
        self.assertEqual([s.stack for s in profile.samples], [[SPIN, MAIN]])
        sample = profile.samples[0]
        self.assertEqual(sample.labels, {"thread_id": target.pid, "thread_name": "worker"})
        self.assertGreater(sample.value(), 20e6)
        self.assertEqual(sample.value() % 1_000_000, 0)
        self.assertAlmostEqual(profile.duration_ns / 1e9, 1, delta=0.3)
        self.assertAlmostEqual(profile.time_ns / 1e9, time.time() - 1, delta=2)
        self.assertTrue(profile.comments[0].startswith("clrpulse "))
        self.assertIn("runtime=.NET 10.0.1", profile.comments)
        self.assertEqual(target.stdout.readline(), "detach\n", "a recording leaves nothing behind")
        self.assert_nothing_left()

    def test_again(self):
        target = self.start()
        for _ in range(3):
            self.assertEqual(self.record(target.pid, "-d", "0.3").returncode, 0)
            self.assertGreater(pprof.load(self.path).total(), 0)

    def test_joined(self):
        """The library is there already and cancels its second activation: a success."""
        target = self.start("--result", "80131375")
        self.assertEqual(self.record(target.pid, "-d", "0.3").returncode, 0)
        self.assertGreater(pprof.load(self.path).total(), 0)

    def test_split(self):
        target = self.start()
        self.assertEqual(self.record(target.pid, "-d", "0.3", "--split").returncode, 0)
        self.assertFalse(os.path.exists(self.path))
        self.assertGreater(pprof.load(f"{self.directory}/profile.cpu.pb.gz").total(), 0)

    def test_default_name(self):
        target = self.start()
        done = self.run_clrpulse("record", "-p", str(target.pid), "-d", "0.3")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = os.listdir(self.directory)
        self.assertTrue(any(re.fullmatch(rf"clrpulse-{target.pid}-\d+T\d+Z\.pb\.gz", n)
                            for n in names), names)

    def test_interrupt(self):
        target = self.start()
        path = os.path.join(self.directory, "i.pb.gz")
        process = subprocess.Popen([CLRPULSE, "record", "-p", str(target.pid), "-d", "60", "-o", path],
                                   env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 0)
        self.assertGreater(pprof.load(path).total(), 20e6)

    def test_progress_on_a_terminal_only(self):
        target = self.start()
        master, slave = os.openpty()
        process = subprocess.run([CLRPULSE, "record", "-p", str(target.pid), "-d", "0.5", "-o",
                                  os.path.join(self.directory, "t.pb.gz")], stderr=slave, timeout=60,
                                 env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        os.close(slave)
        shown = self.read_all(master)
        self.assertEqual(process.returncode, 0, shown)
        self.assertIn("recording process", shown)
        self.assertIn("wrote ", shown)


    def read_all(self, master):
        shown = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # the other side is closed
                data = b""
            if not data:
                os.close(master)
                return shown.decode()
            shown += data


class TestEnds(Case):
    def test_target_exits(self):
        target = self.start("--exit-after", "700")
        done = self.record(target.pid, "-d", "30")
        self.assert_sentence(done, 0, "has ended.*what was taken")
        profile = pprof.load(self.path)
        self.assertGreater(profile.total(), 20e6)
        self.assertFalse(any("not confirmed" in c for c in profile.comments), "it said a last word")

    def test_target_is_killed(self):
        target = self.start("--cpu", "7")
        process = subprocess.Popen([CLRPULSE, "record", "-p", str(target.pid), "-d", "30", "-o",
                                    f"{self.directory}/k.pb.gz"], stderr=subprocess.PIPE,
                                   env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        self.addCleanup(process.stderr.close)
        time.sleep(1)
        target.kill()
        self.assertEqual(process.wait(20), 0)
        profile = pprof.load(f"{self.directory}/k.pb.gz")
        self.assertGreater(profile.total(), 0)
        self.assertEqual(profile.total() % 7, 0)
        self.assertTrue(any("not confirmed" in c for c in profile.comments), profile.comments)

    def test_library_leaves(self):
        target = self.start("--leave-after", "500")
        done = self.record(target.pid, "-d", "30")
        self.assert_sentence(done, 0, "the library has left")
        self.assertGreater(pprof.load(self.path).total(), 0)

    def test_recorder_is_killed(self):
        """At any moment of the attach: the target's port stays usable for everybody."""
        target = self.start()
        for delay in range(0, 60, 2):
            process = subprocess.Popen([CLRPULSE, "record", "-p", str(target.pid), "-d", "60", "-o",
                                        f"{self.directory}/x"], stderr=subprocess.DEVNULL,
                                       env={**os.environ, "CLRPULSE_LIBRARY": self.library})
            time.sleep(delay / 1000)
            process.kill()
            process.wait()
            self.assertEqual(target.poll(), None, f"killed after {delay} ms")
        self.assertEqual(self.record(target.pid, "-d", "0.3").returncode, 0)
        self.assertGreater(pprof.load(self.path).total(), 0)

    def test_no_mark(self):
        """A library that hangs: the window is closed all the same, and the profile says so."""
        target = self.start("--no-mark")
        started = time.monotonic()
        self.assertEqual(self.record(target.pid, "-d", "0.5").returncode, 0)
        self.assertLess(time.monotonic() - started, 8)
        profile = pprof.load(self.path)
        self.assertGreater(profile.total(), 0)
        self.assertTrue(any("not confirmed" in c for c in profile.comments), profile.comments)

    def test_garbage(self):
        """A target that writes nonsense into its ring ends its own recording only."""
        target = self.start("--garbage")
        self.assert_sentence(self.record(target.pid, "-d", "5"), 1, "wrote nonsense into its ring")


class TestRefusals(Case):
    def test_runtime_refuses(self):
        for result, words in (("8007007e", "cannot load the profiler library"),
                              ("80070005", "switched profiling off"),
                              ("8013136a", "another profiler is active"), ("80004444", "0x80004444")):
            target = self.start("--result", result)
            self.assert_sentence(self.record(target.pid, "--engine", "library"), 5, words)
            self.assertFalse(os.path.exists(self.path))
            self.assert_nothing_left()
            target.kill()

    def test_library_refuses(self):
        target = self.start("--refuse", "four readers are there")
        self.assert_sentence(self.record(target.pid, "--engine", "library"), 5,
                             "refused: four readers are there")
        self.assert_nothing_left()

    def test_both_engines_fail(self):
        """Nobody asked for the library, so the other engine is tried: what keeps each from working is said."""
        target = self.start("--refuse", "four readers are there")
        done = self.record(target.pid)
        self.assertEqual(done.returncode, 1, done.stderr)
        first, second = done.stderr.splitlines()
        self.assertRegex(first, "refused: four readers are there; taking the engine eventpipe")
        self.assertRegex(second, f"cannot open a session with process {target.pid}")
        self.assertFalse(os.path.exists(self.path))
        self.assert_nothing_left()

    def test_old_runtime(self):
        target = self.start("--version", "6.0.36")
        self.assert_sentence(self.record(target.pid), 5, r"runs \.NET 6\.0\.36")
        check = self.run_clrpulse("check", "-p", str(target.pid))
        self.assertRegex(check.stdout, r"error .*runs \.NET 6\.0\.36")
        self.assertEqual(check.returncode, 5, "as `record` has it")

    def test_wrong_nonce(self):
        """A visitor on the socket that does not know the nonce is sent away; the library still gets in."""
        target = self.start("--wrong-nonce")
        self.assertEqual(self.record(target.pid, "-d", "0.3").returncode, 0)
        self.assertGreater(pprof.load(self.path).total(), 0)

    def test_never_connects(self):
        target = self.start("--no-connect")
        self.assert_sentence(self.record(target.pid), 1, "did not report back")
        self.assert_nothing_left()

    def test_dies_during_attach(self):
        target = self.start("--no-connect")
        process = subprocess.Popen([CLRPULSE, "record", "-p", str(target.pid), "-o",
                                    f"{self.directory}/d.pb.gz"], stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        self.addCleanup(process.stderr.close)
        time.sleep(1)
        target.kill()
        self.assertEqual(process.wait(5), 3)
        self.assertRegex(process.stderr.read(), "ended during the attach")
        self.assert_nothing_left()

    def test_stopped(self):
        target = self.start()
        target.send_signal(signal.SIGSTOP)
        self.assert_sentence(self.record(target.pid), 1, f"is stopped.*kill -CONT {target.pid}")


class TestNoTarget(Case):
    def test_no_dotnet(self):
        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assert_sentence(self.record(process.pid), 3, "is not a .NET process")

    def test_a_name_of_codes_for_the_terminal(self):
        named = r"import ctypes, time; ctypes.CDLL(None).prctl(15, b'\x1b[31mE\nV'); print(flush=True); time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", named], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdout.readline()
        self.assert_sentence(self.record(process.pid), 3, r"\(\?\[31mE\?V\) is not a .NET process")

    def test_no_process(self):
        process = subprocess.Popen(["true"])
        process.wait()
        self.assert_sentence(self.record(process.pid), 3, "there is no process")

    def test_stale_socket(self):
        """A killed program leaves its socket; so do plants with other start times. None is taken for it."""
        target = self.start()
        target.kill()
        target.wait()
        left = glob.glob(f"{self.tmp}/dotnet-diagnostic-{target.pid}-*")
        self.assertEqual(len(left), 1)
        sleeper = subprocess.Popen(["sleep", "60"], env={**os.environ, "TMPDIR": self.tmp})
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        for key in (1, 99999999999):
            with socket.socket(socket.AF_UNIX) as plant:
                plant.bind(f"{self.tmp}/dotnet-diagnostic-{sleeper.pid}-{key}-socket")
        self.assert_sentence(self.record(sleeper.pid), 3, "is not a .NET process")

    def test_dead_sockets_cost_nothing(self):
        target = self.start()
        for n in range(500):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(f"{self.tmp}/dotnet-diagnostic-{900000 + n}-1-socket")
        with socket.socket(socket.AF_UNIX) as newer:
            newer.bind(f"{self.tmp}/dotnet-diagnostic-{target.pid}-1-socket")
            done = self.run_clrpulse("ps", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        mine = [p for p in json.loads(done.stdout) if p["pid"] == target.pid]
        self.assertEqual([p["profile"] for p in mine], ["library"])

    def test_one_that_waits_at_its_start(self):
        """Nothing runs in it yet: `ps` and `record` say so, and why."""
        for variable, words in (
                ("DOTNET_DefaultDiagnosticPortSuspend=1", r"\(DOTNET_DefaultDiagnosticPortSuspend\)"),
                ("DOTNET_DiagnosticPorts=/x.sock,suspend", r"\(DOTNET_DiagnosticPorts=/x\.sock\)")):
            with self.subTest(variable=variable):
                target = self.start("--no-entry", prefix=("env", variable))
                mine, = (p for p in json.loads(self.run_clrpulse("ps", "--json").stdout)
                         if p["pid"] == target.pid)
                self.assertEqual(mine["profile"], "waiting")
                self.assertRegex(mine["why_not"], "waits at its start until a tool lets it go " + words)
                done = self.record(target.pid, "-d", "1")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, rf"^clrpulse: process {target.pid} \(fake-library\) waits "
                                              rf"at its start until a tool lets it go {words}")
        plain = self.start("--no-entry")
        mine, = (p for p in json.loads(self.run_clrpulse("ps", "--json").stdout)
                 if p["pid"] == plain.pid)
        self.assertEqual(mine["profile"], "library", "a host of its own has no entry assembly")

    def test_file_cannot_be_written(self):
        target = self.start()
        done = self.run_clrpulse("record", "-p", str(target.pid), "-o", "/no/such/dir/x")
        self.assert_sentence(done, 1, "cannot write into /no/such/dir")

    def test_limit_on_file_sizes(self):
        """`ulimit -f 0`: a sentence, not the end by SIGXFSZ."""
        target = self.start()
        path = os.path.join(self.directory, "x.pb.gz")
        done = subprocess.run(
            [CLRPULSE, "record", "-p", str(target.pid), "-d", "0.3", "--engine", "library", "-o", path],
            capture_output=True, text=True, timeout=60,
            env={**os.environ, "CLRPULSE_LIBRARY": self.library},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.assert_sentence(done, 1, "file size|File too large")
        self.assertFalse(os.path.exists(path))

    def test_wrong_use(self):
        for arguments in (["record"], ["record", "-p", "x"], ["recrod"], [], ["ps", "--jsn"],
                          ["agent", "-c", "/no/such/file"]):
            done = self.run_clrpulse(*arguments)
            self.assert_sentence(done, 2, "^clrpulse: ")


class TestPs(Case):
    def test_stopped_among_twenty(self):
        targets = [self.start() for _ in range(20)]
        targets[7].send_signal(signal.SIGSTOP)
        started = time.monotonic()
        done = self.run_clrpulse("ps", "--json")
        took = time.monotonic() - started
        self.assertEqual(done.returncode, 0, done.stderr)
        states = {p["pid"]: p["profile"] for p in json.loads(done.stdout)}
        for number, target in enumerate(targets):
            self.assertEqual(states[target.pid], "stopped" if number == 7 else "library")
        self.assertLess(took, 3)
        print(f"ps of 20 with one stopped: {took:.2f} s")

    def test_table(self):
        target = self.start()
        done = self.run_clrpulse("ps")
        self.assertRegex(done.stdout, rf"(?m)^ *{target.pid} +\S+ +10\.0\.1 .*library +/usr/bin/fake")


@unittest.skipUnless(IS_ROOT and shutil.which("setpriv"), "needs root and setpriv")
class TestPermission(Case):
    def other(self, uid):
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]

    def setUp(self):
        super().setUp()
        if not os.access(CLRPULSE, os.X_OK):
            self.skipTest("no command")
        os.chmod(self.directory, 0o777)
        # The build may lie where another user cannot go: those run copies.
        self.bin = os.path.join(self.directory, "bin")
        os.mkdir(self.bin)
        os.chmod(self.bin, 0o755)
        shutil.copy(CLRPULSE, self.bin)
        shutil.copy(FAKE, self.bin)

    def start_as(self, uid, *options):
        target = subprocess.Popen([*self.other(uid), os.path.join(self.bin, os.path.basename(FAKE)),
                                   "--tmp", self.tmp, *options], stdout=subprocess.PIPE, text=True,
                                  cwd="/",
                                  env={**os.environ, "TMPDIR": self.tmp})
        self.addCleanup(target.wait)
        self.addCleanup(target.kill)
        self.addCleanup(target.stdout.close)
        self.assertTrue(target.stdout.readline().startswith("ready"))
        return target

    def record_as(self, uid, pid):
        path = os.path.join(self.directory, f"{uid}.pb.gz")
        done = subprocess.run([*self.other(uid), os.path.join(self.bin, "clrpulse"), "record", "-p",
                               str(pid), "-d", "0.3", "-o", path], capture_output=True, text=True,
                              timeout=60, cwd=self.directory,
                              env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        return done, path

    def test_root_serves_all(self):
        target = self.start_as(OTHER_UID)
        done = self.record(target.pid, "-d", "0.3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(pprof.load(self.path).total(), 0)
        self.assert_nothing_left()

    def test_same_user(self):
        target = self.start_as(OTHER_UID)
        done, path = self.record_as(OTHER_UID, target.pid)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(pprof.load(path).total(), 0)

    def test_another_user(self):
        """Names the uid that is needed; with the socket in /tmp and without any look into the target."""
        self.tmp = "/tmp"
        target = self.start_as(OTHER_UID)
        done, _ = self.record_as(OTHER_UID + 1, target.pid)
        self.assert_sentence(done, 4, f"belongs to uid {OTHER_UID} and this is uid {OTHER_UID + 1}; "
                                      f"run clrpulse as uid {OTHER_UID} or root")

    def test_root_without_ptrace(self):
        """/proc/PID/root and environ are closed then: plain /tmp is tried."""
        self.tmp = "/tmp"
        target = self.start_as(OTHER_UID)
        done = self.record(target.pid, "-d", "0.3",
                           prefix=["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(pprof.load(self.path).total(), 0)

    def test_other_mount_namespace(self):
        """A target with its own /tmp and pid namespace gets a copy of the library, which is taken away."""
        if not shutil.which("unshare") or subprocess.run(["unshare", "-mpf", "true"]).returncode:
            self.skipTest("no namespaces here")
        elsewhere = tempfile.mkdtemp(dir="/var/tmp")
        self.addCleanup(shutil.rmtree, elsewhere)
        fake = shutil.copy(FAKE, elsewhere)
        script = ("mount -t tmpfs none /tmp && mkdir /tmp/x && exec env TMPDIR=/tmp/x "
                  f"{fake} --tmp /tmp/x")
        process = subprocess.Popen(["unshare", "-mpf", "--kill-child", "sh", "-c", script],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), "ready 1\n")
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            pid = int(file.read().split()[0])
        done = self.record(pid, "-d", "0.5")  # our library lies in the /tmp that it does not see
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(pprof.load(self.path).total(), 0)
        self.assertEqual([n for n in os.listdir(f"/proc/{pid}/root/tmp/x") if "clrpulse" in n], [])


    def test_not_dumpable(self):
        """The same user may not look into such a process, but talk to it."""
        self.tmp = "/tmp"
        target = self.start_as(OTHER_UID, "--undumpable")
        done, path = self.record_as(OTHER_UID, target.pid)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(pprof.load(path).total(), 0)

    def test_hidden_proc(self):
        if subprocess.run(["unshare", "-m", "mount", "-t", "proc", "-o", "hidepid=2", "proc",
                           "/proc"]).returncode:
            self.skipTest("no mounts here")
        target = self.start_as(OTHER_UID)
        def hidden(*arguments):
            command = " ".join([*self.other(OTHER_UID + 1), f"{self.bin}/clrpulse", *arguments])
            return subprocess.run(["unshare", "-m", "sh", "-c", "mount -t proc -o hidepid=2 proc "
                                   f"/proc && exec {command}"], capture_output=True, text=True,
                                  timeout=60, cwd=self.directory)
        self.assert_sentence(hidden("record", "-p", str(target.pid)), 4, "hidepid")
        self.assert_sentence(hidden("ps"), 0, "hidepid")


class TestAgent(Case):
    def agent(self, upload, *options, period="1s", extra=""):
        config = os.path.join(self.directory, "c.yaml")
        with open(config, "w") as file:
            file.write(f"profile: {{ period: {period} }}\ntargets: {{ include: ['command:*{self.tmp}*'] }}\n"
                       f"upload: [ {upload} ]\nspool: {{ dir: {self.directory}/spool }}\n"
                       f"state: {{ dir: {self.directory}/state }}\n{extra}")
        log = open(os.path.join(self.directory, "log"), "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([CLRPULSE, "agent", "-c", config, *options], stderr=log,
                                   env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.log = log
        return process

    def text(self):
        return harness.written(self.log)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
        self.assertEqual(code, 0, self.text())

    def directory_upload(self):
        return f"{{ kind: directory, path: '{self.directory}/out' }}"

    def profiles(self, where="out"):
        return [pprof.load(p) for p in sorted(glob.glob(f"{self.directory}/{where}/**/*.pb.gz",
                                                        recursive=True))]

    def test_windows(self):
        """Each period one profile, no gap, no overlap; the last one is a partial window."""
        target = self.start()
        process = self.agent(self.directory_upload())
        time.sleep(4.5)
        self.stop(process)
        both = sorted(self.profiles(), key=lambda p: p.time_ns)
        profiles = [p for p in both if p.sample_types == [("cpu", "nanoseconds")]]
        walls = [p.time_ns for p in both if p.sample_types == [("wall", "nanoseconds")]]
        self.assertEqual([p.time_ns for p in profiles], walls, "each window has both kinds")
        self.assertGreaterEqual(len(profiles), 4, self.text())
        for one, other in zip(profiles, profiles[1:]):
            self.assertLess(abs(one.time_ns + one.duration_ns - other.time_ns), 20e6)
        for profile in profiles[:-1]:
            self.assertAlmostEqual(profile.duration_ns / 1e9, 1, delta=0.4)
            self.assertGreater(profile.total(), 20e6)
        self.assertIn("service=Fake", profiles[0].comments)
        self.assertEqual(target.poll(), None)

    def test_detach_on_exit(self):
        for options, want in ((["--detach-on-exit"], "detach\n"), ([], "")):
            target = self.start()
            process = self.agent(self.directory_upload(), *options)
            time.sleep(2)
            self.stop(process)
            time.sleep(0.2)
            target.terminate()
            self.assertEqual(target.stdout.read(), want)

    def test_comes_and_goes(self):
        first = self.start("--exit-after", "1500")
        process = self.agent(self.directory_upload(), period="60s")
        time.sleep(1.5)
        late = self.start()
        time.sleep(3.5)
        names = os.listdir(f"{self.directory}/out")
        self.assertTrue(any(f"-{first.pid}-" in n for n in names), "the last window of one that ended")
        self.stop(process)
        names = os.listdir(f"{self.directory}/out")
        self.assertTrue(any(f"-{late.pid}-" in n for n in names), "the partial window of a late one")
        self.assertRegex(self.text(), f"process {first.pid} .*has ended")

    def test_intake_down(self):
        """Nothing is lost when the intake is down: what is left goes to the spool at the end."""
        self.start()
        process = self.agent("{ kind: http, url: 'http://127.0.0.1:9/in' }")
        time.sleep(3)
        self.stop(process)
        self.assertGreaterEqual(len(glob.glob(f"{self.directory}/spool/*.chunk")), 2, self.text())
        process = self.agent(self.directory_upload())
        time.sleep(1)
        self.stop(process)
        self.assertEqual(glob.glob(f"{self.directory}/spool/*.chunk"), [], "the next start goes on")
        self.assertGreaterEqual(len(self.profiles()), 2, self.text())

    def test_hostile_and_good(self):
        """One target that writes nonsense does not cost the others theirs."""
        self.start("--garbage")
        good = self.start()
        process = self.agent(self.directory_upload())
        time.sleep(3.5)
        self.stop(process)
        self.assertIn("nonsense", self.text())
        names = os.listdir(f"{self.directory}/out")
        self.assertGreaterEqual(sum(f"-{good.pid}-" in n for n in names), 2, self.text())

    def test_exclude(self):
        self.start()
        process = self.agent(self.directory_upload(), extra="log: { level: debug, format: json }\n")
        process.kill()
        process.wait()
        with open(f"{self.directory}/c.yaml") as file:
            text = file.read().replace("targets: {", "targets: { exclude: ['Fa*'],")
        with open(f"{self.directory}/c.yaml", "w") as file:
            file.write(text)
        process = subprocess.Popen([CLRPULSE, "agent", "-c", f"{self.directory}/c.yaml"],
                                   stderr=self.log, env={**os.environ,
                                                         "CLRPULSE_LIBRARY": self.library})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        time.sleep(2)
        self.stop(process)
        self.assertEqual(self.profiles(), [])

    def test_bad_configuration(self):
        config = os.path.join(self.directory, "bad.yaml")
        with open(config, "w") as file:
            file.write("profile:\n  perod: 1s\n")
        done = self.run_clrpulse("agent", "-c", config)
        self.assert_sentence(done, 2, r"bad\.yaml:2: profile\.perod is no setting; did you mean "
                                      r"profile\.period\?")

    def test_directory_that_cannot_be(self):
        process = self.agent("{ kind: directory, path: /proc/no/such }")
        self.assertEqual(process.wait(10), 1)
        self.assertRegex(self.text(), "clrpulse: cannot make the directory /proc/no/such")

    def test_cost(self):
        """Little CPU, at most 30 MB, with 8 targets that send 100 samples a second each."""
        for _ in range(8):
            self.start()
        process = self.agent(self.directory_upload(), period="5s")
        time.sleep(3)
        before, start = cpu_seconds(process.pid), time.monotonic()
        time.sleep(8)
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - start)
        rss = rss_mb(process.pid)
        self.stop(process)
        print(f"agent with 8 targets: {share * 100:.2f} % of a core, {rss:.1f} MB")
        if not os.environ.get("CLP_SANITIZED"):
            self.assertLess(rss, 30)
            self.assertLess(share, 0.03, "8 targets on a busy machine; about 0.4 % when it is quiet")


def cpu_seconds(pid):
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


if __name__ == "__main__":
    unittest.main(verbosity=2)
