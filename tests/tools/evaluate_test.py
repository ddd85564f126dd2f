"""`kvreplay evaluate` on a small random model: what it writes, full attention, ranks, mistakes."""

import csv
import math
import subprocess
import sys
import unittest

import h5py
import numpy as np

import tiny_model
from program import SOURCE, ProgramTest

PROMPT, STEPS = 120, 16
SYSTEMS = "in_memory,kvswap,quest,kivi_2,streaming_llm"


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Evaluate(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = tiny_model.write(cls.folder / "tiny", head_dim=32, hidden_size=96,
                                  num_hidden_layers=4)
        cls.model = cls.folder / "tiny.kvmodel"
        subprocess.run([sys.executable, "-B", SOURCE / "tools/import_model.py", source, cls.model],
                       check=True, stderr=subprocess.DEVNULL)
        for seed, name in enumerate(["ids", "other"]):
            ids = np.random.default_rng(seed).integers(0, 101, PROMPT + STEPS)
            (cls.folder / f"{name}.txt").write_text(" ".join(map(str, ids)))
        cls.adapters = cls.folder / "other.kvtrace.h5"
        cls.succeed("record", "--model", cls.model, "--token-ids", "other.txt", "--prompt", PROMPT,
                    "--steps", STEPS, "--out", cls.adapters)
        cls.printed = cls.evaluate("first", "--adapter-trace", cls.adapters)
        cls.rows = read_csv(cls.folder / "first/closed_loop.csv")

    @classmethod
    def evaluate(cls, out, *more, systems=SYSTEMS):
        return cls.succeed("evaluate", "--model", cls.model, "--token-ids", "ids.txt", "--systems",
                           systems, "--budgets", "16,48", "--bits", "2,8", "--prompt", PROMPT,
                           "--steps", STEPS, "--out", out, *more)

    def row(self, system, budget=""):
        return next(row for row in self.rows
                    if (row["system"], row["budget"]) == (system, budget))

    def test_a_row_a_budget(self):
        self.assertEqual([(row["system"], row["budget"], row["budget_unit"]) for row in self.rows],
                         [("in_memory", "", ""), ("kvswap", "16", "tokens"),
                          ("kvswap", "48", "tokens"), ("quest", "16", "tokens"),
                          ("quest", "48", "tokens"), ("kivi_2", "2", "bits"),
                          ("kivi_2", "8", "bits"), ("streaming_llm", "", "")])
        for file in ["steps.csv", "ranks.csv", "table.txt", "manifest.json"]:
            self.assertTrue((self.folder / "first" / file).stat().st_size)
        self.assertEqual(list((self.folder / "first").glob("*.h5*")), [])

    def test_full_attention_is_what_record_measures(self):
        self.succeed("record", "--model", self.model, "--token-ids", "ids.txt", "--prompt", PROMPT,
                     "--steps", STEPS, "--out", "full.kvtrace.h5")
        with h5py.File(self.folder / "full.kvtrace.h5") as trace:
            logs = trace["tokens/log_probability"][PROMPT:-1].astype(np.float64)
        perplexity = math.exp(-logs.mean())
        for row in self.rows:
            self.assertAlmostEqual(float(row["full_perplexity"]) / perplexity, 1, delta=1e-6)
        self.assertAlmostEqual(float(self.row("in_memory")["perplexity"]) / perplexity, 1,
                               delta=2e-2)
        self.assertLess(float(self.row("in_memory")["kl"]), 1e-3)
        self.assertLess(float(self.row("in_memory")["output_error"]), 1e-3)

    def test_more_budget_is_nearer_to_full_attention(self):
        for system, less, more in [("quest", "16", "48"), ("kivi_2", "2", "8"),
                                   ("kvswap", "16", "48")]:
            self.assertGreater(float(self.row(system, less)["kl"]),
                               float(self.row(system, more)["kl"]))
            self.assertGreater(float(self.row(system, less)["output_error"]),
                               float(self.row(system, more)["output_error"]))
        self.assertLess(float(self.row("kivi_2", "2")["stored_bits"]), 16)
        self.assertLess(float(self.row("quest", "16")["attended_tokens"]), PROMPT)

    def test_ranks_are_correlations(self):
        ranks = read_csv(self.folder / "first/ranks.csv")
        self.assertEqual(len(ranks), 6)
        for row in ranks:
            self.assertEqual(int(row["cells"]), len(self.rows))
            self.assertLessEqual(abs(float(row["spearman"])), 1)
            self.assertLessEqual(abs(float(row["kendall"])), 1)
        self.assertIn("spearman", self.printed)

    def test_the_same_bytes_on_any_number_of_threads(self):
        for threads in (1, 3):
            self.evaluate(f"threads {threads}", "--threads", threads, "--adapter-trace",
                          self.adapters)
            for file in ["closed_loop.csv", "steps.csv", "ranks.csv", "table.txt", "manifest.json"]:
                self.assertEqual((self.folder / f"threads {threads}" / file).read_bytes(),
                                 (self.folder / "first" / file).read_bytes(), file)

    def test_the_figure(self):
        subprocess.run(["/usr/bin/python3", "-B", SOURCE / "tools/plot_closed_loop.py",
                        self.folder / "first"], check=True, stdout=subprocess.DEVNULL)
        self.assertGreater((self.folder / "first/closed_loop.png").stat().st_size, 10000)

    def test_mistakes(self):
        command = ["evaluate", "--model", self.model, "--token-ids", "ids.txt", "--out", "bad",
                   "--prompt", PROMPT]
        self.refuses([*command, "--systems", "quets"], ["quets", "quest"])
        self.refuses([*command, "--systems", "quest", "--steps", 17], ["136 tokens", "137"])
        self.refuses([*command, "--systems", "kvswap", "--steps", STEPS], ["--adapter-trace"])
        self.refuses([*command, "--systems", "quest", "--needle"], ["tokenizer"])


if __name__ == "__main__":
    unittest.main()
