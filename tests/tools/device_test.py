#!/usr/bin/env python3
"""`kvreplay device`: describe a model, probe a file, and fit a model to it."""

import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import time
import unittest

from program import PROGRAM, SOURCE, ProgramTest, wait_until_open

MIB = 1 << 20


class DeviceTest(ProgramTest):
    def setUp(self):
        self.target = self.folder / "target.bin"
        if not self.target.exists():
            self.target.write_bytes(os.urandom(8 * MIB))

    def need_direct_io(self):
        result = self.kvreplay("device", "probe", self.target, "--size", "64K", "--depth", "1",
                               "--seconds", "0.01", "--out", "check.json")
        if result.returncode != 0:
            self.skipTest(f"no direct I/O in the temporary folder (set TMPDIR): {result.stderr}")
        (self.folder / "check.json").unlink()

    def probe(self, *arguments, seconds=0.02):
        (self.folder / "probe.json").unlink(missing_ok=True)
        self.succeed("device", "probe", *arguments, "--seconds", seconds, "--out", "probe.json")
        return json.loads((self.folder / "probe.json").read_text())

    def test_describe_is_the_same_in_table_and_csv(self):
        grid = ("--size", "4K,24K", "--depth", "1,8")
        rows = list(csv.DictReader(io.StringIO(
            self.succeed("device", "describe", "ufs40", *grid, "--csv"))))
        self.assertEqual([(row["bytes"], row["depth"]) for row in rows],
                         [("4096", "1"), ("4096", "8"), ("24576", "1"), ("24576", "8")])
        table = self.succeed("device", "describe", "ufs40", *grid)
        for row in rows:
            self.assertIn(f"{float(row['iops']):.0f}", table)

    def test_describe_draws(self):
        grid = ("--size", "4K,64K", "--depth", "1,8")
        for name, first in (("a.png", b"\x89PNG"), ("b.pdf", b"%PDF")):
            self.succeed("device", "describe", "emmc51", *grid, "--plot", name)
            self.assertTrue((self.folder / name).read_bytes().startswith(first))
        self.refuses(("device", "describe", "emmc51", *grid, "--plot", "a.jpg"),
                     ("--plot", ".png", ".pdf"))
        result = self.kvreplay("device", "describe", "emmc51", *grid, "--plot", "no/folder/a.png")
        self.assertEqual(result.returncode, 2)
        self.assertIn("No such file", result.stderr)

    def test_describe_takes_parameters_and_a_range(self):
        def iops(*arguments):
            text = self.succeed("device", "describe", *arguments, "--size", "4K", "--csv")
            return [float(row["iops"]) for row in csv.DictReader(io.StringIO(text))]

        one = iops("emmc51", "--depth", "1,31", "--set", "command_queue=false")
        self.assertAlmostEqual(one[0], one[1], delta=0.01 * one[0])
        inside, beyond = (iops("ufs40", "--depth", "1", "--range", size)[0]
                          for size in ("512M", "64G"))
        self.assertGreater(inside, 1.3 * beyond)
        self.refuses(("device", "describe", "emmc51", "--set", "command_que=false"),
                     ("command_que", "did you mean 'command_queue'"))
        self.refuses(("device", "describe", "emmc51", "--set", "command_queue"), ("NAME=VALUE",))

    def test_compare_is_what_the_page_shows(self):
        page = (SOURCE / "docs/results/device-accuracy.md").read_text()
        for line in self.succeed("device", "compare", "--markdown").splitlines():
            self.assertIn(line, page)

    def test_compare_by_name(self):
        rows = list(csv.DictReader(io.StringIO(
            self.succeed("device", "compare", "nvme_pc4_read", "ufs40_hot", "--csv"))))
        self.assertEqual({row["preset"] for row in rows}, {"nvme_pc4", "ufs40_hot"})
        for row in rows:
            self.assertAlmostEqual(float(row["error_percent"]),
                                   100 * (float(row["model"]) / float(row["measured"]) - 1),
                                   delta=0.01)
        self.succeed("device", "compare", "nvme_pc4_read", "--plot", "overlay.png")
        self.assertTrue((self.folder / "overlay.png").read_bytes().startswith(b"\x89PNG"))
        self.refuses(("device", "compare", "nvme_pc5"), ("nvme_pc5", "did you mean 'nvme_pc4'"))
        (self.folder / "bad.json").write_text('{"name": "x"}')
        self.refuses(("device", "compare", "./bad.json"), ("bad.json", "title"))

    def test_probe_measures_the_grid(self):
        self.need_direct_io()
        result = self.probe(self.target, "--size", "8K,64K", "--depth", "1,2", "--pattern",
                            "random,sequential")
        self.assertTrue(result["complete"])
        self.assertEqual(len(result["points"]), 8)
        for point in result["points"]:
            self.assertGreater(point["iops"], 0)
            self.assertLessEqual(point["p50_us"], point["p999_us"])

    def test_an_edited_probe_is_not_drawn(self):
        self.need_direct_io()
        probe = self.probe(self.target, "--size", "8K,64K", "--depth", "1,2")
        self.succeed("plot", "device", "probe.json", "--out", "probe.png")
        # A number is hashed as it is written, shortest or not.
        text = json.dumps({**probe, "sha256": None, "seconds": 0.5}).replace('"seconds": 0.5', '"seconds": 0.50')
        content = json.dumps({name: value for name, value in json.loads(text).items() if name != "sha256"},
                             sort_keys=True, separators=(",", ":")).replace('"seconds":0.5', '"seconds":0.50')
        digest = hashlib.sha256(content.encode()).hexdigest()
        (self.folder / "longer.json").write_text(text.replace('"sha256": null', f'"sha256": "{digest}"'))
        self.succeed("plot", "device", "longer.json", "--out", "longer.png")
        probe["points"][0]["iops"] = -3
        (self.folder / "edited.json").write_text(json.dumps(probe))
        self.refuses(("plot", "device", "edited.json", "--out", "edited.png"),
                     ("edited.json", "/sha256: does not match the measurement"))
        (self.folder / "none.json").write_text(json.dumps({**probe, "points": [], "sha256": None}))
        self.refuses(("plot", "device", "none.json", "--out", "none.png"), ("none.json", "no random reads"))

    def test_two_probes_do_not_write_one_file(self):
        self.need_direct_io()
        first = subprocess.Popen([PROGRAM, "device", "probe", self.target, "--size", "8K", "--depth", "1",
                                  "--seconds", "60", "--out", "both.json"], cwd=self.folder,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        for _ in range(200):
            if list(self.folder.glob("both.json.partial-*")):
                break
            time.sleep(0.05)
        self.refuses(("device", "probe", self.target, "--size", "8K", "--depth", "1", "--out", "both.json"),
                     ("both.json", "another kvreplay writes it"))
        first.kill()

    def test_probe_goes_through_the_grid_in_rounds(self):
        self.need_direct_io()
        result = self.probe(self.target, "--size", "8K,64K", "--depth", "1,2", "--rounds", "3")
        self.assertEqual([(point["bytes"], point["depth"]) for point in result["points"]],
                         [(8192, 1), (8192, 2), (65536, 1), (65536, 2)])
        for point in result["points"]:
            self.assertEqual(len(point["round_iops"]), 3)
            self.assertLessEqual(min(point["round_iops"]), point["iops"] * (1 + 1e-9))
            self.assertGreaterEqual(max(point["round_iops"]), point["iops"] * (1 - 1e-9))
        self.assertEqual(result["rounds"], 3)

    def test_probe_says_of_what_pages_its_memory_is(self):
        self.need_direct_io()
        for flags, kind in (((), "ordinary"), (("--huge-pages",), "huge"),
                            (("--scattered-pages",), "scattered")):
            result = self.probe(self.target, "--size", "8K", "--depth", "2", *flags)
            self.assertIn(f"memory of {kind} pages", result["engine"]["notes"])
            self.assertGreater(result["points"][0]["iops"], 0)
        self.refuses(("device", "probe", self.target, "--huge-pages", "--scattered-pages", "--out",
                      "x.json"), ("--scattered-pages", "--huge-pages"))

    def test_probe_writes_only_where_it_may(self):
        self.need_direct_io()
        before = self.target.read_bytes()
        mix = ("--size", "64K", "--depth", "1", "--mix", "50")
        self.refuses(("device", "probe", self.target, *mix, "--out", "x.json"),
                     ("would destroy", "--allow-destructive", "--create"))
        self.refuses(("device", "probe", self.target, "--create", "1M", *mix, "--out", "x.json"),
                     ("exists already",))
        self.assertEqual(self.target.read_bytes(), before)

        point = self.probe("new.bin", "--create", "1M", *mix)["points"][0]
        self.assertEqual(point["reads"]["requests"] + point["writes"]["requests"],
                         point["requests"])
        self.assertFalse((self.folder / "new.bin").exists())

    def test_probe_refuses_what_makes_no_sense(self):
        for arguments, says in (
                (("nothing.bin",), ("nothing.bin", "no such file")),
                ((self.target, "--size", "100"), ("100 bytes", "not aligned")),
                ((self.target, "--size", "4Q"), ("--size", "a whole number such as")),
                ((self.target, "--depth", "0"), ("--depth",)),
                ((self.target, "--engine", "uring"), ("did you mean 'io_uring'",)),
                ((self.target, "--engine", "sync", "--depth", "4"), ("depth 1",)),
                ((self.target, "--mix", "101"), ("--mix",)),
                ((self.target, "--dept", "4"), ("device probe", "did you mean '--depth'"))):
            with self.subTest(arguments=arguments):
                self.need_direct_io()
                self.refuses(("device", "probe", *arguments, "--out", "x.json"), says)

    def test_an_interrupt_keeps_what_was_measured(self):
        self.need_direct_io()
        out = self.folder / "interrupted.json"
        for name in (signal.SIGINT, signal.SIGHUP):
            process = subprocess.Popen(
                [PROGRAM, "device", "probe", self.target, "--size", "64K", "--depth",
                 ",".join(["1"] * 900), "--seconds", "0.1", "--out", out], stderr=subprocess.PIPE)
            wait_until_open(process, self.target.name)
            time.sleep(1)
            process.send_signal(name)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, -name, errors)
            result = json.loads(out.read_text())
            out.unlink()
            self.assertFalse(result["complete"])
            self.assertEqual(result["ended_by"], "interrupted")
            self.assertLess(len(result["points"]), 900)

    def test_probe_goes_on_at_a_signal_that_is_ignored(self):
        self.need_direct_io()
        out = self.folder / "ignored.json"
        process = subprocess.Popen(
            [PROGRAM, "device", "probe", self.target, "--size", "64K", "--depth",
             ",".join(["1"] * 15), "--seconds", "0.1", "--out", out], stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        wait_until_open(process, self.target.name)
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertTrue(json.loads(out.read_text())["complete"])

    def test_calibrate_writes_a_preset_that_replays(self):
        self.need_direct_io()
        for seconds in (0.2, 1, 3):  # what stalls a busy machine spoils short points, which are left out
            self.probe(self.target, "--size", "8K,32K,128K", "--depth", "1,4,16", seconds=seconds)
            (self.folder / "mine.json").unlink(missing_ok=True)
            result = self.kvreplay("device", "calibrate", "probe.json", "--out", "mine.json")
            if result.returncode == 0 and "left out" not in result.stderr:
                break
        self.assertEqual(result.returncode, 0, result.stderr)
        table = result.stdout
        self.assertIn("Reads, held out", table)
        preset = json.loads((self.folder / "mine.json").read_text())
        self.assertEqual(preset["name"], "mine")
        self.assertIn("calibrated from probe.json", preset["channels"]["source"])
        self.succeed("device", "describe", "./mine.json", "--size", "4K", "--depth", "1")

    def measurement(self, name, truth, percents):
        """What a probe would report for a device that behaves like the model `truth`."""
        points = []
        for percent in percents:
            text = self.succeed("device", "describe", *truth, "--size", "8K,32K,128K", "--depth",
                                "1,4,16", "--range", "1G", "--mix", percent, "--csv")
            points += [{"pattern": "random", "write_share": float(row["write_share"]),
                        "bytes": int(row["bytes"]), "depth": int(row["depth"]), "requests": 4000,
                        "iops": float(row["iops"]), "mb_s": float(row["mb_s"]),
                        "mean_us": float(row["mean_us"])}
                       for row in csv.DictReader(io.StringIO(text))]
        (self.folder / name).write_text(json.dumps(
            {"format": "kvreplay probe 1", "target": {"path": "/x", "size_bytes": 1 << 30},
             "points": points}))

    @unittest.skipUnless(os.environ.get("LONG_TESTS"), "takes LONG_TESTS=1")
    def test_calibrate_fits_writes_and_predicts_mixes(self):
        truth = ("nvme_jetson", "--set", "write_latency_us=50", "--set", "write_overhead_us=25",
                 "--set", "program_us=900", "--set", "read_us=60")
        self.measurement("measured.json", truth, (0, 30, 100))
        table = self.succeed("device", "calibrate", "measured.json", "--out", "written.json")
        for part in ("Reads, fitted", "Reads, held out", "Writes, fitted", "Writes, held out",
                     "Mixes, predicted", "Error of IOPS: writes fitted"):
            self.assertIn(part, table)
        preset = json.loads((self.folder / "written.json").read_text())
        errors = re.search("reads and writes.* reads fitted median (.*) %, .* held out .*; writes "
                           "fitted median (.*) %, .* held out .*; mixes predicted median (.*) %, .*"
                           " of 9 points[.]$", preset["notes"]).groups()
        for error in errors:
            self.assertLess(float(error), 6, preset["notes"])
        self.assertIn("calibrated from the random writes of measured.json (kvreplay probe of /x",
                      preset["program_us"]["source"])
        self.assertAlmostEqual(preset["write_overhead_us"]["value"], 25, delta=1)
        self.assertIn("calibrated from measured", preset["read_us"]["source"])

        rows = list(csv.DictReader(io.StringIO(self.succeed(
            "device", "calibrate", "measured.json", "--out", "again.json", "--csv"))))
        self.assertEqual([row["kind"] for row in rows],
                         9 * ["reads"] + 9 * ["writes"] + 9 * ["mixes"])
        self.assertTrue(all((row["use"] == "predicted") == (row["kind"] == "mixes")
                            for row in rows))
        self.assertTrue(all(float(row["model_iops"]) > 0 for row in rows))
        self.assertEqual(preset["program_us"], json.loads(
            (self.folder / "again.json").read_text())["program_us"])

        # Drawn over the model's results for the same mix.
        for percent, drawn in (("100", True), ("30", True), ("50", False)):
            (self.folder / "model.csv").write_text(self.succeed(
                "device", "describe", "./written.json", "--size", "8K,128K", "--depth", "1,16",
                "--range", "1G", "--mix", percent, "--csv"))
            result = subprocess.run([SOURCE / "tools/plot", "device", "model.csv",
                                     "--probe", "measured.json", "--out", f"{percent}.png"],
                                    cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0 if drawn else 2, result.stderr)
            self.assertEqual((self.folder / f"{percent}.png").exists(), drawn)
        subprocess.run([SOURCE / "tools/plot", "device", "measured.json", "--size", "3.3x4",
                        "--style", "paper", "--out", "alone.png"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.assertTrue((self.folder / "alone.png").exists())

    def test_calibrate_of_reads_alone_says_nothing_of_writes(self):
        self.measurement("reads.json", ("ufs31",), (0,))
        self.succeed("device", "calibrate", "reads.json", "--out", "read.json")
        preset = json.loads((self.folder / "read.json").read_text())
        self.assertRegex(preset["notes"],
                         r"^Fitted to random reads, beginning at nvme_jetson\. Error of IOPS: fitted .* "
                         r"points, held out .*\. Writes are not fitted\.$")
        self.assertNotIn("write_latency_us", preset)
        self.assertIn("not fitted; of nvme_jetson: estimate", preset["program_us"]["source"])

    def test_calibrate_refuses_before_it_searches(self):
        self.measurement("sound.json", ("ufs31",), (0,))
        (self.folder / "a folder").mkdir(exist_ok=True)
        for out, says in (("a folder", "no regular file"), ("/proc/x.json", "cannot be written")):
            self.refuses(("device", "calibrate", "sound.json", "--out", out), (out, says))
        sound = json.loads((self.folder / "sound.json").read_text())
        for block in (1000, 32768, 65536):
            sound["target"]["offset_alignment_bytes"] = block
            (self.folder / "blocks.json").write_text(json.dumps(sound))
            self.refuses(("device", "calibrate", "blocks.json", "--out", "x.json"),
                         ("blocks.json: /target/offset_alignment_bytes", f"found {block}",
                          "a power of two"))

    def test_calibrate_takes_any_name_of_a_file(self):
        self.measurement(os.fsdecode(b"\xff.json"), ("ufs31",), (0,))
        out = os.fsdecode(b"\xfe.json")
        self.succeed("device", "calibrate", os.fsdecode(b"\xff.json"), "--out", out)
        self.assertEqual(json.loads((self.folder / out).read_text())["name"], "\ufffd")
        self.succeed("device", "describe", f"./{out}", "--size", "4K", "--depth", "1")

    def test_calibrate_takes_the_writes_in_sequence(self):
        self.measurement("places.json", ("ufs31",), (0, 100))
        both = json.loads((self.folder / "places.json").read_text())
        both["points"] += [{**point, "pattern": "sequential", "iops": 2 * point["iops"],
                            "mean_us": point["mean_us"] / 2}
                           for point in both["points"] if point["write_share"] == 1]
        (self.folder / "places.json").write_text(json.dumps(both))
        rates = {}
        for writes, source in (("random", "the random writes of places.json"),
                               ("sequential", "the writes in sequence of places.json")):
            self.succeed("device", "calibrate", "places.json", "--part", "waves", "--writes", writes, "--out",
                         f"{writes}.json")
            preset = json.loads((self.folder / f"{writes}.json").read_text())
            self.assertIn(source, preset["write_request_us"]["source"])
            self.assertEqual("writes in sequence" in preset["notes"], writes == "sequential")
            text = self.succeed("device", "describe", f"./{writes}.json", "--size", "32K", "--depth", "16",
                                "--mix", "100", "--csv")
            rates[writes] = float(next(csv.DictReader(io.StringIO(text)))["iops"])
        self.assertAlmostEqual(rates["sequential"], 2 * rates["random"], delta=0.2 * rates["random"])

    def test_calibrate_shows_what_it_leaves_out_of_a_blank(self):
        self.measurement("sound.json", ("ufs31",), (0,))
        blank = json.loads((self.folder / "sound.json").read_text())
        for point in blank["points"]:
            point["mean_us"] /= 10
            point["iops"] *= 10
        blank["points"].append({**blank["points"][0], "pattern": "sequential"})
        (self.folder / "blank.json").write_text(json.dumps(blank))
        result = self.kvreplay("device", "calibrate", "sound.json", "--blank", "blank.json",
                               "--out", "blanked.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("blank.json: 1 points in sequence are left out", result.stderr)

    def test_calibrate_names_a_bad_measurement(self):
        (self.folder / "bad.json").write_text("{}")
        self.refuses(("device", "calibrate", "bad.json", "--out", "x.json"),
                     ("bad.json", "is no measurement"))
        self.refuses(("device", "calibrate", SOURCE / "configs/devices/ufs40.json", "--out",
                      "x.json"), ("ufs40.json", "is no measurement"))
        point = {"pattern": "random", "write_share": 1, "bytes": 4096, "depth": 1, "iops": 10000,
                 "requests": 100, "mean_us": 100}
        for key, value in (("iops", 0), ("iops", -1), ("iops", float("nan")), ("mean_us", 0),
                           ("requests", 0), ("write_share", 2), ("bytes", None)):
            bad = {"format": "kvreplay probe 1", "target": {"path": "/x", "size_bytes": 1 << 30},
                   "points": [point, {**point, key: value}]}
            (self.folder / "bad.json").write_text(json.dumps(bad))
            self.refuses(("device", "calibrate", "bad.json", "--out", "x.json"),
                         ("bad.json", "valid JSON" if value != value else f"/points/1/{key}"))


if __name__ == "__main__":
    unittest.main()
