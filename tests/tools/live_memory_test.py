"""The memory of `kvreplay live` as the system counts it, beside what a run says that it keeps: an entry
outside a system's cache must not stay in memory in some other form."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import numpy as np

import tiny_model
from program import PROGRAM, SANITIZED, ProgramTest

LAYERS, QUERY_HEADS, KV_HEADS, DIM, HIDDEN = 8, 4, 2, 128, 64
SHORT, LONG, STEPS = 512, 1536, 24
TOKENS = LONG - SHORT
ENTRY = 2 * 2 * KV_HEADS * DIM  # of a token at a layer, in half precision
WORDS = [f"w{number}" for number in range(101)]
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "w0"}}

# What a run keeps beside entries, in bytes (docs/live.md). Of a token: where it is, per layer and KV head; the
# cosines and sines of its position. Of a group: where it is; of each element of its representative 4 bytes
# in single precision and 8 in double, in arrays that grow to twice as much.
BOOKKEEPING, ROPE, GROUP = 100, 4 * DIM, 200
BOUNDS, CENTROID, MOMENTS = 2 * 2 * 4, 2 * (4 + 8), 2 * 4 + 8
# Of the prompt's attention, per thread: weights of the queries that are computed at once.
ATTENTION = 64 * 4
# What the allocator has in reserve, and how much of the buffer for requests is in use, differ from run to run.
NOISE = 1 << 20

# Tokens per group and bytes per element of its representative; options that keep the cache small at any length.
SYSTEMS = (("flexgen", LONG, 0),
           ("quest", 16, BOUNDS, "--budget", 64, "--set", "stream.dense_layers=0"),
           ("clusterkv", 80, CENTROID, "--budget", 64),
           ("dynakv", 32, CENTROID + MOMENTS),
           ("shadowkv", 32, CENTROID, "--budget", 64, "--set", "grouping.chunk_tokens=32", "--set",
            "grouping.outlier_chunks=4"),
           ("kvswap", 4, 0, "--budget", 64, "--adapters", "adapters.kvtrace.h5"))


class Run:
    """What a live run held in its steps and while it read the prompt, in bytes."""

    def __init__(self, status, row, manifest):
        self.in_steps = status["RssAnon"]
        self.peak = status["VmHWM"] - status["RssFile"]
        self.said = int(float(row["dram_kv_bytes"]))
        self.index = int(float(row["dram_index_bytes"]))
        self.memory = manifest["memory"]


@unittest.skipIf(SANITIZED, "a sanitizer has its own memory")
class LiveMemory(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = tiny_model.write(cls.folder / "wide", hidden_size=HIDDEN, num_attention_heads=QUERY_HEADS,
                                  num_key_value_heads=KV_HEADS, head_dim=DIM, num_hidden_layers=LAYERS,
                                  max_position_embeddings=4096)
        (source / "tokenizer.json").write_text(json.dumps(TOKENIZER))  # so that tokens are said one by one
        cls.model = tiny_model.import_as(source, cls.folder / "wide.kvmodel")
        ids = np.random.default_rng(1).integers(0, len(WORDS), LONG + STEPS)
        (cls.folder / "ids.txt").write_text(" ".join(map(str, ids)))
        cls.succeed("record", "--model", cls.model, "--token-ids", "ids.txt", "--prompt", 64, "--steps", 1,
                    "--adapt-token-ids", "ids.txt", "--adapt-tokens", 300, "--out", "adapters.kvtrace.h5")

    def live(self, system, prompt, *more):
        """The run is stopped in its steps and looked at from outside."""
        out = self.folder / f"{system}-{prompt}"
        words = ["live", "--model", self.model, "--token-ids", "ids.txt", "--prompt", prompt, "--steps", STEPS,
                 "--system", system, "--threads", 1, "--out", out, *more]
        if system != "in_memory":
            words += ["--target", "target", "--create", "128MiB", "--depth", 1]
        with open(self.folder / "said", "w+", encoding="utf-8") as errors, \
             subprocess.Popen([PROGRAM, *map(str, words)], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=errors) as process:
            self.addCleanup(process.kill)  # of an ended one, nothing
            text = b""
            while text.count(b"w") < STEPS // 2:
                part = os.read(process.stdout.fileno(), 4096)
                self.assertTrue(part, (self.folder / "said").read_text())
                text += part
            process.send_signal(signal.SIGSTOP)
            status = self.status_when_stopped(process.pid)
            process.send_signal(signal.SIGCONT)
            text += process.communicate()[0]
        self.assertEqual(process.returncode, 0, (self.folder / "said").read_text())
        with open(out / "results.csv", newline="", encoding="utf-8") as file:
            row, = csv.DictReader(file)
        manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        shutil.rmtree(out)
        return Run(status, row, manifest), text.decode()

    def status_when_stopped(self, pid):
        """The sizes in /proc/PID/status, in bytes."""
        for _ in range(2000):
            text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            if re.search(r"^State:\s+T", text, re.MULTILINE):
                return {name: int(kib) * 1024
                        for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
            time.sleep(0.005)
        return self.fail("the run does not stop")

    def both(self, system, *more):
        return [self.live(system, prompt, *more)[0] for prompt in (SHORT, LONG)]

    @staticmethod
    def allowance(short, long, group_tokens=LONG, element_bytes=0):
        """What the steps may hold beyond those after the shorter prompt."""
        of_token = BOOKKEEPING + (GROUP + element_bytes * DIM) / group_tokens
        decoded = long.memory["decoded_bytes"] - short.memory["decoded_bytes"]
        return (long.said - short.said + long.index - short.index  # factors of keys, in single precision
                + decoded + NOISE
                + TOKENS * (ROPE + LAYERS * KV_HEADS * of_token))

    def check_prompt(self, short, long):
        """The peak is what the model computes with, for all tokens, beside what the run keeps and some forms
        of one layer's entries."""
        widths = 3 * HIDDEN + 2 * (QUERY_HEADS + KV_HEADS) * DIM
        kept = max(long.in_steps - short.in_steps, 0)
        self.assertLess(long.peak - short.peak, kept + TOKENS * (4 * widths + 7 * ENTRY + ATTENTION) + NOISE)

    def test_in_memory_holds_the_whole_cache(self):
        short, long = self.both("in_memory")
        whole = LAYERS * ENTRY * TOKENS
        self.assertEqual(long.said - short.said, whole)
        self.assertEqual(long.memory["in_memory_layers_bytes"] - short.memory["in_memory_layers_bytes"], whole)
        self.assertGreater(long.in_steps - short.in_steps, 0.9 * whole)
        self.assertLess(long.in_steps - short.in_steps, self.allowance(short, long))
        self.check_prompt(short, long)

    def test_what_is_on_flash_is_not_in_memory(self):
        whole = LAYERS * ENTRY * TOKENS
        for system, group_tokens, element_bytes, *more in SYSTEMS:
            with self.subTest(system):
                short, long = self.both(system, *more)
                allowed = self.allowance(short, long, group_tokens, element_bytes)
                self.assertLess(allowed, whole, "the test could not fail")
                self.assertLess(long.in_steps - short.in_steps, allowed)
                # The process's own count is what the system asks for.
                counted = long.memory["entries_bytes"] + long.memory["in_memory_layers_bytes"]
                self.assertLess(counted, long.said - long.index + NOISE)
                self.check_prompt(short, long)

    def test_the_run_says_what_is_seen_from_outside(self):
        run, text = self.live("quest", SHORT, "--budget", 64)
        said = re.search(r"the process, by the system's count: ([.\d]+) MiB of its own after the last step, "
                         r"([.\d]+) MiB at most with the model file", text)
        in_steps, peak = (float(number) * 2**20 for number in said.groups())
        self.assertAlmostEqual(in_steps, run.in_steps, delta=NOISE)
        self.assertAlmostEqual(in_steps, run.memory["process_in_steps_bytes"], delta=2**18)
        self.assertAlmostEqual(peak, run.memory["process_peak_bytes"], delta=2**18)
        self.assertGreater(peak, in_steps)


if __name__ == "__main__":
    unittest.main()
