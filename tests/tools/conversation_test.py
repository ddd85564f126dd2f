"""Turns of a conversation in results, and kvreplay restore, end to end."""

import csv
import io
import json
import shutil
import unittest

import h5py

from program import ProgramTest

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5",
    "system": ["in_memory", "quest", "clusterkv", "flexgen"],
    "model": "smollm2-135m", "platform": "oneplus12", "device": "sd_a2", "batch": 1,
    "warm_up_steps": 2, "timed_steps": 4, "after_prefill": True, "idle_s": 1,
    "set": {"system.stream.dense_layers": 0, "system.selection.budget_tokens": 48,
            "model.weight_bits": 4},
}
PROMPT, STEPS = 256, 24
TWO_TURNS = [("system", 0, 0), ("user", 20, 0), ("assistant", PROMPT, 1), ("user", PROMPT + 8, 0),
             ("assistant", PROMPT + 14, 1)]


class Conversation(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", PROMPT, STEPS)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))
        cls.conversation("one", TWO_TURNS[:3])
        cls.conversation("two", TWO_TURNS)

    @classmethod
    def conversation(cls, name, segments):
        """NAME/small.kvtrace.h5: the trace with segments."""
        (cls.folder / name).mkdir()
        file = cls.folder / name / "small.kvtrace.h5"
        shutil.copy(cls.folder / "small.kvtrace.h5", file)
        with h5py.File(file, "r+") as trace:
            trace.attrs.pop("content_sha256", None)
            trace.attrs["format_version"] = 2
            roles, begins, generated = zip(*segments)
            trace.attrs["segment_roles"] = " ".join(roles)
            trace.attrs["segment_begin"] = begins
            trace.attrs["segment_generated"] = generated

    @classmethod
    def run_on(cls, trace, out, *options):
        shutil.rmtree(cls.folder / out, ignore_errors=True)
        printed = cls.succeed("run", "experiment.json", "--set", f"trace={trace}", "--out", out,
                              *options)
        return cls.folder / out, printed

    @classmethod
    def turns(cls, *options):
        folder, _ = cls.run_on("two/small.kvtrace.h5", "turns", *options)
        with open(folder / "turns.csv", newline="", encoding="utf-8") as file:
            return {(row["system"], int(row["turn"])): row for row in csv.DictReader(file)}

    def test_one_turn_is_a_run_byte_for_byte(self):
        run, _ = self.run_on("small.kvtrace.h5", "run")
        one, _ = self.run_on("one/small.kvtrace.h5", "conversation")
        self.assertFalse((run / "turns.csv").exists())
        for name in ("results.csv", "results.json", "quality.csv", "table.txt"):
            self.assertEqual((one / name).read_bytes(), (run / name).read_bytes(), name)
        results = (run / "results.csv").read_text().splitlines()
        turns = (one / "turns.csv").read_text().splitlines()
        self.assertEqual(len(turns), len(results))
        for shared, line in zip(results, turns):
            self.assertTrue(line.startswith(shared + ","), line)

    def test_a_turn_prefills_its_new_tokens(self):
        turns = self.turns()
        self.assertEqual(len(turns), 8)
        for (system, number), row in turns.items():
            parts = [float(row[name]) for name in (
                "prefill_compute_ms", "index_ms", "prompt_write_exposed_ms")]
            self.assertAlmostEqual(float(row["ttft_ms"]), sum(parts), places=5, msg=system)
            tokens = [int(row[f"{name}_tokens"]) for name in ("earlier", "new", "decoded")]
            self.assertEqual(tokens, [0, 256, 8] if number == 1 else [264, 6, 10])
            if number == 1:
                self.assertEqual((row["turn_read_bytes"], row["restore_ms"]), ("0", ""))
                continue
            self.assertEqual(int(row["turn_read_bytes"]) > 0, system != "in_memory", system)
            self.assertEqual(float(row["resume_ms"]), 0)
            self.assertLess(float(row["prefill_compute_ms"]),
                            float(turns[system, 1]["prefill_compute_ms"]))
            self.assertGreater(float(row["recompute_ms"]), float(row["prefill_compute_ms"]))
        computes = {row["prefill_compute_ms"] for (_, number), row in turns.items() if number == 2}
        self.assertEqual(len(computes), 1, "the model's own work does not depend on the system")

    def test_printed_turns_tell_the_swept_settings(self):
        _, printed = self.run_on("two/small.kvtrace.h5", "swept", "--set",
                                 "system.selection.budget_tokens=16,32")
        turns = printed[printed.rindex("earlier"):]
        rows = [line.split() for line in turns.splitlines() if line.startswith("quest")]
        self.assertEqual([row[:2] for row in rows],
                         [["quest", "16"], ["quest", "16"], ["quest", "32"], ["quest", "32"]])

    def test_quality_is_of_the_turn(self):
        folder, _ = self.run_on("two/small.kvtrace.h5", "quality", "--set", "warm_up_steps=0", "--set",
                                "timed_steps=0")
        with open(folder / "turns.csv", newline="", encoding="utf-8") as file:
            turns = [row for row in csv.DictReader(file) if row["system"] == "quest"]
        with open(folder / "results.csv", newline="", encoding="utf-8") as file:
            whole = next(row for row in csv.DictReader(file) if row["system"] == "quest")
        for name in ("output_error", "recall", "attention_mass", "attended_tokens"):
            values = [float(row[name]) for row in turns]
            self.assertNotEqual(*values, name)
            # 8 steps of the first answer, 10 of the second.
            mean = (8 * values[0] + 10 * values[1]) / 18
            self.assertAlmostEqual(mean, float(whole[name]), places=5, msg=name)

    def test_what_idle_time_drops_comes_back(self):
        kept, cache, memory = (self.turns("--set", f"idle_drops={what}")
                               for what in ("nothing", "cache", "memory"))
        for system in EXPERIMENT["system"]:
            def read(rows):
                return int(rows[system, 2]["turn_read_bytes"])
            self.assertLessEqual(read(kept), read(cache), system)
            self.assertEqual(read(cache), read(memory), system)
            row = memory[system, 2]
            index = min(float(row["index_read_ms"]), float(row["index_rebuild_ms"]))
            self.assertGreaterEqual(float(row["resume_ms"]) + 1e-6, index, system)
            self.assertEqual(int(row["suspend_bytes"]) > 0, float(row["suspend_ms"]) > 0, system)
            self.assertEqual(memory[system, 1]["ttft_ms"], kept[system, 1]["ttft_ms"])
        in_memory = memory["in_memory", 2]
        self.assertGreater(float(in_memory["ttft_ms"]), float(kept["in_memory", 2]["ttft_ms"]))
        # 264 tokens of 30 layers, 3 KV heads, 64 keys and values in 16 bits.
        self.assertGreaterEqual(int(in_memory["suspend_bytes"]), 264 * 30 * 3 * 64 * 2 * 2)
        self.assertGreater(kept["quest", 2]["recompute_ms"], "0")

    def test_new_tokens_may_read_what_they_select(self):
        every, selected = self.turns(), self.turns("--set", "turns_read=selected")
        self.assertLess(int(selected["quest", 2]["turn_read_bytes"]),
                        int(every["flexgen", 2]["turn_read_bytes"]))

    def test_a_table_and_the_decoded_steps(self):
        folder, printed = self.run_on("two/small.kvtrace.h5", "table", "--set", "timed_steps=0")
        self.assertIn("recompute", printed)
        with open(folder / "results.csv", newline="", encoding="utf-8") as file:
            # Of 24 steps 6 are prefilled, and 2 warm up.
            self.assertEqual({row["steps"] for row in csv.DictReader(file)}, {"16"})

    def test_a_shared_prefix_is_written_once(self):
        def rows(*options):
            text = self.succeed("run", "experiment.json", "--format", "csv", "--set", "batch=4",
                                "--set", "system=flexgen", *options)
            return next(csv.DictReader(io.StringIO(text)))
        alone, shared = rows(), rows("--set", "shared_prefix=true")
        ratio = float(alone["nand_written_bytes_per_prompt"]) / float(
            shared["nand_written_bytes_per_prompt"])
        self.assertAlmostEqual(ratio, 4, delta=0.2)
        self.assertLess(float(shared["ttft_ms"]), float(alone["ttft_ms"]) / 2)
        self.assertLess(float(shared["read_bytes_per_step"]),
                        float(alone["read_bytes_per_step"]) / 2)
        self.refuses(("run", "experiment.json", "--set", "trace=two/small.kvtrace.h5", "--set",
                      "shared_prefix=true", "--set", "batch=2"), ["shared_prefix", "several turns"])

    def test_recommend_tells_of_the_next_question(self):
        def answer(trace):
            return self.succeed("recommend", "--experiment", "experiment.json", "--trace", trace,
                                "--rounds", 0, "--no-cache", "--max-ttft", "600s")
        said = answer("two/small.kvtrace.h5")
        self.assertRegex(said, r"The next question, 6 tokens after 264: first token after [\d.]+ s, and "
                         r"[\d.]+ s more if the conversation had to be computed anew "
                         r"\(turn 2 of the recording\)\.")
        self.assertIn("after about", answer("one/small.kvtrace.h5"))

    def test_the_next_question_can_be_a_limit(self):
        def answer(trace, *limits):
            return self.succeed("recommend", "--experiment", "experiment.json", "--trace", trace,
                                "--rounds", 0, "--no-cache", *limits)
        said = answer("two/small.kvtrace.h5", "--max-next-ttft", "600s")
        self.assertIn("asked for: that of the next question within 600 s", said)
        self.assertRegex(said, r"first token s +next question s +memory MB")
        self.assertRegex(said, r"Use \w+: .*, that of the next question after [\d.]+ s, ")
        self.assertIn("(turn 2 of the recording)", said)
        said = answer("two/small.kvtrace.h5", "--max-next-ttft", "1ms")
        self.assertRegex(said, r"Nothing that ships does\. \w+ comes closest: that of the next question "
                         r"after [\d.]+ s, [\d.]+ times the limit\.")
        self.assertRegex(said, "The cheapest change that would help|No single change")
        # A question of another length is an estimate, also after a recorded conversation.
        said = answer("two/small.kvtrace.h5", "--new-tokens", 50)
        self.assertRegex(said, r"The next question, 50 tokens after \d+: first token after about ")
        self.assertNotIn("next question s", said)

    def test_the_next_question_may_be_computed_anew(self):
        said = self.succeed("recommend", "--experiment", "experiment.json", "--set", "system=flexgen",
                            "--trace", "one/small.kvtrace.h5", "--platform", "rtx_6000_ada", "--device", "sd_a2",
                            "--rounds", 0, "--no-cache", "--max-next-ttft", "10s")
        self.assertRegex(said, r"first token after about [\d.]+ s, with the conversation computed anew, "
                         r"which is faster than reading it from sd_a2: about [\d.]+ s\.")
        self.refuses(["recommend", "--experiment", "experiment.json", "--trace", "one/small.kvtrace.h5",
                      "--set", "batch=2", "--max-next-ttft", "1s"], ["--max-next-ttft", "batch"])

    def test_restore(self):
        words = ("restore", "--model", "llama3.1-8b", "--platform", "orin_agx", "--device",
                 "sd_a2,ufs40", "--lengths", "1K,16K")
        rows = list(csv.DictReader(io.StringIO(self.succeed(*words, "--csv"))))
        self.assertEqual([(row["device"], row["tokens"]) for row in rows],
                         [("sd_a2", "1024"), ("sd_a2", "16384"), ("ufs40", "1024"),
                          ("ufs40", "16384")])
        for row in rows:
            # 32 layers, 8 KV heads, keys and values of 128 elements in 16 bits.
            self.assertEqual(int(row["bytes"]), int(row["tokens"]) * 32 * 8 * 128 * 2 * 2)
            shorter = float(row["restore_ms"]) <= float(row["recompute_ms"])
            self.assertEqual(shorter, int(row["tokens"]) >= int(row["crossover_tokens"]))
        self.assertIn("crossover", self.succeed(*words))
        self.refuses((*words[:-4], "--device", "sd_a3", "--lengths", "1K"), ["sd_a3", "--device"])


if __name__ == "__main__":
    unittest.main()
