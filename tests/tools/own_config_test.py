"""A user's own device, platform, model and system: made from a data sheet or a config.json, on the
base of another one, and taken by every command that takes a name."""

import csv
import io
import json
import re
import unittest

from program import SOURCE, ProgramTest

# As docs/device-model.md shows them.
SHEETS = {
    "ufs41": ("--from-spec",
              "read=4300MB/s,write=4000MB/s,random_read=500kIOPS,random_write=500kIOPS",
              "--base", "ufs40"),
    "usb": ("--from-spec", "read=420MB/s,write=380MB/s", "--base", "sd_a2", "--set",
            "command_queue=false"),
    "nvme4": ("--from-spec", "read=7000MB/s,write=5100MB/s,random_read=1000kIOPS,"
              "random_write=1000kIOPS,random_depth=512",
              "--base", "nvme_pc4"),
}
CONFIG = {"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024,
          "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
          "intermediate_size": 3072, "vocab_size": 151936, "torch_dtype": "bfloat16",
          "tie_word_embeddings": True}


class OwnConfig(ProgramTest):
    def write(self, name, members):
        (self.folder / name).write_text(json.dumps(members))

    def test_devices_of_data_sheets(self):
        page = (SOURCE / "docs/device-model.md").read_text()
        for name, arguments in SHEETS.items():
            said = self.kvreplay("device", "new", *arguments, "--out", f"{name}.json")
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertNotIn("warning", said.stderr)
            rows = [line.split() for line in said.stdout.split("\n\n")[0].splitlines()[1:]]
            self.assertGreaterEqual(len(rows), 2)
            for row in rows:
                self.assertLess(abs(float(row[-1])), 3, row)
                # number, size, depth, sheet, model, unit, error
                self.assertIn(f"| {row[0]} | {row[3]} {row[5]} | {row[4]} | {row[6]} |", page)
            self.assertIn(" ".join(arguments[:2]), page)
            made = json.loads((self.folder / f"{name}.json").read_text())
            self.assertEqual(made["base"], arguments[3])
            self.assertNotIn("page_bytes", made)
            shown = self.succeed("explain", f"./{name}.json")
            self.assertIn("solved from the data sheet: read=", shown)
            self.succeed("device", "describe", f"./{name}.json", "--size", "4K", "--depth", "1")
        self.refuses(("device", "new", *SHEETS["usb"], "--out", "ufs41.json"), ("ufs41.json",))
        self.refuses(("device", "new", "--from-spec", "read=1GB/s", "--base", "ufs41", "--out",
                      "no.json"), ("--base", "ufs41"))
        self.refuses(("device", "new", "--from-spec", "speed=1GB/s", "--out", "no.json"),
                     ("--from-spec", "speed"))
        self.refuses(("device", "new", "--from-spec", "latency=1us,random_read=1IOPS", "--out", "no.json"),
                     ("--from-spec", "is the nearest that the other numbers", "ufs40's"))

    def test_describe_reaches_the_depth_of_the_sheet(self):
        said = self.kvreplay("device", "new", *SHEETS["ufs41"], "--out", "deep.json")
        self.assertIn("`kvreplay device describe deep.json --range 256M --depth 1,32,64`", said.stderr)
        self.assertIn("depth 64", self.succeed("device", "describe", "./deep.json", "--size", "4K"))
        self.assertNotIn("depth 64", self.succeed("device", "describe", "ufs40", "--size", "4K"))

    def test_a_device_on_the_base_of_a_file(self):
        self.write("first.json", {"base": "emmc51", "title": "Mine", "read_us": 80})
        self.succeed("device", "new", "--from-spec", "read=200MB/s", "--base", "./first.json",
                     "--out", "second.json")
        self.assertEqual(json.loads((self.folder / "second.json").read_text())["base"],
                         "./first.json")
        self.assertIn("read_us = 80", self.succeed("explain", "second.json"))

    def test_a_run_takes_own_files_on_bases(self):
        self.cut_trace("small.kvtrace.h5", 256, 8)
        self.write("fast.json", {"base": "ufs40", "link_mb_s": 8400})
        self.write("wide.json", {"base": "raspberry_pi5", "dram_bandwidth_gb_s": 34.2})
        self.write("short.json", {"base": "smollm2-135m", "layers": 6})
        self.write("greedy.json", {"base": "kvswap", "title": "Greedy",
                                   "cache": {"part": "lru"},
                                   "selection": {"budget_tokens": 64}})
        rows = self.succeed("run", "first", "--set", "trace=small.kvtrace.h5", "--set",
                            "system=./greedy.json,kvswap", "--set", "model=./short", "--set",
                            "platform=./wide.json", "--set", "device=./fast.json", "--set",
                            "warm_up_steps=2", "--format", "csv", "--out", "run")
        rows = list(csv.DictReader(io.StringIO(rows)))
        self.assertEqual([row["system"] for row in rows], ["greedy", "kvswap"])
        self.assertEqual({(row["model"], row["platform"], row["device"]) for row in rows},
                         {("short", "wide", "fast")})
        config = json.loads((self.folder / "run/manifest.json").read_text())["config"]
        self.assertEqual(config["model"]["short"]["layers"], 6)
        self.assertEqual(config["device"]["fast"]["link_mb_s"], 8400)
        self.assertEqual(config["device"]["fast"]["read_us"], 40)
        greedy = config["system"]["greedy"]
        # The new part has the arguments of the base's that it knows.
        preset = json.loads((SOURCE / "configs/systems/kvswap.json").read_text())
        self.assertEqual((greedy["cache"]["part"], greedy["cache"]["capacity_groups"]),
                         ("lru", preset["cache"]["capacity_groups"]["value"]))
        self.assertEqual(greedy["scoring"], config["system"]["kvswap"]["scoring"])

    def test_what_is_wrong_in_a_base_names_its_file(self):
        self.write("bad.json", {"base": "ufs40", "read_us": -1, "title": "Bad"})
        self.write("on_bad.json", {"base": "./bad.json", "title": "On it"})
        self.refuses(("device", "describe", "./on_bad.json"), ("bad.json: /read_us",))
        self.write("circle.json", {"base": "./circle.json"})
        self.refuses(("explain", "circle.json"), ("circle.json: /base", "back to this file"))

    def test_all_that_is_missing_is_said_at_once(self):
        self.write("empty.json", {"part": "flash"})
        self.refuses(("device", "describe", "./empty.json"),
                     ("'title'", "'queue_depth'", "'link_mb_s'", "'program_us'"))
        self.write("model.json", {"title": "A model", "layers": 4})
        self.refuses(("run", "first", "--set", "model=./model.json"),
                     ("model.json", "'hidden_size'", "'vocabulary'"))
        self.write("system.json", {"title": "A system"})
        self.refuses(("run", "first", "--set", "system=./system.json"),
                     ("system.json", "'grouping'", "'selection'", "'pipeline'"))
        self.write("experiment.json", {"title": "x", "trace": "story"})
        self.refuses(("run", "experiment.json"), ("'system'", "'model'", "'platform'", "'device'"))

    def test_a_model_of_a_config(self):
        (self.folder / "Qwen3-0.6B").mkdir()
        self.write("Qwen3-0.6B/config.json", CONFIG)
        said = self.succeed("model", "from-config", "Qwen3-0.6B", "--out", "mine.json", "--source",
                            "Hugging Face Qwen/Qwen3-0.6B")
        self.assertIn("28 layers", said)
        made = json.loads((self.folder / "mine.json").read_text())
        preset = json.loads((SOURCE / "configs/models/qwen3-0.6b.json").read_text())
        for member, value in preset.items():
            if member not in ("title", "source"):
                self.assertEqual(made[member], value)
        self.assertIn("num_hidden_layers", self.succeed("explain", "./mine.json"))
        self.refuses(("model", "from-config", "Qwen3-0.6B", "--out", "mine.json"), ("mine.json",))
        self.write("mla.json", {**CONFIG, "kv_lora_rank": 512})
        self.refuses(("model", "from-config", "mla.json", "--out", "new.json"),
                     ("mla.json: /kv_lora_rank", "multi-head latent attention"))
        self.refuses(("model", "from-config", "nothing.json", "--out", "new.json"),
                     ("nothing.json",))

    def test_explain_knows_files_metrics_and_parameters(self):
        self.write("mine.json", {"base": "quest", "title": "Mine"})
        for name in ("./mine.json", "mine.json", "./mine", "mine"):
            self.assertIn("grouping: page", self.succeed("explain", name))
        self.assertIn("a metric", self.succeed("explain", "latency_ms"))
        said = self.succeed("explain", "budget_tokens")
        self.assertIn("a parameter", said)
        self.assertIn("selection/top_groups", said)
        self.assertIn("set:", self.succeed("explain", "papers/kvswap_throughput"))
        self.assertIn("papers/kvswap_throughput", self.succeed("list", "experiments"))
        self.refuses(("explain", "budget"), ("did you mean 'budget_tokens'?",))
        self.refuses(("explain", "memory_bytes"), ("did you mean 'dram",))
        self.refuses(("run", "kvswap_throughput"), ("did you mean 'papers/kvswap_throughput'?",))
        self.write("nothing.json", {"title": "x"})
        self.refuses(("explain", "nothing.json"), ("nothing.json", "neither a system"))

    def test_new_platforms_say_what_is_an_estimate(self):
        for file in sorted((SOURCE / "configs/platforms").glob("*.json")):
            text = self.succeed("explain", file.stem)
            for name, value in re.findall(r"^  (\w+) = .*\n.*\[(.*)\]$", text, re.MULTILINE):
                self.assertTrue(value, f"{file.stem}: {name} has no source")
            self.assertIn("estimate", text)


if __name__ == "__main__":
    unittest.main()
