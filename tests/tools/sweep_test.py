"""Sweeps: what is kept, shards, and several processes on one cache; kills: kill_trials_test.py."""

import json
import signal
import subprocess
import unittest

from program import PROGRAM, ProgramTest

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5", "system": ["quest", "kvswap"],
    "model": "smollm2-135m", "platform": "orin_agx", "device": ["ufs40", "emmc51"], "batch": 1,
    "warm_up_steps": 2, "timed_steps": 8,
    "set": {"system.cache.part": ["fifo", "lru"],
            "system.cache.capacity_groups": {"from": 8, "to": 64, "factor": 2},
            "system.selection.budget_tokens": [32, 64]},
}
CELLS = 2 * 2 * 2 * 4 * 2


class Sweep(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, 24)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))
        cls.succeed("run", "experiment.json", "--out", "whole")
        cls.expected = cls.files("whole")

    @classmethod
    def files(cls, name):
        """The contents of a folder of results."""
        return {file.name: file.read_bytes() for file in (cls.folder / name).iterdir()}

    @classmethod
    def sweep(cls, *options):
        return cls.succeed("sweep", "experiment.json", "--format", "none", *options)

    def said(self, *options):
        result = self.kvreplay("sweep", "experiment.json", "--plan", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_a_run_and_a_sweep_give_the_same_files(self):
        self.sweep("--no-cache", "--out", "no-cache")
        self.assertEqual(self.files("no-cache"), self.expected)
        for number in (1, 2):
            self.sweep("--cache", "c1", "--out", f"cached-{number}")
            self.assertEqual(self.files(f"cached-{number}"), self.expected)
        for jobs in (1, 2):
            self.sweep("--cache", f"jobs-{jobs}", "--jobs", jobs, "--out", f"out-{jobs}")
            self.assertEqual(self.files(f"out-{jobs}"), self.expected)

    def test_the_plan_says_what_there_is_to_do(self):
        said = self.said("--cache", "plan")
        self.assertIn(f"{CELLS} cells, 0 finished before", said)
        self.assertRegex(said, r"stage 1 decide +4 different, +4 to compute, about [0-9.]+ s")
        self.assertRegex(said, rf"stage 2 place +{CELLS // 2} different, +{CELLS // 2} to compute")
        self.assertRegex(said, rf"stage 3 time +{CELLS} different, +{CELLS} to compute")
        self.assertRegex(said, r"about [0-9.]+ s in all, by what a server core took, if nothing else")
        self.assertFalse((self.folder / "plan").joinpath("time").exists())
        self.sweep("--cache", "plan", "--out", "planned", "--set", "device=ufs40")
        said = self.said("--cache", "plan")
        self.assertIn(f"{CELLS} cells, {CELLS // 2} finished before", said)
        self.assertIn("in all, by what the last sweep with this cache took, if nothing else", said)
        self.assertRegex(said, r"stage 1 decide +4 different, +0 to compute")
        self.assertRegex(said, rf"stage 3 time +{CELLS} different, +{CELLS // 2} to compute")

    def test_under_nohup_it_outlives_the_terminal(self):
        with subprocess.Popen([PROGRAM, "sweep", "experiment.json", "--no-cache", "--format", "none",
                               "--out", "hung-up"], cwd=self.folder, stderr=subprocess.PIPE,
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
                              text=True) as process:
            said = process.stderr.readline()  # the plan; from now on signals are handled
            process.send_signal(signal.SIGHUP)
            said += process.stderr.read()
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(self.files("hung-up"), self.expected)

    def test_two_processes_share_a_cache(self):
        processes = [subprocess.Popen([PROGRAM, "sweep", "experiment.json", "--quiet", "--format",
                                       "none", "--cache", "shared", "--out", f"shared-{number}"],
                                      cwd=self.folder, stderr=subprocess.PIPE, text=True)
                     for number in (1, 2)]
        for number, process in enumerate(processes, 1):
            _, said = process.communicate()
            self.assertEqual(process.returncode, 0, said)
            self.assertEqual(self.files(f"shared-{number}"), self.expected)

    def test_shards(self):
        for index in (3, 1, 2):
            self.sweep("--no-cache", "--shard", f"{index}/3", "--out", f"shard-{index}")
        self.succeed("merge", "shard-2", "shard-3", "shard-1", "--out", "merged")
        self.assertEqual(self.files("merged"), self.expected)
        self.refuses(["merge", "shard-1", "shard-2", "--out", "m"], ["shard 3 of 3 is missing"])
        self.refuses(["merge", "shard-1", "whole", "--out", "m"], ["whole/shard.json"])
        for name in ("shard.json", "results.csv", "manifest.json"):
            file = self.folder / "shard-2" / name
            sound = file.read_bytes()
            digit = next(at for at in range(len(sound) // 2, len(sound)) if sound[at:at + 1].isdigit())
            file.write_bytes(sound[:digit] + (b"1" if sound[digit:digit + 1] != b"1" else b"2")
                             + sound[digit + 1:])
            self.refuses(["merge", "shard-1", "shard-2", "shard-3", "--out", "m"],
                         [f"shard-2/{name}"])
            file.write_bytes(sound)

    def test_a_small_limit_only_costs_time(self):
        self.sweep("--cache", "tiny", "--cache-limit", "20KiB", "--out", "tiny-out")
        self.assertEqual(self.files("tiny-out"), self.expected)
        self.assertLess(sum(file.stat().st_size for file in (self.folder / "tiny").rglob("*")
                            if file.is_file()), 20 * 1024)

    def test_a_full_disk_only_costs_the_cache(self):
        result = self.kvreplay("sweep", "experiment.json", "--format", "none", "--cache",
                               "/proc/nowhere", "--out", "no-room")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("warning: nothing was kept: /proc/nowhere", result.stderr)
        self.assertEqual(self.files("no-room"), self.expected)

    def test_information_and_pruning(self):
        self.sweep("--cache", "pruned", "--out", "pruned-out")
        said = self.succeed("cache", "info", "--cache", "pruned")
        self.assertRegex(said, rf"time +{CELLS} entries")
        self.assertRegex(said, r"decide +4 entries")
        said = self.succeed("cache", "prune", "--cache", "pruned", "--cache-limit", "0")
        self.assertRegex(said, r"removed \d+ entries")
        self.assertRegex(self.succeed("cache", "info", "--cache", "pruned"), r"all +0 entries")

    def test_bad_options(self):
        sweep = ["sweep", "experiment.json"]
        for shard in ("0/3", "4/3", "1/0", "1", "a/b", "1/3x", "-1/3"):
            self.refuses([*sweep, f"--shard={shard}"], ["--shard", shard, "I/N"])
        self.refuses([*sweep, "--cache-limit", "much"], ["--cache-limit", "much", "10GiB"])
        self.refuses([*sweep, "--memory", "4"], ["--memory", "4GiB"])
        self.refuses([*sweep, "--cache", "experiment.json"], ["experiment.json", "is no folder"])
        self.refuses([*sweep, "--out", "whole"], ["whole", "new or empty"])
        self.refuses(["cache"], ["info", "prune"])

    def test_settings_are_columns(self):
        header, *rows = self.expected["results.csv"].decode().splitlines()
        self.assertEqual(len(rows), CELLS)
        columns = header.split(",")
        at = columns.index("system")
        self.assertEqual(columns[at + 1:at + 4],
                         ["system.cache.capacity_groups", "system.cache.part",
                          "system.selection.budget_tokens"])
        self.assertEqual(len({tuple(row.split(",")[at - 1:at + 4]) for row in rows}), CELLS)
        quality = self.expected["quality.csv"].decode().splitlines()
        self.assertEqual(quality[0].split(",")[:4],
                         ["trace", "synthetic", "system", "system.selection.budget_tokens"])


if __name__ == "__main__":
    unittest.main()
