#!/usr/bin/env python3
"""Targets and agents that live in different places: namespaces, users, mounts, seccomp filters. Each either works, or
the command says in a sentence why not. What a container engine would set up is set up here by unshare and mount, which
needs root."""

import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import uuid

import harness
import pprof
from test_agent import Agent

AS_USER = ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups"]
CONFINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "confine.py")
# The test programs lie where another user cannot read them: they are shown under /mnt. The agent's own library must be
# out of the target's sight, wherever it was built: what the target can load as it is, is not copied.
SHOW = """set -e
mount --make-rprivate /
mount -t tmpfs -o ro,noexec none "$HIDDEN"
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/app /mnt/data; chmod 1777 /mnt/data
mount --bind "$APP" /mnt/app
%s
exec "$@"
"""
NOEXEC = "for d in /tmp /var/tmp /dev/shm /run /run/lock /run/user; do [ ! -d $d ] || mount -t tmpfs -o noexec none $d; done"


@unittest.skipIf(os.geteuid(), "namespaces, mounts and other users need root")
class PlaceCase(harness.Case):
    def setUp(self):
        super().setUp()
        self.of_others = {os.path.basename(path) for path in glob.glob("/tmp/clrpulse-*")}

    def place(self, setup, *command, unshare="-m", tmp="/tmp"):
        """A target in mounts of its own, after `setup`; `command` starts it as somebody else."""
        app = os.path.join(harness.environment("CLP_TARGETS"), harness.framework())
        hidden = os.path.dirname(os.path.realpath(harness.environment("CLRPULSE_LIBRARY")))
        self.marker = f"clp-{uuid.uuid4().hex}"
        target = self.target("spin", "--threads", "1", "--marker", self.marker, prefix=["unshare", *unshare.split(), "--", "sh", "-c",
                                                               SHOW % setup, "sh", *command],
                             program="/mnt/app/ClpTarget", env={"APP": app, "HIDDEN": hidden, "TMPDIR": tmp})
        target.begin()
        return target

    def run_clrpulse(self, *arguments, prefix=()):
        return subprocess.run([*prefix, harness.environment("CLP_CLRPULSE"), *arguments], capture_output=True,
                              text=True, timeout=120)

    def record(self, target, *options, prefix=()):
        directory = tempfile.mkdtemp(prefix="clp-place-")
        os.chmod(directory, 0o777)
        self.addCleanup(shutil.rmtree, directory)
        self.path = os.path.join(directory, "p.pb.gz")
        return self.run_clrpulse("record", "-p", str(target.pid), "-d", "1", "-o", self.path, *options,
                                 prefix=prefix)

    def assert_profile(self, done, library=True):
        """The names of the work, which is most of what the process does; the other engine needs a second
        before it knows them."""
        self.assertEqual(done.returncode, 0, done.stderr)
        profile = pprof.load(self.path)
        burn = profile.total(where=lambda s: harness.contains(s.stack, "ClpTarget.Work.Burn"))
        self.assertGreater(burn, (0.5 if library else 0.05) * profile.total(), profile.top())
        if library:
            self.assertEqual(done.stderr, "")

    def assert_nothing_left(self, target):
        self.assertTrue(target.alive(), target.describe_end() if not target.alive() else "")
        root = f"/proc/{target.pid}/root"
        left = [path for place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/mnt/data", target.directory)
                for path in glob.glob(f"{root}{place}/clrpulse-*") if os.path.isdir(path)
                and os.path.basename(path) not in self.of_others and (os.listdir(path) or os.stat(path).st_uid == 1234)]
        self.assertEqual(left, [])

    def check(self, target):
        return self.run_clrpulse("check", "-p", str(target.pid)).stdout


class TestNamespaces(PlaceCase):
    def test_container(self):
        """pid, mount, network, UTS and IPC namespaces, a private /tmp, another user."""
        target = self.place("mount -t tmpfs none /tmp", *AS_USER, unshare="-p -f --mount-proc -m -n -u -i")
        self.assert_profile(self.record(target))
        self.assert_nothing_left(target)
        said = self.check(target)
        self.assertRegex(said, "note .*is copied into its /tmp for the attach")
        self.assertRegex(said, "note .* 1 in its own pid namespace")
        self.assertRegex(said, "(?m)^ok ")

    def test_user_namespace(self):
        target = self.place("mount -t tmpfs none /tmp", *AS_USER, "unshare", "-U", "-r")
        self.assert_profile(self.record(target))
        self.assert_nothing_left(target)

    def test_agent_in_other_mounts(self):
        """The agent's own files are nowhere in the target, as in a sidecar's image."""
        target = self.place("mount -t tmpfs none /tmp", *AS_USER)
        files = [os.path.realpath(f"{os.path.dirname(harness.environment('CLP_CLRPULSE'))}/{name}")
                 for name in ("clrpulse", "libclrpulse.so")]
        done = self.record(target, prefix=[
            "env", "-u", "CLRPULSE_LIBRARY", "unshare", "-m", "sh", "-c",
            f"mount -t tmpfs none /mnt && cp {' '.join(files)} /mnt && shift && exec /mnt/clrpulse \"$@\"", "sh"])
        self.assert_profile(done, library=False)
        self.assert_nothing_left(target)

    def test_chroot(self):
        """A second attach finds the first one's library, whose path the kernel writes from outside the chroot."""
        target = self.place("mkdir /mnt/root; mount --rbind / /mnt/root; mount -t tmpfs none /mnt/root/tmp",
                            "chroot", "/mnt/root")
        for _ in range(2):
            self.assert_profile(self.record(target))
        self.assert_nothing_left(target)

    def test_another_user(self):
        """Neither root nor the target's user."""
        target = self.place("mount -t tmpfs none /tmp", *AS_USER)
        done = self.record(target, prefix=["setpriv", "--reuid", "4321", "--clear-groups"])
        if done.returncode == 126:
            self.skipTest("the other user cannot run the command from here")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, "uid 1234")


class TestMounts(PlaceCase):
    def test_read_only_root(self):
        target = self.place("mount -t tmpfs none /tmp; mount -o remount,bind,ro /", *AS_USER)
        self.assert_profile(self.record(target))
        self.assert_nothing_left(target)

    def test_left_overs_of_killed_agents(self):
        """What this process cannot come to read any more is taken away, nothing else."""
        target = self.place("mount -t tmpfs none /tmp", *AS_USER)
        tmp = f"/proc/{target.pid}/root/tmp"
        with open(f"/proc/{target.pid}/stat") as file:
            ticks = int(file.read().rsplit(")", 1)[1].split()[19])
        gone = f"{tmp}/clrpulse-spans-{target.pid}-{ticks:x}-0123456789abcdef"
        kept = [f"{tmp}/clrpulse-spans-{target.pid}-{ticks:x}-{name}" for name in ("young", "of-root")]
        kept.append(f"{tmp}/clrpulse-spans-{target.pid}-{ticks + 1:x}-0123456789abcdef")
        for path in [gone, *kept]:
            os.mkdir(path, 0o700)
            with open(f"{path}/Clrpulse.Spans.dll", "w"):
                pass
            os.chown(path, 1234, 1234)
            os.utime(path, (1000, 1000))
        os.utime(kept[0])
        os.chown(kept[1], 0, 0)
        self.assert_profile(self.record(target))
        self.assertFalse(os.path.exists(gone))
        self.assertEqual([path for path in kept if not os.path.exists(path)], [])

    def test_read_only_without_a_temp_directory(self):
        """The runtime itself can make no port there."""
        target = self.place("mount -o remount,bind,ro /", *AS_USER)
        done = self.record(target)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, "without a diagnostics port in /tmp.*TMPDIR that it may write")

    def test_noexec_and_another_place(self):
        target = self.place(NOEXEC + "; mount -t tmpfs -o mode=1777 none /mnt/data; mount -o remount,bind,ro /",
                            *AS_USER)
        self.assertRegex(self.check(target), "note .*/tmp .*mounted noexec; .* copied into /mnt(/data)? there")
        self.assert_profile(self.record(target))
        self.assert_nothing_left(target)

    def test_noexec_everywhere(self):
        target = self.place(NOEXEC + "; mount -t tmpfs -o noexec none /mnt/data; mount -o remount,bind,ro /;"
                            "mount -o remount,mode=755 none /mnt", *AS_USER)
        self.assertRegex(self.check(target), "warning .*cannot be put where .*tmpfs without noexec")
        done = self.record(target)
        self.assertRegex(done.stderr, "cannot execute the library: /tmp .*taking the engine eventpipe")
        self.assert_profile(done, library=False)
        self.assert_nothing_left(target)
        done = self.record(target, "--engine", "library")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assert_agent_falls_back(target)
        self.assert_nothing_left(target)

    def assert_agent_falls_back(self, target):
        """The agent takes the other engine as well, and its status says why."""
        agent = Agent(self, "{{ kind: directory, path: '{dir}/profiles' }}", self.marker, period=2)
        told = r"(?m)^ *%d profiling .*\n +engine eventpipe: .*cannot execute the library: /tmp " % target.pid
        harness.wait_for(lambda: re.search(told, self.run_clrpulse("status", "-c", agent.config).stdout), 30,
                         "the agent profiles it by its events")
        harness.wait_for(agent.written, 30, "a profile")
        self.assertEqual(agent.stop(), 0, agent.text())

    def test_full_temp_directory(self):
        target = self.place("mount -t tmpfs -o size=64k none /tmp; mount -t tmpfs -o mode=1777 none /mnt/data",
                            *AS_USER)
        self.assert_profile(self.record(target, "--no-startup-hook"))
        self.assert_nothing_left(target)


class TestFilters(PlaceCase):
    def confined(self, action, calls):
        target = self.target("spin", "--threads", "1", prefix=[CONFINE, action, calls])
        target.begin()
        return target

    def test_without_timers(self):
        """CPU time is all there, without stacks, and the reason is told."""
        target = self.confined("EPERM", "timer_create")
        done = self.record(target)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "its seccomp filter refuses timers on CPU clocks")
        self.assertNotIn("RLIMIT", done.stderr)
        profile = pprof.load(self.path)
        self.assertGreater(profile.total(where=lambda s: s.stack == ["[no timer left]"]),
                           0.5 * profile.total(), profile.top())
        self.assert_nothing_left(target)

    def test_calls_that_kill(self):
        target = self.confined("kill", "process_vm_readv,close_range,rt_tgsigqueueinfo")
        done = self.record(target)
        self.assertRegex(done.stderr, "refuses process_vm_readv: reading memory takes longer")
        self.assert_profile(done, library=False)
        self.assert_nothing_left(target)
        self.assertRegex(self.check(target), "note .*runs under a seccomp filter")


if __name__ == "__main__":
    harness.main()
