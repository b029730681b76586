#!/usr/bin/env python3
"""What profiling costs, each figure from runs that alternate with unprofiled ones.

A limit is checked where the project promises one; every figure is printed either way.
CLP_BENCH_PAIRS is the number of pairs (20)."""

import glob
import itertools
import math
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import tempfile
import time
import uuid

import harness
from harness import Case, framework, wait_for
from test_agent import Agent
from test_nettrace import TraceCase
from test_web import WebCase

PAIRS = int(os.environ.get("CLP_BENCH_PAIRS", "20"))


def interval(ratios, rounds=4000):
    """Median and its 95 % interval by bootstrap, with a fixed seed."""
    source = random.Random(20240229)
    medians = sorted(statistics.median(source.choices(ratios, k=len(ratios)))
                     for _ in range(rounds))
    return (statistics.median(ratios), medians[int(rounds * 0.025)], medians[int(rounds * 0.975)])


class ServersCase(WebCase):
    """Two web servers that take turns. No two processes are equally fast (where their memory lies, what their compiler
    has seen), so new ones take over every few pairs."""

    WARM_SECONDS = 8  # until all is compiled, and compiled again

    def compare(self, figures, couple):
        """Prints requests per second and CPU time of one, and returns the median of the first with its interval.
        `couple(pairs)` gives both, with over without, for each pair of turns of two new servers."""
        couples, left = [], PAIRS
        while left > 0:
            couples.append(couple(min(self.PAIRS_OF_A_COUPLE, left)))
            left -= len(couples[-1])
        results = [interval([ratio[i] for one in couples for ratio in one]) for i in range(2)]
        for i, what in enumerate(("requests per second", "CPU time of a request")):
            print("{} {}: x {:.4f} [{:.4f}, {:.4f}], {} pairs; of each couple: {}".format(
                what, figures, *results[i], PAIRS, " ".join(f"{statistics.median(ratio[i] for ratio in one):.3f}"
                                                            for one in couples)))
        return results[0]


class BenchSpans(ServersCase):
    """What following spans costs a web server that OpenTelemetry traces: two of them, recorded alike, one with the
    start-up hook; wrk goes to the one and the other in turn. What one run of wrk gets depends on how its connections
    are spread, so runs are short and many."""

    SECONDS = int(os.environ.get("CLP_BENCH_WRK_SECONDS", "1"))
    PAIRS_OF_A_COUPLE = 20

    def measure(self, server):
        """Requests per second, and the server's CPU time for each."""
        before = harness.cpu_ns(server.pid)
        rate = self.load(server, "/plain", 64, self.SECONDS).result()
        return rate, (harness.cpu_ns(server.pid) - before) / (rate * self.SECONDS)

    def couple(self, pairs):
        """The figures with spans over those without, of each pair."""
        servers = [self.web(), self.web()]
        recorders = [self.record(servers[0], 3600), self.record(servers[1], 3600, "--no-startup-hook")]
        self.hook_runs(servers[0], recorders[0])
        self.wait_for_library(servers[1], recorders[1])
        for server in servers:
            self.load(server, "/plain", 64, self.WARM_SECONDS).result()
        ratios = []
        for pair in range(pairs):
            got = {server: self.measure(server) for server in (servers if pair % 2 else servers[::-1])}
            ratios.append([a / b for a, b in zip(got[servers[0]], got[servers[1]])])
        for server, recorder, follows in zip(servers, recorders, (True, False)):
            profile = recorder.finish()
            self.assertEqual(follows, any("trace_id" in s.labels for s in profile.samples))
            server.close()
        return ratios

    def test_spans(self):
        self.assertGreaterEqual(self.compare("with spans / without", self.couple)[0], 0.98)


class BenchWeb(ServersCase):
    """What profiling with all types costs a web server whose requests allocate, throw and lock, once it has found
    its pace. Two servers, each with a wrk of its own, run in turn for less than half a second: how fast memory is
    here changes within seconds. First the one is recorded, then the other, so that what else they differ in falls
    out. Figures are the server's own counts and CPU clock. What the library's thread still does for a server whose
    turn is over slows the other: some tenths of a percent of the rates, not of the CPU time."""

    SECONDS = float(os.environ.get("CLP_BENCH_WRK_SECONDS", "0.4"))
    SETTLE_SECONDS = 8  # more than an epoch of events
    PAIRS_OF_A_COUPLE = 50
    CONNECTIONS = 64
    TYPES = os.environ.get("CLP_BENCH_TYPES", "cpu,wall,exceptions,allocations,locks,liveheap,gc")
    # What lives on may have died at a collection: nothing is demanded of the live heap.
    KINDS = {"cpu": "cpu", "wall": "wall", "exceptions": "exceptions", "allocations": "alloc_space",
             "locks": "lock_contentions", "gc": "gc_pause"}

    def turn(self, server):
        """Requests a second, and CPU time of one in ns."""
        server.load.process.send_signal(signal.SIGCONT)
        time.sleep(0.05)  # its connections have answers to send and to read
        server.begin()
        time.sleep(self.SECONDS)
        truth = server.end()
        server.load.process.send_signal(signal.SIGSTOP)
        elapsed = truth["end_ns"] - truth["begin_ns"]
        return truth["loads"] / elapsed * 1e9, truth["process_cpu_ns"] / truth["loads"]

    def busy(self, server, length):
        server.load.process.send_signal(signal.SIGCONT)
        time.sleep(length)
        server.load.process.send_signal(signal.SIGSTOP)

    def phase(self, recorded, other, pairs):
        """With over without, of each pair."""
        recorder = self.record(recorded, 3600, "--types", self.TYPES)
        self.hook_runs(recorded, recorder)
        self.busy(recorded, self.SETTLE_SECONDS)
        ratios = []
        for pair in range(pairs):
            servers = [recorded, other] if pair % 2 else [other, recorded]
            got = {server: self.turn(server) for server in servers}
            ratios.append([a / b for a, b in zip(got[recorded], got[other])])
        profile = recorder.finish()
        wait_for(lambda: not recorded.library_runs(), 20, "the library's thread ends")
        for kind in (self.KINDS[name] for name in self.TYPES.split(",") if name in self.KINDS):
            self.assertGreater(profile.total(kind), 0, kind)
        print(f"recorded {profile.duration_ns / 1e9:.0f} s: {profile.number('library_cpu') / 1e6:.0f} ms of the library's "
              f"thread; at last {got[recorded][0]:.0f} and {got[other][0]:.0f} requests a second with and without", flush=True)
        return ratios

    def couple(self, path, pairs):
        servers = [self.web(tracer="none"), self.web(tracer="none")]
        for server in servers:
            server.load = self.load(server, path, self.CONNECTIONS, 3600)
            self.busy(server, self.WARM_SECONDS)
        both = zip(self.phase(*servers, pairs), self.phase(*servers[::-1], pairs))
        for server in servers:
            server.load.close()
            server.close()
        return [[math.sqrt(a * b) for a, b in zip(*pair)] for pair in both]

    def measure(self, every):
        """The rates' ratio where one request of `every` throws."""
        return self.compare(f"recorded / not, one exception in {every} requests",
                            lambda pairs: self.couple(f"/load/{every}", pairs))[0]

    def test_web(self):
        """A service that is well."""
        self.assertGreaterEqual(self.measure(50), 0.98)

    def test_web_that_throws(self):
        """Every fourth request throws: some 15,000 exceptions a second."""
        self.assertGreaterEqual(self.measure(4), 0.95)


class Figures:
    """One round's figures."""

    def __init__(self, truth):
        self.chunk = truth["wall"]["p10_ns"]
        self.cpu = truth["process_cpu_ns"]
        self.thread_cpu = truth["cpu"]["p50_ns"]
        self.elapsed = truth["end_ns"] - truth["begin_ns"]


class BenchOverhead(Case):
    NAMES = (("chunk", "10th percentile of chunk times"), ("cpu", "CPU of the whole process"),
             ("thread_cpu", "median CPU of a chunk"), ("elapsed", "elapsed time"))

    def test_overhead(self):
        # About a millisecond a chunk: shorter than a time slice, so the 10th percentile is a chunk
        # that nobody pre-empted although four threads share the cores.
        self.work = self.target("chunks", "--rounds", 30, "--chunks", 1000, "--threads", 4,
                                "--sleepers", 30)
        trace = harness.dotnet_trace()
        for _ in range(3):
            self.plain()  # until the code is optimised
        arms = {"recorded": [], "dotnet-trace": []}
        order = random.Random(7)
        for _ in range(PAIRS):
            for arm in order.sample(list(arms), len(arms)):
                if arm == "dotnet-trace" and not trace:
                    continue
                run = self.recorded if arm == "recorded" else lambda: self.traced(trace)
                pair = (self.plain(), run()) if order.random() < 0.5 else (run(), self.plain())[::-1]
                arms[arm].append(pair)
        results = {arm: self.report(arm, pairs) for arm, pairs in arms.items() if pairs}
        for field in ("chunk", "cpu"):
            median, low, _ = results["recorded"][field]
            self.assertLessEqual(median, 1.02, field)
            self.assertLessEqual(low, 1.01, field)

    def report(self, arm, pairs):
        results = {}
        for field, text in self.NAMES:
            ratios = [getattr(with_, field) / getattr(without, field) for without, with_ in pairs]
            results[field] = interval(ratios)
            print(f"{arm:13} {text:31} x {results[field][0]:.4f}"
                  f"  [{results[field][1]:.4f}, {results[field][2]:.4f}]  {len(pairs)} pairs")
        return results

    def plain(self):
        self.work.begin()
        return Figures(self.work.end())

    def recorded(self):
        recorder = self.record(self.work, 30)
        wait_for(lambda: not recorder.running() or self.work.library_runs(), 30, "the library")
        time.sleep(0.5)
        figures = self.plain()
        self.assertTrue(recorder.running(), recorder.message())
        recorder.process.send_signal(signal.SIGINT)
        recorder.wait(30)
        recorder.close()
        wait_for(lambda: not self.work.library_runs(), 10, "the library's thread ends")
        return figures

    def traced(self, trace):
        with tempfile.TemporaryDirectory(prefix="clp-trace-") as folder:
            output = open(os.path.join(folder, "output"), "w+b")
            process = subprocess.Popen(
                [trace, "collect", "-p", str(self.work.pid), "--profile",
                 "dotnet-sampled-thread-time", "-o", os.path.join(folder, "x.nettrace")],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, "TMPDIR": self.work.directory})
            try:
                wait_for(lambda: glob.glob(os.path.join(folder, "*.nettrace")), 20, "dotnet-trace")
                time.sleep(1)
                figures = self.plain()
                process.send_signal(signal.SIGINT)
                process.wait(60)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
                output.close()
        return figures


class BenchEventpipe(BenchOverhead):
    """The engine that loads nothing: the runtime's sampler in bursts. Its cost is bounded by its part of
    the time, a quarter: dotnet-trace has the same sampler on all the time."""

    MOST = 1.12  # a quarter of what the sampler costs at its dearest, 1.33, and room for noise

    def test_eventpipe(self):
        self.work = self.target("chunks", "--rounds", 30, "--chunks", 1000, "--threads", 4,
                                "--sleepers", 30)
        for _ in range(3):
            self.plain()
        pairs = [(self.plain(), self.evented()) for _ in range(PAIRS)]
        median, low, _ = self.report("eventpipe", pairs)["cpu"]
        self.assertLessEqual(low, self.MOST, f"CPU, median {median}")

    def evented(self):
        recorder = self.record(self.work, 60, "--engine", "eventpipe")
        time.sleep(2)  # sessions and the first list
        figures = self.plain()
        self.assertTrue(recorder.running(), recorder.message())
        recorder.process.send_signal(signal.SIGINT)
        recorder.wait(60)
        recorder.close()
        return figures


class BenchReader(TraceCase):
    """Our reader of a stream beside Microsoft's on one of more than 100 MB, and its memory."""

    def test_reader(self):
        target = self.target("throws")
        target.begin()
        path = self.path("big.nettrace")
        self.record_big(target, path)
        target.process.kill()
        self.compare(path, options=["--speed"])


class BenchEvents(Case):
    """What profiles of events cost where events come thick. Rounds alternate in one process."""

    SECONDS = 3

    def ratios(self, mode, types, figures):
        """For each of `figures`, name to function of a truth: median and interval of with over without."""
        target = self.target(*mode)
        ratios, order = {name: [] for name in figures}, random.Random(11)
        for _ in range(PAIRS):
            rounds = {}
            for recorded in order.sample([False, True], 2):
                rounds[recorded] = self.one_round(target, types if recorded else None)
            for name, figure in figures.items():
                ratios[name].append(figure(rounds[True]) / figure(rounds[False]))
        results = {name: interval(values) for name, values in ratios.items()}
        for name, got in results.items():
            print("{}, {}: {} x {:.4f} [{:.4f}, {:.4f}], {} pairs".format(
                " ".join(map(str, mode)), types, name, *got, PAIRS))
        target.close()
        return results

    def one_round(self, target, types):
        recorder = None
        if types:
            recorder = self.record(target, 30, "--types", types)
            self.wait_for_library(target, recorder)
        target.begin()
        time.sleep(self.SECONDS)
        truth = target.end()
        if recorder:
            recorder.interrupt()
            recorder.wait(30)
            recorder.close()
            wait_for(lambda: not target.library_runs(), 20, "the library's thread ends")
        return truth

    THROWS = {
        "CPU of a throw and the work beside it":
            lambda t: t["process_cpu_ns"] / sum(t["thrown"].values()),
        "throws a second":
            lambda t: sum(t["thrown"].values()) / (t["end_ns"] - t["begin_ns"])}

    def test_exceptions(self):
        """Two busy threads, 200,000 throws a second in all."""
        results = self.ratios(("exceptions", "--busy", 100000, "--threads", 2), "exceptions", self.THROWS)
        self.assertGreaterEqual(results["throws a second"][2], 0.9)

    def test_throws_alone(self):
        self.ratios(("exceptions", "--rate", 0, "--threads", 2), "exceptions", self.THROWS)

    ALLOCATED = {"CPU": lambda t: t["process_cpu_ns"]}

    def test_allocations(self):
        """A busy thread that allocates 1 GB a second."""
        results = self.ratios(("allocations", "--rounds", 6, "--alternate", 1, "--busy", 1000), "allocations",
                              self.ALLOCATED)
        self.assertLessEqual(results["CPU"][1], 1.03)

    def test_allocations_alone(self):
        self.ratios(("allocations", "--rounds", 8), "allocations", self.ALLOCATED)


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def pooled(with_, without, part, rounds=400):
    """The ratio of a quantile over all rounds' values, and its 95 % interval: rounds are drawn anew, not values, which
    are not independent of those of their round."""
    source = random.Random(20240229)

    def drawn(series):
        return quantile(itertools.chain(*source.choices(series, k=len(series))), part)

    ratios = sorted(drawn(with_) / drawn(without) for _ in range(rounds))
    whole = [quantile([value for values in series for value in values], part) for series in (with_, without)]
    return whole[0] / whole[1], ratios[int(rounds * 0.025)], ratios[int(rounds * 0.975)]


class BenchHeap(Case):
    """Collections of a 3 GB heap: what COR_PRF_MONITOR_GC would make ten times as long. Rounds with and without
    a recording alternate in one process, and are compared with those before the first one."""

    TYPES = "cpu,wall,exceptions,allocations,locks,liveheap,gc"
    MODE = ("bigheap", "--replace-mb", 60, "--churn-mb", 1200, "--background", 2)

    def one_round(self, target, recorded):
        recorder = None
        if recorded:
            recorder = self.record(target, 3600, "--types", self.TYPES)
            self.wait_for_library(target, recorder)
        target.begin()
        truth = target.end(300)
        if recorder:
            self.assertGreater(recorder.finish().total("inuse_space"), 0)
            wait_for(lambda: not target.library_runs(), 20, "the library's thread ends")
        return truth

    def compare(self, what, with_, without):
        pauses = [[t["each_pause_ns"] for t in rounds] for rounds in (with_, without)]
        background = [sum(t["background"] for t in rounds) / len(rounds) for rounds in (with_, without)]
        result = {"p99": pooled(*pauses, 0.99), "median": pooled(*pauses, 0.5)}
        for name, got in result.items():
            print("{}: {} of pauses x {:.3f} [{:.3f}, {:.3f}], {} and {} of them".format(
                what, name, *got, *(sum(map(len, rounds)) for rounds in pauses)))
        print("{}: background collections a round {:.2f} and {:.2f}".format(what, *background))
        self.assertGreaterEqual(min(background), 1)
        self.assertLessEqual(result["p99"][1], 1.1, what)
        self.assertGreaterEqual(result["p99"][2], 0.9, what)
        self.assertAlmostEqual(background[0] / background[1], 1, delta=0.1, msg=what)

    def test_big_heap(self):
        target = self.target(*self.MODE, "--heap-mb", os.environ.get("CLP_BENCH_HEAP_MB", "3000"))
        few, order = max(3, PAIRS // 4), random.Random(13)
        for _ in range(4):  # compiled, and the heap as it stays
            self.one_round(target, False)
        before = [self.one_round(target, False) for _ in range(few)]
        rounds = {True: [], False: []}
        for _ in range(PAIRS):
            for recorded in order.sample([False, True], 2):
                rounds[recorded].append(self.one_round(target, recorded))
        after = [self.one_round(target, False) for _ in range(few)]
        print(f"heap {after[-1]['heap_bytes'] / 1e9:.1f} GB, 99th percentile of pauses "
              f"{quantile(after[-1]['each_pause_ns'], 0.99) / 1e6:.1f} ms, collections of generation 0, 1, 2 in the last "
              f"round {after[-1]['collections']}")
        self.compare("recorded / not", rounds[True], rounds[False])
        self.compare("after detach / before", after, before)


class BenchAgent(Case):
    DIRECTORY = "{{ kind: directory, path: '{dir}/profiles' }}"

    def measure(self, targets, marker, period, settle):
        """(share of a core, the targets' share, kB at most, profiles) of an agent with these targets, from some
        seconds after the last attach, for a period and a bit."""
        agent = Agent(self, self.DIRECTORY, marker, period=period)
        for target in targets:
            wait_for(target.library_runs, 60, "the agent attaches")
        time.sleep(settle)
        pids = [agent.process.pid, *(target.pid for target in targets)]
        start, before = time.monotonic(), [harness.cpu_ns(pid) for pid in pids]
        time.sleep(max(65, period + 5))
        seconds = time.monotonic() - start
        share, *theirs = [(harness.cpu_ns(pid) - used) / 1e9 / seconds for pid, used in zip(pids, before)]
        peak = self.peak_kb(agent.process.pid)
        self.assertEqual(agent.stop(), 0, agent.text())
        return share, sum(theirs), peak, agent.written("wall")

    def test_agent(self):
        """CPU and memory of the agent while it profiles four busy threads."""
        marker = f"clp-{uuid.uuid4().hex}"  # no .NET program but this one
        target = self.target("chunks", "--chunks", 100_000, "--marker", marker)
        target.begin()
        share, _, peak, written = self.measure([target], marker, 20, 0)
        print(f"agent: {share * 100:.2f} % of a core, peak RSS {peak / 1024:.1f} MB, "
              f"{len(written)} profiles of {[os.path.getsize(name) for name in written]} bytes")
        self.assertGreaterEqual(len(written), 3)
        self.assertLessEqual(share, 0.01)
        self.assertLessEqual(peak, 30 * 1024)

    def test_idle(self):
        """The same beside forty programs that wait, with the settings that an agent has by itself."""
        marker = f"clp-{uuid.uuid4().hex}"
        targets = [self.target("spin", "--busy", 0, "--sleepers", 4, "--marker", marker) for _ in range(40)]
        for target in targets:
            target.begin()
        share, theirs, peak, written = self.measure(targets, marker, 60, 8)
        print(f"agent beside 40 idle targets: {share * 100:.2f} % of a core, peak RSS {peak / 1024:.1f} MB, "
              f"{len(written)} profiles; the targets {theirs / len(targets) * 100:.2f} % each")
        self.assertGreaterEqual(len(written), len(targets))
        self.assertLessEqual(share, 0.005)
        self.assertLessEqual(peak, 40 * 1024)

    def peak_kb(self, pid):
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])


class BenchLibrary(Case):
    LIMIT_KB = 8 * 1024
    ALL_TYPES_LIMIT_KB = 9 * 1024

    def test_memory(self):
        """What the library adds to the target: its image and what it maps for itself.

        The process as a whole is compared where it does not grow by itself."""
        for mode, steady in ((("spin", "--sleepers", 200), True), (("stacks",), False)):
            target = self.target(*mode)
            target.begin()
            time.sleep(5)
            before = self.rss_kb(target.pid)
            recorder = self.record(target, 20)
            self.wait_for_library(target, recorder)
            time.sleep(10)
            grown, image = self.rss_kb(target.pid) - before, self.image_kb(target.pid)
            profile = recorder.profile()
            own = profile.number("library_bytes") // 1024
            print(f"library beside {mode[0]}: image {image} KB, its own memory {own} KB, the whole "
                  f"process grew by {grown} KB")
            self.assertLessEqual(grown if steady else image + own, self.LIMIT_KB)
            target.close()

    def test_memory_of_all_types(self):
        """The same beside a program that does all of it as fast as it can. It grows by itself, so what the library
        maps is told by its mark: memory that no child gets."""
        types = "cpu,wall,exceptions,allocations,locks,liveheap,gc" + (",waits" if framework() != "net8.0" else "")
        target = self.target("everything", "--gap", 1, "--gc-rate", -1)
        target.begin()
        self.assertEqual(self.own_kb(target.pid), 0)
        recorder = self.record(target, 60, "--types", types)
        self.wait_for_library(target, recorder)
        time.sleep(20)
        own, image = self.own_kb(target.pid), self.image_kb(target.pid)
        told = recorder.finish().number("library_bytes") // 1024
        print(f"library with all types beside everything: image and its tables {image} KB, its own memory {own} KB "
              f"(it says {told} KB)")
        self.assertLessEqual(image + own, self.ALL_TYPES_LIMIT_KB)
        target.close()

    def own_kb(self, pid):
        """Resident memory without a name that is not copied on fork."""
        total, rss, unnamed = 0, 0, False
        with open(f"/proc/{pid}/smaps") as file:
            for line in file:
                words = line.split()
                if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    unnamed = len(words) == 5
                elif line.startswith("Rss:"):
                    rss = int(words[1])
                elif line.startswith("VmFlags:") and unnamed and "dc" in words:
                    total += rss
        return total

    def rss_kb(self, pid):
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return int(re.search(r"Rss:\s+(\d+)", file.read())[1])

    def image_kb(self, pid):
        """With the zeroed data behind the last segment, which has no name."""
        total, end, mine = 0, None, False
        with open(f"/proc/{pid}/smaps") as file:
            for line in file:
                found = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
                if found:
                    named = "libclrpulse" in line
                    mine = named or (found[1] == end and len(line.split()) == 5)
                    end = found[2] if named else None
                elif mine and line.startswith("Rss:"):
                    total += int(line.split()[1])
        return total


class BenchAttach(Case):
    COUNTERS_AT = 3 * 64  # struct clp_wire_header, drawn in docs/wire.md
    ROUNDS = 20

    def test_latency(self):
        """From the start of `record` to the first sample in its ring."""
        target = self.target("spin", "--sleepers", 30)
        target.begin()
        times = sorted(self.first_sample(target) for _ in range(self.ROUNDS))
        print(f"attach to first sample: median {statistics.median(times):.3f} s, "
              f"worst {times[-1]:.3f} s, {len(times)} attaches")
        self.assertLessEqual(statistics.median(times), 0.5)
        self.assertLessEqual(times[-1], 2)

    def first_sample(self, target):
        place = self.COUNTERS_AT + 8 * self.counter("samples")
        start = time.monotonic()
        recorder = self.record(target, 3)
        while self.samples(recorder.process.pid, place) == 0:
            self.assertLess(time.monotonic(), start + 20, recorder.message())
            time.sleep(0.002)
        took = time.monotonic() - start
        recorder.profile()
        wait_for(lambda: not target.library_runs(), 10, "the library's thread ends")
        return took

    def counter(self, name):
        """A counter's place, by the table that makes both sides."""
        path = os.path.join(harness.environment("CLP_SOURCE"), "wire/counters.def")
        with open(path) as file:
            return re.findall(r"^CLP_COUNTER\(\w+, \"(\w+)\"", file.read(), re.M).index(name)

    def samples(self, pid, place):
        """The counter in the recorder's shared memory, 0 before there is one."""
        try:
            with open(f"/proc/{pid}/maps") as maps:
                start = next(int(line.split("-")[0], 16) for line in maps if "/memfd:clrpulse" in line)
            with open(f"/proc/{pid}/mem", "rb") as memory:
                memory.seek(start + place)
                return struct.unpack("<Q", memory.read(8))[0]
        except (OSError, StopIteration, struct.error):
            return 0


if __name__ == "__main__":
    harness.main()
