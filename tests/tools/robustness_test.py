"""What must survive a user's slips: files that are there, settings in any order, an interrupt."""

import csv
import io
import os
import signal
import subprocess
import time
import unittest

import h5py
import numpy

from program import PROGRAM, SHIPPED_TRACE, SOURCE, ProgramTest, tree

FIRST = SOURCE / "configs/experiments/first.json"
SMALL = ["--steps", 20, "--set", "timed_steps=4", "--set", "device=emmc51"]


class Robustness(ProgramTest):
    def run_rows(self, *sets):
        arguments = [word for pair in sets for word in ("--set", pair)]
        out = self.succeed("run", FIRST, *SMALL, *arguments, "--format", "csv", "--out",
                           f"out-{self.id()}-{len(tree(self.folder))}")
        return list(csv.DictReader(io.StringIO(out)))

    def test_no_output_replaces_what_is_there(self):
        precious = self.folder / "precious"
        precious.write_text("precious")
        self.refuses(["cut", SHIPPED_TRACE, precious, "--layers", "12"], [str(precious), "already"])
        self.assertEqual(precious.read_text(), "precious")

    def test_no_output_replaces_a_device_node(self):
        self.refuses(["cut", SHIPPED_TRACE, "/dev/null", "--layers", "12"],
                     ["/dev/null", "already"])
        self.assertFalse(os.path.isfile("/dev/null"))

    def test_settings_are_taken_together_in_any_order(self):
        settings = ["system.cache.part=lru", "system.cache.capacity_groups=5000", "system=quest"]
        forward, = self.run_rows(*settings)
        backward, = self.run_rows(*reversed(settings))
        self.assertEqual(forward, backward)
        self.assertGreater(float(forward["hit_rate"]), 0)

    def test_a_capacity_can_change_its_unit(self):
        row, = self.run_rows("system=kvswap", "system.cache.capacity_bytes=10000000",
                             "system.cache.capacity_groups=0")
        self.assertGreater(float(row["hit_rate"]), 0)

    def test_a_hidden_nan_is_told_and_not_averaged(self):
        trace = self.cut_trace("nan.kvtrace.h5", 256, 24)
        with h5py.File(trace, "r+") as file:
            file["layer/12/key"][1, 177, 3] = numpy.nan
        for system in ("kvswap", "clusterkv", "in_memory"):
            self.refuses(["run", FIRST, *SMALL, "--set", f"trace={trace}", "--set",
                          f"system={system}"], [str(trace), "layer/12", "finite"])

    def test_bottomless_json_is_told(self):
        file = self.folder / "deep.json"
        file.write_text('{"title":' + "[" * 200_000 + "]" * 200_000 + "}")
        self.refuses(["run", file], [str(file), "nested"])

    def test_an_interrupt_leaves_nothing(self):
        before = tree(self.folder)
        for name in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([PROGRAM, "run", FIRST, "--out", "interrupted"],
                                  cwd=self.folder, stderr=subprocess.PIPE, text=True) as process:
                while tree(self.folder) == before and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(0.05)
                process.send_signal(name)
                _, said = process.communicate()
            self.assertEqual(process.returncode, 128 + name)
            self.assertIn("interrupted", said)
            self.assertEqual(tree(self.folder), before)


if __name__ == "__main__":
    unittest.main()
