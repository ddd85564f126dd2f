"""`kvreplay evaluate` on a small random model: what it writes, full attention, ranks, mistakes."""

import csv
import json
import math
import subprocess
import unittest

import h5py
import numpy as np

import tiny_model
from program import SOURCE, ProgramTest

PROMPT, STEPS = 120, 16
SYSTEMS = "in_memory,kvswap,quest,kivi_2,streaming_llm,h2o"


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Evaluate(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_model.imported(cls.folder / "tiny.kvmodel", head_dim=32, hidden_size=96,
                                        num_hidden_layers=4)
        for seed, name in enumerate(["ids", "other"]):
            ids = np.random.default_rng(seed).integers(0, 101, PROMPT + STEPS)
            (cls.folder / f"{name}.txt").write_text(" ".join(map(str, ids)))
        cls.controller("narrow")
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
                          ("kivi_2", "8", "bits"), ("streaming_llm", "16", "tokens"),
                          ("streaming_llm", "48", "tokens"), ("h2o", "16", "tokens"),
                          ("h2o", "48", "tokens")])
        for file in ["steps.csv", "layers.csv", "ranks.csv", "table.txt", "manifest.json"]:
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
        self.assertLess(float(self.row("in_memory")["kl_nats"]), 1e-3)
        for error in ("output_error", "residual_error", "worst_layer_error"):
            self.assertLess(float(self.row("in_memory")[error]), 1e-3)

    def test_more_budget_is_nearer_to_full_attention(self):
        for system, less, more in [("quest", "16", "48"), ("kivi_2", "2", "8"),
                                   ("kvswap", "16", "48")]:
            self.assertGreater(float(self.row(system, less)["kl_nats"]),
                               float(self.row(system, more)["kl_nats"]))
            for error in ("output_error", "residual_error"):
                self.assertGreater(float(self.row(system, less)[error]),
                                   float(self.row(system, more)[error]))
        self.assertLess(float(self.row("kivi_2", "2")["stored_bits"]), 16)
        self.assertLess(float(self.row("quest", "16")["attended_tokens"]), PROMPT)

    def test_every_layer_has_a_row(self):
        layers = read_csv(self.folder / "first/layers.csv")
        for row in self.rows:
            here = [layer for layer in layers if (layer["system"], layer["budget"]) ==
                    (row["system"], row["budget"])]
            errors = [float(layer["residual_error"]) for layer in here]
            self.assertEqual([int(layer["layer"]) for layer in here], list(range(len(here))))
            self.assertAlmostEqual(float(row["residual_error"]), np.sqrt(np.mean(np.square(errors))), delta=1e-9)
            self.assertEqual(int(float(row["worst_layer"])), int(np.argmax(errors)))
        subprocess.run([SOURCE / "tools/plot", "layers", self.folder / "first"], check=True,
                       stdout=subprocess.DEVNULL)
        self.assertTrue((self.folder / "first/layers.png").stat().st_size)

    def test_a_kept_budget_counts_every_token(self):
        """Sinks and window, heavy and recent tokens: what is left when a step begins, and its own."""
        for system in ("streaming_llm", "h2o"):
            for budget in (16, 48):
                self.assertEqual(float(self.row(system, str(budget))["attended_tokens"]),
                                 budget + 1)

    def test_values_of_any_parameter(self):
        self.evaluate("sets", "--set", "kivi_2.precision.group_size=16,32", "--set",
                      "dwb.precision.file=narrow.json," + str(self.controller("wide")),
                      systems="kivi_2,dwb,quest")
        rows = read_csv(self.folder / "sets/closed_loop.csv")
        self.assertEqual([(row["system"], row["budget"], row["budget_unit"]) for row in rows],
                         [("kivi_2", "16", "group_size"), ("kivi_2", "32", "group_size"),
                          ("dwb", "narrow", "file"), ("dwb", "wide", "file"),
                          ("quest", "16", "tokens"), ("quest", "48", "tokens")])
        bits = [float(row["stored_bits"]) for row in rows]
        self.assertGreater(bits[0], bits[1])  # more scales
        self.assertLess(bits[2], 4)
        self.assertEqual(bits[3], 16)
        subprocess.run([SOURCE / "tools/plot", "closed-loop", self.folder / "sets"], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def controller(cls, name):
        """The shipped controller with a last layer that always chooses 2 or 16 bits."""
        shipped = json.loads((SOURCE / "configs/controllers/smollm2-135m-dialogue.json")
                             .read_text())
        shipped["parameters"][-4:] = [1000, 0, 0, 0] if name == "narrow" else [0, 0, 0, 1000]
        path = cls.folder / f"{name}.json"
        path.write_text(json.dumps(shipped))
        return path

    def test_ranks_are_correlations(self):
        ranks = read_csv(self.folder / "first/ranks.csv")
        self.assertEqual(len(ranks), 8)
        for row in ranks:
            self.assertEqual(int(row["cells"]), len(self.rows))
            self.assertLessEqual(abs(float(row["spearman"])), 1)
            self.assertLessEqual(abs(float(row["kendall"])), 1)
        self.assertRegex(self.printed, r"\nclosed_loop +open_loop +cells +spearman +kendall\n"
                                       r"kl_nats +output_error +11 +-?[01]\.\d{3} +-?[01]\.\d{3}\n")

    def test_the_same_bytes_on_any_number_of_threads(self):
        for threads in (1, 3):
            self.evaluate(f"threads {threads}", "--threads", threads, "--adapter-trace",
                          self.adapters)
            for file in ["closed_loop.csv", "steps.csv", "layers.csv", "ranks.csv", "table.txt",
                         "manifest.json"]:
                self.assertEqual((self.folder / f"threads {threads}" / file).read_bytes(),
                                 (self.folder / "first" / file).read_bytes(), file)

    def test_the_figure(self):
        subprocess.run([SOURCE / "tools/plot", "closed-loop", self.folder / "first"], check=True, stdout=subprocess.DEVNULL)
        self.assertGreater((self.folder / "first/closed_loop.png").stat().st_size, 10000)

    def test_mistakes(self):
        command = ["evaluate", "--model", self.model, "--token-ids", "ids.txt", "--out", "bad",
                   "--prompt", PROMPT]
        self.refuses([*command, "--systems", "quets"], ["quets", "quest"])
        self.refuses([*command, "--systems", "quest", "--steps", 17], ["136 tokens", "137"])
        self.refuses([*command, "--systems", "kvswap", "--steps", STEPS], ["--adapter-trace"])
        self.refuses([*command, "--systems", "quest", "--needle"], ["tokenizer"])
        for given, says in [("kivi_2", "SYSTEM.PART.PARAMETER"), ("kivi.precision.bits=2", "kivi_2"),
                            ("kivi_2.precision.bit=2", "bits"), ("kivi_2.precision.bits=", "values"),
                            ("kivi_2.precision.bits=99", "99")]:
            self.refuses([*command, "--systems", "quest,kivi_2", "--steps", STEPS, "--set", given],
                         [says])


if __name__ == "__main__":
    unittest.main()
