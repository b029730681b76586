"""Compares what our reader and TraceEvent make of the same .nettrace files.

usage: compare.py NETTRACE-SUMMARY TRACESUMMARY FILE...     equal sums, for each file
       compare.py --speed NETTRACE-SUMMARY TRACESUMMARY FILE [LEAST]   events a second, both in one run

Every kind of event must have the same count and the same sums over headers (time, thread, activity),
payloads and stacks.  Fields are compared by name where both know the name; one that differs fails."""

import json
import os
import struct
import subprocess
import sys
import tempfile

# TraceEvent makes something of its own of these: a part of the number, or 0 where an older version of
# the event does not have the field.  Their bytes are compared with the payload all the same.
MADE_UP = {"MethodFlags", "ReJITID", "CompactMechanisms", "ExpandMechanisms", "LoaderModuleID"}
# Events that TraceEvent files under a number that does not exist in the stream.
RENUMBERED = {("Microsoft-Windows-DotNETRuntime", "65524"): "39"}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(arguments)}: {done.stderr}")
    return done.stdout


class Cut(Exception):
    """The bytes end before what is being read."""


class Walker:
    """Goes through a version 4 stream block by block; shares nothing with either reader."""

    def __init__(self, data):
        self.data, self.at = data, 32
        self.end = 32  # behind the last whole block
        self.tagged = True  # whether that one's end tag is there
        self.closed = False
        self.bodies = []  # of events

    def take(self, size):
        if size < 0 or self.at + size > len(self.data):
            raise Cut
        self.at += size
        return self.data[self.at - size:self.at]

    def walk(self):
        try:
            while not self.closed:
                self.block()
        except Cut:
            pass
        return self

    def block(self):
        if self.take(1) == b"\x01":
            self.closed = True
            return
        self.take(10)
        name = self.take(struct.unpack("<i", self.take(4))[0])
        self.take(1)
        if name == b"Trace":
            size = 48
        else:
            size = struct.unpack("<i", self.take(4))[0]
            self.take(-self.at % 4)
        body = self.take(size)
        # All bytes that the block says it has are there, so it counts: a writer that is killed may
        # leave the tag behind it unwritten.
        self.end, self.tagged = self.at, False
        if name == b"EventBlock":
            self.bodies.append(body)
        self.take(1)
        self.end, self.tagged = self.at, True


def count_rows(body):
    """Rows with compressed headers: see NetTraceFormat.md of microsoft/perfview."""
    at, rows, size = struct.unpack_from("<h", body)[0], 0, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(body):
        flags = body[at]
        at += 1
        for bit, numbers in ((1, 1), (2, 3), (4, 1), (8, 1)):
            for _ in range(numbers if flags & bit else 0):
                number()
        number()  # time
        at += 16 * (flags >> 4 & 1) + 16 * (flags >> 5 & 1)
        if flags & 0x80:
            size = number()
        at += size
        rows += 1
    return rows


def closed(path):
    """TraceEvent does not give out what it holds when a stream is cut, so a killed writer's file is
    compared up to its last whole block, with what is missing of an end put behind it: in a copy.
    Also how many events the whole blocks have; None for a stream that was not cut."""
    with open(path, "rb") as file:
        data = file.read()
    walker = Walker(data).walk()
    if walker.closed:
        return path, None, None
    copy = tempfile.NamedTemporaryFile(suffix=".nettrace")
    copy.write(data[:walker.end] + (b"\x01" if walker.tagged else b"\x06\x01"))
    copy.flush()
    return copy.name, copy, sum(count_rows(body) for body in walker.bodies)


def summary(program, path):
    events, fields, lost = {}, {}, None
    for line in run(program, path).splitlines():
        kind, *rest = line.split("\t")
        if kind == "lost":
            lost = int(rest[0])
        elif kind == "event":
            events[(rest[0], RENUMBERED.get(tuple(rest[:2]), rest[1]))] = rest[2:]
        else:
            fields[tuple(rest[:3])] = rest[3]
    return events, fields, lost


def compare(ours, theirs, path):
    our_events, our_fields, our_lost = summary(ours, path)
    name, copy, whole = closed(path)
    events, fields, lost = summary(theirs, name)
    if copy:
        copy.close()
    problems = []
    for key in sorted(our_events.keys() | events.keys()):
        if our_events.get(key) != events.get(key):
            problems.append(f"{key}: ours {our_events.get(key)}, TraceEvent {events.get(key)}")
    both = [key for key in our_fields.keys() & fields.keys() if key[2] not in MADE_UP]
    for key in sorted(both):
        if our_fields[key] != fields[key]:
            problems.append(f"{key}: ours {our_fields[key]}, TraceEvent {fields[key]}")
    count = sum(int(e[0]) for e in our_events.values())
    if whole is not None and count != whole:
        problems.append(f"the whole blocks have {whole} events, we gave out {count}")
    print(f"{path}: {count} events of {len(our_events)} kinds, {len(both)} fields compared, "
          f"{len(our_fields) - len(both)} only ours, lost {our_lost}/{lost}, "
          f"{len(problems)} differences")
    for problem in problems[:20]:
        print("  " + problem)
    if not our_events or not both:
        problems.append("nothing was compared")
    return not problems


def is_flat(program, path, peak):
    """Whether a stream takes no more memory than its first third."""
    with open(path, "rb") as file, tempfile.NamedTemporaryFile(suffix=".nettrace") as part:
        part.write(file.read(os.path.getsize(path) // 3))
        part.flush()
        third = json.loads(run(program, "--count", part.name))["peak_bytes"]
    print(f"the first third of it: peak {third >> 20} MiB")
    if peak > 50 << 20 or peak > third * 1.25:
        print("more than 50 MiB, or more with more to read")
        return False
    return True


def speed(ours, theirs, path, least):
    rates = {}
    for name, program in (("ours", ours), ("TraceEvent", theirs)):
        best = min((json.loads(run(program, "--count", path)) for _ in range(3)),
                   key=lambda r: r["seconds"])
        rates[name] = best["events"] / best["seconds"]
        print(f"{name}: {best['events']} events in {best['seconds']:.3f} s, "
              f"{rates[name] / 1e6:.1f} M/s, peak {best['peak_bytes'] >> 20} MiB")
        if name == "ours" and not is_flat(program, path, best["peak_bytes"]):
            return False
    factor = rates["ours"] / rates["TraceEvent"]
    print(f"{factor:.1f} times TraceEvent, ordered release included")
    return factor >= least


def main():
    if sys.argv[1] == "--speed":
        least = float(sys.argv[5]) if len(sys.argv) > 5 else 3
        return 0 if speed(*sys.argv[2:5], least) else 1
    ok = [compare(*sys.argv[1:3], path) for path in sys.argv[3:]]
    return 0 if ok and all(ok) else 1


sys.exit(main())
