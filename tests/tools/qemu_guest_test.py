#!/usr/bin/python3
"""A virtual machine as a connected device: probed by ssh, a model fitted to what was measured.

Its rates are those of the host's moment: nothing here depends on them, they are printed."""

import json
import re
import subprocess
import unittest

from program import SOURCE, ProgramTest

GUEST = SOURCE / "tools/qemu-guest"
IOPS = 2000  # below what an emulated guest can do by itself
MB_S = 50


class QemuGuestTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # QEMU's and ssh's options take no spaces.
        cls.guest = cls.folder.with_name(re.sub(r"\s", "-", cls.folder.name) + "-guest")
        started = subprocess.run([GUEST, "start", cls.guest, "--iops", str(IOPS), "--mb-s",
                                  str(MB_S)], capture_output=True, text=True, check=False)
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", cls.guest], check=True)
        if started.returncode == 3:
            raise unittest.SkipTest(started.stderr.strip())
        if started.returncode != 0:
            raise AssertionError(started.stderr)
        cls.addClassCleanup(subprocess.run, [GUEST, "stop", cls.guest], check=True)
        cls.address = (cls.guest / "address").read_text().strip()
        cls.options = (cls.guest / "options").read_text().split()

    def test_probe_and_calibrate(self):
        self.succeed("device", "probe", self.address, *self.options, "--size", "4K,16K,64K,256K",
                     "--depth", "1,4,16", "--seconds", "1", "--out", "guest.json")
        probe = json.loads((self.folder / "guest.json").read_text())
        self.assertTrue(probe["complete"])
        self.assertEqual(len(probe["points"]), 12)
        self.assertEqual(probe["target"]["kind"], "block device")
        self.assertEqual(probe["target"]["offset_alignment_bytes"], 4096)
        self.assertEqual(probe["target"]["size_bytes"], 1 << 30)
        for point in probe["points"]:
            self.assertGreater(point["requests"], point["depth"])
            self.assertAlmostEqual(point["mb_s"], point["iops"] * point["bytes"] / 1e6, 3)
        table = self.succeed("device", "calibrate", "guest.json", "--out", "guest_model.json")
        self.assertIn("Held out of the fit", table)
        print(table)

    def test_refuses_requests_smaller_than_its_sectors(self):
        self.refuses(("device", "probe", self.address, *self.options, "--size", "512", "--depth",
                      "1", "--out", "x.json"),
                     ("a read of 512 bytes", "not aligned", "multiples of 4096 bytes"))

    def test_is_only_read_without_leave(self):
        self.refuses(("device", "probe", self.address, *self.options, "--mix", "50", "--out",
                      "x.json"), ("--allow-destructive",))


if __name__ == "__main__":
    unittest.main()
