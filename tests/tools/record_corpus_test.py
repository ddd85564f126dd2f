"""tools/scripts/record-corpus: a conversation of two turns, and mistakes in the options."""

import json
import subprocess
import unittest

import h5py

import chat_test
import tiny_model
from program import PROGRAM, SOURCE, ProgramTest


class RecordCorpus(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_model.imported(cls.folder / "tiny.kvmodel")
        source = tiny_model.write(cls.folder / "chats")
        (source / "tokenizer.json").write_text(json.dumps(chat_test.TOKENIZER))
        cls.chat_model = tiny_model.import_as(source, cls.folder / "chats.kvmodel")

    def corpus(self, *options, code=0, model=None, out="corpus"):
        result = subprocess.run(
            [SOURCE / "tools/scripts/record-corpus", out, "--model", model or self.model, "--build",
             str(PROGRAM).rpartition("/")[0], *map(str, options)], cwd=self.folder, check=False,
            capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout + result.stderr

    def test_a_dialogue_has_turns(self):
        self.corpus("--kinds", "dialogue", "--lengths", 500, "--steps", 16, "--turn-tokens", 100,
                    "--layers", "1", model=self.chat_model, out="dialogues")
        with h5py.File(self.folder / "dialogues/dialogue-500.kvtrace.h5") as trace:
            about, tokens = dict(trace.attrs), trace["tokens/id"].shape[0]
        self.assertEqual(about["format_version"], 2)
        generated = about["segment_generated"].tolist()
        self.assertEqual(generated[-3:], [1, 0, 1])
        self.assertEqual(sum(generated), 2)
        self.assertEqual(about["segment_roles"].split()[-3:], ["assistant", "user", "assistant"])
        begins = [*about["segment_begin"].tolist(), tokens]
        parts = [end - begin for begin, end in zip(begins, begins[1:])]
        prompt = sum(parts[:-3])
        self.assertEqual(about["prompt_tokens"], prompt)
        self.assertLessEqual(tokens, 500)
        self.assertAlmostEqual(prompt, 500 - 16 - 100, delta=20)
        self.assertLessEqual(max(parts[-3], parts[-1]), 8)
        self.assertAlmostEqual(parts[-2], 100, delta=20)

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
