"""The main task on the shipped trace: the results of the first experiment, and how they are shown."""

import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from program import PROGRAM, SOURCE, ProgramTest

FIRST = SOURCE / "configs/experiments/first.json"
STEPS = ["--steps", 48]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


class EndToEnd(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for threads in (1, 2):
            cls.succeed("run", FIRST, *STEPS, "--threads", threads, "--access-log", "--out",
                        f"threads-{threads}")
        cls.rows = rows_of((cls.folder / "threads-1/results.csv").read_text())
        cls.devices = list(dict.fromkeys(row["device"] for row in cls.rows))
        cls.systems = list(dict.fromkeys(row["system"] for row in cls.rows))

    def cell(self, system, device):
        cell, = (r for r in self.rows if r["system"] == system and r["device"] == device)
        return cell

    def test_shipped_traces_by_name(self):
        listed = self.succeed("list", "traces")
        self.assertEqual([line.split()[0] for line in listed.splitlines()], ["chat", "dialogue", "story"])
        self.assertIn("smollm2-135m-story-3k.kvtrace.h5", self.succeed("inspect", "story"))
        self.succeed("run", FIRST, "--set", "trace=dialogue", "--set", "system=quest", "--set",
                     "device=ufs40", "--steps", 24, "--out", "by name")
        row, = rows_of((self.folder / "by name/results.csv").read_text())
        self.assertEqual(row["trace"], "smollm2-135m-dialogue-6k")
        self.refuses(["inspect", "dialog"], ["TRACE", "'dialog'", "dialogue"])
        self.refuses(["run", FIRST, "--set", "trace=stroy", "--out", "bad"], ["stroy", "story"])

    def test_every_system_on_every_device(self):
        self.assertEqual(set(self.systems),
                         {"in_memory", "flexgen", "quest", "clusterkv", "kvswap"})
        self.assertEqual(set(self.devices), {"ufs40", "emmc51", "nvme_jetson"})
        self.assertEqual(len(self.rows), 15)

    def test_full_attention_has_perfect_quality(self):
        for system in ("flexgen", "in_memory"):
            for device in self.devices:
                row = self.cell(system, device)
                for name, exact in (("recall", 1), ("attention_mass", 1), ("output_error", 0)):
                    self.assertEqual(float(row[name]), exact, (system, device, name))

    def test_selecting_systems_select(self):
        for system in ("quest", "clusterkv", "kvswap"):
            row = self.cell(system, "ufs40")
            self.assertLess(float(row["attended_tokens"]),
                            0.5 * float(self.cell("flexgen", "ufs40")["attended_tokens"]))
            self.assertGreater(float(row["read_bytes_per_step"]), 0)
            self.assertGreater(float(row["attention_mass"]), 0.5)
            self.assertLess(float(row["attention_mass"]), 1)
            self.assertGreaterEqual(float(row["best_attention_mass"]),
                                    float(row["attention_mass"]))

    def test_memory_never_waits_and_loading_everything_is_slowest(self):
        for device in self.devices:
            memory, flash = (self.cell(system, device) for system in ("in_memory", "flexgen"))
            self.assertEqual(float(memory["exposed_io_ms"]), 0, device)
            self.assertLess(float(memory["latency_ms"]), float(flash["latency_ms"]), device)
        slowest = max(self.rows, key=lambda row: float(row["latency_ms"]))
        self.assertEqual((slowest["system"], slowest["device"]), ("flexgen", "emmc51"))

    def test_time_adds_up(self):
        for row in self.rows:
            parts = float(row["compute_ms"]) + float(row["exposed_io_ms"])
            self.assertAlmostEqual(float(row["latency_ms"]), parts, places=6)
            self.assertAlmostEqual(float(row["tokens_per_s"]) * float(row["latency_ms"]), 1000,
                                   places=6)

    def test_threads_change_no_byte(self):
        one, two = self.folder / "threads-1", self.folder / "threads-2"
        files = sorted(file.name for file in one.iterdir())
        self.assertEqual(files, sorted(file.name for file in two.iterdir()))
        self.assertEqual(sum(name.endswith(".access.h5") for name in files), len(self.systems))
        for name in files:
            if name != "manifest.json":  # names the number of threads
                self.assertEqual((one / name).read_bytes(), (two / name).read_bytes(), name)

    def test_instruction_sets_change_no_byte(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        isas = ["scalar"] + ["avx2"] * {"avx2", "fma", "f16c"}.issubset(flags)
        run = ["run", FIRST, "--steps", 20, "--set", "system=quest,clusterkv", "--set",
               "device=ufs40", "--access-log", "--out"]
        self.succeed(*run, "isa-best")
        for isa in isas:
            self.succeed("--isa", isa, *run, f"isa-{isa}")
            for name in ("results.csv", "quest.access.h5", "clusterkv.access.h5"):
                paths = list((self.folder / "isa-best").glob(f"*{name}"))
                self.assertEqual(len(paths), 1, name)
                other = self.folder / f"isa-{isa}" / paths[0].name
                self.assertEqual(paths[0].read_bytes(), other.read_bytes(), (isa, name))
        self.refuses(["--isa", "sse9", *run, "isa-none"], ["--isa", "sse9", "scalar"])

    def test_settings_change_what_they_name(self):
        text = self.succeed("run", FIRST, *STEPS, "--set", "device=emmc51", "--set",
                            "system.cache.capacity_groups=200", "--format", "csv", "--out", "set")
        rows = rows_of(text)
        self.assertEqual({row["device"] for row in rows}, {"emmc51"})
        self.assertEqual([row["system"] for row in rows], self.systems)
        for row in rows:
            before = self.cell(row["system"], "emmc51")
            self.assertEqual(row["attention_mass"], before["attention_mass"])
            if row["system"] == "kvswap":
                self.assertNotEqual(row["dram_cache_bytes"], before["dram_cache_bytes"])
        manifest = json.loads((self.folder / "set/manifest.json").read_text())
        self.assertIn("200", json.dumps(manifest))

    def test_formats_agree_and_folders_are_numbered(self):
        run = ["run", FIRST, "--steps", 20, "--set", "system=quest,kvswap", "--format"]
        table, text, document = (self.succeed(*run, name) for name in ("table", "csv", "json"))
        rows = rows_of(text)
        self.assertEqual(len(rows), 6)
        cells = json.loads(document)
        cells = cells["cells"] if isinstance(cells, dict) else cells
        for row, cell in zip(rows, cells, strict=True):
            self.assertEqual(float(row["latency_ms"]), cell["latency_ms"])
            self.assertIn(row["device"], table)
            self.assertIn(row["system"], table)
        self.assertEqual(sorted(folder.name for folder in (self.folder / "results").iterdir()),
                         ["first", "first-2", "first-3"])
        self.assertEqual((self.folder / "results/first/results.csv").read_text(), text)

    def test_everything_listed_is_explained(self):
        for kind in ("systems", "devices", "models", "platforms", "experiments", "parts"):
            lines = self.succeed("list", kind).splitlines()
            self.assertTrue(lines, kind)
            for line in lines:
                name, help_text = line.split(maxsplit=1)
                self.assertTrue(help_text)
                self.assertIn(name, self.succeed("explain", name))
        text = self.succeed("explain", "kvswap")
        for word in ("source:", "differs", "grouping: page", "group_tokens = ", "default", "tokens"):
            self.assertIn(word, text)

    def test_figure_with_another_python_first_on_the_path(self):
        python = self.folder / "other/python3"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\nexit 99\n")
        python.chmod(0o755)
        path = f"{python.parent}:{os.environ['PATH']}"
        folder = self.folder / "figure"
        shutil.copytree(self.folder / "threads-1", folder)
        result = subprocess.run([SOURCE / "tools/plot", folder], check=True,
                                env={**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
                                capture_output=True, text=True)
        pdf, png = result.stdout.splitlines()
        with open(pdf, "rb") as file:
            content = file.read()
        self.assertIn(b"/CIDFontType2", content)  # a TrueType font, as Type 42
        self.assertNotIn(b"/Type3", content)
        with open(png, "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def test_a_closed_pipe_is_no_error(self):
        result = subprocess.run(f'"{PROGRAM}" list parts | head -n 1', shell=True, check=True,
                                capture_output=True, text=True)
        self.assertEqual(result.stderr, "")


if __name__ == "__main__":
    unittest.main()
