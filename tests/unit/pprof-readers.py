#!/usr/bin/env python3
"""Reads our profiles with the readers of others: `go tool pprof` and `protoc --decode`.

usage: pprof-readers.py MAKE-PROFILES-PROGRAM FOLDER-OF-profile.proto
"""
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77


def run(*command, stdin=None):
    environment = dict(os.environ, HOME=work, PPROF_TMPDIR=work)
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr.decode()}")
    return done.stdout.decode(), done.stderr.decode()


def pprof(view, name, *options):
    out, err = run("go", "tool", "pprof", view, *options, f"{work}/{name}.pb.gz")
    # Not a complaint: the first mapping is no file of this machine.
    err = err.replace("Main binary filename not available.\n", "")
    return out, err


def expect(condition, what, *context):
    if not condition:
        sys.exit("not as it should be: " + what + "".join(f"\n{c}" for c in context))


def rows(top):
    """{function: (flat, cum)} of a -top table"""
    found = {}
    for line in top.splitlines():
        m = re.match(r"\s*(\S+)\s+[\d.]+%\s+[\d.]+%\s+(\S+)\s+[\d.]+%\s+(.+)$", line)
        if m:
            found[m[3]] = (m[1], m[2])
    return found


def check_go():
    top, err = pprof("-top", "full", "-unit=ms")
    expect(err == "", "no warning", err)
    expect("Type: cpu" in top, "cpu is the default type", top)
    expect("Duration: 60s, Total samples = 2000ms" in top, "the total", top)
    expect(rows(top).get("App.Compare") == ("1400ms", "1400ms"), "Compare", top)
    expect(rows(top).get("qsort") == ("500ms", "1900ms"), "qsort", top)
    expect(rows(top).get("App.Main") == ("0", "2000ms"), "Main", top)
    expect(rows(top).get("App.Inner (inline)") == ("100ms", "100ms"), "Inner", top)
    expect(rows(top).get("App.List<T>.Add") == ("0", "100ms"), "Add keeps its <T>", top)

    raw, err = pprof("-raw", "full")
    expect(err == "", "no warning", err)
    expect("PeriodType: cpu nanoseconds\nPeriod: 10000000" in raw, "the period", raw)
    expect("exceptions/count alloc_objects/count alloc_space/bytes cpu/nanoseconds[dflt]" in raw,
           "the sample types", raw)
    expect("thread_name:[wörker]" in raw and "thread_id:[4242 id]" in raw, "the labels", raw)
    expect("/lib/libc.so.6 0123456789abcdef" in raw, "the mapping", raw)
    expect("List.cs:12" in raw and "App.List`1.Add" in raw, "file, line, raw name", raw)
    expect("Comments:" not in raw, "comments are not in -raw", raw)
    comments, _ = pprof("-comments", "full")
    expect("clrpulse test" in comments, "the comment", comments)

    # 1.4 + 2.8 objects and 44.8 + 89.6 bytes, each rounded once: 4 and 134.
    top, _ = pprof("-top", "alloc")
    expect("Type: alloc_space" in top and "134B" in top, "bytes", top)
    top, _ = pprof("-top", "alloc", "-sample_index=alloc_objects")
    expect("accounting for 4, 100% of 4 total" in top, "objects", top)
    raw, _ = pprof("-raw", "alloc")
    expect("qsort" not in raw, "only what is used", raw)
    expect("PeriodType: space bytes\nPeriod: 102400" in raw, "its own period", raw)

    top, err = pprof("-top", "cpu", "-unit=ms")
    expect(err == "" and "Total samples = 2000ms" in top, "cpu alone", top, err)

    top, _ = pprof("-top", "folded", "-unit=us")
    expect("Total samples = 2000us" in top, "folding keeps the total", top)
    expect(rows(top).get("[other]") == ("1600us", "1600us"), "1,600 folded", top)
    comments, _ = pprof("-comments", "folded")
    expect("profile_samples_folded=1600 count\nprofile_stacks_full=1600 count" in comments, "the counts", comments)

    raw, err = pprof("-raw", "empty")
    expect(err == "" and "Samples:" in raw, "an empty profile", raw, err)
    # Profiles of one kind can be compared and added up.
    raw, _ = run("go", "tool", "pprof", "-raw", f"{work}/cpu.pb.gz", f"{work}/cpu.pb.gz")
    expect("2800000000" in raw, "the sum of two", raw)


def check_protoc(schema):
    for name in "full", "cpu", "alloc", "folded", "empty":
        with gzip.open(f"{work}/{name}.pb.gz") as f:
            plain = f.read()
        text, _ = run("protoc", f"--proto_path={schema}", "--decode=pprof.Profile",
                      "profile.proto", stdin=plain)
        unknown = [line for line in text.splitlines() if re.match(r"\s*\d+[: {]", line)]
        expect(not unknown, f"{name}: fields outside the schema", unknown)
        strings = re.findall(r'^string_table: "(.*)"$', text, re.M)
        expect(strings[0] == "", f"{name}: the first string is empty")
        expect(len(strings) == len(set(strings)), f"{name}: each string once", strings)
        for table in "mapping", "location", "function":
            ids = re.findall(rf"^{table} \{{\n  id: (\d+)$", text, re.M)
            expect([int(i) for i in ids] == list(range(1, len(ids) + 1)), f"{name}: {table} ids")


def main():
    subprocess.run([sys.argv[1], work], check=True)
    missing = [tool for tool in ("go", "protoc") if not shutil.which(tool)]
    if "protoc" not in missing:
        check_protoc(sys.argv[2])
    if "go" not in missing:
        check_go()
    for tool in missing:
        print(f"skipped: {tool} is not installed")
    return SKIPPED if missing else 0


with tempfile.TemporaryDirectory() as work:
    sys.exit(main())
