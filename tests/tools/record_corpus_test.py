"""Mistakes in the options of tools/scripts/record-corpus."""

import subprocess
import unittest

import tiny_model
from program import PROGRAM, SOURCE, ProgramTest


class RecordCorpus(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_model.imported(cls.folder / "tiny.kvmodel")

    def corpus(self, *options, code=0):
        result = subprocess.run(
            [SOURCE / "tools/scripts/record-corpus", "corpus", "--model", self.model, "--build",
             str(PROGRAM).rpartition("/")[0], *map(str, options)], cwd=self.folder, check=False,
            capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout + result.stderr

    def test_mistakes(self):
        for options, says in ((("--kinds", "poems"), "code, question, dialogue"),
                              (("--lengths", "8M"), "such as 8K"),
                              (("--lengths", "600"), "--steps"),
                              ((), "holds no tokenizer")):
            with self.subTest(options):
                self.assertIn(says, self.corpus(*options, code=2))
                self.assertFalse((self.folder / "corpus").exists())


if __name__ == "__main__":
    unittest.main()
