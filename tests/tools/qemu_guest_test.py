#!/usr/bin/env python3
"""A virtual machine as a connected device: probed by ssh, a model fitted to what was measured, the
plans of two systems replayed there, and on a file here.

Rates are those of the host's moment: nothing here depends on them, they are printed."""

import csv
import json
import os
import re
import subprocess
import unittest

from program import SHIPPED_TRACE, SOURCE, ProgramTest

GUEST = SOURCE / "tools/scripts/qemu-guest"
IOPS = 2000  # below the emulated guest's own limit
MB_S = 50
MIB = 1 << 20
STEPS = 4
# A small model, so that a whole KV cache takes about a second to read there.
EXPERIMENT = {
    "title": "guest", "trace": str(SHIPPED_TRACE), "system": "kvswap", "model": "smollm2-135m",
    "platform": "orin_agx", "device": "ufs40", "batch": 1, "seed": 1,
    "set": {"system.selection.budget_tokens": 256, "system.kvswap.cache.capacity_groups": 128}}


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

    def check_probe(self, name, points):
        probe = json.loads((self.folder / name).read_text())
        self.assertTrue(probe["complete"])
        self.assertEqual(len(probe["points"]), points)
        for point in probe["points"]:
            self.assertGreater(point["requests"], point["depth"])
            self.assertAlmostEqual(point["mb_s"], point["iops"] * point["bytes"] / 1e6, 3)
        return probe["target"]

    def test_probe_calibrate_replay(self):
        self.succeed("device", "probe", self.address, *self.options, "--size", "4K,16K,64K,256K",
                     "--depth", "1,4,16", "--seconds", "1", "--huge-pages", "--out", "guest.json")
        target = self.check_probe("guest.json", 12)
        self.assertEqual(target["kind"], "block device")
        self.assertEqual(target["offset_alignment_bytes"], 4096)
        self.assertEqual(target["size_bytes"], 1 << 30)
        here = self.folder / "here.bin"
        here.write_bytes(os.urandom(MIB) * 256)
        tried = self.kvreplay("device", "probe", here, "--size", "4K,16K,64K,256K", "--depth",
                              "1,4,16", "--seconds", "0.2", "--huge-pages", "--out", "here.json")
        places = {"guest": (self.address, self.options)}
        if tried.returncode == 0:
            self.check_probe("here.json", 12)
            places["here"] = (here, [])
        for place in places:
            table = self.succeed("device", "calibrate", f"{place}.json", "--base", "ufs40", "--out",
                                 f"{place}_model.json")
            self.assertIn("Reads, held out", table)
            print(f"\n{place}:{table}")
        (self.folder / "guest_experiment.json").write_text(json.dumps(EXPERIMENT))
        for system in ("kvswap", "flexgen"):
            bytes_read = {place: self.replayed(system, place, *where)
                          for place, where in places.items()}
            self.assertEqual(len(set(map(tuple, bytes_read.values()))), 1, "one plan everywhere")

    def replayed(self, system, place, target, options):
        """Bytes read by each step of the system's plan, which are done where the target is."""
        out = self.folder / f"{system}-{place}"
        command = ("device", "replay", "guest_experiment.json", "--set", f"system={system}",
                   "--model-device", f"./{place}_model.json", "--steps", STEPS, "--target", target,
                   *options, "--wrap", "--huge-pages", "--out", out)
        # Both systems write the entries of new tokens.
        self.refuses(command, ("the plan writes", "--allow-destructive"))
        self.succeed(*command, "--allow-destructive")
        result = json.loads((out / "replay.json").read_text())
        self.assertTrue(result["complete"])
        self.assertEqual(result["steps"], STEPS)
        self.assertEqual(result["requests"], result["schedule"]["commands"])
        self.assertEqual("device" in result, place == "guest")
        for side in ("modelled", "measured"):
            self.assertEqual(result[side]["requests"]["requests"], result["requests"])
        rows = list(csv.DictReader((out / "steps.csv").read_text().splitlines()))
        self.assertEqual(len(rows), STEPS)
        self.assertGreater(sum(int(row["read_bytes"]) for row in rows), 0)
        print(f"\n{system}, {place}: error of the step latencies "
              f"{json.dumps(result['latency_error'])}\n{(out / 'table.txt').read_text()}")
        for row in rows:
            self.assertGreater(float(row["measured_latency_ms"]), 0)
            print(f"  step {row['step']}: {int(row['read_bytes']) / 1e6:.2f} MB, modelled "
                  f"{float(row['modelled_latency_ms']):.1f} ms, measured "
                  f"{float(row['measured_latency_ms']):.1f} ms")
        return [int(row["read_bytes"]) for row in rows]

    def test_refuses_requests_smaller_than_its_sectors(self):
        self.refuses(("device", "probe", self.address, *self.options, "--size", "512", "--depth",
                      "1", "--out", "x.json"),
                     ("a read of 512 bytes", "not aligned", "multiples of 4096 bytes"))

    def test_is_only_read_without_leave(self):
        self.refuses(("device", "probe", self.address, *self.options, "--mix", "50", "--out",
                      "x.json"), ("--allow-destructive",))


if __name__ == "__main__":
    unittest.main()
