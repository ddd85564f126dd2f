"""kvreplay tune: a search and KVSwap's tuner, end to end."""

import csv
import json
import os
import re
import signal
import subprocess
import time
import unittest

from program import PROGRAM, SOURCE, ProgramTest

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5",
    "system": ["in_memory", "quest", "kvswap", "clusterkv"],
    "model": "smollm2-135m", "platform": "oneplus12", "device": "ufs40", "batch": 1,
    "warm_up_steps": 2, "timed_steps": 4,
    "set": {"system.stream.dense_layers": 0, "system.selection.budget_tokens": 48,
            "system.kvswap.cache.capacity_groups": 24, "model.weight_bits": 4},
}
RESULTS = {"evaluated.csv", "front.csv", "comparison.csv", "best.json", "replay.json",
           "judged.model.json", "judged.platform.json", "judged.device.json", "answer.txt",
           "manifest.json", "figure.png", "figure.pdf"}


class Tune(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, 16)
        cls.cut_trace("other.kvtrace.h5", 320, 16)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))

    @classmethod
    def files(cls, name):
        return {file.name: file.read_bytes() for file in (cls.folder / name).iterdir()}

    @classmethod
    def tune(cls, out, *options):
        return cls.succeed("tune", "experiment.json", "--cache", "kept", "--evaluations", 24,
                           "--population", 8, "--out", out, *options)

    def rows(self, out, name="evaluated.csv"):
        with open(self.folder / out / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_any_on_any_number_of_threads_and_again(self):
        answer = self.tune("any", "--system", "any", "--max-dram", "3MiB", "--validate",
                           "other.kvtrace.h5", "--threads", 1)
        first = self.files("any")
        self.assertEqual(set(first), RESULTS | {"validation.other.csv"})
        self.assertEqual(first["answer.txt"].decode(), answer)
        self.tune("again", "--system", "any", "--max-dram", "3MiB", "--validate",
                  "other.kvtrace.h5", "--threads", 2)
        self.assertEqual(self.files("again"), first)
        self.succeed("tune", "experiment.json", "--no-cache", "--evaluations", 24, "--population",
                     8, "--out", "fresh", "--system", "any", "--max-dram", "3MiB", "--validate",
                     "other.kvtrace.h5")
        self.assertEqual(self.files("fresh"), first)

        rows = self.rows("any")
        self.assertEqual(len(rows), 24 + 4)
        self.assertEqual([row["system"] for row in rows if row["reference"] == "1"],
                         EXPERIMENT["system"])
        self.check_front(rows, ("output_error", "latency_ms"))
        for row in rows:
            fits = float(row["dram_kv_bytes"]) <= 3 << 20
            self.assertEqual(row["feasible"], "1" if fits else "0")
        self.assertIn("On other, which nothing was tuned on", answer)
        # As many tries for each system in the comparison.
        self.assertEqual({row["variant_of"] for row in rows}, {"", *EXPERIMENT["system"]})
        self.assertIn("Minimised: lost quality and latency.", answer)
        self.assertIn("No system, as it ships or tuned, is better than", answer)
        best, = (line for line in answer.splitlines() if line.startswith("Best by"))
        for measure in ("output error", "attention mass"):
            self.assertEqual(best.count(measure), 1, best)
        self.assertTrue(first["figure.png"].startswith(b"\x89PNG"))

    def check_front(self, rows, keys):
        """Computed by the definition from the numbers in the file. `keys`: what is minimised."""
        points = [tuple(float(row[key]) for key in keys) for row in rows]
        reached = [(row["reference"] != "1", float(row["output_error"]), float(row["latency_ms"]),
                    float(row["dram_kv_bytes"])) for row in rows]
        fits = [row["feasible"] == "1" for row in rows]
        for i, row in enumerate(rows):
            beaten = any(fits[j] and all(b <= a for a, b in zip(points[i], other)) and
                         other != points[i] for j, other in enumerate(points))
            # Of equals the one that reaches more, and of those the first.
            equal = any(fits[j] and other == points[i] and (reached[j], j) < (reached[i], i)
                        for j, other in enumerate(points))
            self.assertEqual(row["front"] == "1", fits[i] and not beaten and not equal,
                             row["system"])

    def test_the_best_is_a_system(self):
        self.tune("quest", "--system", "quest", "--against", "quest", "--best-by", "latency",
                  "--hold", "cache",
                  "--device", "emmc51", "--set", "model.weight_bits=8")
        config = json.loads((self.folder / "quest/manifest.json").read_text())["config"]
        self.assertEqual(list(config["device"]), ["emmc51"])
        self.assertEqual(config["model"]["smollm2-135m"]["weight_bits"], 8)
        rows = self.rows("quest")
        self.assertEqual({row["grouping"] for row in rows
                          if row["reference"] == "0" and row["variant_of"] == ""}, {"page"})
        front = self.rows("quest", "front.csv")
        self.assertEqual([row for row in rows if row["front"] == "1"], front)
        best = min(front, key=lambda row: (float(row["latency_ms"]), float(row["output_error"])))
        self.assertIn("Not validated", self.files("quest")["answer.txt"].decode())
        # The experiment's own setting would replace what was found.
        budget = json.loads((self.folder / "quest/best.json").read_text())["selection"]["budget_tokens"]
        said = self.succeed("run", "experiment.json", "--set", "system=quest/best.json", "--set",
                            f"system.selection.budget_tokens={budget}", "--set", "device=emmc51",
                            "--set", "model.weight_bits=8", "--format", "csv", "--out", "best")
        self.assertIn("latency_ms", said)
        replayed = self.rows("best", "results.csv")[0]
        for key in ("latency_ms", "output_error", "dram_kv_bytes"):
            self.assertEqual(replayed[key], best[key])

    def test_what_was_found_replays_to_the_same_numbers(self):
        self.tune("found", "--system", "any", "--max-dram", "3MiB", "--no-validation")
        name = json.loads((self.folder / "found/manifest.json").read_text())["tune"]["best"]
        best, = (row for row in self.rows("found") if row["system"] == name)
        self.succeed("run", "found/replay.json", "--out", "found-run")
        replayed, = self.rows("found-run", "results.csv")
        for key in replayed.keys() - {"system"}:
            self.assertEqual(replayed[key], best[key], key)
        # An experiment that would replace what was found says so, and names both.
        found = json.loads((self.folder / "found/best.json").read_text())
        found["selection"] = {"part": "top_groups", "budget_tokens": 17}
        (self.folder / "changed.json").write_text(json.dumps(found))
        self.refuses(["run", "experiment.json", "--set", "system=./changed.json"],
                     ["experiment.json: /set/system.selection.budget_tokens", "= 48",
                      "would replace 17 of", "changed.json"])

    def test_a_limit_is_an_objective_where_asked(self):
        answer = self.tune("small", "--system", "quest", "--max-dram", "3MiB", "--also-minimise",
                           "dram", "--no-validation")
        self.assertIn("Minimised: lost quality, latency and dram.", answer)
        # Of the tuned system alone.
        rows = [row for row in self.rows("small") if row["system"] == "quest" or
                row["reference"] == "0" and row["variant_of"] == ""]
        self.check_front(rows, ("output_error", "latency_ms", "dram_kv_bytes"))
        self.assertTrue({row["grouping"] for row in self.rows("small", "front.csv")} == {"page"})
        self.refuses(["tune", "experiment.json", "--system", "quest", "--also-minimise", "dramm"],
                     ["--also-minimise", "did you mean 'dram'"])

    def test_limits_that_nothing_meets(self):
        self.refuses(["tune", "experiment.json", "--no-cache", "--system", "quest",
                      "--against", "quest",
                      "--evaluations", 4, "--max-dram", "1kB", "--out", "none"],
                     ["none of 5 compositions", "dram_kv_bytes at most"])

    def test_kvswap_solutions(self):
        solve = ("tune", "experiment.json", "--system", "kvswap", "--cache", "kept",
                 "--budget-mib", 60, "--max-context", "2K", "--max-batch", 3, "--max-group-tokens",
                 4)
        table = self.succeed(*solve, "--out", "solved", "--threads", 1)
        self.succeed(*solve, "--out", "solved-2", "--threads", 2)
        self.assertEqual(self.files("solved"), self.files("solved-2"))
        solutions = json.loads((self.folder / "solved/solutions.json").read_text())
        found = solutions["solutions"]
        self.assertEqual([(one["context_tokens"], one["batch"]) for one in found],
                         [(context, batch) for context in (1024, 2048) for batch in (1, 2, 3)])
        self.assertEqual(len(table.splitlines()), 1 + len(found))
        self.assertNotIn("nan", table)
        for one in found:
            self.assertGreater(one["attention_mass"], 0)
        for one in found:
            # 30 layers, 192 elements of keys, entries of 768 bytes, 48 selected tokens.
            memory = 30 * (one["context_tokens"] * (192 // one["sigma"]) * 2 +
                           (one["capacity_groups"] + 1) * one["group_tokens"] * 768) + 2 * 48 * 768
            self.assertEqual(one["memory_bytes"], memory)
            self.assertLessEqual(memory, 60 << 20)
            self.assertEqual(one["hidden"], one["hidden_share"] >= 0.9)
        # The recorded adapter has 48 of 192 columns.
        self.assertEqual(solutions["problem"]["sigmas"], [4, 8, 16, 32])
        manifest = json.loads((self.folder / "solved/manifest.json").read_text())
        self.assertEqual(manifest["command"], "kvreplay tune experiment.json --system kvswap "
                         "--budget-mib 60 --max-context 2048 --max-batch 3 --max-group-tokens 4")
        self.assertEqual(manifest["tune"]["problem"], solutions["problem"])
        self.assertEqual(manifest["tune"]["max_context"], 2048)
        self.assertTrue(solutions["tables"]["reuse"] and solutions["tables"]["quality"])
        page = (SOURCE / "docs/tuning.md").read_text()
        for member in (*solutions, *solutions["made_for"], *solutions["problem"], *found[0]):
            self.assertIn(f"`{member}`", page)

        said = self.kvreplay("tune", "--look-up", "solved/solutions.json", "--batch", 2,
                             "--context", "2K")
        self.assertIn("the solution for batch 2, context 2048", said.stderr)
        system = json.loads(said.stdout)
        exact = next(one for one in found
                     if one["batch"] == 2 and one["context_tokens"] == 2048)
        self.assertEqual(system["grouping"]["group_tokens"], exact["group_tokens"])
        self.assertEqual(system["scoring"]["sigma"], exact["sigma"])
        self.assertEqual(system["cache"]["capacity_groups"], exact["capacity_groups"])
        (self.folder / "mine.json").write_text(said.stdout)
        self.succeed("run", "experiment.json", "--set", "system=./mine.json", "--out", "mine")
        said = self.kvreplay("tune", "--look-up", "solved/solutions.json", "--batch", 8,
                             "--context", 1500)
        self.assertIn("the nearest solution, for batch 3, context 2048", said.stderr)

    def test_a_run_takes_no_more_than_the_budget(self):
        for group_tokens in (1, 4):
            out = f"budget-{group_tokens}"
            self.succeed("tune", "experiment.json", "--system", "kvswap", "--cache", "kept",
                         "--budget-mib", 4, "--max-context", 272, "--alpha", 0,
                         "--max-group-tokens", group_tokens, "--max-sigma", 4, "--out", out)
            one = json.loads((self.folder / out / "solutions.json").read_text())["solutions"][0]
            system = self.succeed("tune", "--look-up", f"{out}/solutions.json", "--context", 272)
            (self.folder / "looked-up.json").write_text(system)
            self.succeed("run", "experiment.json", "--set", "system=./looked-up.json", "--out",
                         f"{out}-run")
            row = self.rows(f"{out}-run", "results.csv")[0]
            memory = {key: int(row[f"dram_{key}_bytes"])
                      for key in ("kv", "index", "cache", "buffered", "landing")}
            group = one["group_tokens"] * 768
            bounds = {"index": 30 * 272 * 48 * 2, "cache": 30 * one["capacity_groups"] * group,
                      "buffered": 30 * group, "landing": 2 * 48 * 768}
            self.assertEqual(sum(bounds.values()), one["memory_bytes"])
            self.assertLessEqual(one["memory_bytes"], 4 << 20)
            self.assertLessEqual(memory["kv"], one["memory_bytes"])
            self.assertEqual(memory["landing"], bounds["landing"])
            # The last steps' keys wait for their group, and not every slot has been filled.
            for key in ("index", "cache", "buffered"):
                self.assertLessEqual(memory[key], bounds[key], key)
            self.assertGreaterEqual(memory["index"], bounds["index"] - 30 * 8 * 48 * 2)

    def test_a_longer_context_has_the_recordings_quality(self):
        said = self.kvreplay("tune", "experiment.json", "--system", "quest", "--cache", "kept",
                             "--evaluations", 2, "--no-validation", "--set", "model.context_tokens=2048",
                             "--out", "longer")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertNotIn("no figure", said.stderr)
        self.assertIn("quality is that of the recording's 272 tokens", said.stdout)
        self.assertNotIn("nan", said.stdout)
        for row in self.rows("longer", "evaluated.csv"):
            self.assertGreaterEqual(float(row["output_error"]), 0)
            self.assertGreater(float(row["attention_mass"]), 0)

    def test_no_solution_fits_a_far_longer_context(self):
        self.succeed("tune", "experiment.json", "--system", "kvswap", "--cache", "kept",
                     "--budget-mib", 8, "--max-context", "1K", "--max-group-tokens", 1,
                     "--out", "short")
        self.refuses(["tune", "--look-up", "short/solutions.json", "--context", "1M"],
                     ["--context", "1048576", "up to ", "8.0 MiB"])

    def test_bad_options(self):
        tune = ["tune", "experiment.json"]
        self.refuses(tune, ["--system", "any"])
        self.refuses([*tune, "--system", "kvswp"], ["kvswp", "kvswap"])
        self.refuses([*tune, "--system", "any", "--max-dram", "much"], ["--max-dram", "much"])
        self.refuses([*tune, "--system", "any", "--max-latency-ms", "0"], ["--max-latency-ms"])
        self.refuses([*tune, "--system", "any", "--max-dram", "0"], ["--max-dram", "at least 1"])
        self.refuses([*tune, "--system", "any", "--quality", "beauty"], ["--quality", "beauty"])
        self.refuses([*tune, "--system", "any", "--hold", "precisoin"], ["precisoin", "precision"])
        self.refuses([*tune, "--system", "any", "--exclude", "grouping/globl"],
                     ["grouping/globl", "grouping/global"])
        self.refuses([*tune, "--system", "any", "--set", "device=ufs40,emmc51"],
                     ["experiment", "--set device=ufs40"])
        self.refuses([*tune, "--system", "any", "--validate", "nowhere.h5"], ["nowhere.h5"])
        self.refuses([*tune, "--system", "any", "--evaluations", "0"], ["--evaluations"])
        for value in ("nan", "inf"):
            self.refuses([*tune, "--system", "any", "--max-latency-ms", value],
                         ["--max-latency-ms"])
        for seed in ("-1", "99999999999999999999"):
            self.refuses([*tune, "--system", "any", "--search-seed", seed], ["--search-seed"])
        solve = [*tune, "--system", "kvswap", "--budget-mib", "60"]
        self.refuses([*solve, "--max-context", "2K", "--alpha", "nan"], ["--alpha"])
        self.refuses([*solve, "--max-context", "2K", "--max-dram", "1MiB"],
                     ["--max-dram", "--budget-mib"])
        self.refuses([*tune, "--system", "kvswap", "--max-context", "2K"],
                     ["--max-context", "without --budget-mib"])
        self.refuses([*tune, "--system", "any", "--budget-mib", "60"], ["--system", "any"])
        self.refuses(["tune", "--look-up", "x.json", "--context", "2K", "--out", "x"], ["--out"])
        self.refuses(solve, ["--max-context"])
        self.refuses([*solve, "--max-context", "100"], ["--max-context", "272 tokens"])
        self.refuses([*tune, "--system", "quest", "--budget-mib", "60", "--max-context", "2K"],
                     ["min_max", "low_rank"])
        self.refuses([*tune, "--system", "kvswap", "--no-cache", "--budget-mib", "1",
                      "--max-context", "2K"], ["--budget-mib", "more"])
        self.refuses(["tune", "--look-up", "experiment.json", "--context", "2K"], ["format"])
        self.refuses(["tune", "--look-up", "nowhere.json"], ["--context"])

    def test_an_interrupt_says_what_is_kept(self):
        for command in (["tune", "experiment.json", "--system", "any", "--evaluations", "5000"],
                        ["sweep", "experiment.json", "--set",
                         "system.selection.budget_tokens={\"from\": 8, \"to\": 250, \"step\": 1}"]):
            cache = f"stopped {command[0]}"
            process = subprocess.Popen([PROGRAM, *command, "--cache", cache, "--out", "stopped"],
                                       cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            # The first finished stage proves that the search is running.
            while process.poll() is None and not list((self.folder / cache).glob("time/*/*")):
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            self.assertEqual(process.returncode, 128 + signal.SIGINT, said)
            line = said.splitlines()[-1]
            self.assertEqual(line, f"kvreplay: interrupted; what is finished is kept in {cache}; "
                             "the same command continues from there")
            self.assertFalse((self.folder / "stopped").exists())
            self.assertFalse([name for name in os.listdir(self.folder)
                              if re.search(r"partial", name)])


if __name__ == "__main__":
    unittest.main()
