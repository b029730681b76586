#!/usr/bin/env python3
"""What the library says about managed methods, compared with reflection; and how it answers an attach.

Reads the ring itself (wire_reader.py): neither the agent nor its readable names are involved."""

import json
import os
import subprocess

import harness
import wire_reader
from harness import Case, attach_profiler, environment, wait_for
from wire_reader import WireReader, split_args

JOINED, DISABLED, BAD_DATA = 0x80131375, 0x80070005, 0x80070057
CANON = "System.__Canon"


def program():
    return os.path.join(environment("CLP_TARGETS"), harness.framework(), "ClpTarget")


def describe(questions):
    """Reflection's answers to [(path, token)]."""
    lines = "".join(f"{path}\t{token:08x}\n" for path, token in questions)
    done = subprocess.run([program(), "describe"], input=lines.encode(), capture_output=True,
                          timeout=120)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    return [json.loads(line) for line in done.stdout.splitlines()]


class NamesCase(Case):
    def attach(self, target, reader, **keywords):
        attach_profiler(target, environment("CLP_CLSID"), environment("CLP_LIBRARY"),
                        reader.announcement(**keywords))

    def refused(self, target, data):
        with self.assertRaises(harness.AttachError) as caught:
            attach_profiler(target, environment("CLP_CLSID"), environment("CLP_LIBRARY"), data)
        return caught.exception.hresult

    def sampled(self, target, seconds=6):
        reader = WireReader(self)
        self.attach(target, reader)
        reader.accept(interval_ns=2_000_000)
        reader.poll_for(seconds)
        return reader


class TestReflection(NamesCase):
    def test_names(self):
        target = self.target("stacks")
        target.begin()
        reader = self.sampled(target, 12)
        asked = [m for m in reader.methods.values() if m.token and m.image in reader.images]
        self.assertGreater(len(asked), 100, "methods with metadata in the samples")
        answers = describe([(reader.images[m.image][2], m.token) for m in asked])
        for method, truth in zip(asked, answers, strict=True):
            with self.subTest(method=repr(method)):
                self.compare(method, truth)
        self.check_kinds(asked, reader)
        self.assertTrue(target.alive(), target.describe_end)

    def compare(self, method, truth):
        self.assertEqual(method.type, truth["type"])
        self.assertEqual(method.name, truth["name"])
        self.assertEqual(method.signature, truth["signature"])
        for flag, key in ((wire_reader.OVERLOADED, "overloaded"), (wire_reader.ASYNC, "async"),
                          (wire_reader.ITERATOR, "iterator")):
            self.assertEqual(bool(method.flags & flag), truth[key], key)
        self.compare_arguments(method.type_args, truth["type_parameters"])
        self.compare_arguments(method.method_args, truth["method_parameters"])

    def compare_arguments(self, text, parameters):
        arguments = split_args(text)
        self.assertEqual(len(arguments), len(parameters), text)
        for argument, parameter in zip(arguments, parameters):
            self.assertNotEqual(argument, "")
            if argument.startswith(CANON):
                self.assertEqual(argument, f"{CANON}:{parameter}")

    def check_kinds(self, asked, reader):
        """The program runs all of these; a kind that never occurs would be tested by nothing."""
        def some(what, condition):
            self.assertTrue(any(condition(m) for m in reader.methods.values()), what)
        some("an async method", lambda m: m.flags & wire_reader.ASYNC)
        some("an overloaded method", lambda m: m.flags & wire_reader.OVERLOADED)
        some("a dynamic method", lambda m: m.flags & wire_reader.DYNAMIC and m.name)
        some("a generic method over a value type",
             lambda m: m.method_args and CANON not in m.method_args)
        some("code shared by reference types", lambda m: CANON + ":" in m.type_args)
        some("a method of a nested type", lambda m: "+" in m.type)
        for m in reader.methods.values():
            self.assertTrue(m.name, m)
            if m.flags & (wire_reader.DYNAMIC | wire_reader.STUB):
                self.assertEqual((m.type, m.token), ("", 0), m)
        for kind, build_id, path in (reader.images[m.image] for m in asked):
            self.assertEqual((kind, len(build_id)), (2, 16), path)


class TestStart(NamesCase):
    """Loaded with the process: nothing is older than the library."""

    def environment(self, **more):
        library = f"{environment('CLP_LIBRARY')}={{{environment('CLP_CLSID')}}};"
        return {"CORECLR_ENABLE_NOTIFICATION_PROFILERS": "1",
                "CORECLR_NOTIFICATION_PROFILERS": library, **more}

    def test_announced(self):
        reader = WireReader(self)
        target = self.target("stacks", env=self.environment(
            CLRPULSE_ATTACH=reader.announcement().hex()))
        reader.accept()
        target.begin()
        reader.poll_for(6)
        stacks = [reader.stack(s) for s in reader.samples if s[3]]
        named = [s for s in stacks if any(m and m.type.startswith("ClpTarget.") for m in s)]
        self.assertGreater(len(named), 50)
        self.assertEqual(target.quit(), 0)

    def test_idle_until_an_attach(self):
        target = self.target("stacks", env=self.environment())
        target.begin()
        wait_for(target.library_runs, 10, "the library's thread")
        reader = WireReader(self)
        with self.assertRaises(harness.AttachError) as caught:
            self.attach(target, reader)
        self.assertEqual(caught.exception.hresult, JOINED)
        reader.accept()
        reader.poll_for(10, lambda: len(reader.samples) > 100)
        self.assertGreater(len(reader.samples), 100)
        self.assertEqual(target.quit(), 0)

    def test_disabled(self):
        target = self.target("stacks", env=self.environment(CLRPULSE_DISABLE="1"))
        self.assertFalse(target.library_runs())
        self.assertEqual(self.refused(target, WireReader(self).announcement()), DISABLED)
        self.assertEqual(target.quit(), 0)


class TestRefusals(NamesCase):
    def test_bad_data(self):
        target = self.target("stacks")
        reader = WireReader(self)
        good = reader.announcement()
        for what, data in (("short", good[:-1]), ("long", good + b"\0"), ("one byte", b"x"),
                           ("magic", reader.announcement(magic=1)),
                           ("version", reader.announcement(version=99)),
                           ("no path", good[:48] + bytes(104)),
                           ("endless path", good[:48] + b"/" * 104)):
            with self.subTest(what=what):
                self.assertEqual(self.refused(target, data), BAD_DATA)
                self.assertFalse(target.library_runs())
        target.begin()
        self.assertTrue(self.sampled(target, 5).samples, "a good attach after the bad ones")
        self.assertEqual(target.quit(), 0)

    def test_disabled(self):
        for name in ("CLRPULSE_DISABLE", "DOTNET_EnableDiagnostics_Profiler"):
            with self.subTest(name=name):
                value = "0" if name.startswith("DOTNET") else "1"
                target = self.target("stacks", env={name: value})
                self.assertEqual(self.refused(target, WireReader(self).announcement()), DISABLED)
                self.assertFalse(target.library_runs())
                self.assertEqual(target.quit(), 0)


if __name__ == "__main__":
    harness.main()
