"""What probe-against-fio, prompt-writes, serve-device and round-trip refuse before they measure or
serve."""

import os
import pathlib
import shutil
import subprocess
import unittest

from program import PROGRAM, SOURCE, ProgramTest, tree

BUILD = pathlib.Path(PROGRAM).parent
PATHS = {"probe-against-fio": "tools/scripts/probe-against-fio",
         "prompt-writes": "tools/scripts/prompt-writes",
         "serve-device": "tools/serve-device", "round-trip": "tools/round-trip"}
MIB = 1 << 20


class DeviceTools(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, bytes_ in (("file", 64 * MIB), ("small", MIB)):
            with open(cls.folder / name, "wb") as file:
                file.truncate(bytes_)
        (cls.folder / "symlink").symlink_to("file")
        os.link(cls.folder / "file", cls.folder / "hardlink")
        os.mkfifo(cls.folder / "fifo")
        (cls.folder / "full").mkdir()
        (cls.folder / "full/data").write_text("precious")

    def refused_by(self, tool, arguments, *says):
        with self.subTest(tool=tool, arguments=arguments):
            before = tree(self.folder)
            result = subprocess.run(
                [str(SOURCE / PATHS[tool]), *map(str, arguments), "--build", BUILD],
                cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, rf"\A{tool}: [^\n]*\n\Z")
            for text in (*says, "allowed: "):
                self.assertIn(text, result.stderr)
            self.assertFalse(result.stdout)
            self.assertEqual(tree(self.folder), before)

    def test_probe_against_fio_reads_a_file_or_block_device(self):
        for file, says in (("nothing", "No such file"), ("fifo", "neither"), ("full", "neither"),
                           ("/dev/null", "neither"), ("small", f"{MIB} bytes")):
            self.refused_by("probe-against-fio", [file], f"FILE: found '{file}'", says)

    def test_probe_against_fio_writes_only_where_nothing_is_lost(self):
        for out, says in (("file", "is read"), ("symlink", "is read"), ("hardlink", "is read"),
                          ("full", "no regular file"), ("fifo", "no regular file"),
                          ("nothing/out.csv", "cannot be written"),
                          ("small/out.csv", "cannot be written"),
                          ("/proc/out.csv", "cannot be written")):
            self.refused_by("probe-against-fio", ["file", "--out", out], f"--out: found '{out}'",
                            says)

    def test_probe_against_fio_measures_real_requests(self):
        for option, value in (("--depth", "0"), ("--depth", "-1"), ("--depth", "1,"),
                              ("--depth", "2000"), ("--size", "0"), ("--size", "4KK"),
                              ("--size", "100"), ("--size", "65MiB"), ("--rounds", "0"),
                              ("--rounds", "x"), ("--seconds", "nan"), ("--seconds", "x"),
                              ("--engine", "none")):
            self.refused_by("probe-against-fio", ["file", f"{option}={value}"], f"{option}: found ")

    def test_prompt_writes_makes_its_own_file(self):
        self.refused_by("prompt-writes", ["file"], "FILE: found 'file'", "new file")
        for rounds in ("0", "x"):
            self.refused_by("prompt-writes", ["new", "--rounds", rounds], "--rounds: found ")

    def test_serve_device_reports_only_where_nothing_is_lost(self):
        (self.folder / "preset.json").write_text("{}")
        for device, report, says in (
                ("ufs40", "file", "is read"), ("ufs40", "hardlink", "is read"),
                ("preset.json", "preset.json", "is read"),
                ("ufs40", SOURCE / "configs/devices/ufs40.json", "is read"),
                ("ufs40", "full", "no regular file"), ("ufs40", "nothing/r", "cannot be written"),
                ("ufs40", "/proc/x", "cannot be written")):
            self.refused_by("serve-device", [device, "--file", "file", "--report", report],
                            f"--report: found '{report}'", says)

    def test_serve_device_mounts_on_a_folder(self):
        if not (BUILD / "nbdkit-kvreplay-plugin.so").exists() or not all(
                map(shutil.which, ("nbdkit", "nbdfuse"))) or not os.access("/dev/fuse", os.W_OK):
            self.skipTest("no plugin, nbdkit, nbdfuse or /dev/fuse")
        for mount in ("/proc/x", "file", "file/mount"):
            self.refused_by("serve-device", ["ufs40", "--mount", mount],
                            f"--mount: found '{mount}'")
        self.refused_by("serve-device", ["ufs40", "--threads", "x"], "--threads: found 'x'")

    def test_round_trip_keeps_what_is_in_a_folder(self):
        for out, says in (("full", "is there already"), ("file", "is there already"),
                          ("fifo", "is there already"), ("", "is there already"),
                          ("file/out", "cannot be made"), ("/proc/x", "cannot be made")):
            self.refused_by("round-trip", ["emmc51", "--via", "fuse", "--out", out],
                            f"--out: found '{out}'", says)
        self.assertEqual((self.folder / "full/data").read_text(), "precious")

    def test_round_trip_knows_what_it_measures(self):
        for arguments, says in (
                (["ufs41", "--out", "new"], ("DEVICE: ", "did you mean 'ufs40'")),
                (["./none.json", "--out", "new"], ("DEVICE: ./none.json", )),
                (["ufs40", "--base", "ufs41", "--out", "new"], ("--base: ", "'ufs41'")),
                (["ufs40", "--size", "0"], ("--size: found '0'", )),
                (["ufs40", "--size", "4KiB,1GiB"], ("--size: found '1GiB'", )),
                (["ufs40", "--size", "4KK"], ("--size: found '4KK'", "KiB")),
                (["ufs40", "--size", "512,4KiB"], ("--size: found 512", "multiples of 4096")),
                (["emmc51", "--via", "fuse", "--size", "6KiB,4KiB"], ("--size: found 6144", )),
                (["ufs40", "--size", "4KiB,8KiB", "--depth", "1,8"], ("found 4 together", )),
                (["ufs40", "--depth", "1,x"], ("--depth: found 'x'", )),
                (["ufs40", "--seconds", "x"], ("--seconds: found 'x'", )),
                (["ufs40", "--seconds", "0"], ("--seconds: found 0.0", ))):
            self.refused_by("round-trip", arguments, *says)


if __name__ == "__main__":
    unittest.main()
