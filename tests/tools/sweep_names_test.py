"""What a sweep says and how it names its files: short lines, access logs by settings, means over seeds."""

import csv
import json
import re
import unittest

from program import ProgramTest

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5", "system": ["quest", "streaming_llm"],
    "model": "smollm2-135m", "platform": "oneplus12", "device": "ufs40", "batch": 1,
    "warm_up_steps": 2, "timed_steps": 2, "steps": 4,
}
BUDGETS = "system.selection.budget_tokens=32,64"


class SweepNames(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, 8)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))

    def test_a_cell_is_a_short_line_of_what_differs(self):
        said = self.kvreplay("sweep", "experiment.json", "--no-cache", "--set", BUDGETS, "--out",
                             "swept").stderr
        lines = re.findall(r"^\d/3 .*$", said, re.MULTILINE)
        self.assertEqual(len(lines), 3, said)
        for line in lines:
            self.assertLessEqual(len(line), 100)
            self.assertNotIn("oneplus12", line)
        self.assertTrue(any(re.match(r"\d/3 quest budget_tokens=32: [\d.]+ ms, mass 0\.\d+$", line)
                            for line in lines), lines)

    def test_access_logs_are_named_by_settings(self):
        self.succeed("run", "experiment.json", "--set", BUDGETS, "--access-log", "--out", "logged")
        self.assertEqual(sorted(path.name for path in (self.folder / "logged").glob("*.h5")),
                         ["small.quest.budget_tokens=32.access.h5",
                          "small.quest.budget_tokens=64.access.h5",
                          "small.streaming_llm.access.h5"])
        # A setting of a later stage makes no log of its own.
        self.succeed("run", "experiment.json", "--set", "device.queue_depth=8,16", "--access-log",
                     "--out", "shared")
        self.assertEqual(sorted(path.name for path in (self.folder / "shared").glob("*.h5")),
                         ["small.quest.access.h5", "small.streaming_llm.access.h5"])

    def test_seeds_are_a_mean_with_an_interval(self):
        said = self.succeed("run", "experiment.json", "--set", "seed=1,2,3", "--set",
                            "system=quest,streaming_llm", "--out", "seeds")
        self.assertIn("Means over the seeds, with 95 % intervals:", said)
        with open(self.folder / "seeds/seeds.csv", newline="", encoding="utf-8") as file:
            means = list(csv.DictReader(file))
        with open(self.folder / "seeds/results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["system"] for row in means], EXPERIMENT["system"])
        for row in means:
            values = [float(other["latency_ms"]) for other in rows
                      if other["system"] == row["system"]]
            self.assertEqual(int(row["seeds"]), len(values))
            mean = sum(values) / 3
            half = 4.303 * (sum((value - mean) ** 2 for value in values) / 2 / 3) ** 0.5
            self.assertAlmostEqual(float(row["latency_ms"]), mean, delta=1e-6 * mean)
            self.assertAlmostEqual(float(row["latency_ms_interval"]), half, delta=1e-4 * mean)
        self.assertNotIn("Means over", self.succeed("run", "experiment.json", "--out", "one"))


if __name__ == "__main__":
    unittest.main()
