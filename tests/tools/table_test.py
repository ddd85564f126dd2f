"""Printed tables: their width, columns, order and formats, and `kvreplay table`."""

import csv
import io
import json
import unittest

from program import ProgramTest

from kvreplay.plot_metrics import axis_label

SMALL = ("--set", "timed_steps=2", "--set", "warm_up_steps=2", "--steps", "8")


class Tables(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        trace = cls.cut_trace("small.kvtrace.h5", 256, 16)
        cls.run_words = ("run", "first", "--set", f"trace={trace}", "--set", "device=ufs40,emmc51",
                         *SMALL)
        cls.printed = cls.succeed(*cls.run_words, "--out", "run")

    def rows(self):
        return list(csv.DictReader(io.StringIO((self.folder / "run/results.csv").read_text())))

    def assert_fits(self, text, width=100):
        self.assertLessEqual(max(map(len, text.splitlines())), width, text)

    def test_a_table_is_at_most_a_hundred_wide(self):
        self.assert_fits(self.printed)
        self.assertEqual(self.printed, (self.folder / "run/table.txt").read_text())
        for words in ("in_memory", "MB", "attention", "output", "Not shown (--columns"):
            self.assertIn(words, self.printed)
        self.assert_fits(self.succeed("table", "run", "--width", 80), 80)
        self.assertNotIn("Not shown", self.succeed("table", "run", "--width", 0))

    def test_a_longer_context_marks_hit_rates_and_has_no_quality(self):
        printed = self.succeed(*self.run_words, "--set", "model.context_tokens=1024", "--out",
                               "longer")
        self.assertIn("* of the recording's own length", printed)
        rows = list(csv.DictReader(io.StringIO((self.folder / "longer/results.csv").read_text())))
        self.assertEqual({row[name] for row in rows for name in
                          ("recall", "attention_mass", "output_error", "residual_error",
                           "worst_layer", "worst_layer_error")}, {""})
        for row in rows:
            self.assertIn(", stretched from 264", row["projection"])
        table = self.succeed("table", "longer", "--columns", "system,hit_rate", "--width", 0)
        for line, row in zip((line for line in table.splitlines() if "quest" in line),
                             (row for row in rows if row["system"] == "quest")):
            self.assertRegex(line, r"[01]\.\d+\*", row)
        own = self.succeed("table", "run", "--columns", "system,hit_rate", "--width", 0)
        self.assertNotIn("*", own)

    def test_the_table_again_is_what_the_run_printed(self):
        self.assertEqual(self.succeed("table", "run"), self.printed)
        self.assertEqual(self.succeed("table", "run/results.csv"), self.printed)

    def test_files_do_not_depend_on_what_is_printed(self):
        said = self.succeed(*self.run_words, "--columns", "system,latency_ms", "--sort",
                            "latency_ms:desc", "--format", "csv", "--out", "viewed")
        for name in ("results.csv", "results.json", "table.txt", "manifest.json"):
            self.assertEqual((self.folder / "viewed" / name).read_bytes(),
                             (self.folder / "run" / name).read_bytes(), name)
        rows = list(csv.DictReader(io.StringIO(said)))
        self.assertEqual(list(rows[0]), ["system", "latency_ms"])
        latencies = [float(row["latency_ms"]) for row in rows]
        self.assertEqual(latencies, sorted(latencies, reverse=True))
        self.assertEqual(sorted(row["latency_ms"] for row in rows),
                         sorted(row["latency_ms"] for row in self.rows()))

    def test_every_format(self):
        words = ("table", "run", "--columns", "device,system,dram_kv_bytes", "--sort", "device,system")
        document = json.loads(self.succeed(*words, "--format", "json"))
        by_name = sorted(self.rows(), key=lambda row: (row["device"], row["system"]))
        self.assertEqual([(row["device"], row["system"], str(row["dram_kv_bytes"]))
                          for row in document],
                         [(row["device"], row["system"], row["dram_kv_bytes"]) for row in by_name])
        markdown = self.succeed(*words, "--format", "md")
        self.assertIn("| device | system | dram_kv_bytes |\n|---|---|---|\n| emmc51 |", markdown)
        latex = self.succeed(*words, "--format", "latex")
        self.assertIn("\\begin{tabular}{llr}", latex)
        self.assertIn("in\\_memory", latex)
        self.assertIn("Device & System & DRAM of KV management \\\\", latex)
        self.assertEqual(self.succeed(*words, "--format", "none"), "")
        every = self.succeed("table", "run", "--format", "csv")
        self.assertEqual(every, (self.folder / "run/results.csv").read_text())

    def test_labels_stand_in_for_names(self):
        words = ("table", "run", "--columns", "device,system,latency_ms", "--label", "kvswap=Ours",
                 "--label", "in_memory=All in DRAM", "--label", "latency_ms=Latency [ms]")
        for name, head in (("table", "Latency [ms]"), ("md", "| device | system | Latency [ms] |"),
                           ("latex", "Device & System & Latency [ms] \\\\"),
                           ("csv", "device,system,Latency [ms]\n"), ("json", '"Latency [ms]"')):
            said = self.succeed(*words, "--format", name)
            self.assertIn(head, said)
            self.assertIn("Ours", said)
            self.assertIn("All in DRAM", said)
            self.assertNotIn("kvswap", said)
            self.assertIn("quest", said)
        self.refuses(("table", "run", "--label", "kvswpa=Ours"), ("--label", "kvswap"))
        self.refuses(("table", "run", "--label", "kvswap"), ("--label", "NAME=TEXT"))

    def test_heads_have_the_words_of_figures(self):
        one = csv.DictReader(io.StringIO((self.folder / "run/results.csv").read_text()))
        row = {**next(one), "system.cache.capacity_groups": "8", "system.cache.page_bytes": "64",
               "device.link_mb_s": "10", "requests_per_s": "7", "cache.share_percent": "1"}
        with (self.folder / "words.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, row)
            writer.writeheader()
            writer.writerow(row)
        said = self.succeed("table", "words.csv", "--columns", "all", "--format", "latex")
        heads = next(line for line in said.splitlines() if " & " in line).removesuffix(" \\\\")
        expected = [axis_label(name) for name in row]
        for name in ("Hidden I/O (ms)", "Flash energy per token (mJ)", "DRAM share", "Page",
                     "Link (MB/s)", "Requests per s", "Capacity (groups)", "Share (%)"):
            self.assertIn(name, expected)
        self.assertEqual(heads.replace("\\", "").split(" & "), expected)

    def test_columns_are_added_chosen_and_matched(self):
        added = self.succeed("table", "run", "--columns", "+dram_share,+recall")
        for words in ("dram_share", "recall", "latency"):
            self.assertIn(words, added.replace("\n", " ").replace("dram ", "dram_share "))
        self.assert_fits(added)
        self.assertNotIn("marks", added)
        self.assertIn("Not shown", added)
        # One that is constant stands above, one that is empty too.
        self.assertIn("batch: 1\n", added)
        self.assertIn("marks: -\n", self.succeed("table", "run", "--columns", "+marks"))
        help_text = self.succeed("run", "--help")
        self.assertIn("--columns +dram_share,+recall", help_text)
        chosen = self.succeed("table", "run", "--columns", "latency_*")
        self.assertIn("p99", chosen)
        self.assertIn("kvswap", chosen)  # rows without names say nothing
        layers = self.succeed("table", "run/quality.csv", "--sort", "output_error:desc")
        self.assertIn("layer", layers)
        self.assert_fits(layers)

    def test_what_no_machine_could_hold(self):
        result = self.kvreplay(*self.run_words, "--set", "platform.dram_bytes=64MiB", "--out", "tight")
        self.assertIn("WARNING: does not fit in the platform's DRAM (dram_share above 1)",
                      result.stdout)
        self.assert_fits(result.stdout)
        self.assertNotIn("exceeds_dram (", result.stderr)  # said above the table
        self.assertNotIn("WARNING", self.printed)

    def test_one_row(self):
        said = self.succeed(*self.run_words, "--set", "device=ufs40", "--set", "system=kvswap",
                            "--out", "one")
        self.assert_fits(said)
        self.assertIn("device: ufs40\n", said)

    def test_mistakes_are_told_before_the_work(self):
        for words, says in ((("--columns", "latncy_ms"), ("--columns", "latency_ms")),
                            (("--sort", "latency_ms:down"), ("--sort", "KEY:desc")),
                            (("--sort", "nothing"), ("--sort", "nothing")),
                            (("--format", "html"), ("--format", "latex")),
                            (("--width", "-1"), ("--width",))):
            self.refuses((*self.run_words, *words, "--out", "bad"), says)
            self.refuses(("table", "run", *words), says)
        self.refuses(("table", "nowhere"), ("nowhere",))
        (self.folder / "empty").mkdir()
        self.refuses(("table", "empty"), ("empty", "results.csv"))
        self.refuses(("table", "run/manifest.json"), ("run/manifest.json",))


if __name__ == "__main__":
    unittest.main()
