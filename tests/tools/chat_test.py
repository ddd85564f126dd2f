"""`kvreplay record --chat`: a conversation in a model's chat form, and mistakes in its file."""

import json
import os
import unittest
from unittest import mock

import h5py
import numpy as np

import tiny_model
from program import ProgramTest

WORDS = ("<unk>", "<|im_start|>", "<|im_end|>", "system", "user", "assistant", "what", "is", "flash",
         "a", "chip", "and", "then", "it", "wears", "out")
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
    "added_tokens": [{"id": i, "content": WORDS[i], "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": True} for i in range(3)],
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)},
              "unk_token": "<unk>"}}
CHAT = [{"role": "system", "content": "it is flash"}, {"role": "user", "content": "what is flash"},
        {"role": "assistant"}, {"role": "user", "content": "and then"},
        {"role": "assistant", "content": "it wears out"}]
START, END = 1, 2


def ids(text):
    return [WORDS.index(word) for word in text.split()]


class Chat(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = tiny_model.write(cls.folder / "tiny")
        (source / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        cls.model = tiny_model.import_as(source, cls.folder / "tiny.kvmodel")

    def chat(self, turns, name="chat.jsonl"):
        file = self.folder / name
        file.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
        return file

    def text(self, words):
        file = self.folder / "other.txt"
        file.write_text(words)
        return file

    def record(self, out, *options):
        (self.folder / out).unlink(missing_ok=True)
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1000000000"}):
            self.succeed("record", "--model", self.model, "--out", out, "--layers", "1,2",
                         "--query-window", 4, *options)
        return self.folder / out

    def test_a_conversation(self):
        trace = self.record("chat.kvtrace.h5", "--chat", self.chat(CHAT), "--steps", 8,
                            "--generate", "--temperature", 1, "--seed", 3, "--adapt-text",
                            self.text("a chip wears out and then it is what it is a chip is it"))
        self.succeed("verify", trace)
        with h5py.File(trace) as file:
            about = dict(file.attrs)
            tokens = file["tokens/id"][:].tolist()
            queries = file["layer/01/query"]
            self.assertEqual(queries.attrs["query_start"] + queries.shape[1], len(tokens))
        self.assertEqual(about["format_version"], 2)
        self.assertEqual((about["text_mode"], about["seed"]), ("sampled", 3))
        self.assertEqual(about["segment_roles"], "system user assistant user assistant")
        self.assertEqual(about["segment_generated"].tolist(), [0, 0, 1, 0, 1])
        begins = [*about["segment_begin"].tolist(), len(tokens)]
        parts = [tokens[a:b] for a, b in zip(begins, begins[1:])]
        self.assertEqual(parts[0], [START, *ids("system it is flash"), END])
        self.assertEqual(parts[1], [START, *ids("user what is flash"), END, START, *ids("assistant")])
        answer = parts[2]
        self.assertLessEqual(len(answer), 8)
        self.assertNotIn(END, answer[:-1])
        # What closes the answer is prefilled with the next question, unless the model said it.
        closing = [] if answer[-1] == END else [END]
        self.assertEqual(parts[3], [*closing, START, *ids("user and then"), END, START,
                                    *ids("assistant")])
        self.assertEqual(parts[4], ids("it wears out"))
        self.assertEqual(about["prompt_tokens"], begins[2])

        shown = self.succeed("inspect", trace)
        self.assertIn("turns    2: system 6, user 8, assistant", shown)
        segments = json.loads(self.succeed("inspect", trace, "--json"))["info"]["segments"]
        self.assertEqual([segment["begin"] for segment in segments], begins[:-1])

        # The same tokens as a text give the same vectors.
        again = self.folder / "again.txt"
        again.write_text(" ".join(map(str, tokens)))
        plain = self.record("plain.kvtrace.h5", "--token-ids", again, "--prompt", begins[2], "--steps",
                            len(tokens) - begins[2])
        with h5py.File(trace) as ours, h5py.File(plain) as theirs:
            self.assertEqual(theirs.attrs["format_version"], 1)
            for name in ("layer/01/key", "layer/02/value", "layer/02/query", "tokens/entropy"):
                self.assertTrue(np.array_equal(ours[name], theirs[name]), name)

    def test_an_answer_may_belong_to_the_prompt(self):
        turns = [*CHAT[:2], {"role": "assistant", "content": "it wears out", "prefilled": True},
                 CHAT[3], CHAT[4]]
        trace = self.record("prefilled.kvtrace.h5", "--chat", self.chat(turns))
        with h5py.File(trace) as file:
            about, tokens = dict(file.attrs), file["tokens/id"][:].tolist()
        self.assertEqual(about["segment_roles"], "system user assistant user assistant")
        self.assertEqual(about["segment_generated"].tolist(), [0, 0, 0, 0, 1])
        begins = about["segment_begin"].tolist()
        self.assertEqual(tokens[begins[2]:begins[3]], [START, *ids("assistant it wears out"), END])
        self.assertEqual(about["prompt_tokens"], begins[4])

    def test_it_goes_on_as_the_model_would(self):
        one = self.record("one.kvtrace.h5", "--chat", self.chat(CHAT[:3]), "--steps", 6)
        with h5py.File(one) as file:
            prompt, tokens = file.attrs["prompt_tokens"], file["tokens/id"][:].tolist()
        start = self.folder / "start.txt"
        start.write_text(" ".join(map(str, tokens[:prompt])))
        plain = self.record("generated.kvtrace.h5", "--token-ids", start, "--prompt", prompt,
                            "--steps", len(tokens) - prompt, "--generate")
        with h5py.File(plain) as file:
            self.assertEqual(file["tokens/id"][:].tolist(), tokens)

    def test_operations_keep_the_segments(self):
        trace = self.record("kept.kvtrace.h5", "--chat", self.chat(CHAT), "--steps", 4)
        self.succeed("convert", trace, "bf16.kvtrace.h5", "--dtype", "bf16")
        self.succeed("cut", trace, "cut.kvtrace.h5", "--layers", "2")
        for name in ("bf16", "cut"):
            with h5py.File(trace) as ours, h5py.File(self.folder / f"{name}.kvtrace.h5") as made:
                for key in ("segment_roles", "segment_begin", "segment_generated"):
                    self.assertTrue(np.array_equal(ours.attrs[key], made.attrs[key]), key)
        self.assertNotIn("segments", self.kvreplay("diff", trace, "cut.kvtrace.h5").stdout)

    def test_mistakes(self):
        user, answer = CHAT[1], {"role": "assistant"}
        for turns, says in (([user], ["ends with user", "an assistant last"]),
                            ([], ["ends with nothing"]),
                            ([answer], ["line 1", "assistant after nothing"]),
                            ([user, CHAT[0], answer], ["line 2", "system after user"]),
                            ([user, {"role": "tool", "content": "x"}], ["line 2", '"tool"']),
                            ([{"role": "user"}, answer], ["line 1", "content is null"]),
                            ([{"role": "user", "content": 3}, answer], ["line 1", "content is 3"]),
                            ([user, {**answer, "name": "x"}], ["line 2", "role and content"]),
                            ([user, {**answer, "prefilled": True}], ["line 2", "prefilled"]),
                            ([{**user, "prefilled": True}, answer], ["line 1", "prefilled"]),
                            ([user, {**CHAT[4], "prefilled": True}],
                             ["ends with assistant, prefilled"])):
            with self.subTest(turns):
                chat = self.chat(turns)
                self.refuses(("record", "--model", self.model, "--chat", chat, "--out",
                              "bad.kvtrace.h5"), says)
        words = ("record", "--model", self.model, "--chat", self.chat(CHAT), "--out",
                 "bad.kvtrace.h5")
        self.refuses((*words, "--steps", 600), ["up to", "512 or fewer"])
        self.refuses((*words, "--prompt", 5), ["--chat"])


if __name__ == "__main__":
    unittest.main()
