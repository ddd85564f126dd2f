#!/usr/bin/env python3
"""Random changes of each kind of file that kvreplay reads: no signal, no hang, one line and exit
code 2, and, where the file is ours and holds a checksum, never exit code 0 with other numbers.

MUTATIONS=300 takes that many of each kind (by default fewer); SEED=N other ones."""

import json
import os
import random
import re
import shutil
import sys
import unittest

import h5py

import tiny_model
from program import PROGRAM, SLOWER, SOURCE, ProgramTest, processor_seconds, run_with_patience

MUTATIONS = int(os.environ.get("MUTATIONS", "3"))
SEED = int(os.environ.get("SEED", "1"))
PATIENCE = 10  # seconds of processor time: others may use the machine
STUCK = 120  # seconds; only what waits for ever takes as long
EXPERIMENT = {
    "title": "test", "trace": "tiny.kvtrace.h5", "system": ["quest"], "model": "smollm2-135m",
    "platform": "orin_agx", "device": "ufs40", "batch": 1, "seed": 1, "timed_steps": 4,
    "warm_up_steps": 2, "threads": 1, "set": {"system.selection.budget_tokens": 32}}
FIO = ["fio version 3 iolog", "0 /d add", "0 /d open", "10 /d read 0 4096", "20 /d read 8192 8192",
       "30 /d write 16384 4096", "40 /d close"]
BLKPARSE = [f"  8,0    0 {i:8} {i / 1000:13.9f}  1234  Q   R {8 * i} + 8 [x]" for i in range(1, 9)]


def mutated_bytes(data, chance):
    """One to three changes: a flipped bit, a byte, a run of zeros or noise, a cut, a repetition."""
    data = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        how = chance.randrange(6)
        run = chance.choice([1, 2, 4, 8, 64])
        if how in (0, 1):
            data[at] ^= 1 << chance.randrange(8)
        elif how == 2:
            data[at] = chance.randrange(256)
        elif how == 3:
            data[at:at + run] = bytes(len(data[at:at + run]))
        elif how == 4:
            data[at:at + run] = chance.randbytes(len(data[at:at + run]))
        elif chance.randrange(4) == 0:
            del data[at:]
        else:
            data[at:at] = data[at:at + run]
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


NUMBERS = ["0", "-1", "1", "2147483647", "-2147483649", "9223372036854775807", "1e308", "1e-308",
           "0.5", "null", '"x"', "[]", "{}", "true", "1e999", "99999999999999999999"]


def mutated_text(data, chance):
    """Of texts, numbers and members, too."""
    if chance.randrange(3) == 0:
        return mutated_bytes(data, chance)
    text = data.decode(errors="replace")
    numbers = list(re.finditer(r"-?\d+(\.\d+)?", text))
    lines = text.splitlines(keepends=True)
    if numbers and chance.randrange(2) == 0:
        found = chance.choice(numbers)
        text = text[:found.start()] + chance.choice(NUMBERS) + text[found.end():]
    elif lines:
        at = chance.randrange(len(lines))
        lines[at:at + 1] = chance.choice([[], [lines[at]] * 2, [chance.choice(lines)]])
        text = "".join(lines)
    return text.encode()


class MutatedFiles(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("tiny.kvtrace.h5", 128, 8)
        (cls.folder / "tiny.json").write_text(json.dumps(EXPERIMENT, indent=1))
        cls.succeed("run", "tiny.json", "--access-log", "--out", "done", "--format", "none")

    def told(self, command):
        """Exit code and what was said."""
        before = processor_seconds()
        result = run_with_patience(STUCK, [PROGRAM, *map(str, command)], cwd=self.folder)
        self.assertLess(processor_seconds() - before,
                        SLOWER * PATIENCE * (10 if "calibrate" in command else 1), "hangs")
        return result.returncode, result.stdout, result.stderr

    def mutate(self, name, command, out=None, *, ours=False, text=False, mutation=None):
        """`command` reads `name`; `ours`: exit code 0 must say what it says of the sound file."""
        path = self.folder / name
        sound = path.read_bytes()
        self.addCleanup(path.write_bytes, sound)

        def run():
            if out:
                target = self.folder / out
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            code, printed, said = self.told(command)
            if out and code == 0 and (self.folder / out).is_file():
                written = (self.folder / out).read_bytes()
                printed += re.sub(b"sha256 [0-9a-f]*", b"", written).hex()  # it names its source
            return code, re.sub("sha256 [0-9a-f]*", "", printed), said

        code, expected, said = run()
        self.assertEqual(code, 0, said)
        refused = 0
        for number in range(MUTATIONS):
            chance = random.Random(f"{SEED} {name} {command[0]} {number}")
            change = mutation or (mutated_text if text else mutated_bytes)
            path.write_bytes(change(sound, chance))
            with self.subTest(file=name, command=command[0], number=number):
                code, printed, said = run()
                if code == 0:
                    if ours:
                        self.assertEqual(printed, expected, "exit code 0, other numbers")
                else:
                    refused += 1
                    self.assertEqual(code, 2, said)
                    self.assertTrue(said.splitlines()[-1].startswith("kvreplay: "), said)
        path.write_bytes(sound)
        print(f"{name} under {command[0]}: {refused} of {MUTATIONS} refused", file=sys.stderr)

    def outside_vectors(self, name):
        """Changes of a trace where no vectors lie, so that run and verify must see them."""
        spans = []

        def note(_, item):
            if isinstance(item, h5py.Dataset) and item.ndim > 1 and item.id.get_offset():
                spans.append((item.id.get_offset(), item.id.get_storage_size()))
        with h5py.File(self.folder / name) as file:
            file.visititems(note)

        def mutation(data, chance):
            while True:
                at = chance.randrange(len(data))
                if not any(begin <= at < begin + size for begin, size in spans):
                    break
            changed = bytearray(data)
            changed[at] ^= 1 << chance.randrange(8)
            return bytes(changed)
        return mutation

    def test_traces(self):
        run = ["run", "tiny.json", "--format", "csv", "--out", "out"]
        self.mutate("tiny.kvtrace.h5", ["verify", "tiny.kvtrace.h5"], ours=True)
        self.mutate("tiny.kvtrace.h5", ["verify", "tiny.kvtrace.h5"], ours=True,
                    mutation=self.outside_vectors("tiny.kvtrace.h5"))
        self.mutate("tiny.kvtrace.h5", run, "out", ours=True,
                    mutation=self.outside_vectors("tiny.kvtrace.h5"))

    def test_access_logs(self):
        log = "done/tiny.quest.access.h5"
        self.mutate(log, ["statistics", "done", "--trace", "tiny.kvtrace.h5"], ours=True)
        self.mutate(log, ["export-accesses", log, "out.og", "--layer", "12"], "out.og", ours=True)

    def test_configs(self):
        run = ["run", "tiny.json", "--format", "csv", "--out", "out"]
        self.mutate("tiny.json", run, "out", text=True)
        for kind, name in (("systems", "quest"), ("devices", "ufs40"), ("platforms", "orin_agx"),
                           ("models", "smollm2-135m")):
            shutil.copy(SOURCE / f"configs/{kind}/{name}.json", self.folder / f"my_{name}.json")
            setting = f"{kind[:-1]}=./my_{name}.json"
            self.mutate(f"my_{name}.json", [*run, "--set", setting], "out", text=True)

    def test_schedules_and_logs(self):
        self.succeed("device", "schedule", "tiny.json", "--model-device", "ufs40", "--out",
                     "tiny.schedule")
        (self.folder / "log.fio").write_text("\n".join(FIO) + "\n")
        (self.folder / "blkparse.txt").write_text("\n".join(BLKPARSE) + "\n")
        for name, ours in (("tiny.schedule", True), ("log.fio", False), ("blkparse.txt", False)):
            self.mutate(name, ["device", "time", name, "--model-device", "ufs40"], text=True,
                        ours=ours)

    def test_measurements(self):
        (self.folder / "target.bin").write_bytes(os.urandom(4 << 20))
        for seconds in (0.02, 0.2, 1, 3):  # what stalls a busy machine spoils short points
            for name in ("probe.json", "trial.json"):
                (self.folder / name).unlink(missing_ok=True)
            result = self.kvreplay("device", "probe", "target.bin", "--size", "4K,16K", "--depth",
                                   "1,2,4", "--seconds", seconds, "--out", "probe.json")
            if result.returncode != 0:
                self.skipTest(f"no direct I/O in the temporary folder: {result.stderr}")
            if self.kvreplay("device", "calibrate", "probe.json", "--hold-out", "0", "--out",
                             "trial.json").returncode == 0:
                break
        self.mutate("probe.json", ["device", "calibrate", "probe.json", "--hold-out", "0", "--out",
                                   "out.json"], "out.json", text=True, ours=True)

    def test_model_files(self):
        tiny_model.imported(self.folder / "tiny.kvmodel", num_hidden_layers=1)
        (self.folder / "ids.txt").write_text(" ".join(str(i % 101) for i in range(40)))
        self.mutate("tiny.kvmodel", ["record", "--model", "tiny.kvmodel", "--token-ids", "ids.txt",
                                     "--prompt", "24", "--steps", "8", "--out", "out.kvtrace.h5"],
                    "out.kvtrace.h5")

    def test_shards(self):
        for index in (1, 2):
            self.succeed("sweep", "tiny.json", "--no-cache", "--set", "system=quest,kvswap",
                         "--shard", f"{index}/2", "--out", f"shard-{index}", "--format", "none")
        merge = ["merge", "shard-1", "shard-2", "--out", "out"]
        self.mutate("shard-1/shard.json", merge, "out", text=True, ours=True)
        self.mutate("shard-1/results.csv", merge, "out", ours=True)

    def test_stored_outputs(self):
        """A damaged entry is computed again: exit code 0, and the very numbers."""
        sweep = ["sweep", "tiny.json", "--cache", "cache", "--quiet", "--format", "csv", "--out",
                 "out"]
        self.succeed(*sweep)
        shutil.rmtree(self.folder / "out")
        entries = [path for path in (self.folder / "cache").rglob("*")
                   if path.is_file() and len(path.name) == 64]
        for path in entries:
            self.mutate(path.relative_to(self.folder), sweep, "out", ours=True)


if __name__ == "__main__":
    unittest.main()
