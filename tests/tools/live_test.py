"""`kvreplay live` on a small random model: what it writes, what interrupts it, mistakes; `compare`."""

import csv
import fcntl
import json
import os
import signal
import subprocess
import time
import unittest

import numpy as np
import pandas

import tiny_model
from program import PROGRAM, SHIPPED_TRACE, ProgramTest, tree, wait_until_open

from kvreplay import compare

PROMPT, STEPS = 120, 16
WHOLE = ("--set", "warm_up_steps=0", "--set", "timed_steps=0")


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def tiny_shape(model):
    """What the model file says of its shape, as a config has it."""
    with open(model, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    architecture = json.loads(header["__metadata__"]["architecture"])
    return {name: architecture[name] for name in ("layers", "hidden_size", "query_heads", "kv_heads",
                                                  "head_dim", "ffn_size", "vocabulary")}


class Live(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_model.imported(cls.folder / "tiny.kvmodel", head_dim=32, hidden_size=96,
                                        num_hidden_layers=4, max_position_embeddings=4096)
        ids = np.random.default_rng(1).integers(0, 101, 3500)
        (cls.folder / "ids.txt").write_text(" ".join(map(str, ids)))
        cls.live = ("live", "--model", cls.model, "--token-ids", "ids.txt", "--prompt", PROMPT)
        cls.quest = (*cls.live, "--system", "quest", "--budget", 32, "--target", "target", "--create",
                     "32MiB")

    def test_writes_what_a_replay_writes(self):
        text = self.succeed(*self.quest, "--steps", STEPS, "--check", "--record", "own.kvtrace.h5",
                            "--out", "quest")
        self.assertIn("first token:", text)
        self.assertRegex(text, r"checked: [1-9]\d* entries that were read are equal to what was stored, bit for "
                               r"bit; [1-9]\d* extents are those of stage 2\n")
        self.assertFalse((self.folder / "target").exists())
        row, = read_csv(self.folder / "quest/results.csv")
        self.assertEqual(int(row["steps"]), STEPS)
        self.assertGreater(float(row["read_bytes_per_step"]), 0)
        self.assertAlmostEqual(float(row["compute_ms"]) + float(row["exposed_io_ms"]),
                               float(row["latency_ms"]), places=5)
        self.assertEqual(row["recall"], "")
        manifest = json.loads((self.folder / "quest/manifest.json").read_text())
        self.assertGreater(manifest["checked_entries"], 0)
        processor = manifest["processor_ms_per_step"]
        for kind in ("project", "layer", "head", "score", "fetch", "decode", "attention", "append", "start"):
            self.assertGreater(processor[kind], 0, kind)
        # The steps' thread hands over requests while another one begins to compute.
        for beside in ("hand_over", "start"):
            self.assertLess(sum(processor.values()) - processor[beside], float(row["latency_ms"]))
        self.assertGreaterEqual(processor["hand_over"], 0)
        self.assertGreaterEqual(manifest["stolen_share"], 0)
        self.assertEqual(len(read_csv(self.folder / "quest/steps.csv")), STEPS)
        # The replay of its trace has the same columns, and the same hits.
        self.succeed("run", "first", "--set", "trace=own.kvtrace.h5", "--set", "system=quest", "--set",
                     "device=ufs40", "--set", "system.selection.budget_tokens=32", "--set",
                     "model=smollm2-135m", *WHOLE, "--format", "none", "--out", "replayed")
        replayed, = read_csv(self.folder / "replayed/results.csv")
        self.assertEqual(list(replayed), list(row))
        self.assertAlmostEqual(float(replayed["hit_rate"]), float(row["hit_rate"]), places=9)

        said = self.succeed("compare", "quest", "replayed", "--csv", "differences.csv")
        self.assertIn("hit_rate", said)
        self.assertIn("they differ in model: A tiny; B smollm2-135m", said)
        self.assertIn("they differ in trace: A ids.txt; B own", said)
        self.assertNotIn("block of requests", said)
        for line in said.splitlines():
            self.assertLessEqual(len(line), 100)
        differences = {d["column"]: d for d in read_csv(self.folder / "differences.csv")}
        self.assertAlmostEqual(float(differences["hit_rate"]["difference"]), 0, places=9)

    def test_compare_lists_what_only_one_has(self):
        for out, systems in (("two", "quest,in_memory"), ("one", "quest")):
            self.succeed("run", "first", "--set", f"trace={self.small_trace()}", "--set",
                         f"system={systems}", "--set", "device=ufs40", *WHOLE, "--format", "none",
                         "--out", out)
        said = self.succeed("compare", "two", "one", "--columns", "latency_ms")
        self.assertIn("only in two: in_memory", said)
        self.assertIn("joined by system\n", said)
        self.assertIn("+0.0 %", said)
        self.refuses(["compare", "two", "nowhere"], ["nowhere", "allowed"])
        self.refuses(["compare", "two", "one", "--columns", "latenzy_ms"], ["latenzy_ms", "latency_ms"])

    def test_long_names_of_rows_have_a_line_of_their_own(self):
        rows = pandas.DataFrame([{"key": "quest " + "x" * 90, "column": column, "a": 1.5, "b": 3, "difference": 1}
                                 for column in ("latency_ms", "read_bytes_per_step")])
        lines = compare.rows_table(rows).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["column", "quest", "latency_ms",
                                                               "read_bytes_per_step"])
        self.assertLessEqual(max(map(len, compare.summary(rows, ["latency_ms"]).splitlines())), 100)

    def test_compare_names_what_tells_rows_apart(self):
        for out, devices in (("devices", "ufs40,nvme_jetson"), ("device", "ufs40,nvme_jetson")):
            self.succeed("run", "first", "--set", f"trace={self.small_trace()}", "--set", "system=quest",
                         "--set", f"device={devices}", "--set", "device.logical_block_bytes=4096"
                         if out == "devices" else "device.logical_block_bytes=512", *WHOLE, "--format",
                         "none", "--out", out)
        said = self.succeed("compare", "devices", "device", "--columns", "latency_ms", "--csv", "rows.csv")
        self.assertIn("joined by system, device\n", said)
        self.assertIn("\nquest ufs40  ", said)
        self.assertIn("they differ in the block of requests: A 4096 bytes; B 512 bytes", " ".join(said.split()))
        self.assertEqual([row["key"] for row in read_csv(self.folder / "rows.csv")],
                         ["quest ufs40", "quest nvme_jetson"])

    def small_trace(self):
        if not (self.folder / "small.kvtrace.h5").exists():
            self.cut_trace("small.kvtrace.h5", 128, 4)
        return self.folder / "small.kvtrace.h5"

    def start(self, *arguments):
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def wait_for_target(self, process):
        """The file has no name once it is made, but the process has it open."""
        wait_until_open(process, "target (deleted)")

    def test_an_interrupt_keeps_the_steps_so_far(self):
        process = self.start(*self.quest, "--steps", 3000, "--out", "stopped")
        process.stdout.read(1)  # of the first step's token
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT, said)
        steps = read_csv(self.folder / "stopped/steps.csv")
        self.assertTrue(json.loads((self.folder / "stopped/manifest.json").read_text())["interrupted"])
        self.assertGreater(len(steps), 0)
        self.assertLess(len(steps), 3000)

    def test_it_survives_a_pause_and_leaves_nothing_when_killed(self):
        before = set(tree(self.folder))
        process = self.start(*self.quest, "--steps", 3000, "--out", "killed")
        self.wait_for_target(process)
        for stop in (signal.SIGSTOP, signal.SIGCONT):
            process.send_signal(stop)
            time.sleep(0.3)
        self.assertIsNone(process.poll())
        process.kill()
        process.communicate(timeout=60)
        self.assertEqual(set(tree(self.folder)), before)

    def test_mistakes(self):
        quest = (*self.live, "--system", "quest", "--steps", STEPS)
        self.refuses(quest, ["--target", "--create"])
        self.refuses([*quest, "--target", "ids.txt"], ["ids.txt", "--allow-destructive"])
        self.refuses([*quest, "--target", "ids.txt", "--create", "16MiB"], ["ids.txt"])
        self.refuses([*self.live, "--system", "questt"], ["questt", "quest"])
        self.refuses([*self.live, "--system", "kvswap", "--target", "t", "--create", "16MiB"],
                     ["--adapters", "joint_lowrank"])
        self.refuses([*self.live, "--system", "in_memory", "--steps", 5000], ["5000", "tokens"])
        self.refuses([*quest, "--budget", 32, "--set", "selection.budget_tokens=16"],
                     ["selection.budget_tokens=16", "--budget 32", "one of the two"])
        new = (*quest, "--budget", 32, "--target", "t", "--create")
        self.refuses([*new, "1MiB"], ["--create", "1.0 MiB", "at least 2M", "by estimate"])
        self.refuses([*new, "16MiB", "--out", "/proc/none"], ["/proc/none", "cannot be made"])
        self.refuses([*new, "16MiB", "--out", "ids.txt"], ["ids.txt", "is there already"])
        self.refuses([*new, "16MiB", "--record", "/proc/none.kvtrace.h5"], ["/proc/none.kvtrace.h5"])
        self.refuses([*new, "16MiB", "--model-config", "smollm2-135m"],
                     ["--model-config", "smollm2-135m has layers 30 where tiny has 4", "hidden_size 576"])
        self.refuses([*self.live, "--system", "dwb", "--steps", STEPS], ["dwb.json", "token statistics"])
        self.refuses([*self.live, "--system", "kvswap", "--target", "t", "--create", "16MiB", "--adapters",
                      SHIPPED_TRACE], ["--adapters", "SmolLM2-135M", "where tiny has 4 layers"])

    def test_blocks_of_another_unit_are_refused_before_the_prefill(self):
        said = self.kvreplay(*self.quest, "--steps", STEPS, "--block", 3000, "--out", "blocks")
        self.assertEqual(said.returncode, 2)
        self.assertIn("--block: found 3000; allowed: multiples of ", said.stderr)
        self.assertFalse((self.folder / "blocks").exists())

    def test_a_dry_run_checks_and_runs_nothing(self):
        before = tree(self.folder)
        said = self.succeed(*self.quest, "--steps", STEPS, "--dry-run")
        self.assertRegex(said, r"\Aquest: can be run; --create \d+\w+ is enough, by estimate\n\Z")
        self.assertEqual(self.succeed(*self.live, "--system", "in_memory", "--steps", 4, "--dry-run"),
                         "in_memory: can be run\n")
        self.assertEqual(tree(self.folder), before)
        self.refuses([*self.quest, "--steps", 5000, "--dry-run"], ["5000"])

    def test_two_writers_of_one_file(self):
        process = self.start(*self.live, "--system", "in_memory", "--steps", 3000, "--record",
                             "both.kvtrace.h5", "--out", "first")
        for _ in range(600):
            if list(self.folder.glob("both.kvtrace.h5.partial-*")):
                break
            time.sleep(0.05)
        said = self.kvreplay("record", "--model", self.model, "--token-ids", "ids.txt", "--prompt", PROMPT,
                             "--steps", 4, "--out", "both.kvtrace.h5")
        self.assertEqual(said.returncode, 2, said.stderr)
        self.assertIn("both.kvtrace.h5: another kvreplay writes it", said.stderr)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    def test_two_runs_into_one_folder(self):
        process = self.start(*self.quest, "--steps", 3000, "--out", "once")
        self.wait_for_target(process)
        self.refuses([*self.live, "--system", "in_memory", "--steps", 4, "--out", "./once"],
                     ["once", "another kvreplay writes it"])
        process.kill()
        process.communicate(timeout=60)
        self.succeed(*self.live, "--system", "in_memory", "--steps", 4, "--quiet", "--out", "once")

    def test_adapters_of_another_model_are_refused(self):
        record = ("record", "--token-ids", "ids.txt", "--prompt", 200, "--steps", 2,
                  "--adapt-token-ids", "ids.txt", "--adapt-tokens", 200)
        kvswap = (*self.live, "--system", "kvswap", "--target", "t", "--create", "16MiB", "--steps", 4)
        others = {"heads": {"head_dim": 16, "hidden_size": 144},  # as many layers
                  "weights": {"head_dim": 32, "hidden_size": 96, "seed": 2}}
        for name, shape in others.items():
            model = tiny_model.imported(self.folder / f"other-{name}.kvmodel", num_hidden_layers=4,
                                        **shape)
            self.succeed(*record, "--model", model, "--out", f"{name}.kvtrace.h5")
            self.refuses([*kvswap, "--adapters", f"{name}.kvtrace.h5"],
                         ["--adapters", f"{name}.kvtrace.h5 is of other-{name}", "where tiny has"])
        self.succeed(*record, "--model", self.model, "--layers", "0,2", "--out", "some.kvtrace.h5")
        self.refuses([*kvswap, "--adapters", "some.kvtrace.h5"],
                     ["some.kvtrace.h5", "/adapter/01", "no such layer"])
        # Other weights of a model of this name: the same, stored in another form.
        narrow = self.folder / "narrow.kvmodel"
        tiny_model.import_as(self.model, narrow, "bf16")
        self.succeed(*record, "--model", narrow, "--out", "narrow.kvtrace.h5")
        self.succeed(*kvswap, "--adapters", "narrow.kvtrace.h5", "--out", "adapted")

    def test_in_memory_needs_no_target(self):
        self.succeed(*self.live, "--system", "in_memory", "--steps", 4, "--generate", "--out", "memory")
        row, = read_csv(self.folder / "memory/results.csv")
        self.assertEqual(float(row["read_bytes_per_step"]), 0)

    def test_a_measured_platform_is_read_and_explained(self):
        self.succeed("platform", "probe", "--model", self.model, "--threads", 1, "--seconds", 0.01,
                     "--out", "mine.json")
        said = self.succeed("explain", "./mine.json")
        self.assertIn("attention of together: measured at 2 points", said)
        self.assertIn("score of other parts: estimate, by the roofline", said)
        for kind in ("fetch", "submit", "decode of fp8", "buffered of fp16", "append of adaptive"):
            self.assertIn(f"{kind}: measured at 2 points", said)
        for kind in ("wake of transfer", "wake of command", "wake of kib", "beside of kib"):
            self.assertIn(f"{kind}: measured at ", said)
        self.assertIn("estimates, by the roofline", said)
        self.assertIn("none is measured", self.succeed("explain", "orin_agx"))
        said = self.succeed(
            "run", "first", "--set", f"trace={self.small_trace()}", "--set", "system=quest", "--set",
            "platform=./mine.json", "--set", "device=ufs40", *WHOLE, "--out", "measured")
        self.assertIn("mine", said)
        manifest = json.loads((self.folder / "measured/manifest.json").read_text())
        self.assertIn("matrix_vector", json.dumps(manifest["config"]["platform"]))

    def test_validates(self):
        (self.folder / "tiny.json").write_text(json.dumps({
            "title": "tiny", "source": "test", "layers": 4, "hidden_size": 96, "query_heads": 3,
            "kv_heads": 1, "head_dim": 32, "ffn_size": 96, "vocabulary": 101, "weight_bits": 32,
            "tied_embeddings": True} | tiny_shape(self.model)))
        said = self.succeed("validate", "--model", self.model, "--model-config", "./tiny.json", "--text",
                            "ids.txt", "--token-ids", "--target", "target", "--create", "16MiB",
                            "--systems", "in_memory,quest", "--budgets", "32,48", "--prompt", PROMPT,
                            "--steps", 8, "--probe-seconds", 0.02, "--rounds", 2, "--attempts", 1,
                            "--out", "validation")
        self.assertIn("| quest | 48 |", said)
        self.assertRegex(said, r"\| quest 48 \| \d+ \| \d+ \| [-+.\d]+ % \|")
        self.assertRegex(said, r"- first token: median error [.\d]+ %")
        self.assertRegex(said, r"- in_memory reads nothing .* [-+.\d]+ % of computation is")
        rows = read_csv(self.folder / "validation/errors.csv")
        self.assertEqual([(row["system"], row["budget"]) for row in rows],
                         [("in_memory", ""), ("quest", "32"), ("quest", "48")])
        for row in rows:
            least, error, greatest = (float(row[f"latency_{what}"])
                                      for what in ("least_error", "error", "greatest_error"))
            self.assertLessEqual(least, error)
            self.assertLessEqual(error, greatest)
        for number in (1, 2):
            self.assertTrue((self.folder / f"validation/round-{number}/platform.json").exists())
        self.assertTrue((self.folder / "validation/validation.png").exists())
        self.refuses(["validate", "--model", self.model, "--model-config", "./tiny.json", "--text", "ids.txt",
                      "--token-ids", "--target", "target", "--create", "16MiB", "--prompt", PROMPT,
                      "--steps", 7, "--probe-seconds", 0.02, "--out", "validation"],
                     ["validation", "steps = 8, now 7"])
        again = ["validate", "--model", self.model, "--model-config", "./tiny.json", "--text", "ids.txt",
                 "--token-ids", "--target", "target", "--create", "16MiB", "--systems", "quest,quest",
                 "--budgets", "32,32", "--prompt", PROMPT, "--steps", 8, "--probe-seconds", 0.02, "--attempts",
                 1, "--out", "validation"]
        said = self.succeed(*again)
        self.assertEqual(said.count("| quest |"), 1)
        self.assertIn("8 steps, 1 round, 1 thread,", said)
        with open(self.folder / "validation/settings.json", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refuses(again, ["validation", "another validate"])
        cut = self.folder / "validation/round-1/live/quest-32/steps.csv"
        cut.write_text(cut.read_text().splitlines()[0] + "\n")
        self.refuses(again, ["live/quest-32/steps.csv", "8 steps", "allowed: remove"])

    def test_validation_checks_its_numbers_before_it_measures(self):
        for option, value in (("--budgets", "0"), ("--rounds", 0), ("--threads", -1), ("--platform", "none")):
            self.refuses(["validate", "--model", self.model, "--model-config", "qwen2.5-1.5b", "--text",
                          "ids.txt", "--target", "target", "--create", "16MiB", option, value, "--out",
                          "none"], [option, str(value)])
        self.refuses(["validate", "--model", self.model, "--model-config", "qwen2.5-1.5b", "--text", "ids.txt",
                      "--target", "target", "--systems", "kvswap", "--out", "none"],
                     ["--systems", "kvswap", "--adapter-text"])
        self.assertFalse((self.folder / "none").exists())

    def test_what_a_live_run_does_not_measure_is_empty(self):
        self.succeed("live", "--model", self.model, "--token-ids", "ids.txt", "--system", "quest", "--budget",
                     32, "--prompt", PROMPT, "--steps", 4, "--target", "target", "--create", "16MiB",
                     "--quiet", "--out", "unknown")
        row = read_csv(self.folder / "unknown/results.csv")[0]
        for column in ("output_error", "residual_error", "worst_layer", "worst_layer_error", "stored_bits"):
            self.assertEqual(row[column], "", column)
        self.assertEqual(read_csv(self.folder / "unknown/steps.csv")[-1]["log_probability"], "")

    def test_validates_on_what_the_live_run_decided(self):
        (self.folder / "tiny.json").write_text(json.dumps({
            "title": "tiny", "source": "test", "layers": 4, "hidden_size": 96, "query_heads": 3,
            "kv_heads": 1, "head_dim": 32, "ffn_size": 96, "vocabulary": 101, "weight_bits": 32,
            "tied_embeddings": True} | tiny_shape(self.model)))
        self.succeed("validate", "--model", self.model, "--model-config", "./tiny.json", "--text", "ids.txt",
                     "--token-ids", "--target", "target", "--create", "16MiB", "--systems",
                     "in_memory,clusterkv", "--budgets", "32", "--prompt", PROMPT, "--steps", 8,
                     "--probe-seconds", 0.02, "--attempts", 1, "--same-decisions", "--out", "same")
        both = [read_csv(self.folder / f"same/round-1/{side}/clusterkv-32/results.csv")[0]
                for side in ("live", "simulated")]
        for column in ("read_requests_per_step", "read_bytes_per_step"):
            self.assertGreater(float(both[0][column]), 0)
            self.assertEqual(both[0][column], both[1][column])

    def test_validation_is_of_the_model_that_runs(self):
        validate = ["validate", "--model", self.model, "--text", "ids.txt", "--token-ids", "--target", "target",
                    "--prompt", PROMPT, "--steps", 8, "--systems", "quest", "--budgets", 32, "--out", "none"]
        self.refuses([*validate, "--model-config", "smollm2-135m", "--create", "16MiB"],
                     ["--model-config", "smollm2-135m has layers 30 where tiny has 4"])
        tiny_config = self.folder / "alike.json"
        tiny_config.write_text(json.dumps({"title": "tiny", "source": "test", "weight_bits": 16,
                                           "tied_embeddings": True} | tiny_shape(self.model)))
        alike = [*validate, "--model-config", "./alike.json"]
        self.refuses([*alike, "--create", "1MiB"], ["--create", "at least 2M"])
        self.refuses([*alike, "--create", "16MiB", "--steps", 5000], ["5000"])
        self.refuses([*alike, "--create", "16MiB", "--device", "ufs99"], ["--device", "ufs99", "ufs40"])
        self.refuses([*alike, "--create", "16MiB", "--platform", "oneplus21"],
                     ["--platform", "oneplus21", "oneplus12"])
        self.refuses([*alike, "--create", "16MiB", "--threads", 5000], ["--threads", "5000", "1024"])
        (self.folder / "is-there").write_text("precious")
        self.refuses([*alike, "--create", "16MiB", "--target", "is-there"], ["is-there", "--allow-destructive"])
        said = self.kvreplay(*alike[:-3], "named", *alike[-2:], "--create", "16MiB", "--device", "ufs40",
                             "--platform", "oneplus12")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("oneplus12 is no measurement of `kvreplay platform probe`", said.stderr)
        self.assertIn("device ufs40", said.stdout)
        files = self.succeed("plot", "named", "--out", "again").splitlines()
        self.assertEqual(files, ["again.pdf", "again.png"])
        self.refuses(["report", "named"], ["named/report.md", "named/validation.png"])

    def test_validation_refuses_an_unknown_shape_before_it_measures(self):
        self.refuses(["validate", "--model", self.model, "--model-config", "tinny", "--text", "ids.txt",
                      "--target", "target", "--create", "16MiB", "--out", "none"],
                     ["--model-config", "tinny", "list models"])
        self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    unittest.main()
