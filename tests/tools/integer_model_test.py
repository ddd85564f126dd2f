"""Model files whose weights are integers of 8 or 4 bits with scales: what import_model.py writes,
what runs on them, mistakes."""

import json
import unittest

import h5py
import numpy as np

import tiny_model
from program import ProgramTest
from reference_model import ReferenceModel

PROMPT, STEPS = 60, 8
# Sizes that are no multiples of 32, and a vocabulary that is none of 16.
MATRICES = {"embedding": 101, "layer.00.key": 48, "layer.01.gate": 96, "layer.02.down": 144}


class IntegerModel(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.floats = tiny_model.imported(cls.folder / "tiny.kvmodel")
        cls.models = {dtype: tiny_model.import_as(
            cls.folder / "tiny", cls.folder / f"{dtype}.kvmodel", dtype)
            for dtype in ("int8", "int4")}
        ids = np.random.default_rng(1).integers(0, 101, PROMPT + STEPS)
        (cls.folder / "ids.txt").write_text(" ".join(map(str, ids)))

    @staticmethod
    def scales(model, name):
        begin, end = model.header[f"{name}.scales"]["data_offsets"]
        return np.abs(model.data[begin:end].view(np.float16)).astype(float).max()

    def test_weights_are_rounded_to_the_nearest(self):
        exact = ReferenceModel(self.floats)
        for dtype, steps in (("int8", 0.57), ("int4", 1.01)):
            # Half a step and what rounding the scale to 16 bits does; of 4 bits the far end is cut.
            rounded = ReferenceModel(self.models[dtype])
            for name, outputs in MATRICES.items():
                with self.subTest(dtype=dtype, name=name):
                    here, there = rounded.matrix(name, outputs), exact.matrix(name, outputs)
                    error = np.abs(here - there)
                    self.assertLess(error.max(), steps * self.scales(rounded, name))
                    self.assertLess(np.median(error), 0.57 * self.scales(rounded, name))

    def test_a_model_file_is_a_source(self):
        for dtype, direct in self.models.items():
            again = tiny_model.import_as(self.floats, self.folder / "again.kvmodel", dtype)
            first, second = ReferenceModel(direct), ReferenceModel(again)
            self.assertEqual(first.header.keys(), second.header.keys())
            np.testing.assert_array_equal(first.data, second.data)
            again.unlink()

    def test_agrees_with_the_reference(self):
        """The reference rounds weights and rows alike; in the second layer and later a value between
        two integers may have been rounded the other way."""
        for dtype, model in self.models.items():
            self.succeed("record", "--model", model, "--token-ids", "ids.txt", "--prompt", PROMPT,
                         "--steps", STEPS, "--out", f"{dtype}.kvtrace.h5")
            with h5py.File(self.folder / f"{dtype}.kvtrace.h5") as trace:
                def visit(layer, vectors, trace=trace):
                    if "key" not in vectors:
                        return
                    exact, ours = vectors["key"], trace[f"layer/{layer:02d}/key"][:]
                    error = np.linalg.norm(ours - exact) / np.linalg.norm(exact)
                    self.assertLess(error, 6e-4 if layer == 0 else 5e-3)

                ids = trace["tokens/id"][:]
                logs = ReferenceModel(model).run(ids, visit)
                following = logs[np.arange(len(ids) - 1), ids[1:]]
                error = trace["tokens/log_probability"][:-1] - following
                self.assertLess(np.abs(error).mean(), 0.02)

    def test_live_and_evaluate_run(self):
        for dtype, model in self.models.items():
            out = self.succeed("live", "--model", model, "--token-ids", "ids.txt", "--system",
                               "in_memory", "--prompt", PROMPT, "--steps", STEPS, "--out",
                               f"live_{dtype}")
            self.assertIn("in_memory", out)
            self.succeed("evaluate", "--model", model, "--token-ids", "ids.txt", "--systems",
                         "in_memory,quest", "--prompt", PROMPT, "--steps", STEPS, "--out",
                         f"evaluate_{dtype}")

    def test_files_that_are_not_sound(self):
        sound = self.models["int4"].read_bytes()
        broken = self.folder / "broken.kvmodel"
        length = int.from_bytes(sound[:8], "little")

        def refuses(says, edit):
            header = json.loads(sound[8:8 + length])
            edit(header)
            text = json.dumps(header).encode()
            text += b" " * (-(8 + len(text)) % 64)
            broken.write_bytes(len(text).to_bytes(8, "little") + text + sound[8 + length:])
            self.refuses(["record", "--model", "broken.kvmodel", "--token-ids", "ids.txt", "--prompt",
                          PROMPT, "--steps", STEPS, "--out", "x.kvtrace.h5"],
                         ["broken.kvmodel", *says])

        refuses(["layer.01.key.scales", "missing"],
                lambda header: header.pop("layer.01.key.scales"))
        refuses(["layer.01.key.scales", "dtype is BF16", "allowed: F16"],
                lambda header: header["layer.01.key.scales"].update(dtype="BF16"))
        refuses(["layer.01.key", "shape is [3, 5, 4, 16, 4]", "[3, 5, 8, 16, 4]"],
                lambda header: header["layer.01.key"].update(dtype="I8"))
        refuses(["layer.01.key", "dtype is I4", "F32, BF16, I8 or U8"],
                lambda header: header["layer.01.key"].update(dtype="I4", shape=[3, 144, 16]))
        broken.write_bytes(sound[:-100])
        self.refuses(["record", "--model", "broken.kvmodel", "--token-ids", "ids.txt", "--prompt",
                      PROMPT, "--steps", STEPS, "--out", "x.kvtrace.h5"],
                     ["broken.kvmodel: layer.02.down", "cut short"])


if __name__ == "__main__":
    unittest.main()
