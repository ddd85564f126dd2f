#!/usr/bin/env python3
"""Real faults in the middle of a live run: an I/O error, a full device, a file that becomes shorter
or loses its name. Each ends in one line that names the target, or changes no token."""

import csv
import os
import subprocess
import unittest

import numpy as np

import tiny_model
from faulty_device import MIB, PATIENCE, FaultyDeviceTest

PROMPT, STEPS = 120, 3000


class LiveFaults(FaultyDeviceTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_model.imported(cls.folder / "tiny.kvmodel", head_dim=32, hidden_size=96,
                                        num_hidden_layers=4, max_position_embeddings=4096)
        ids = np.random.default_rng(1).integers(0, 101, PROMPT + STEPS)
        (cls.folder / "ids.txt").write_text(" ".join(map(str, ids)))

    def words(self, target, *more, steps=STEPS):
        return ["live", "--model", self.model, "--token-ids", "ids.txt", "--prompt", PROMPT, "--steps",
                steps, "--system", "quest", "--budget", 32, "--target", target, "--allow-destructive",
                *more]

    def run_until(self, words, then):
        """Exit code and standard error; `then` is called when a step has been made."""
        process = self.start(words, stdout=subprocess.PIPE)
        process.stdout.read(1)
        then()
        _, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, errors

    def fails(self, target, then, *complaints):
        code, errors = self.run_until(self.words(target, "--out", "failed"), then)
        self.assertEqual(code, 2, errors)
        for text in (str(target), *complaints):
            self.assertIn(text, errors.strip().splitlines()[-1])
        self.assertFalse((self.folder / "failed").exists())

    def test_an_io_error(self):
        trigger = self.folder / "now"
        target = self.serve("--filter=error", "memory", "64M", "error=EIO", "error-pread-rate=100%",
                            f"error-file={trigger}")
        self.addCleanup(lambda: trigger.unlink(missing_ok=True))
        self.fails(target, trigger.touch, "read of ", "failed (Input/output error)")

    def test_a_full_device(self):
        target = self.full_device("48k")
        code, errors = self.run_until(self.words(target, "--out", "full"), lambda: None)
        self.assertEqual(code, 2, errors)
        self.assertIn("write of ", errors)
        self.assertIn("failed (No space left on device)", errors)

    def test_a_file_that_becomes_shorter(self):
        target = self.folder / "short"
        target.write_bytes(os.urandom(32 * MIB))
        self.fails(target, lambda: os.truncate(target, 0), "transferred only 0")

    def test_a_file_without_a_name_changes_no_token(self):
        def likeliest(out, then):
            target = self.folder / "target"
            target.write_bytes(os.urandom(32 * MIB))
            code, errors = self.run_until(self.words(target, "--check", "--out", out, steps=3000),
                                          lambda: then(target))
            self.assertEqual(code, 0, errors)
            with open(self.folder / out / "steps.csv", newline="") as file:
                return [row["likeliest"] for row in csv.DictReader(file)]

        kept = likeliest("kept", lambda target: None)
        self.assertEqual(likeliest("removed", lambda target: target.unlink()), kept)
        self.assertEqual(len(kept), 3000)


if __name__ == "__main__":
    unittest.main()
