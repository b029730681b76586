"""What the integration tests share: start a mode of the test program, record it, read the profile.

Paths come from the environment that CMake sets: CLP_CLRPULSE (the command), CLP_LIBRARY
(libclrpulse.so), CLP_TARGETS (folder of the published test programs), CLP_FRAMEWORK (net10.0...),
CLP_PEER (the second profiler).  Everything a test starts lies in its own temporary folder and is
ended before the test ends."""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import pprof

TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 60
COMMAND_SECONDS = 120
DOTNET_TRACE_VERSIONS = ("10.0.745401", "9.0.661903")


def environment(name):
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set: run this through ctest, or set it")
    return value


def framework():
    return os.environ.get("CLP_FRAMEWORK", "net10.0")


def full():
    """Whether tests run at their whole length, as `./dev matrix` has them, or shortened so that
    all of them are done in a quarter of an hour."""
    return os.environ.get("CLP_FULL") == "1"


def seconds(whole):
    """The length of a measurement: `whole` on the newest runtime of a full run, else two fifths."""
    return whole if full() and framework() == "net10.0" else max(4, whole * 2 // 5)


def written(file):
    """What a program has written so far to `file`, which is its stdout or stderr. They share one position: a read
    from it could find nothing, or move where the program writes next."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def cpu_ns(pid):
    """utime+stime of a process, all threads, children not counted."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        rest = file.read().rsplit(b")", 1)[1].split()
    return (int(rest[11]) + int(rest[12])) * 1_000_000_000 // TICKS


def timers(pid):
    """POSIX timers of a process."""
    with open(f"/proc/{pid}/timers") as file:
        return sum(line.startswith("ID:") for line in file)


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def dotnet_trace():
    """The runtime's own tool, installed into the cache; None when it cannot be had."""
    folder = os.path.join(os.path.dirname(environment("CLP_TARGETS")), "tools")
    program = os.path.join(folder, "dotnet-trace")
    for version in DOTNET_TRACE_VERSIONS:
        if os.path.exists(program) or not shutil.which("dotnet"):
            break
        subprocess.run(["dotnet", "tool", "install", "dotnet-trace", "--version", version,
                        "--tool-path", folder], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return program if os.path.exists(program) else None


class Target:
    """A running test program."""

    def __init__(self, test, mode, *options, env=None, duration=None, tfm=None, kind="",
                 name="ClpTarget", prefix=(), program=None):
        """`kind`: a publish of tools/publish-targets beside the plain one: "web", "single"...
        `prefix` starts the program somewhere else (unshare...), which then finds it as `program`."""
        self.directory = tempfile.mkdtemp(prefix="clp-target-")
        test.addCleanup(self.close)
        publish = (kind + "-" if kind else "") + (tfm or framework())
        program = program or os.path.join(environment("CLP_TARGETS"), publish, name)
        if not prefix and not os.path.exists(program):
            raise RuntimeError(f"{program} is missing: run tools/publish-targets {publish}")
        command = [*prefix, program, mode, *map(str, options)]
        if duration:
            command += ["--duration", str(duration)]
        full = {k: v for k, v in os.environ.items() if not k.startswith(("DOTNET_", "CORECLR_"))}
        full.update({"TMPDIR": self.directory}, **(env or {}))
        beside = os.path.join(os.path.dirname(program), "musl")  # tools/publish-musl
        if os.path.isdir(beside):
            full["LD_LIBRARY_PATH"] = beside
        self.errors = open(os.path.join(self.directory, "stderr"), "w+b")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=full, cwd=self.directory)
        self.pid = self.process.pid
        self._buffer = b""
        self.ready = self._expect("ready", READY_SECONDS)
        while prefix and (child := self._only_child()):  # of `unshare --fork`
            self.pid = child

    def _only_child(self):
        with open(f"/proc/{self.pid}/comm") as comm, open(f"/proc/{self.pid}/task/{self.pid}/children") as children:
            return int(children.read().split()[0]) if comm.read() != "ClpTarget\n" else None

    def _line(self, seconds):
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"the target printed nothing for {seconds} s")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise RuntimeError(f"the target died: {self.describe_end()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def _expect(self, key, seconds):
        got = self._line(seconds)
        if key not in got:
            raise RuntimeError(f"expected {key!r} from the target, got {got}")
        return got[key] if key in ("truth", "state") else got

    def _send(self, command):
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"the target died: {self.describe_end()}") from None

    def begin(self):
        self._send("begin")
        return self._expect("begun", COMMAND_SECONDS)

    def end(self, seconds=COMMAND_SECONDS):
        self._send("end")
        truth = self._expect("truth", seconds)
        for worker in truth.get("threads", []):
            if "failure" in worker:
                raise RuntimeError(f"thread {worker['name']} failed: {worker['failure']}")
        return truth

    def truth(self, seconds):
        """The truth of a target with a duration."""
        self._expect("begun", COMMAND_SECONDS)
        return self._expect("truth", seconds)

    def state(self):
        self._send("state")
        return self._expect("state", COMMAND_SECONDS)

    def quit(self, code=0, seconds=COMMAND_SECONDS):
        self._send(f"quit {code}")
        return self.process.wait(seconds)

    def alive(self):
        return self.process.poll() is None

    def describe_end(self):
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            code = "still running"
        return f"exit code {code}, stderr: {written(self.errors)[-4000:]}"

    def library_path(self):
        """Where the library was loaded from, or None."""
        with open(f"/proc/{self.pid}/maps") as file:
            return next((line.split()[-1] for line in file if "libclrpulse" in line), None)

    def library_runs(self):
        """A thread of the library's own exists."""
        return any(name.startswith("clrpulse") for name in self.thread_names().values())

    def thread_names(self):
        names = {}
        for tid in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{tid}/comm") as file:
                    names[int(tid)] = file.read().rstrip("\n")
            except (FileNotFoundError, ProcessLookupError):
                pass
        return names

    def blocked(self, tid):
        """The signals that a thread blocks, as a mask; 0 when it has gone."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{self.pid}/task/{tid}/status") as file:
                return next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk:"))
        return 0

    def descriptors(self):
        """What the process has open, as the kernel names it."""
        links = []
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{self.pid}/fd/{name}"))
        return sorted(links)

    def diagnostics_socket(self):
        found = [name for name in os.listdir(self.directory)
                 if name.startswith(f"dotnet-diagnostic-{self.pid}-")]
        return os.path.join(self.directory, found[0])

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Recorder:
    """A running `clrpulse record`."""

    def __init__(self, test, pid, seconds, *options, env=None, prefix=()):
        """`prefix` starts the command with other rights (setpriv...)."""
        self.directory = tempfile.mkdtemp(prefix="clp-record-")
        self.path = os.path.join(self.directory, "profile.pb.gz")
        self.seconds = seconds
        test.addCleanup(self.close)
        command = [*prefix, environment("CLP_CLRPULSE"), "record", "-p", str(pid), "-d", str(seconds),
                   "-o", self.path, *options]
        self.errors = open(os.path.join(self.directory, "stderr"), "w+b")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.errors,
                                        stderr=self.errors, env={**os.environ, **(env or {})})

    def running(self):
        return self.process.poll() is None

    def joined(self):
        """The library has been given the memory that it writes to."""
        with open(f"/proc/{self.process.pid}/maps") as file:
            return "/memfd:clrpulse" in file.read()

    def kill(self):
        self.process.kill()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def message(self):
        return written(self.errors)

    def wait(self, seconds=None):
        return self.process.wait(seconds or self.seconds + 60)

    def profile(self, code=0):
        got = self.wait()
        if got != code:
            raise AssertionError(f"record ended with {got}, expected {code}: {self.message()}")
        return pprof.load(self.path)

    def finish(self):
        """Ends a recording that is longer than what it has to hold."""
        if not self.running():
            raise AssertionError(f"the recording ended before the work: {self.message()}")
        self.interrupt()
        return self.profile()

    def close(self):
        if self.running():
            self.process.kill()
        self.process.wait()
        self.errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Recorded:
    """What one recording around one round of work gave."""

    def __init__(self, profile, truth, work_cpu, whole_cpu):
        self.profile, self.truth = profile, truth
        self.work_cpu = work_cpu    # CPU of the process from before `begin` to after `end`
        self.whole_cpu = whole_cpu  # from before the attach until after the detach


# Before the work begins the recorder has to be at work: the library's thread exists a moment before
# its timers do.
SETTLE_SECONDS = 1.0
MARGIN_SECONDS = 120  # the recording is ended when the work is


def record_work(test, target, length, *options, env=None):
    """Records a round of work, `length` seconds long, that lies wholly inside the recording."""
    before = cpu_ns(target.pid)
    recorder = Recorder(test, target.pid, length + MARGIN_SECONDS, *options, env=env)
    test.wait_for_library(target, recorder)
    work_before = cpu_ns(target.pid)
    target.begin()
    time.sleep(length)
    truth = target.end()
    work = cpu_ns(target.pid) - work_before
    profile = recorder.finish()
    return Recorded(profile, truth, work, cpu_ns(target.pid) - before)


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WAIT_ALL = 0x4206, 0x4207, 17, 0x40000000
FUTEX = "202 "


@contextlib.contextmanager
def held(tid, asleep=False):
    """One thread of a child gets no time; the others run on. `asleep`: it is taken while it waits, holding nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def call(request):
        if libc.ptrace(request, tid, None, None) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def stop():
        call(PTRACE_SEIZE)
        call(PTRACE_INTERRUPT)
        os.waitpid(tid, WAIT_ALL)
        with open(f"/proc/{tid}/syscall") as file:
            if not asleep or file.read().startswith(FUTEX):
                return True
        call(PTRACE_DETACH)
        return False

    try:
        wait_for(stop, 30, "the thread sleeps")
    except PermissionError:
        raise unittest.SkipTest("no ptrace here") from None
    try:
        yield
    finally:
        call(PTRACE_DETACH)


def thread_cpu(truth, key="threads"):
    """What the threads of a truth used by their own clocks."""
    return sum(worker["cpu_end_ns"] - worker["cpu_begin_ns"] for worker in truth[key])


@contextlib.contextmanager
def for_sure():
    """Assertions inside of a measurement that no busy machine excuses."""
    try:
        yield
    except AssertionError as error:
        error.for_sure = True
        raise


def with_retry(measure, tries=3):
    """Runs a measurement that a busy machine can spoil: the assertion has to hold once in `tries`.

    Only for what a busy machine changes: ratios of times.  What must hold in each try is asserted
    `for_sure`."""
    for left in range(tries - 1, -1, -1):
        try:
            return measure()
        except AssertionError as error:
            if left == 0 or getattr(error, "for_sure", False):
                raise
            print(f"measuring again, {left} tries left: {error}", file=sys.stderr)


MAIN = "ClpTarget.Program.Main"
# 8 and 9 jump from the runtime's own start into the thread's delegate without a frame.
THREAD_STARTS = ("System.Threading.Thread.StartCallback", "ClpTarget.Worker.Live")
NATIVE_START = ("start_thread", "__clone3", "clone3", "__clone", "clone", "_start")


def contains(stack, name):
    return any(pprof.is_function(frame, name) for frame in stack)


def is_label(frame):
    return frame.startswith("[") and frame.endswith("]")


def thread_root(profile):
    """The frame at which the kernel starts a thread, as this libc and its symbols show it.

    It is the usual root of the stacks that a managed thread start is in."""
    weights = {}
    for sample in profile.samples:
        if any(contains(sample.stack, start) for start in THREAD_STARTS):
            root = sample.stack[-1]
            weights[root] = weights.get(root, 0) + sample.value()
    root = max(weights, key=weights.get) if weights else ""
    # libc.so: musl, whose first functions have no name
    if not (root in NATIVE_START or root.startswith(("libc.so.6!", "libc.so!"))):
        raise AssertionError(f"managed threads end at {root!r}, not where libc starts a thread")
    return root


def rooted(profile):
    """The CPU time of samples that end at Main, a managed or a native thread start."""
    root = thread_root(profile)
    return profile.total(where=lambda s: s.stack[-1] == root or s.stack[-1] in NATIVE_START
                         or contains(s.stack, MAIN))


def without_stack(sample):
    """Time that is known without a stack and says so: `[native NAME]`, `[short-lived threads]`..."""
    return len(sample.stack) == 1 and is_label(sample.stack[0])


class AttachError(Exception):
    def __init__(self, hresult):
        super().__init__(f"0x{hresult:08x}")
        self.hresult = hresult


def attach_profiler(target, clsid, path, data=b"", timeout_ms=10000):
    """Sends AttachProfiler over the runtime's diagnostics port, as any profiler's own tool does."""
    text = (path + "\0").encode("utf-16-le")
    payload = struct.pack("<I", timeout_ms) + uuid.UUID(clsid).bytes_le
    payload += struct.pack("<I", len(text) // 2) + text + struct.pack("<I", len(data)) + data
    message = b"DOTNET_IPC_V1\0" + struct.pack("<HBBH", 20 + len(payload), 3, 1, 0) + payload
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(timeout_ms / 1000 + 20)
        channel.connect(target.diagnostics_socket())
        channel.sendall(message)
        reply = b""
        while len(reply) < 24:
            more = channel.recv(4096)
            if not more:
                raise RuntimeError("the runtime closed the diagnostics port")
            reply += more
    hresult = struct.unpack_from("<I", reply, 20)[0]
    if reply[17] != 0 or hresult != 0:
        raise AttachError(hresult)


class Case(unittest.TestCase):
    maxDiff = None

    def target(self, mode, *options, **keywords):
        return Target(self, mode, *options, **keywords)

    def record(self, target, seconds, *options, **keywords):
        return Recorder(self, target.pid, seconds, *options, **keywords)

    def assert_ratio(self, got, low, high, what, profile=None):
        if not low <= got <= high:
            detail = f"\n{profile.top()}" if profile else ""
            self.fail(f"{what}: {got:.4f}, not within [{low:.4f}, {high:.4f}]{detail}")
        print(f"{what}: {got:.4f}")

    def wait_for_library(self, target, recorder=None):
        """Its thread alone may be that of the recording before, whose end takes the runtime some tenths of a second."""
        at_work = target.library_runs
        if recorder:
            at_work = lambda: not recorder.running() or recorder.joined()
        wait_for(at_work, 30, "the library at work")
        if recorder and not recorder.running():
            self.fail(f"record ended at once: {recorder.message()}")
        time.sleep(SETTLE_SECONDS)

    def assert_share(self, part, whole, least, what, profile=None):
        self.assertGreater(whole, 0, f"{what}: nothing was measured")
        self.assert_ratio(part / whole, least, 1.0, what, profile)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main(verbosity=2)
