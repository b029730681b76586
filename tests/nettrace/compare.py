"""Compares what our reader and TraceEvent make of the same .nettrace files.

usage: compare.py NETTRACE-SUMMARY TRACESUMMARY FILE...     equal sums, for each file
       compare.py --speed NETTRACE-SUMMARY TRACESUMMARY FILE [LEAST]   events a second, both in one run

Every kind of event must have the same count and the same sums over headers (time, thread, activity),
payloads and stacks.  Fields are compared by name where both know the name; one that differs fails."""

import json
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


def whole_blocks(path):
    """Where the last whole block of a version 4 stream ends, and whether the stream is closed."""
    with open(path, "rb") as file:
        data = file.read()
    at, end = 32, 32
    while at < len(data) and data[at] == 5:
        name_len = struct.unpack_from("<i", data, at + 11)[0] if at + 15 <= len(data) else 0
        name = data[at + 15:at + 15 + name_len]
        at += 16 + name_len
        if name == b"Trace":
            at += 48
        elif at + 4 <= len(data):
            size = struct.unpack_from("<i", data, at)[0]
            at = (at + 4 + 3) // 4 * 4 + size
        at += 1
        if at <= len(data):
            end = at
    return end, at < len(data) and data[at] == 1


def closed(path):
    """TraceEvent does not give out what it holds when a stream is cut, so a killed writer's file is
    compared up to its last whole block, with an end put behind it: in a copy."""
    end, complete = whole_blocks(path)
    if complete:
        return path, None
    copy = tempfile.NamedTemporaryFile(suffix=".nettrace")
    with open(path, "rb") as file:
        copy.write(file.read(end) + b"\x01")
    copy.flush()
    return copy.name, copy


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
    name, copy = closed(path)
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
    print(f"{path}: {count} events of {len(our_events)} kinds, {len(both)} fields compared, "
          f"{len(our_fields) - len(both)} only ours, lost {our_lost}/{lost}, "
          f"{len(problems)} differences")
    for problem in problems[:20]:
        print("  " + problem)
    if not our_events or not both:
        problems.append("nothing was compared")
    return not problems


def speed(ours, theirs, path, least):
    rates = {}
    for name, program in (("ours", ours), ("TraceEvent", theirs)):
        best = min((json.loads(run(program, "--count", path)) for _ in range(3)),
                   key=lambda r: r["seconds"])
        rates[name] = best["events"] / best["seconds"]
        print(f"{name}: {best['events']} events in {best['seconds']:.3f} s, "
              f"{rates[name] / 1e6:.1f} M/s, peak {best['peak_bytes'] >> 20} MiB")
        if name == "ours" and best["peak_bytes"] > 50 << 20:
            print("more than 50 MiB")
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
