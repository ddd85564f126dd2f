#!/usr/bin/env python3
"""SIGKILL at random moments of sweep, tune, record and reproduce: nothing finished is lost, no output
looks whole that is not, and the end is, byte for byte, that of a run that nobody killed (but for the
time of a recording).

KILLS=200 takes that many, spread over the four (by default a few); SEED=N other moments."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import h5py

import tiny_model
from program import PROGRAM, ProgramTest

KILLS = int(os.environ.get("KILLS", "4"))
SEED = int(os.environ.get("SEED", "1"))
EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5", "system": ["quest", "kvswap"],
    "model": "smollm2-135m", "platform": "orin_agx", "device": ["ufs40", "emmc51"], "batch": 1,
    "warm_up_steps": 2, "timed_steps": 8,
    "set": {"system.cache.part": ["fifo", "lru"],
            "system.cache.capacity_groups": {"from": 8, "to": 64, "factor": 2},
            "system.selection.budget_tokens": [32, 64]}}
TUNED = {**EXPERIMENT, "device": "ufs40", "set": {
    "system.stream.dense_layers": 0, "system.selection.budget_tokens": 48,
    "system.kvswap.cache.capacity_groups": 24}}
PAPER = {
    "title": "Tiny", "source": "no paper",
    "runs": {"run": {"experiment": "first", "variants": {"as it is": {}, "8K": {
        "model.context_tokens": 8192}}, "set": {"system": ["in_memory", "quest"], "device": "ufs40"}},
             "devices": {"devices": ["ufs40"]}},
    "figures": {"speed": {"title": "speed"}},
    "claims": [
        {"name": "speed", "claim": "speed", "source": "1", "unit": "tokens/s", "run": "run",
         "metric": "tokens_per_s", "series": "system", "x": "variant", "xs": ["as it is", "8K"],
         "reported": {"in_memory": [10, 9], "quest": [9, 9]}, "figure": "speed"},
        {"name": "link", "claim": "bandwidth", "source": "2", "run": "devices", "metric": "mb_s",
         "where": {"bytes": 1048576, "depth": 32}, "reported": ">1"}]}


def contents(path):
    """The bytes of a recording, or of every file of a folder; figures and pages, which name the time,
    are left out, and so is the time of a recording, with the checksum that covers it."""
    if path.is_file():
        with h5py.File(path) as file:
            times = [file.attrs[name] for name in ("created_utc", "content_sha256")]
        data = path.read_bytes()
        for text in times:
            data = data.replace(text if isinstance(text, bytes) else text.encode(), b"?")
        return data
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*"))
            if file.is_file() and file.suffix not in (".pdf", ".png", ".md")}


class KillTrials(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, 24)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))
        (cls.folder / "tuned.json").write_text(json.dumps(TUNED))
        (cls.folder / "paper.json").write_text(json.dumps(PAPER))
        tiny_model.imported(cls.folder / "tiny.kvmodel", num_hidden_layers=8)
        (cls.folder / "ids.txt").write_text(" ".join(str(i % 101) for i in range(500)))

    def environment(self, store):
        return dict(os.environ, KVREPLAY_PROGRAM=PROGRAM, XDG_CACHE_HOME=str(self.folder / store))

    def stored(self, store):
        """The entries that a store holds by stage, as `cache info` counts them."""
        folder = self.folder / store / "kvreplay"
        if not folder.exists():
            return {}
        said = self.succeed("cache", "info", "--cache", folder)
        return {stage: int(count) for stage, count in re.findall(r"(\w+) +(\d+) entries", said)}

    def command(self, words, out):
        return [PROGRAM, *words, "--out", str(out)]

    def killed_and_again(self, name, words, out, kills):
        """Kills the command `kills` times, each time at another moment; lets it end between some."""
        chance = random.Random(f"{SEED} {name}")
        options = {"cwd": self.folder, "stdout": subprocess.DEVNULL, "start_new_session": True,
                   "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
        whole, place = self.folder / f"whole {out}", self.folder / out
        begin = time.monotonic()
        subprocess.run(self.command(words, whole.name), env=self.environment(f"{name} fresh"),
                       check=True, **options)
        duration = time.monotonic() - begin
        expected = contents(whole)
        ended = after_output = 0
        store, before = f"{name} store 0", {}
        for number in range(kills):
            with subprocess.Popen(self.command(words, out), env=self.environment(store),
                                  **options) as process:
                try:
                    process.wait(chance.uniform(0, 1.1 * duration))
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                _, said = process.communicate()
            with self.subTest(command=name, kill=number):
                self.assertIn(process.returncode, (0, -signal.SIGKILL), said)
                now = self.stored(store)
                for stage, count in before.items():
                    self.assertGreaterEqual(now.get(stage, 0), count, f"{stage}: entries were lost")
                before = now
                if place.exists():  # it is whole, whether or not the command was killed after it
                    self.assertEqual(contents(place), expected)
                    shutil.rmtree(place) if place.is_dir() else place.unlink()
                    after_output += process.returncode != 0
                    ended += process.returncode == 0
                    store, before = f"{name} store {number + 1}", {}
        with self.subTest(command=name, kill="none"):
            subprocess.run(self.command(words, out), env=self.environment(store), check=True,
                           **options)
            self.assertEqual(contents(place), expected)
            left = [path.name for path in self.folder.iterdir()
                    if path.name.startswith(f"{out}.partial-")]
            self.assertEqual(left, [], "what killed writers left was not removed")
        print(f"{name}: {kills - ended} kills over {duration:.1f} s, {after_output} of them after the "
              f"output, {ended} ended first", file=sys.stderr)

    def share(self, number):
        return KILLS // 4 + (number < KILLS % 4)

    def test_sweep(self):
        self.killed_and_again("sweep", ["sweep", "experiment.json", "--quiet", "--format", "none"],
                              "swept", self.share(0))

    def test_tune(self):
        self.killed_and_again("tune", ["tune", "tuned.json", "--system", "any", "--evaluations", "24",
                                       "--population", "8"], "tuned", self.share(1))

    def test_record(self):
        self.killed_and_again("record", ["record", "--model", "tiny.kvmodel", "--token-ids",
                                         "ids.txt", "--prompt", "384", "--steps", "100"],
                              "recorded.kvtrace.h5", self.share(2))

    def test_reproduce(self):
        self.killed_and_again("reproduce", ["reproduce", "paper.json", "--steps", "24", "--trace",
                                            "dialogue=none"], "reproduced", self.share(3))


if __name__ == "__main__":
    unittest.main()
