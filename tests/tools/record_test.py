"""`kvreplay record` on small random models, beside a plain numpy model; unsound model files."""

import csv
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

import h5py
import numpy as np

import tiny_model
from program import SOURCE, ProgramTest
from reference_model import ReferenceModel

PROMPT, STEPS = 70, 26
WINDOW = 20

VARIANTS = {
    "plain": {},
    "interleaved": {"pairs": "interleaved"},
    "untied_with_biases_in_bf16": {"tied": False, "biases": True, "dtype": "BF16"},
    "head_norms_and_llama3_scaling": {
        "norms": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "gemma": {"norms": True, **tiny_model.GEMMA},
}


def edit_header(path, edit):
    """Rewrites a model file with what edit(header) makes of its header."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:8 + length])
    edit(header)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length:])


def edit_architecture(path, **values):
    def edit(header):
        metadata = header["__metadata__"]
        metadata["architecture"] = json.dumps({**json.loads(metadata["architecture"]), **values})
    edit_header(path, edit)


class Record(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.models = {}
        for name, options in VARIANTS.items():
            options = dict(options)
            pairs = options.pop("pairs", "half")
            cls.models[name] = tiny_model.imported(cls.folder / f"{name}.kvmodel", **options)
            edit_architecture(cls.models[name], rope_pairs=pairs)
        ids = np.random.default_rng(5).integers(0, 101, PROMPT + STEPS)
        cls.ids = cls.folder / "ids.txt"
        cls.ids.write_text(" ".join(map(str, ids)))

    @classmethod
    def record(cls, model, out, *more):
        (cls.folder / out).unlink(missing_ok=True)
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1000000000"}):
            printed = cls.succeed(
                "record", "--model", cls.models.get(model, model), "--token-ids", cls.ids,
                "--prompt", PROMPT, "--steps", STEPS, "--query-window", WINDOW, "--attention-input",
                "--out", out, *more)
        return cls.folder / out, printed

    def check(self, ours, exact, tolerance, what):
        error = np.linalg.norm(ours.astype(np.float64) - exact) / np.linalg.norm(exact)
        self.assertLess(error, tolerance, what)

    def check_against_reference(self, model, trace):
        reference = ReferenceModel(self.models[model])

        def visit(layer, vectors):
            for name, exact in vectors.items():
                ours = trace[f"layer/{layer:02d}/{name}"][:]
                first = PROMPT - WINDOW if name not in ("key", "value") else 0
                exact = exact[first:] if exact.ndim == 1 else exact[..., first:, :]
                # f16 keeps 11 bits; the rest is single precision against double.
                self.check(ours, exact, 6e-4, f"layer {layer} {name}")

        ids = trace["tokens/id"][:]
        logs = reference.run(ids, visit)
        probabilities = np.exp(logs)
        following = logs[np.arange(len(ids) - 1), ids[1:]]
        np.testing.assert_allclose(trace["tokens/log_probability"][:-1], following, atol=2e-3)
        entropy = -(probabilities * logs).sum(1)
        np.testing.assert_allclose(trace["tokens/entropy"], entropy, atol=2e-3)
        np.testing.assert_allclose(trace["tokens/top_probability"], probabilities.max(1), atol=2e-3)
        return logs

    def test_agrees_with_the_reference(self):
        for model in VARIANTS:
            with self.subTest(model):
                path, printed = self.record(model, "followed.kvtrace.h5")
                self.succeed("verify", path)
                with h5py.File(path) as trace:
                    self.check_against_reference(model, trace)
                    self.assertEqual(trace.attrs["query_heads"], 9)
                    self.assertEqual(trace.attrs["kv_heads"], 3)
                    self.assertEqual(trace.attrs["text_mode"], "teacher_forced")
                    logs = trace["tokens/log_probability"][:-1].astype(np.float64)
                self.assertIn(f"{np.exp(-logs.mean()):.4f}", printed)
                self.assertIn(f"{np.exp(-logs[PROMPT:].mean()):.4f}", printed)

    def test_the_sketch_keeps_norms_behind_the_output_projection(self):
        for model in VARIANTS:
            path, _ = self.record(model, "sketched.kvtrace.h5")
            reference = ReferenceModel(self.models[model])
            with h5py.File(path) as trace:
                for layer in trace["layer"]:
                    sketch = trace[f"layer/{layer}/output_sketch"][:].astype(np.float64)
                    exact = reference.matrix(f"layer.{layer}.attention_output",
                                             reference.shape["hidden_size"])
                    if reference.has(f"layer.{layer}.post_attention_norm"):
                        exact = reference.vector(f"layer.{layer}.post_attention_norm")[:, None] * exact
                    vectors = np.random.default_rng(3).normal(size=(exact.shape[1], 50))
                    ratio = np.linalg.norm(sketch @ vectors, axis=0) / np.linalg.norm(
                        exact @ vectors, axis=0)
                    # 9 % for one vector; the 50 share the sketch.
                    self.assertLess(abs(ratio - 1).max(), 0.4)
                    self.assertLess(abs(ratio.mean() - 1), 0.1)

    def test_adapters_of_another_text_in_the_same_run(self):
        """They are those that `kvreplay adapt` makes from a recording of that text, and systems that
        need them run."""
        other = self.folder / "other.txt"
        ids = np.random.default_rng(6).integers(0, 101, 60)
        other.write_text(" ".join(map(str, ids)))
        plain, _ = self.record("plain", "plain.kvtrace.h5")
        adapted, _ = self.record("plain", "adapted.kvtrace.h5", "--adapt-token-ids", other,
                                 "--adapt-tokens", 50)
        self.assertEqual([path.name for path in self.folder.glob("adapted*")],
                         ["adapted.kvtrace.h5"])
        source = self.folder / "other.kvtrace.h5"
        self.succeed("record", "--model", self.models["plain"], "--token-ids", other, "--prompt", 49,
                     "--steps", 1, "--query-window", 49, "--out", source)
        self.succeed("adapt", source, plain, "by-hand.kvtrace.h5")
        with h5py.File(adapted) as one, h5py.File(self.folder / "by-hand.kvtrace.h5") as two:
            for layer in one["layer"]:
                np.testing.assert_array_equal(one[f"layer/{layer}/key"], two[f"layer/{layer}/key"])
                for name in ("joint_lowrank", "head_pca", "head_skew"):
                    np.testing.assert_array_equal(one[f"adapter/{layer}/{name}"],
                                                  two[f"adapter/{layer}/{name}"])
        spread, _ = self.record("plain", "spread.kvtrace.h5", "--adapt-token-ids", other,
                                "--adapt-tokens", 50, "--adapt-spread")
        self.succeed("adapt", "--spread", source, plain, "spread-by-hand.kvtrace.h5")
        with h5py.File(spread) as one, h5py.File(self.folder / "spread-by-hand.kvtrace.h5") as two:
            matrix = one["adapter/00/joint_lowrank"]
            np.testing.assert_array_equal(matrix, two["adapter/00/joint_lowrank"])
            self.assertEqual(matrix.attrs["positions"], PROMPT + STEPS)
        # Others want heads that groups of channels divide.
        self.assertNotIn("adapter", self.succeed("inspect", adapted).partition("cannot run")[2])

        said = self.succeed("inspect", plain)
        for text in ("cannot run: ", "kvswap", "loki", "record --adapt-text", "kvreplay adapt"):
            self.assertIn(text, said)
        problems = json.loads(self.succeed("inspect", "--json", plain))["cannot_run"]
        self.assertIn("kvswap", sum((problem["systems"] for problem in problems), []))

    def test_windows_and_bases_are_told_by_layer(self):
        path, _ = self.record("gemma", "gemma.kvtrace.h5")
        with h5py.File(path) as trace:
            self.assertEqual(trace.attrs["sliding_window"].tolist(), [24, 0, 24])
            self.assertEqual(trace.attrs["rope_theta"], 1000)
            self.assertEqual(trace.attrs["rope_scaling"], "by layer")
            self.assertEqual(trace.attrs["layer_rope_theta"].tolist(), [1e3, 1e6, 1e3])
            self.assertAlmostEqual(trace.attrs["softmax_scale"], 20 ** -0.5)
        for layers, window, theta in (("1", [0], 1e6), ("0,2", [24, 24], 1e3)):
            path, _ = self.record("gemma", "some.kvtrace.h5", "--layers", layers)
            with h5py.File(path) as trace:
                self.assertEqual(trace.attrs["sliding_window"].tolist(), window)
                self.assertEqual(trace.attrs["rope_theta"], theta)
                self.assertEqual(trace.attrs["rope_scaling"], "none")

    def test_closed_loop_within_windows(self):
        """A system that drops nothing predicts what the model does; neither attends beyond a window."""
        self.succeed("evaluate", "--model", self.models["gemma"], "--token-ids", self.ids, "--prompt",
                     PROMPT, "--steps", STEPS, "--systems", "in_memory", "--out", "evaluated")
        with open(self.folder / "evaluated/closed_loop.csv", newline="") as file:
            rows = {row["system"]: row for row in csv.DictReader(file)}
        mean = (24 + 24 + PROMPT + (STEPS + 1) / 2) / 3
        for row in rows.values():
            self.assertAlmostEqual(float(row["attended_tokens"]), mean, delta=0.01)
        self.assertLess(float(rows["in_memory"]["kl_nats"]), 1e-4)

    def test_greedy_tokens_are_the_likeliest_ones(self):
        path, _ = self.record("plain", "greedy.kvtrace.h5", "--generate")
        with h5py.File(path) as trace:
            self.assertEqual(trace.attrs["text_mode"], "greedy")
            logs = self.check_against_reference("plain", trace)
            np.testing.assert_array_equal(trace["tokens/id"][PROMPT:],
                                          logs[PROMPT - 1:-1].argmax(1))

    def test_the_same_bytes_on_any_number_of_threads(self):
        for more in ([], ["--generate", "--temperature", 0.9, "--top-p", 0.9, "--seed", 3]):
            made = [self.record("plain", f"{threads}.kvtrace.h5", "--threads", threads, *more)[0]
                    .read_bytes() for threads in (1, 2, 5)]
            self.assertEqual(made[0], made[1])
            self.assertEqual(made[0], made[2])

    def test_following_what_was_generated_gives_the_same_vectors(self):
        """A decode step computes what a prefill of the same tokens does, bit for bit."""
        generated, _ = self.record("plain", "sampled.kvtrace.h5", "--generate", "--temperature", 1,
                                   "--seed", 9)
        followed = self.folder / "again.kvtrace.h5"
        self.succeed("record", "--model", self.models["plain"], "--from-trace", generated,
                     "--query-window", WINDOW, "--attention-input", "--out", followed)
        with h5py.File(generated) as one, h5py.File(followed) as other:
            self.assertEqual(one.attrs["text_mode"], "sampled")
            for name in ["tokens/id", "tokens/log_probability", "layer/02/key",
                         "layer/02/query_ahead", "layer/01/value", "layer/00/attention_input"]:
                np.testing.assert_array_equal(one[name][:], other[name][:], err_msg=name)

    def test_seeds_differ(self):
        ids = []
        for seed in (1, 2):
            path, _ = self.record("plain", "seed.kvtrace.h5", "--generate", "--temperature", 1,
                                  "--seed", seed)
            with h5py.File(path) as trace:
                ids.append(trace["tokens/id"][:].tolist())
        self.assertNotEqual(ids[0], ids[1])
        self.assertEqual(ids[0][:PROMPT], ids[1][:PROMPT])

    def test_layers_and_data_sets_that_are_asked_for(self):
        path, _ = self.record("plain", "some.kvtrace.h5", "--layers", "0,2", "--no-query-ahead")
        with h5py.File(path) as trace:
            self.assertEqual(list(trace["layer"]), ["00", "02"])
            self.assertNotIn("query_ahead", trace["layer/02"])
            self.assertEqual(trace["layer/02/query"].attrs["query_start"], PROMPT - WINDOW)

    def refuses_to_record(self, says, model="plain", ids=None, **options):
        arguments = {"prompt": PROMPT, "steps": STEPS, "out": "bad.kvtrace.h5", **options}
        self.refuses(["record", "--model", self.models.get(model, model), "--token-ids",
                      ids or self.ids, *(word for name, value in arguments.items()
                                         for word in (f"--{name}", value))], says)

    def test_mistakes(self):
        self.refuses_to_record(["96 tokens", "97 tokens or more"], steps=27)
        self.refuses_to_record(["70 and 530 tokens", "512 or fewer"], steps=530)
        self.refuses_to_record(["layer 3", "0 to 2"], layers="1,3")
        self.refuses_to_record(["layer 0", "increasing"], layers="1,0")
        self.refuses_to_record(["--layers", "4;5"], layers="4;5")
        self.refuses_to_record(["no-such-model", "fetch-model"], model="no-such-model")
        bad = self.folder / "bad.txt"
        bad.write_text("1 2 seven")
        self.refuses_to_record(["bad.txt", "seven", "token ids"], ids=bad)
        bad.write_text("101 " * (PROMPT + STEPS))
        self.refuses_to_record(["token id 101 at position 0", "0 to 100"], ids=bad)

    def test_adapters_of_few_tokens_are_told(self):
        few = self.folder / "few.txt"
        arguments = ["record", "--model", self.models["plain"], "--token-ids", self.ids, "--prompt",
                     PROMPT, "--steps", STEPS, "--query-window", WINDOW, "--adapt-token-ids", few]
        for tokens, said in ((2, "made of 2 tokens, fewer than the 48 elements"),
                             (48, None)):
            few.write_text(" ".join(map(str, range(tokens))))
            result = self.kvreplay(*arguments, "--out", f"few-{tokens}.kvtrace.h5")
            self.assertEqual(result.returncode, 0, result.stderr)
            if said:
                self.assertIn(said, result.stderr)
            else:
                self.assertNotIn("warning", result.stderr)
        few.write_text("7")
        result = self.kvreplay(*arguments, "--out", "bad.kvtrace.h5")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("2 tokens or more", result.stderr)

    def test_options_of_adapters_need_their_text(self):
        plain = ["record", "--model", self.models["plain"], "--token-ids", self.ids, "--prompt",
                 PROMPT, "--steps", STEPS, "--out", "bad.kvtrace.h5"]
        for options in (["--adapt-spread"], ["--adapt-tokens", 50]):
            self.refuses([*plain, *options], [options[0], "without another text", "--adapt-text"])

    def test_files_that_are_something_else(self):
        trace, _ = self.record("plain", "trace.kvtrace.h5")
        self.refuses_to_record(["--model", "trace.kvtrace.h5 is a trace", "fetch-model"], model=trace)
        self.refuses_to_record(["mine.kvtrace.h5 is a trace"], model="mine.kvtrace.h5")
        self.refuses_to_record(["small.gguf", "import_model.py"], model="small.gguf")
        self.refuses_to_record(["llama3.2-1b.json is a shape"], model="./llama3.2-1b.json")
        folder = self.folder / "folder"
        folder.mkdir()
        self.refuses_to_record(["is a folder", "import_model.py"], model=folder)
        self.refuses_to_record(["folder: is a folder", "a file of token ids"], ids=folder)
        self.refuses(["record", "--model", self.models["plain"], "--text", folder, "--out",
                      "bad.kvtrace.h5"], ["folder: is a folder", "a text file"])
        self.refuses(["record", "--model", self.models["plain"], "--text", "nothing.txt", "--out",
                      "bad.kvtrace.h5"], ["nothing.txt: there is no such file"])

    def test_model_files_that_are_not_sound(self):
        sound = self.models["plain"].read_bytes()
        broken = self.folder / "broken.kvmodel"

        def refuses(says, edit=None, **architecture):
            if edit:
                edit_header(broken, edit)
            if architecture:
                edit_architecture(broken, **architecture)
            self.refuses_to_record(["broken.kvmodel", *says], model=broken)
            broken.write_bytes(sound)

        for content, says in [(b"", "non-empty"), (sound[:6], "header"), (b"\xff" * 64, "header"),
                              (b"\x02" + bytes(7) + b"[]" + bytes(64), "object")]:
            broken.write_bytes(content)
            refuses([says])
        broken.write_bytes(sound[:-100])
        refuses(["layer.02.down", "cut short"])
        broken.write_bytes(sound)
        refuses(["layer.01.key", "missing"], lambda header: header.pop("layer.01.key"))
        refuses(["layer.01.key", "shape", "[3, 144, 16]"],
                lambda header: header["layer.01.key"].update(shape=[3, 16, 144]))
        refuses(["layer.01.key", "dtype is F16"],
                lambda header: header["layer.01.key"].update(dtype="F16"))
        refuses(["layer.01.key", "data_offsets"],
                lambda header: header["layer.01.key"].update(data_offsets=[-4, 8]))
        refuses(["layer.01.key", "data_offsets"],
                lambda header: header["layer.01.key"].update(data_offsets=[1 << 62, 1 << 62]))
        refuses(["format_version", "9"],
                lambda header: header["__metadata__"].update(format_version="9"))
        refuses(["not a model file"], lambda header: header["__metadata__"].update(format="pt"))
        refuses(["head_dim", "multiple of 16"], head_dim=17)
        refuses(["query_heads", "multiple of kv_heads"], query_heads=10)
        refuses(["layers", "0"], layers=0)
        refuses(["sliding_window/1", "-1", "one per layer"], sliding_window=[8, -1, 0])
        refuses(["sliding_window", "2 values", "a list of 3"], sliding_window=[8, 0])
        refuses(["rope_theta", "true", "a number from 1"], rope_theta=True)
        refuses(["activation", "relu", "gelu_tanh"], activation="relu")
        refuses(["rope_pairs", "thirds"], rope_pairs="thirds")
        refuses(["rope_teta", "rope_theta"], rope_teta=3)

    def test_a_weight_that_is_nan_is_told(self):
        broken = self.folder / "nan.kvmodel"
        content = bytearray(self.models["plain"].read_bytes())
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + size])
        begin = 8 + size + header["output_norm"]["data_offsets"][0]
        content[begin:begin + 4] = np.float32(np.nan).tobytes()
        broken.write_bytes(content)
        self.refuses_to_record(["not finite", "position"], model=broken)

    def test_the_importer_refuses(self):
        def refuses(says, **config):
            source = tiny_model.write(self.folder / "unusable", **config)
            made = subprocess.run(
                [sys.executable, "-B", SOURCE / "tools/scripts/import_model.py", source,
                 "unusable.kvmodel"],
                cwd=self.folder, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(made.returncode, 2, made.stderr)
            for text in says:
                self.assertIn(text, made.stderr)
            self.assertEqual(list(self.folder.glob("unusable.kvmodel*")), [])

        refuses(["GPT2LMHeadModel", "LlamaForCausalLM"], architectures=["GPT2LMHeadModel"])
        refuses(["head_dim is 20", "multiple of 16"], head_dim=20)
        refuses(["scaling is yarn"], rope_scaling={"rope_type": "yarn"})
        gemma = {"norms": True, **tiny_model.GEMMA}
        refuses(["scaling is linear", "some layers"],
                **{**gemma, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})
        refuses(["final_logit_softcapping is 30"], **gemma, final_logit_softcapping=30.0)
        refuses(["hidden_activation is silu", "gelu_pytorch_tanh"],
                **{**gemma, "hidden_activation": "silu"})
        refuses(["layer_types has none"], **{**gemma, "layer_types": ["none"] * 3})
        refuses(["2 layers", "3, one per layer"],
                **{**gemma, "layer_types": ["full_attention"] * 2})
        refuses(["k_norm.weight is missing"], **tiny_model.GEMMA)


if __name__ == "__main__":
    unittest.main()
