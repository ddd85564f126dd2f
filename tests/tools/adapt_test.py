"""`kvreplay adapt`: matrices from one text for another, and the warning when both are the same."""

import json
import unittest

import h5py

from program import ProgramTest


class Adapt(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.story = cls.cut_trace("story.kvtrace.h5", 512, 8)
        cls.other = cls.cut_trace("other.kvtrace.h5", 256, 8)
        with h5py.File(cls.other, "r+") as trace:
            trace.attrs["text_sha256"] = "0" * 64
            del trace.attrs["content_sha256"]
        cls.experiment = cls.folder / "loki.json"
        cls.experiment.write_text(json.dumps({
            "title": "adapted", "trace": "adapted.kvtrace.h5", "system": ["loki", "infinigen"],
            "model": "smollm2-135m", "platform": "orin_agx", "device": "nvme_jetson", "batch": 1,
            "warm_up_steps": 2}))

    def run_adapted(self, source):
        (self.folder / "adapted.kvtrace.h5").unlink(missing_ok=True)
        made = self.kvreplay("adapt", source, self.story, "adapted.kvtrace.h5", "--rank", 8)
        self.assertEqual(made.returncode, 0, made.stderr)
        ran = self.kvreplay("run", self.experiment, "--set", "system.infinigen.scoring.skew=adapter",
                            "--format", "csv")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("infinigen", ran.stdout)
        return made.stderr, ran.stderr

    def test_matrices_of_another_text(self):
        made, ran = self.run_adapted(self.other)
        self.assertNotIn("warning", made + ran)
        with h5py.File(self.folder / "adapted.kvtrace.h5") as trace:
            skew = trace["adapter/24/head_skew"]
            self.assertEqual(skew.shape, (3, 64, 64))
            self.assertEqual(skew.attrs["text_sha256"], "0" * 64)
            self.assertEqual(trace["adapter/12/joint_lowrank"].shape, (192, 8))

    def test_a_text_is_spread_over_the_recording(self):
        self.succeed("adapt", "--spread", self.other, self.story, "spread.kvtrace.h5")
        self.succeed("adapt", self.other, self.story, "dense.kvtrace.h5")
        self.succeed("verify", "spread.kvtrace.h5")
        with h5py.File(self.folder / "spread.kvtrace.h5") as one, h5py.File(
                self.folder / "dense.kvtrace.h5") as two:
            for name in ("joint_lowrank", "head_pca", "head_skew"):
                matrix, other = one[f"adapter/12/{name}"], two[f"adapter/12/{name}"]
                self.assertEqual((matrix.attrs["tokens"], matrix.attrs["positions"]),
                                 (other.attrs["tokens"], 520))
                self.assertNotIn("positions", other.attrs)
                self.assertGreater(abs(matrix[:] - other[:]).max(), 1e-3)

    def test_the_same_text_warns(self):
        made, ran = self.run_adapted(self.story)
        self.assertIn("warning", made)
        self.assertRegex(ran, "warning: [^\n]*adapted.kvtrace.h5[^\n]*head_pca[^\n]*very text")

    def test_a_synthetic_trace_is_adapted_by_another(self):
        for seed in (1, 2):
            made = self.kvreplay("synth", f"s{seed}.synthetic.kvtrace.h5", "--like", self.story,
                                 "--seed", seed)
            self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(made.stderr, r"wrote s2.synthetic.kvtrace.h5 \(\d+\.\d [KM]iB\)\n")
        self.assertIn("`kvreplay adapt ANOTHER s2.synthetic.kvtrace.h5 NEW`", made.stderr)
        run = ["run", self.experiment, "--set", "system=loki", "--format", "csv", "--set"]
        self.refuses([*run, "trace=s2.synthetic.kvtrace.h5"], ["head_pca", "`kvreplay adapt`"])
        self.succeed("adapt", "s1.synthetic.kvtrace.h5", "s2.synthetic.kvtrace.h5",
                     "adapted.synthetic.kvtrace.h5")
        self.succeed(*run, "trace=adapted.synthetic.kvtrace.h5")

    def test_a_mistake(self):
        self.refuses(["adapt", self.other, self.story, "bad.kvtrace.h5", "--rank", "500"],
                     ["other.kvtrace.h5", "rank is 500", "1 to 192"])


if __name__ == "__main__":
    unittest.main()
