"""How the Python commands end: a pipe that nobody reads, Ctrl-C while they start, files that cannot be
read or written, numbers that are none, one order of verdicts."""

import csv
import os
import pathlib
import signal
import subprocess
import sys
import unittest

from program import PROGRAM, SOURCE, ProgramTest

from kvreplay import plot_claims, plot_live, reproduce_verdicts
from kvreplay.errors import UserError

PACKAGE = SOURCE / "tools/python/kvreplay"
HEADER = ("system", "steps", "latency_ms", "compute_ms", "exposed_io_ms", "dram_kv_bytes")


class CommandLine(ProgramTest):
    def results(self, name, *rows):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        text = "".join(",".join(row) + "\n" for row in (HEADER, *rows))
        (folder / "results.csv").write_text(text, encoding="utf-8")
        return name

    def setUp(self):
        for name, latency in (("a", "10"), ("b", "12")):
            self.results(name, ("quest", "4", latency, "7", "3", "44030976"))

    def python(self, *words, **options):
        return subprocess.run([sys.executable, "-B", PACKAGE, *map(str, words)], cwd=self.folder,
                              text=True, check=False, stderr=subprocess.PIPE, **options)

    def line_of(self, *words):
        """The one line with which a mistake ends."""
        done = self.python(*words, stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("kvreplay: "), done.stderr)
        self.assertIn("allowed: ", done.stderr)
        return done.stderr

    def test_nobody_reads(self):
        for words in (("compare", "a", "b"), ("plot", "--help")):
            read, write = os.pipe()
            os.close(read)
            done = self.python(*words, stdout=write)
            os.close(write)
            self.assertEqual((done.returncode, done.stderr), (128 + signal.SIGPIPE, ""))

    def test_an_interrupt_while_modules_load(self):
        slow = self.folder / "slow"
        slow.mkdir()
        (slow / "pandas.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
        with subprocess.Popen([sys.executable, "-B", PACKAGE, "compare", "a", "b"], cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": str(slow)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), "loading\n")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        self.assertEqual((process.returncode, said), (-signal.SIGINT, ""))

    def test_numbers_of_tokens_have_one_grammar(self):
        for command, option in (("record", "--prompt"), ("record", "--steps"), ("live", "--prompt"),
                                ("evaluate", "--steps"), ("cut", "--prompt"), ("synth", "--tokens")):
            for number in ("16X", "-1", "1.5K", "99999999999"):
                done = self.kvreplay(command, option, number)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"{option}: found '{number}'; allowed: an integer from ", done.stderr)
                self.assertEqual("such as 512 or 16K" in done.stderr, number in ("16X", "1.5K"))
        self.cut_trace("small.kvtrace.h5", 2048, 4)
        self.succeed("cut", "small.kvtrace.h5", "k.kvtrace.h5", "--prompt", "2K", "--decode", "2")
        self.assertIn("2048", self.succeed("inspect", "k.kvtrace.h5").replace(",", ""))

    def test_a_trace_has_the_name_that_results_print(self):
        printed = "chat-4k-qwen2.5-coder-1.5b"
        self.assertEqual(self.succeed("inspect", printed), self.succeed("inspect", "chat"))

    def test_a_model_that_is_not_there_has_a_near_name(self):
        self.refuses(("record", "--model", "qwen2.5-coder-1.5B", "--text", SOURCE / "LICENSE", "--out",
                      "x.kvtrace.h5"), ("--model", "did you mean 'qwen2.5-coder-1.5b'?", "smollm2-135m"))

    def test_a_helper_that_works_on_is_heard(self):
        """Its first line comes while it works, its last one with its failure."""
        helper = self.folder / "helper"
        helper.write_text("#!/bin/sh\necho it begins >&2\nsleep 6\necho it went wrong >&2\nexit 2\n")
        helper.chmod(0o755)
        self.cut_trace("heard.kvtrace.h5", 256, 2)
        with subprocess.Popen([PROGRAM, "inspect", "heard.kvtrace.h5", "--plot", "plots"],
                              cwd=self.folder, env={**os.environ, "KVREPLAY_PYTHON": str(helper)},
                              text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            self.assertIn("drawing figures", process.stderr.readline())
            self.assertEqual(process.stderr.readline(), "it begins\n")
            self.assertIsNone(process.poll())
            rest = process.stderr.read()
        self.assertEqual(process.returncode, 2)
        self.assertRegex(rest, r"\Akvreplay: [^\n]*it went wrong[^\n]*\n\Z")

    def test_what_cannot_be_written(self):
        for option in ("--csv", "--plot"):
            self.assertIn(f"{option}: there is no folder",
                          self.line_of("compare", "a", "b", option, "nowhere/x"))
        (self.folder / "taken.csv").mkdir(exist_ok=True)
        self.assertIn("taken.csv: Is a directory",
                      self.line_of("compare", "a", "b", "--csv", "taken.csv"))

    def test_compare_names_what_is_no_number(self):
        for value in ("abc", "inf"):
            self.results("bad", ("quest", "4", value, "7", "3", "44030976"))
            said = self.line_of("compare", "a", "bad")
            for text in ("bad/results.csv", "row 1", "latency_ms", value):
                self.assertIn(text, said)
        self.results("empty", ("quest", "4", "", "7", "3", "44030976"))
        self.assertEqual(self.python("compare", "a", "empty", stdout=subprocess.DEVNULL).returncode, 0)

    def test_compare_of_nothing_in_common_is_an_error(self):
        self.results("other", ("kvswap", "4", "10", "7", "3", "44030976"))
        self.assertIn("in common", self.line_of("compare", "a", "other"))

    def test_compare_tells_a_replay_of_tune_from_a_device_replay(self):
        (self.folder / "tuned").mkdir(exist_ok=True)
        (self.folder / "tuned/replay.json").write_text("{}")
        self.assertIn("tuned/replay.json: is not of a device replay",
                      self.line_of("compare", "a", "tuned"))

    def test_compare_draws_both(self):
        done = self.python("compare", "a", "b", "--plot", "both", stdout=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        for ending in ("pdf", "png"):
            self.assertTrue((self.folder / f"both.{ending}").exists())

    def test_a_verdict_has_one_colour_and_place(self):
        found = []
        for order in (("reproduced", "not reproduced"), ("not reproduced", "reproduced")):
            with open(self.folder / "claims.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(plot_claims.NEEDED)
                writer.writerows(["p", "c", "", "1", verdict] for verdict in order)
            (_, figure), = plot_claims.figures(pathlib.Path(self.folder))
            found.append([(handle.get_label(), handle.get_facecolor())
                          for handle in figure.kvreplay_legend])
        self.assertEqual(found[0], found[1])

    def test_a_claim_on_what_is_no_number(self):
        with self.assertRaisesRegex(UserError, "claim c: column 'latency_ms' holds 'abc'.*allowed"):
            reproduce_verdicts.number_of({"latency_ms": "abc"}, {"latency_ms": 1}, "claim c")

    def test_live_draws_every_step_as_wide(self):
        self.results("live", ("quest", "3", "10", "7", "3", "44030976"))
        folder = self.folder / "live"
        (folder / "results.csv").write_text("model,system,device\nm,quest,live: ext4\n")
        (folder / "manifest.json").write_text("{}")
        (folder / "steps.csv").write_text(",".join(plot_live.NEEDED) + "\n" + "".join(
            f"{step},{1000 * step + 1000},{1000 * step + 1000},0,0\n" for step in range(3)))
        (_, figure), = plot_live.figures(folder)
        axes = figure.axes[0]
        self.assertEqual(axes.get_xlim(), (-0.5, 2.5))
        outline = axes.collections[0].get_paths()[0].vertices
        for step in range(3):  # its height, at both ends of its width
            for x in (step - 0.5, step + 0.5):
                self.assertTrue(((outline[:, 0] == x) & (outline[:, 1] == step + 1)).any(), (x, step))


if __name__ == "__main__":
    unittest.main()
