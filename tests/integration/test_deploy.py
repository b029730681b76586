#!/usr/bin/env python3
"""The agent among those who start it and watch it: probes, metrics, a service manager; against a stand-in for its
targets (tests/tools/fake-library.c), so that no .NET is needed."""

import http.client
import os
import re
import signal
import socket
import unittest

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
            match = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line)
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
        heard = []
        while not any(line.startswith(wanted) for line in heard):
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
            self.hear(manager, "STATUS=1 of 1 .NET processes")
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
