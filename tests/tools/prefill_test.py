"""The prefill, wear and percentiles of commands in results, and kvreplay recommend, end to end."""

import csv
import io
import json
import unittest

from program import ProgramTest

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5",
    "system": ["in_memory", "quest", "clusterkv", "flexgen"],
    "model": "smollm2-135m", "platform": "oneplus12", "device": "sd_a2", "batch": 1,
    "warm_up_steps": 2, "timed_steps": 4,
    "set": {"system.stream.dense_layers": 0, "system.selection.budget_tokens": 48,
            "model.weight_bits": 4},
}


class Prefill(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, 16)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))

    @classmethod
    def rows(cls, *options):
        text = cls.succeed("run", "experiment.json", "--format", "csv", *options)
        return {row["system"]: row for row in csv.DictReader(io.StringIO(text))}

    def test_the_first_token_waits_for_compute_index_and_writes(self):
        for system, row in self.rows().items():
            parts = [float(row[name]) for name in (
                "prefill_compute_ms", "index_ms", "prompt_write_exposed_ms")]
            self.assertAlmostEqual(float(row["ttft_ms"]), sum(parts), places=5, msg=system)
            in_memory = system == "in_memory"
            self.assertEqual(parts[2] == 0, in_memory, system)
            self.assertEqual(float(row["nand_written_bytes_per_prompt"]) == 0, in_memory, system)
            self.assertEqual(row["years_of_life"] == "", in_memory, system)
            self.assertEqual(parts[1] > 0, system in ("quest", "clusterkv"), system)
            self.assertGreater(int(row["prefill_dram_bytes"]), 0)
            self.assertGreater(float(row["prefill_energy_mj"]), 0)
        computes = {row["prefill_compute_ms"] for row in self.rows().values()}
        self.assertEqual(len(computes), 1, "the model's own work does not depend on the system")

    def test_other_columns_do_not_see_it(self):
        with_prefill = self.rows()
        without = self.rows("--set", "prefill_chunk_tokens=0")
        for system, row in without.items():
            self.assertEqual(row["ttft_ms"], "")
            for name, value in row.items():
                if value != "" or with_prefill[system][name] == "":
                    self.assertEqual(with_prefill[system][name], value, f"{system} {name}")

    def test_percentiles_of_commands_rise(self):
        for system, row in self.rows().items():
            if system == "in_memory":
                self.assertEqual(row["read_command_p50_us"], "")
                continue
            values = [float(row[f"read_command_{name}_us"]) for name in ("p50", "p99", "p999")]
            self.assertEqual(values, sorted(values), system)
            self.assertGreater(values[0], 0, system)

    def test_a_worn_device_is_a_warning(self):
        result = self.kvreplay("run", "experiment.json", "--set",
                               "conversations_per_day=100000", "--format", "none")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"warning: wear \(clusterkv, flexgen, quest\): sd_a2 would")

    def test_a_timeline_shows_it(self):
        self.succeed("run", "experiment.json", "--timeline", "t.json", "--format", "none")
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
        self.assertEqual(names.count("prefill compute"), 4)
        self.assertEqual(names.count("prefill writes"), 3)

    def test_the_prompt_as_a_schedule(self):
        self.succeed("device", "schedule", "experiment.json", "--set", "system=quest",
                     "--model-device", "sd_a2", "--prefill", "--out", "prompt.schedule")
        text = self.succeed("device", "time", "prompt.schedule", "--model-device", "sd_a2")
        self.assertIn("prompt of quest", text)

    def test_minutes_of_decoding(self):
        limits = ["--set", "platform.throttled_rate_percent=50", "--set",
                  "platform.sustained_power_w=3", "--set", "platform.power_time_constant_s=20"]
        self.succeed("run", "experiment.json", "--set", "sustained_s=60", *limits, "--format", "none",
                     "--out", "minutes")
        with open(self.folder / "minutes/minutes.csv", newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["system"] == "in_memory"]
        self.assertEqual([float(row["from_s"]) for row in rows], [float(second) for second in range(60)])
        # From rest at 7 W, 3 W are reached after 20 ln(7 / 4) = 11.2 s; then half the rate.
        self.assertEqual(float(rows[10]["throttled_share"]), 0)
        self.assertAlmostEqual(float(rows[-1]["throttled_share"]), 1, delta=0.01)
        self.assertAlmostEqual(
            float(rows[-1]["tokens_per_s"]), float(rows[9]["tokens_per_s"]) / 2, delta=0.5)
        self.assertAlmostEqual(float(rows[-1]["mean_power_w"]), 3, delta=0.1)
        self.assertEqual(rows[-1]["device_c"], "")
        self.succeed("plot", "minutes")
        self.assertTrue((self.folder / "minutes/minutes.png").exists())
        self.refuses(["run", "experiment.json", "--set", "sustained_s=60", "--set",
                      "prefill_chunk_tokens=0"], ["sustained_s", "prefill_chunk_tokens"])
        self.refuses(["run", "experiment.json", "--set", "platform.throttled_rate_percent=50"],
                     ["sustained_power_w", "waiting_power_w"])

    def test_ratings_of_the_devices(self):
        said = self.succeed("list", "devices", "--endurance")
        self.assertRegex(said, r"sd_a2 +128 +58\.5 +- +7 +estimate: half of the 117 TB")
        self.assertRegex(said, r"ufs40 +512 +1024\.0 +2000 +7 +estimate")
        self.refuses(["list", "models", "--endurance"], ["--endurance after devices"])

    def recommend(self, *options):
        return self.succeed("recommend", "--experiment", "experiment.json", "--set", "steps=16",
                            "--cache", "kept", *options)

    def test_recommends_what_keeps_to_the_limits(self):
        answer = self.recommend("--max-ttft", "600s", "--out", "answer")
        self.assertIn("Use in_memory", answer)
        self.assertRegex(answer, r"The next question, 256 tokens after 272: first token after about "
                         r"[\d.]+ s, and [\d.]+ s more if")
        self.assertEqual((self.folder / "answer/answer.txt").read_text(), answer)
        with open(self.folder / "answer/ranked.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["system"] for row in rows}, set(EXPERIMENT["system"]))
        self.succeed("run", "experiment.json", "--set", "system=./answer/best.json", "--format",
                     "none")

    def test_says_what_is_missed_and_what_would_help(self):
        answer = self.recommend("--max-dram", "300kB")
        self.assertIn("Nothing that ships does", answer)
        self.assertRegex(answer, r"times the limit|% above the limit")
        self.assertIn("The cheapest change that would help: more memory", answer)
        self.assertEqual(answer, self.recommend("--max-dram", "300kB", "--threads", 1))

    def test_says_how_long_it_takes_and_is_drawn(self):
        said = self.kvreplay("recommend", "--experiment", "experiment.json", "--set", "steps=16", "--cache",
                             "kept", "--max-ttft", "600s", "--out", "drawn")
        self.assertRegex(said.stderr, r"kvreplay: up to \d+ replays of 4 systems and their budgets: about .* s ")
        self.assertEqual(said.stderr.count("100 %"), 0)
        files = self.succeed("plot", "drawn").splitlines()
        self.assertEqual(files, ["drawn/figure.pdf", "drawn/figure.png"])
        self.refuses(["report", "drawn"], ["drawn/answer.txt", "kvreplay plot drawn"])

    def test_refuses(self):
        self.refuses(["recommend", "--max-ttft", "soon"], ["--max-ttft", "30s"])
        self.refuses(["recommend", "--context", "100"], ["--context", "kvreplay cut"])
        self.refuses(["recommend", "--device", "ufs99"], ["ufs99"])


if __name__ == "__main__":
    unittest.main()
