#!/usr/bin/env python3
"""The agent among those who start it and watch it: probes, metrics, a service manager; against a stand-in for its
targets (tests/tools/fake-library.c), so that no .NET is needed."""

import http.client
import os
import re
import signal
import shutil
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import unittest

import test_session
from test_daemon import DaemonCase

LISTEN = "health: { listen: '127.0.0.1:0' }\n"


def parse_metrics(text):
    """{(name, labels): value} of Prometheus' text format; each name has one TYPE before its first value."""
    found, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in types:
                raise ValueError(f"{name} comes twice")
            types[name] = kind
        elif not line.startswith("#"):
            match = re.fullmatch(r"([a-z_][a-z0-9_]*)(?:\{(.*)\})? (\S+)", line)
            if not match or match[1] not in types:
                raise ValueError(f"no metric: {line!r}")
            if (types[match[1]] == "counter") != match[1].endswith("_total"):
                raise ValueError(f"{match[1]} is a {types[match[1]]}")
            labels = frozenset(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            found[match[1], labels] = float(match[3])
    return found


class TestHealth(DaemonCase):
    def get(self, path, method="GET"):
        port = int(re.search(r"answer on \S+ \(port (\d+)\)", self.text())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path)
        reply = connection.getresponse()
        body = reply.read().decode()
        connection.close()
        return reply.status, body

    def test_the_numbers_of_status(self):
        target = self.start()
        agent = self.agent(extra=LISTEN)
        self.wait_for(lambda: (self.member(target.pid) or {}).get("windows", 0) >= 1, "a window")
        self.assertEqual(self.get("/healthz"), (200, "ok\n"))
        before = self.member(target.pid)
        code, text = self.get("/metrics")
        after = self.member(target.pid)
        self.assertEqual(code, 200)
        metrics = parse_metrics(text)
        labels = frozenset([("pid", str(target.pid)), ("service", before["service"])])
        compared = 0
        for name, key in [("target_windows_total", "windows"), ("target_samples_total", "samples"),
                          ("target_bytes_total", "bytes"), ("target_next_seq", "next_seq")]:
            self.assertTrue(before[key] <= metrics[f"clrpulse_{name}", labels] <= after[key], key)
        for key, value in before["counters"].items():
            name = "clrpulse_library_" + key.removeprefix("library_")
            found = [v for (n, l), v in metrics.items() if l == labels and
                     n.removesuffix("_total").removesuffix("_seconds") == name]
            self.assertEqual(len(found), 1, key)
            scale = 1e9 if any(n in (f"{name}_seconds", f"{name}_seconds_total") for n, _ in metrics) else 1
            low, high = sorted([value, after["counters"][key]])
            self.assertTrue(low <= found[0] * scale + 1 and found[0] * scale <= high + 1, (key, found))
            compared += 1
        self.assertGreater(compared, 20)
        self.assertEqual(metrics["clrpulse_targets", frozenset([("state", "profiling")])], 1)
        self.stop(agent)

    def test_unwell_while_it_stops(self):
        """Probes are answered up to the end, and told that it comes: a stopped target holds the end up."""
        target = self.start()
        agent = self.agent(extra=LISTEN)
        self.wait_for(lambda: self.state(target.pid) == "profiling", "profiling")
        target.send_signal(signal.SIGSTOP)
        agent.send_signal(signal.SIGTERM)
        self.wait_for(lambda: self.get("/healthz") == (503, "stopping\n"), "the probe is told")
        target.send_signal(signal.SIGCONT)
        self.assertEqual(agent.wait(20), 0)

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            config = self.config(extra=f"health: {{ listen: {port} }}\n")
            done = self.run_clrpulse("agent", "-c", config)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"cannot listen on {port}: Address already in use; set health.listen", done.stderr)
        done = self.run_clrpulse("agent", "-c", self.config(extra="health: { listen: 'everywhere:80' }\n"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("such as 9464 or 0.0.0.0:9464, not 'everywhere:80'", done.stderr)


class TestManager(DaemonCase):
    """The protocol of sd_notify(3), with ourselves as the service manager."""

    def hear(self, manager, wanted):
        manager.settimeout(20)
        heard, end = [], time.monotonic() + 30
        while not any(line.startswith(wanted) for line in heard):
            self.assertLess(time.monotonic(), end, (wanted, heard))
            heard += manager.recv(4096).decode().split("\n")
        return heard

    def test_life(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            path = os.path.join(self.directory, "notify")
            manager.bind(path)
            agent = self.agent(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"})
            self.hear(manager, "READY=1")
            for _ in range(3):
                self.hear(manager, "WATCHDOG=1")
            self.start()
            self.hear(manager, "STATUS=1 of ")
            agent.send_signal(signal.SIGHUP)
            heard = self.hear(manager, "RELOADING=1")
            self.assertTrue(any(line.startswith("MONOTONIC_USEC=") for line in heard), heard)
            self.hear(manager, "READY=1")
            agent.send_signal(signal.SIGTERM)
            self.hear(manager, "STOPPING=1")
            self.assertEqual(agent.wait(20), 0)

    def test_not_ready_before_it_works(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            path = os.path.join(self.directory, "notify")
            manager.bind(path)
            first = self.agent()
            done = self.run_clrpulse("agent", "-c", f"{self.directory}/c.yaml",
                                     prefix=["env", f"NOTIFY_SOCKET={path}"])
            self.assertEqual(done.returncode, 1)
            self.assertIn("another agent runs", done.stderr)
            manager.settimeout(0)
            self.assertRaises(BlockingIOError, manager.recv, 100)
            self.stop(first)


class Group:
    """A control group with 0.2 cores and 64 MiB, of whichever version there is."""

    def __init__(self, test):
        name = f"clp-deploy-{os.getpid()}"
        root = "/sys/fs/cgroup"
        self.directories = []
        try:
            with open(f"{root}/cgroup.controllers") as file:
                two = {"cpu", "memory"} <= set(file.read().split())
        except OSError:
            two = False
        try:
            if two:
                self.make(f"{root}/{name}", {"cpu.max": "20000 100000", "memory.max": str(64 << 20)})
            else:
                self.make(f"{root}/cpu/{name}", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"})
                self.make(f"{root}/memory/{name}", {"memory.limit_in_bytes": str(64 << 20)})
        except OSError as error:
            self.remove()
            test.skipTest(f"no control group can be made here: {error}")

    def make(self, directory, values):
        os.mkdir(directory)
        self.directories.append(directory)
        for name, value in values.items():
            with open(f"{directory}/{name}", "w") as file:
                file.write(value)

    def join(self):
        """For the child of a fork."""
        for directory in self.directories:
            with open(f"{directory}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def remove(self):
        for directory in self.directories:
            end = time.monotonic() + 10
            while True:  # the kernel is still at the end of the processes
                try:
                    os.rmdir(directory)
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)


class TestSmallPlaces(DaemonCase):
    def test_a_fifth_of_a_core(self):
        group = Group(self)
        self.addCleanup(group.remove)
        small = self.start(preexec_fn=group.join)
        large = self.start()
        config = self.config()
        self.log = open(os.path.join(self.directory, "log"), "a+")
        self.addCleanup(self.log.close)
        agent = subprocess.Popen([test_session.CLRPULSE, "agent", "-c", config], stderr=self.log,
                                 preexec_fn=group.join, env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        self.wait_for(lambda: len({w.pid for w in self.windows()}) == 2, "a profile of each", 60)
        self.assertRegex(self.text(), r"allows the agent 0\.20 cores: it looks for processes more rarely")
        self.assertRegex(self.text(), r"allows the agent 64 MiB of memory: it keeps smaller tables")
        self.assertRegex(self.member(small.pid)["reason"], r"allows 0\.20 cores: waiting threads")
        self.assertEqual(self.member(large.pid)["reason"], "")
        status = self.status()
        self.assertEqual((status["cpu_limit_millicores"], status["memory_limit_bytes"]), (200, 64 << 20))
        self.assertLess(status["resident_bytes"], 64 << 20)
        for process in (small, agent):
            process.kill()
            process.wait()


    @unittest.skipIf(os.geteuid(), "mounts need root")
    def test_version_two(self):
        """As a container on such a machine sees it: its own group is the root of the one hierarchy."""
        config = self.config()
        self.log = open(os.path.join(self.directory, "log"), "a+")
        self.addCleanup(self.log.close)
        agent = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && "
             "echo 20000 100000 >cpu.max && echo 67108864 >memory.max && exec \"$@\"", "sh",
             test_session.CLRPULSE, "agent", "-c", config],
            stderr=self.log, env={**os.environ, "CLRPULSE_LIBRARY": self.library})
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        self.wait_for(self.answers, "the agent answers")
        status = self.status()
        self.assertEqual((status["cpu_limit_millicores"], status["memory_limit_bytes"]), (200, 64 << 20))
        self.assertRegex(self.text(), r"allows the agent 0\.20 cores")
        self.stop(agent)


HOSTILE = """
import os, sys, threading, time
def named():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(".NET Finalizer")
    ready.set()
    time.sleep(600)
ready = threading.Event()
threading.Thread(target=named, daemon=True).start()
ready.wait()
with open("/proc/self/stat") as stat:
    ticks = stat.read().rsplit(")", 1)[1].split()[19]
print(f"dotnet-diagnostic-{os.getpid()}-{ticks}-socket", flush=True)
time.sleep(600)
"""


class TestHostile(DaemonCase):
    """A target that wants to mislead: whatever it arranges, nothing is written outside of what is ours, and nothing
    waits for it."""

    def plant(self, tmp, prefix=(), **env):
        """A process that looks like .NET, and the name that its diagnostics socket would have."""
        process = subprocess.Popen([*prefix, sys.executable, "-c", HOSTILE], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "TMPDIR": tmp, **env})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process, os.path.join(tmp, process.stdout.readline().strip())

    def assert_told(self, process, pattern, record=False):
        """The command comes back with a sentence; the limit is only for a hang. `record`: also that one, which first
        waits for a program that may have just started."""
        commands = [["check", "-p", str(process.pid)]]
        if record:
            commands.append(["record", "-p", str(process.pid), "-d", "1", "-o", f"{self.directory}/p.pb.gz"])
        codes = set()
        for command in commands:
            done = self.run_clrpulse(*command, seconds=60)
            self.assertIn(done.returncode, (1, 3, 4, 5), done.stderr)
            self.assertRegex(done.stdout + done.stderr, pattern)
            codes.add(done.returncode)
        self.assertEqual(len(codes), 1, "both commands end alike")

    def test_a_fifo_in_place_of_the_socket(self):
        process, socket_path = self.plant(self.tmp)
        os.mkfifo(socket_path)
        self.assert_told(process, "without a diagnostics port", record=True)

    def test_a_file_and_a_directory_in_place_of_the_socket(self):
        for make in (os.mkdir, lambda path: open(path, "w").close()):
            process, socket_path = self.plant(self.tmp)
            make(socket_path)
            self.assert_told(process, "without a diagnostics port")

    def test_a_symlink_in_place_of_the_socket(self):
        """To the socket of another process, which must not be attached to in its place."""
        victim = self.start()
        process, socket_path = self.plant(self.tmp)
        name = next(n for n in os.listdir(self.tmp) if n.startswith(f"dotnet-diagnostic-{victim.pid}-"))
        os.symlink(os.path.join(self.tmp, name), socket_path)
        self.assert_told(process, "without a diagnostics port")

    def test_a_socket_of_another_process(self):
        """A hard link to it: the answer tells another process."""
        victim = self.start()
        process, socket_path = self.plant(self.tmp)
        name = next(n for n in os.listdir(self.tmp) if n.startswith(f"dotnet-diagnostic-{victim.pid}-"))
        os.link(os.path.join(self.tmp, name), socket_path)
        self.assert_told(process, "answers as something else", record=True)

    def test_a_temp_directory_that_is_a_symlink(self):
        link = os.path.join(self.directory, "link")
        os.symlink(self.tmp, link)
        process, socket_path = self.plant(link)
        with socket.socket(socket.AF_UNIX) as port:
            port.bind(socket_path)
            port.listen()
            self.assert_told(process, "symbolic link")

    def test_a_listener_that_says_nothing(self):
        process, socket_path = self.plant(self.tmp)
        with socket.socket(socket.AF_UNIX) as port:
            port.bind(socket_path)
            port.listen(100)
            self.assert_told(process, "does not answer", record=True)

    def test_a_hook_that_is_never_answered(self):
        """It takes the start-up hook, says nothing more and ends the session, again and again: the agent's other
        targets do not wait for that."""
        hook = os.path.join(os.path.dirname(test_session.CLRPULSE), "Clrpulse.Spans.dll")
        if not os.path.exists(hook):
            self.skipTest("this build has no start-up hook")
        shutil.copy(hook, self.directory)
        mute = self.start("--mute-hook", "--leave-after", "200")
        other = self.start()
        agent = self.agent()
        self.wait_for(lambda: sum(line == "hook\n" for line in self.lines(mute)) >= 2, "two hooks were sent")
        self.stop(agent)
        windows = [w for w in self.windows() if w.pid == other.pid]
        self.assertGreaterEqual(len(windows), 2)
        for window in windows:
            self.assertLess(window.duration, 5)

    def lines(self, process):
        """All that it has printed up to now."""
        os.set_blocking(process.stdout.fileno(), False)
        self.printed = getattr(self, "printed", []) + list(process.stdout)
        return self.printed

    def test_ten_thousand_sockets(self):
        """Of processes that are not there, beside that of one that is: none of them is asked."""
        for i in range(10000):
            os.mknod(f"{self.tmp}/dotnet-diagnostic-{i + 1}-{i}-socket", stat.S_IFSOCK | 0o600)
        target = self.start()
        done = self.record(target.pid, "-d", "0.3", "-o", f"{self.directory}/p.pb.gz")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len([n for n in os.listdir(self.tmp) if n.endswith("-socket")]), 10001)

    def test_an_answer_byte_by_byte(self):
        """For longer than anybody waits."""
        process, socket_path = self.plant(self.tmp)
        reply = b"DOTNET_IPC_V1\0" + struct.pack("<HBBH", 2000, 0xff, 0, 0) + bytes(1980)
        with socket.socket(socket.AF_UNIX) as port:
            port.bind(socket_path)
            port.listen(100)
            stop = threading.Event()
            serving = [threading.Thread(target=self.drip, args=(port, reply, stop)) for _ in range(8)]
            for thread in serving:
                thread.start()
            try:
                self.assert_told(process, "does not answer", record=True)
            finally:
                stop.set()
                port.shutdown(socket.SHUT_RDWR)
                for thread in serving:
                    thread.join()

    def drip(self, port, reply, stop):
        while not stop.is_set():
            try:
                visitor = port.accept()[0]
            except OSError:
                return
            with visitor:
                for byte in reply:
                    try:
                        visitor.send(bytes([byte]))
                    except OSError:
                        break
                    if stop.wait(0.02):
                        return

    def test_huge_names(self):
        agent = self.agent()
        process, socket_path = self.plant(self.tmp, DD_SERVICE="x" * 100000, DD_TAGS="k:" + "v" * 100000)
        target = subprocess.Popen([test_session.FAKE, "--tmp", self.tmp], stdout=subprocess.PIPE, text=True, env={
            **os.environ, "TMPDIR": self.tmp, "DD_SERVICE": "\x1b[2J" + "s" * 100000,
            "DD_TAGS": ",".join(f"{'k' * 900}{i}:{'v' * 900}" for i in range(60))})
        self.addCleanup(target.stdout.close)
        self.addCleanup(target.wait)
        self.addCleanup(target.kill)
        self.wait_for(lambda: self.state(target.pid) == "profiling", "profiling")
        self.wait_for(lambda: self.windows(), "a window")
        for name in os.listdir(f"{self.directory}/out"):
            self.assertLess(len(name), 200)
            self.assertNotIn("\x1b", name)
        self.assertIsNone(process.poll())
        self.stop(agent)

    @unittest.skipIf(os.geteuid(), "a target of another user needs root")
    def test_directories_that_are_swapped(self):
        """The target replaces what is made for the attach by links to a directory of ours, as fast as it can."""
        victim = os.path.join(self.directory, "victim")
        os.mkdir(victim)
        for name in ("s", "libclrpulse.so", "Clrpulse.Spans.dll"):
            with open(os.path.join(victim, name), "w") as file:
                file.write(name)
        before = self.snapshot(victim)
        os.chown(self.tmp, test_session.OTHER_UID, test_session.OTHER_UID)
        os.chmod(self.library, 0o600)  # not for the target: it is copied
        target = self.start("--no-connect", prefix=["setpriv", "--reuid", str(test_session.OTHER_UID),
                                                    "--regid", str(test_session.OTHER_UID), "--clear-groups"])
        stop, swapped = threading.Event(), []

        def swap():
            while not stop.is_set():
                for name in os.listdir(self.tmp):
                    path = os.path.join(self.tmp, name)
                    if name.startswith("clrpulse-") and not os.path.islink(path) and not name.endswith(".moved"):
                        try:
                            os.rename(path, path + ".moved")
                            os.symlink(victim, path)
                            swapped.append(name)
                        except OSError:
                            pass
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            for _ in range(4):
                recorder = subprocess.Popen([test_session.CLRPULSE, "record", "-p", str(target.pid), "-d", "1",
                                             "-o", f"{self.directory}/p.pb.gz"], stderr=subprocess.PIPE,
                                            env={**os.environ, "CLRPULSE_LIBRARY": self.library})
                count = len(swapped)
                self.wait_for(lambda: len(swapped) > count or recorder.poll() is not None, "something to swap")
                recorder.send_signal(signal.SIGINT)
                self.assertGreaterEqual(recorder.wait(60), 0, "killed by a signal")
                recorder.stderr.close()
        finally:
            stop.set()
            thread.join()
        self.assertGreater(len(swapped), 0)
        self.assertEqual(self.snapshot(victim), before)

    def snapshot(self, directory):
        return sorted((name, os.lstat(os.path.join(directory, name)).st_ino, os.lstat(
            os.path.join(directory, name)).st_mtime_ns) for name in [".", *os.listdir(directory)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
