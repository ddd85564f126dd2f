#!/usr/bin/env python3
"""The N-th read, write, open, rename, fsync, mmap, start of a thread or allocation fails, in every
command that works long: no crash, a line and exit code 1 or 2, and no output that looks whole
(docs/robustness.md).

By default some N of each kind and two commands; FAULTS=all takes every one (but of allocations, of
which there are millions: FAULT_ALLOCATIONS=400) and all commands. Prints a table of what was
injected and what came of it."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import tiny_model
from program import PROGRAM, SANITIZED, SOURCE, ProgramTest, run_with_patience, tree

ALL = os.environ.get("FAULTS") == "all"
ONLY = os.environ.get("FAULT_COMMANDS", "").split(",") if os.environ.get("FAULT_COMMANDS") else None
MOST = 10**9 if ALL else 1
MOST_ALLOCATIONS = int(os.environ.get("FAULT_ALLOCATIONS", "400")) if ALL else 2
KINDS = ("read", "write", "open", "rename", "fsync", "mmap", "thread",
         *(() if SANITIZED else ("malloc", "child_malloc")))
CHILD_ALLOCATIONS = 3000  # of the process that first reads an HDF5 file; it ends uncounted
PATIENCE = 120  # seconds; only a hang takes as long
BRIEF = ("sweep", "record")  # without FAULTS=all: both kinds of output, files and folders
# Of a killed or damaged write nothing is lost but time: these may fail without a word.
MAY_SUCCEED = {"cache"}
EXPERIMENT = {
    "title": "test", "trace": "tiny.kvtrace.h5", "system": ["quest", "kvswap"],
    "model": "smollm2-135m", "platform": "orin_agx", "device": "ufs40", "batch": 1, "seed": 1,
    "timed_steps": 4, "warm_up_steps": 2, "threads": 1,
    "set": {"system.selection.budget_tokens": 32, "system.kvswap.cache.capacity_groups": 8}}


def spread(count, most):
    """At most `most` of 1..count: the first, the last, and some between; the last where it is one."""
    if count <= most:
        return range(1, count + 1)
    if most == 1:
        return [count]
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


def contents(folder):
    """The bytes of every file, but for what names a time or a run."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and path.name != "report.html":
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def is_finished_probe(path):
    if path.suffix != ".json":
        return False
    try:
        return json.loads(path.read_text(encoding="utf-8"))["complete"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_finished(path):
    """A finished probe, a folder with one's kind of record and what lies beside it, or a trace that
    has its checksums."""
    folder = path if path.is_dir() else path.parent
    if path.name.endswith(".kvtrace.h5"):
        return subprocess.run([PROGRAM, "verify", path], capture_output=True,
                              check=False).returncode == 0
    return is_finished_probe(path) or is_finished_probe(folder / "replay.json")


class InjectedFaults(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("cc"):
            raise unittest.SkipTest("no C compiler to make calls fail with (LD_PRELOAD)")
        cls.library = cls.folder / "fail.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", SOURCE / "tests/tools/fail_nth_call.c",
                        "-o", cls.library, "-ldl", *(["-DNO_MALLOC"] if SANITIZED else [])], check=True)
        cls.cut_trace("tiny.kvtrace.h5", 128, 8)
        (cls.folder / "tiny.json").write_text(json.dumps(EXPERIMENT))
        tiny_model.imported(cls.folder / "tiny.kvmodel", num_hidden_layers=2)
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 101) for i in range(80)))
        cls.succeed("run", "tiny.json", "--out", "done", "--format", "none")
        (cls.folder / "target.bin").write_bytes(os.urandom(8 << 20))
        cls.table = []

    @classmethod
    def tearDownClass(cls):
        for line in cls.table:
            print(line, file=sys.stderr)
        super().tearDownClass()

    def call(self, folder, arguments, kind, number, count=None):
        environment = dict(os.environ, LD_PRELOAD=self.library.name,  # a path with a space would be two
                           LD_LIBRARY_PATH=str(self.library.parent), FAULT_KIND=kind,
                           FAULT_NUMBER=str(number), FAULT_ROOT=str(folder),
                           ASAN_OPTIONS="verify_asan_link_order=0:allocator_may_return_null=1")
        if count:
            environment["FAULT_COUNT"] = str(count)
        return run_with_patience(PATIENCE, [PROGRAM, *map(str, arguments)], cwd=folder,
                                 env=environment)

    def inputs(self):
        """A new folder with what the commands read."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fault ", dir=self.folder))
        for name in ("tiny.kvtrace.h5", "tiny.json", "tiny.kvmodel", "ids.txt", "target.bin"):
            os.link(self.folder / name, folder / name)
        shutil.copytree(self.folder / "done", folder / "done")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def outcome(self, name, arguments, outputs, kind, number, whole, comparable):
        folder = self.inputs()
        before = tree(folder)
        result = self.call(folder, arguments, kind, number)
        what = f"{name}: {kind} {number}"
        self.assertIn(result.returncode, (0, 1, 2), f"{what}: {result.stderr}")
        after = tree(folder)
        left = {path for path in set(after) - set(before)
                if pathlib.PurePath(path).parts[0] not in MAY_SUCCEED}
        if result.returncode == 0:
            for output in outputs:
                self.assertTrue((folder / output).exists(), f"{what}: no {output}, exit code 0")
            if comparable:
                self.assertEqual(contents(folder / outputs[0]), whole,
                                 f"{what}: exit code 0 with other results")
        else:
            self.assertRegex(result.stderr, re.compile(r"^(kvreplay|report)[^\n]*: ", re.M), what)
            # What was finished before the failure, and only that, may stay.
            if comparable and (folder / outputs[0]).exists() and \
                    contents(folder / outputs[0]) == whole:
                left = {path for path in left if pathlib.PurePath(path).parts[0] != outputs[0]}
            left = {path for path in left if not is_finished(folder / path)}
            self.assertFalse(left, f"{what}: exit code {result.returncode}, but left {left}: "
                                   f"{result.stderr}")
        shutil.rmtree(folder)
        return result.returncode

    def inject(self, name, arguments, outputs, kinds=KINDS, comparable=True):
        if name not in (ONLY or ((name,) if ALL else BRIEF)):
            self.skipTest("takes FAULTS=all or FAULT_COMMANDS")
        folder = self.inputs()
        count_file = folder / "count"
        counts = {}
        whole = None
        for kind in kinds:
            for output in (*outputs, "cache"):
                path = folder / output
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            result = self.call(folder, arguments, kind, 0, count_file)
            self.assertEqual(result.returncode, 0, result.stderr)
            counts[kind] = (CHILD_ALLOCATIONS if kind == "child_malloc" else
                            int(count_file.read_text()))
            whole = contents(folder / outputs[0])
        for kind in kinds:
            most = MOST_ALLOCATIONS if kind.endswith("malloc") else MOST
            codes = collections.Counter()
            for number in spread(counts[kind], most):
                with self.subTest(command=name, kind=kind, number=number):
                    codes[self.outcome(name, arguments, outputs, kind, number, whole,
                                       comparable)] += 1
            self.table.append(f"{name:9} {kind:12} of {counts[kind]:7}: "
                              + ", ".join(f"{codes[code]} x exit {code}" for code in sorted(codes)))

    def test_run(self):
        self.inject("run", ["run", "tiny.json", "--access-log", "--out", "out"], ["out"])

    def test_sweep(self):
        self.inject("sweep", ["sweep", "tiny.json", "--cache", "cache", "--out", "out", "--quiet"],
                    ["out"])

    def test_record(self):
        self.inject("record", ["record", "--model", "tiny.kvmodel", "--token-ids", "ids.txt",
                               "--prompt", "64", "--steps", "16", "--threads", "1", "--out",
                               "out.kvtrace.h5"], ["out.kvtrace.h5"], comparable=False)

    def test_evaluate(self):
        self.inject("evaluate", ["evaluate", "--model", "tiny.kvmodel", "--token-ids", "ids.txt",
                                 "--systems", "quest", "--budgets", "16", "--prompt", "64",
                                 "--steps", "8", "--out", "out"], ["out"], comparable=False)

    def test_probe(self):
        self.inject("probe", ["device", "probe", "target.bin", "--size", "4K", "--depth", "1",
                              "--seconds", "0.01", "--out", "out.json"], ["out.json"],
                    comparable=False)

    @unittest.skipIf(SANITIZED, "a sanitizer has its own malloc")
    def test_allocations_of_a_probe(self):
        """Each of those about the first point, where JSON is made: a value that gets no memory for
        its members cannot be destroyed."""
        for number in range(60, 140):
            with self.subTest(number=number):
                self.outcome("probe", ["device", "probe", "target.bin", "--size", "4K", "--depth",
                                       "1", "--seconds", "0.01", "--out", "out.json"],
                             ["out.json"], "malloc", number, None, False)

    def test_replay(self):
        self.inject("replay", ["device", "replay", "tiny.json", "--set", "system=quest", "--steps",
                               "2", "--wrap", "--model-device", "ufs40", "--target", "target.bin",
                               "--out", "out"], ["out"], comparable=False)

    def test_report(self):
        self.inject("report", ["report", "done"], ["done/report.html"],
                    kinds=("read", "write", "open", "rename"), comparable=False)


if __name__ == "__main__":
    unittest.main()
