#!/usr/bin/env python3
"""check-layers and check-style must find what they are for: each test makes a small tree.

usage: test-tools.py FOLDER-OF-THE-TOOLS
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

tools = os.path.abspath(sys.argv.pop())

LAYERS = "low:\nhigh: low\ntests: *\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.write("tools/layers.txt", LAYERS)

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def run_tool(self, name):
        done = subprocess.run([sys.executable, os.path.join(tools, name), self.root],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class Layers(Tree):
    def test_what_the_matrix_allows(self):
        self.write("low/a.c", '#include "low/a.h"\n#include <stdio.h>\n')
        self.write("high/sub/b.c", '#include "low/a.h"\n#include "high/b.h"\n')
        self.write("tests/c.c", '#include "high/b.h"\n#include "tests/d.h"\n')
        code, out = self.run_tool("check-layers")
        self.assertEqual((code, out), (0, "3 files, 0 violations of the layers\n"))

    def test_an_include_upwards(self):
        self.write("low/a.c", 'int x;\n#  include "high/b.h"\n')
        code, out = self.run_tool("check-layers")
        self.assertEqual(code, 1)
        self.assertIn('low/a.c:2: low may not use high ("high/b.h")\n', out)

    def test_an_include_of_a_test(self):
        self.write("high/a.c", '#include "tests/b.h"\n')
        code, out = self.run_tool("check-layers")
        self.assertEqual(code, 1)
        self.assertIn("high/a.c:1:", out)

    def test_an_include_that_hides_its_folder(self):
        self.write("low/a.c", '#include "a.h"\n#include "../high/b.h"\n')
        code, out = self.run_tool("check-layers")
        self.assertEqual(code, 1)
        self.assertIn("low/a.c:1:", out)
        self.assertIn("low/a.c:2:", out)

    def test_a_folder_without_a_line(self):
        self.write("new/a.c", '#include "low/a.h"\n')
        self.write("low/b.c", '#include "new/a.h"\n')
        code, out = self.run_tool("check-layers")
        self.assertEqual(code, 1)
        self.assertIn("new/a.c:1: new/a.c is in no layer", out)
        self.assertIn('low/b.c:1: "new/a.h" is in no layer', out)

    def test_a_circle(self):
        self.write("tools/layers.txt", "a: b\nb: c\nc: a\n")
        self.write("a/a.c", "")
        self.assertEqual(self.run_tool("check-layers")[0], 2)

    def test_an_unknown_layer(self):
        self.write("tools/layers.txt", "a: b\n")
        self.write("a/a.c", "")
        self.assertEqual(self.run_tool("check-layers")[0], 2)

    def test_an_empty_tree(self):
        self.assertEqual(self.run_tool("check-layers")[0], 2)


class Style(Tree):
    def setUp(self):
        super().setUp()
        self.write(".clang-format", "DisableFormat: true\n")

    def test_clean(self):
        self.write("low/a.c", "int f(void)\n{\n    return 1;\n}\n")
        code, out = self.run_tool("check-style")
        self.assertEqual(code, 0, out)

    def test_lines(self):
        self.write("low/a.md", "a\tb\nc \nend")
        code, out = self.run_tool("check-style")
        self.assertEqual(code, 1)
        self.assertIn("low/a.md:1: tab\n", out)
        self.assertIn("low/a.md:2: blanks", out)
        self.assertIn("low/a.md:3: no newline", out)

    def test_a_long_file(self):
        self.write("low/a.def", "x\n" * 1001)
        self.write("low/b.def", "x\n" * 1000)
        code, out = self.run_tool("check-style")
        self.assertEqual(code, 1)
        self.assertIn("low/a.def:1001:", out)
        self.assertNotIn("low/b.def", out)

    def test_a_long_function(self):
        body = "    g();\n"
        self.write("low/a.c", "void f(void)\n{\n" + body * 99 + "}\n")
        self.write("low/b.c", "void f(void)\n{\n" + body * 98 + "}\n")
        code, out = self.run_tool("check-style")
        self.assertEqual(code, 1)
        self.assertIn("low/a.c:2: a function of 101 lines", out)
        self.assertNotIn("low/b.c", out)

    def test_a_script_without_an_ending(self):
        self.write("tools/x", "#!/bin/sh\n\ttrue\n")
        code, out = self.run_tool("check-style")
        self.assertEqual(code, 1)
        self.assertIn("tools/x:2: tab", out)

    @unittest.skipUnless(shutil.which("clang-format-14"), "clang-format-14 is not installed")
    def test_the_format(self):
        self.write(".clang-format", "BasedOnStyle: LLVM\n")
        self.write("low/a.c", "int   x;\nint   y;\n")
        code, out = self.run_tool("check-style")
        self.assertEqual(code, 1)
        self.assertEqual(out.count("low/a.c:1: format:"), 1)


unittest.main()
