"""What must survive a user's mistakes: existing files, settings in any order, an interrupt."""

import csv
import io
import os
import signal
import subprocess
import time
import unittest

import h5py
import numpy
import tiny_model

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
        trace = self.cut_trace("nan.kvtrace.h5", 768, 24)
        with h5py.File(trace, "r+") as file:
            file["layer/12/key"][1, 178, 3] = numpy.nan  # loading looks at every third row
        for system in ("kvswap", "clusterkv", "in_memory"):
            self.refuses(["run", FIRST, *SMALL, "--set", f"trace={trace}", "--set",
                          f"system={system}"], [str(trace), "layer/12", "finite"])
        for options in (["--dtype", "bf16"], ["--archive"]):
            self.refuses(["convert", trace, "converted.kvtrace.h5", *options],
                         [f"{trace}: /layer/12/key: not a number or infinite at [1, 178, 3]"])

    def test_bottomless_json_is_told(self):
        file = self.folder / "deep.json"
        file.write_text('{"title":' + "[" * 200_000 + "]" * 200_000 + "}")
        self.refuses(["run", file], [str(file), "nested"])

    def test_no_output_is_what_the_command_reads(self):
        target = self.folder / "target.bin"
        target.write_bytes(bytes(1 << 20))
        os.link(target, self.folder / "another name")
        for out in ("target.bin", "./target.bin", "another name"):
            self.refuses(["device", "probe", "target.bin", "--out", out], [out, "another file"])
        self.refuses(["device", "probe", "new.bin", "--create", "1M", "--out", "new.bin"],
                     ["new.bin", "another file"])
        measurement = self.folder / "measured.json"
        measurement.write_text("{}")
        self.refuses(["device", "calibrate", measurement, "--out", "measured.json"],
                     ["measured.json", "another file"])
        self.refuses(["device", "schedule", measurement, "--model-device", "ufs40", "--out",
                      measurement], ["measured.json", "another file"])
        self.assertEqual(measurement.read_text(), "{}")

    def test_sizes_that_would_wrap_or_fill_the_disk(self):
        probe = ["device", "probe", "new.bin", "--out", "probe.json"]
        for size in ("-1", "-4K", "0", "99999999999999999999", "1.5K", "nan", "16777216T", "4X"):
            self.refuses([*probe, f"--create={size}"], ["--create", size.lstrip("-")])
        self.refuses([*probe, "--create", "1000T"], ["new.bin", "free"])
        for sizes in ("-4K", "4K,-4K", "4K,", ",4K", "4K,,8K"):
            self.refuses([*probe, "--create", "1M", f"--size={sizes}"], ["--size"])
        self.refuses([*probe, "--create", "1M", "--size", "4K,"], ["--size", "4K,"])
        for seed in ("-1", "99999999999999999999", "1.5", "x"):
            self.refuses([*probe, "--create", "1M", f"--seed={seed}"], ["--seed", seed])

    def test_no_option_takes_what_is_no_number(self):
        commands = {
            "--mix": ["device", "describe", "ufs40"],
            "--seconds": ["device", "probe", "new.bin", "--create", "1M", "--out", "probe.json"],
            "--link-timeout": ["device", "probe", "new.bin", "--out", "probe.json"],
            "--drift": ["synth", "x.synthetic.kvtrace.h5"],
            "--splits": ["synth", "x.synthetic.kvtrace.h5"],
            "--alpha": ["train-controller", SHIPPED_TRACE, "--out", "controller.json"],
            "--max-latency-ms": ["tune"],
            "--min-attention-mass": ["tune"],
            "--max-output-error": ["tune"],
        }
        for option, command in commands.items():
            for value in ("nan", "inf", "-inf", "1e400"):
                self.refuses([*command, f"{option}={value}"], [option, value])

    def test_a_number_beyond_all_bounds_is_told(self):
        file = self.folder / "huge.json"
        file.write_text('{"title": 1e400}')
        for command in (["run", file], ["device", "describe", file],
                        ["device", "calibrate", file, "--out", "preset.json"]):
            self.refuses(command, [str(file), "1e400"])

    def test_a_pipe_is_told_and_not_waited_for(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for command in (["run", pipe], ["device", "describe", pipe], ["verify", pipe],
                        ["device", "probe", pipe, "--out", "probe.json"],
                        ["device", "calibrate", pipe, "--out", "preset.json"],
                        ["device", "time", pipe, "--model-device", "ufs40"],
                        ["record", "--model", pipe, "--token-ids", pipe, "--out", "trace.h5"]):
            self.refuses(command, [str(pipe), "not a regular file"])

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

    def test_an_interrupt_leaves_no_temporary_file(self):
        tiny_model.imported(self.folder / "tiny.kvmodel", max_position_embeddings=8192)
        (self.folder / "ids.txt").write_text(" ".join(str(i % 101) for i in range(8192)))
        before = tree(self.folder)
        commands = (["record", "--model", "tiny.kvmodel", "--token-ids", "ids.txt", "--prompt",
                     "4096", "--steps", "4096", "--out", "interrupted.kvtrace.h5"],
                    ["cut", SHIPPED_TRACE, "interrupted.kvtrace.h5"],
                    ["convert", SHIPPED_TRACE, "interrupted.kvtrace.h5", "--dtype", "bf16"])
        for command in commands:
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                with self.subTest(command=command[0], signal=name), subprocess.Popen(
                        [PROGRAM, *command], cwd=self.folder, stderr=subprocess.PIPE,
                        text=True) as process:
                    while tree(self.folder) == before and process.poll() is None:
                        time.sleep(0.001)
                    process.send_signal(name)
                    _, said = process.communicate()
                    self.assertEqual(process.returncode, -name)
                    self.assertIn("kvreplay: interrupted; nothing was written\n", said)
                    self.assertEqual(tree(self.folder), before)


if __name__ == "__main__":
    unittest.main()
