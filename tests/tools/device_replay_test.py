#!/usr/bin/env python3
"""`kvreplay device schedule`, `time` and `replay`: one plan in a file, on a model and on a real file."""

import csv
import io
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time
import unittest

from program import PROGRAM, SOURCE, ProgramTest, wait_until_open

MIB = 1 << 20
# A small model, so that its plan is small too.
EXPERIMENT = {
    "title": "test", "trace": "tiny.kvtrace.h5", "system": "kvswap", "model": "smollm2-135m",
    "platform": "orin_agx", "device": "ufs40", "batch": 1, "seed": 1, "timed_steps": 6, "warm_up_steps": 2,
    "set": {"system.selection.budget_tokens": 64, "system.kvswap.cache.capacity_groups": 8}}


class DeviceReplayTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("tiny.kvtrace.h5", 400, 12)
        (cls.folder / "tiny.json").write_text(json.dumps(EXPERIMENT))
        cls.succeed("device", "schedule", "tiny.json", "--model-device", "ufs40", "--out",
                    "tiny.schedule")
        lines = (cls.folder / "tiny.schedule").read_text().splitlines()
        cls.space = max(int(line.split()[1]) + int(line.split()[2]) for line in lines
                        if line[:2] in ("r ", "w "))

    def need_direct_io(self):
        (self.folder / "check.bin").write_bytes(os.urandom(MIB))
        result = self.kvreplay("device", "probe", "check.bin", "--size", "64K", "--depth", "1",
                               "--seconds", "0.01", "--out", "check.json")
        (self.folder / "check.bin").unlink()
        if result.returncode != 0:
            self.skipTest(f"no direct I/O in the temporary folder (set TMPDIR): {result.stderr}")
        (self.folder / "check.json").unlink()

    def write_schedule(self, name, *operations, block=4096):
        text = ["kvreplay schedule 1", "made_from test", f"limits {block} 524288 32"]
        steps = sum(line == "step" for line in operations)
        commands = sum(line[:2] in ("r ", "w ") for line in operations)
        (self.folder / name).write_text(
            "\n".join([*text, *operations, f"end {steps} {commands}"]) + "\n")
        return name

    def replay(self, *arguments, out):
        self.succeed("device", "replay", *arguments, "--model-device", "ufs40", "--out", out)
        return json.loads((self.folder / out / "replay.json").read_text())

    def test_the_schedule_takes_the_time_that_run_says(self):
        self.succeed("run", "tiny.json", "--out", "run")
        (row,) = json.loads((self.folder / "run/results.json").read_text())
        for source in ("tiny.schedule", "tiny.json"):
            text = self.succeed("device", "time", source, "--model-device", "ufs40")
            rows = list(csv.DictReader(io.StringIO(text.split("\n\n")[1])))
            self.assertEqual(len(rows), 6)
            mean = sum(float(step["latency_ms"]) for step in rows) / 6
            self.assertAlmostEqual(mean, row["latency_ms"], delta=1e-3 * mean)

    def test_a_plan_on_a_file(self):
        self.need_direct_io()
        for compute in ("wait", "kernels"):
            out = f"real-{compute}"
            result = self.replay("tiny.json", "--target", "new.bin", "--create",
                                 self.space + MIB, "--compute", compute, out=out)
            self.assertFalse((self.folder / "new.bin").exists())
            self.assertTrue(result["complete"])
            self.assertEqual(result["steps"], 6)
            self.assertEqual(result["workload"]["system"], "kvswap")
            rows = list(csv.DictReader(io.StringIO((self.folder / out / "steps.csv").read_text())))
            self.assertEqual(len(rows), 6)
            for row in rows:
                self.assertGreaterEqual(float(row["measured_compute_ms"]),
                                        float(row["scheduled_compute_ms"]))
                self.assertGreaterEqual(float(row["measured_latency_ms"]),
                                        float(row["measured_compute_ms"]))
            requests = result["measured"]["requests"]
            self.assertEqual(requests["requests"], result["modelled"]["requests"]["requests"])
            self.assertGreater(requests["p50_us"], 0)
            self.assertLessEqual(requests["p50_us"], requests["p999_us"])
        plot = subprocess.run([SOURCE / "tools/plot", "replay", self.folder / "real-wait",
                               self.folder / "real-kernels", "--out", self.folder / "figure"],
                              capture_output=True, text=True, check=False)
        if "No module named" in plot.stderr:
            self.skipTest(f"no figure: {plot.stderr.splitlines()[-1]}")
        self.assertEqual(plot.returncode, 0, plot.stderr)
        self.assertTrue((self.folder / "figure.png").stat().st_size > 10_000)

    def test_writes_only_where_it_may(self):
        self.need_direct_io()
        target = self.folder / "mine.bin"
        target.write_bytes(os.urandom(MIB))
        before = target.read_bytes()
        plan = self.write_schedule("writes.schedule", "step", "submit 1", "w 0 4096", "wait 0")
        command = ("device", "replay", plan, "--model-device", "ufs40", "--target", target)
        self.refuses((*command, "--out", "x"), ("would destroy", "--allow-destructive", "--create"))
        self.assertEqual(target.read_bytes(), before)
        self.succeed(*command, "--out", "written", "--allow-destructive", "--scattered-pages")
        notes = json.loads((self.folder / "written/replay.json").read_text())["engine"]["notes"]
        self.assertIn("memory of scattered pages", notes)
        self.assertNotEqual(target.read_bytes()[:4096], before[:4096])
        self.assertEqual(target.read_bytes()[4096:], before[4096:])

    def test_what_does_not_fit_is_refused_or_wrapped(self):
        self.need_direct_io()
        (self.folder / "small.bin").write_bytes(os.urandom(2 * MIB))
        plan = self.write_schedule("far.schedule", "step", "submit 2", "r 0 4096",
                                   f"r {10 * MIB} 4096", "wait 0")
        self.refuses(("device", "replay", plan, "--model-device", "ufs40", "--target", "small.bin",
                      "--out", "x"), ("small.bin", "2097152 bytes", "--wrap"))
        self.assertTrue(self.replay(plan, "--target", "small.bin", "--wrap", out="wrapped")
                        ["schedule"]["wrapped"])
        plan = self.write_schedule("fine.schedule", "step", "submit 1", "r 1 1", block=1)
        self.refuses(("device", "replay", plan, "--model-device", "ufs40", "--target", "small.bin",
                      "--out", "x"), ("takes multiples of", "device.logical_block_bytes"))

    def test_what_makes_no_sense_is_refused(self):
        bad = self.write_schedule("bad.schedule", "step", "submit 1", "r 0 4096", "wait 7")
        (self.folder / "garbage").write_text("what is this?\n")
        (self.folder / "mine.json").write_text("{}")
        model = ("--model-device", "ufs40")
        for arguments, says in (
                (("time", bad, *model), ("bad.schedule: line 7", "submitted before")),
                (("time", "none.schedule", *model), ("none.schedule",)),
                (("time", "garbage", *model),
                 ("garbage", "schedule", "iolog", "blkparse", "blktrace", "experiment")),
                (("time", "tiny.schedule", "--model-device", "mine"),
                 ("unknown device 'mine'", "./mine.json")),
                (("time", "tiny.json", "--model-device", "ufs4"), ("did you mean 'ufs40'",)),
                (("time", "tiny.json", *model, "--set", "batch=1,2"), ("batch", "one cell")),
                (("time", "tiny.json", *model, "--prefill", "--set", "device=sd_a2"),
                 ("--set device=sd_a2", "--model-device names the device")),
                (("time", "tiny.schedule", *model, "--set", "system=quest"),
                 ("only an experiment",)),
                (("schedule", "tiny.json", *model, "--format", "fio", "--out", "x"),
                 ("--target",)),
                (("replay", "tiny.json", *model, "--target", "none.bin", "--out", "tiny.json"),
                 ("is there already",)),
                (("replay", "tiny.schedule", *model, "--target", "ssh:root@board", "--create",
                  "64M", "--out", "x"), ("ssh:root@board", "absolute path")),
                (("replay", "tiny.json", *model, "--target", "none.bin", "--allow-destructive",
                  "--out", "x"), ("none.bin", "no such file")),
                (("replay", "tiny.json", *model, "--target", "none.bin", "--engine", "uring",
                  "--create", "64M", "--out", "x"), ("did you mean 'io_uring'",))):
            with self.subTest(arguments=arguments):
                if "--create" in arguments:
                    self.need_direct_io()
                self.refuses(("device", *arguments), says)

    def test_prompt_writes_compares_the_model_with_the_disk(self):
        self.need_direct_io()
        before = sorted(self.folder.iterdir())
        result = subprocess.run(
            [str(SOURCE / "tools/scripts/prompt-writes"), "new.bin", "--experiment", "tiny.json", "--size", "64MiB",
             "--systems", "flexgen,quest", "--rounds", "1", "--seconds", "0.01", "--out", "times.csv",
             "--build", pathlib.Path(PROGRAM).parent],
            cwd=self.folder, text=True, capture_output=True, timeout=1200, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:3]], ["flexgen", "quest"])
        self.assertRegex(lines[3], r"^prompt: median absolute error [\d.]+ %, greatest [\d.]+ %; rounds differ ")
        self.assertRegex(lines[4], r"^writing: ")
        with open(self.folder / "times.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["round"], row["system"]) for row in rows],
                         [("1", "flexgen"), ("1", "quest")])
        for row in rows:
            self.assertGreaterEqual(float(row["prompt_measured_s"]), float(row["writing_measured_s"]))
        (self.folder / "times.csv").unlink()
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_full_device_keeps_the_steps_before(self):
        self.need_direct_io()
        # Beyond the limit of this process a write fails as on a full disk.
        (self.folder / "limited.bin").write_bytes(os.urandom(8 * MIB))
        plan = self.write_schedule("full.schedule", *(line for step in range(4) for line in (
            "step", "submit 1", f"w {step * 2 * MIB} 4096", f"wait {step}")))
        result = self.kvreplay("device", "replay", plan, "--model-device", "ufs40", "--target",
                               "limited.bin", "--allow-destructive", "--out", "full",
                               file_bytes=4 * MIB)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("write of 4096 bytes at offset 4194304 failed (File too large)", result.stderr)
        full = json.loads((self.folder / "full/replay.json").read_text())
        self.assertFalse(full["complete"])
        self.assertEqual(full["steps"], 2)

    def test_a_file_that_shrinks_keeps_the_steps_before(self):
        self.need_direct_io()
        target = self.folder / "shrinks.bin"
        target.write_bytes(os.urandom(4 * MIB))
        # The first step takes three seconds; the file is cut in it.
        plan = self.write_schedule(
            "shrinks.schedule", "step", "compute 3000000000", "submit 1", "r 0 4096", "wait 0",
            "step", "submit 1", f"r {3 * MIB} 4096", "wait 1")
        process = subprocess.Popen(
            [PROGRAM, "device", "replay", plan, "--model-device", "ufs40", "--target", target,
             "--out", "shrunk"], cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)
        wait_until_open(process, "shrinks.bin")
        time.sleep(1)
        os.truncate(target, MIB)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, errors)
        self.assertIn("transferred only 0", errors)
        shrunk = json.loads((self.folder / "shrunk/replay.json").read_text())
        self.assertFalse(shrunk["complete"])
        self.assertEqual(shrunk["steps"], 1)

    def test_an_error_of_the_device_keeps_the_steps_before(self):
        self.need_direct_io()
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no C compiler to make reads fail with (LD_PRELOAD)")
        (self.folder / "eio.c").write_text(
            "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <unistd.h>\n"
            "ssize_t pread64(int f, void *b, size_t n, off64_t at) {\n"
            "  static ssize_t (*real)(int, void *, size_t, off64_t);\n"
            "  if (!real) real = dlsym(RTLD_NEXT, \"pread64\");\n"
            "  if (at == 1 << 20) { errno = EIO; return -1; }\n"
            "  return real(f, b, n, at);\n}\n"
            "ssize_t pread(int f, void *b, size_t n, off_t at) { return pread64(f, b, n, at); }\n")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", "eio.so", "eio.c", "-ldl"],
                       cwd=self.folder, check=True)
        (self.folder / "eio.bin").write_bytes(os.urandom(4 * MIB))
        plan = self.write_schedule("eio.schedule", "step", "submit 1", "r 0 4096", "wait 0",
                                   "step", "submit 1", f"r {3 * MIB} 4096", "wait 1",
                                   "step", "submit 1", f"r {MIB} 4096", "wait 2",
                                   "step", "submit 1", "r 8192 4096", "wait 3")
        for engine in ("sync", "threads"):
            # Not by its path, which has a space.
            environment = dict(os.environ, LD_PRELOAD="eio.so", LD_LIBRARY_PATH=str(self.folder))
            result = subprocess.run(
                [PROGRAM, "device", "replay", plan, "--model-device", "ufs40", "--target",
                 "eio.bin", "--engine", engine, "--out", f"eio-{engine}"], cwd=self.folder,
                capture_output=True, text=True, env=environment, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("read of 4096 bytes at offset 1048576 failed (Input/output error)",
                          result.stderr)
            report = json.loads((self.folder / f"eio-{engine}/replay.json").read_text())
            self.assertEqual((report["complete"], report["steps"]), (False, 2))

    def test_an_interrupt_keeps_the_steps_before(self):
        self.need_direct_io()
        (self.folder / "slow.bin").write_bytes(os.urandom(MIB))
        plan = self.write_schedule("slow.schedule", *(line for step in range(600) for line in (
            "step", "compute 100000000", "submit 1", "r 0 4096", f"wait {step}")))
        process = subprocess.Popen(
            [PROGRAM, "device", "replay", plan, "--model-device", "ufs40", "--target", "slow.bin",
             "--out", "interrupted"], cwd=self.folder, stderr=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        wait_until_open(process, "slow.bin")
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT, errors)
        result = json.loads((self.folder / "interrupted/replay.json").read_text())
        self.assertFalse(result["complete"])
        self.assertEqual(result["ended_by"], "interrupted")
        self.assertLess(result["steps"], 600)
        self.assertFalse([path for path in self.folder.iterdir() if "partial" in path.name])

    def test_a_log_is_a_workload(self):
        self.need_direct_io()
        (self.folder / "blk.txt").write_text("".join(
            f"  8,0    1 {i:8d} {i * 0.01:12.9f}   700  Q   R {i * 8} + 8 [dd]\n" for i in range(50)))
        text = self.succeed("device", "time", "blk.txt", "--model-device", "emmc51")
        self.assertIn("50 requests on emmc51", text)
        (self.folder / "log.bin").write_bytes(os.urandom(MIB))
        result = self.replay("blk.txt", "--target", "log.bin", out="log")
        self.assertEqual(result["requests"], 50)
        self.assertGreaterEqual(result["measured"]["seconds"], 0.48)

        # The same as blktrace's files of two processors (struct blk_io_trace, event Q, read).
        for cpu in range(2):
            (self.folder / f"sda.blktrace.{cpu}").write_bytes(b"".join(
                struct.pack("=IIQQIIIIIHH", 0x65617407, i, i * 10_000_000, i * 8, 4096, 0x110001,
                            700, 8 << 20, cpu, 0, 0) for i in range(cpu, 50, 2)))
        for name in ("sda", "sda.blktrace.0", "sda.blktrace.1"):
            binary = self.succeed("device", "time", name, "--model-device", "emmc51")
            self.assertEqual(binary.splitlines()[1:], text.splitlines()[1:])
        with open(self.folder / "sda.blktrace.1", "ab") as file:
            file.write(b"cut")
        self.refuses(("device", "time", "sda", "--model-device", "emmc51"),
                     ("sda.blktrace.1: byte 1200: the file ends after 3",))

    def test_fio_replays_the_plan(self):
        if shutil.which("fio") is None:
            self.skipTest("fio is not installed")
        with self.subTest("no space in the path"):
            self.refuses(("device", "schedule", "tiny.schedule", "--model-device", "ufs40",
                          "--format", "fio", "--target", "a b", "--out", "x"),
                         ("without spaces",))
        # The folder's name has a space, which fio's log cannot name.
        link = self.folder.parent / f"kvreplay-fio-{os.getpid()}"
        link.symlink_to(self.folder)
        self.addCleanup(link.unlink)
        with open(self.folder / "fio.bin", "wb") as file:
            file.truncate(self.space)
        self.succeed("device", "schedule", "tiny.schedule", "--model-device", "ufs40", "--format",
                     "fio", "--target", link / "fio.bin", "--out", "tiny.fiolog")
        schedule = (self.folder / "tiny.schedule").read_text().splitlines()
        result = subprocess.run(
            ["fio", "--name=x", "--read_iolog=tiny.fiolog", "--ioengine=psync", "--replay_no_stall=1",
             "--output-format=json"], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        job = json.loads(result.stdout[result.stdout.index("{"):])["jobs"][0]
        for direction, letter in (("read", "r "), ("write", "w ")):
            commands = [line.split() for line in schedule if line.startswith(letter)]
            self.assertEqual(job[direction]["total_ios"], len(commands))
            self.assertEqual(job[direction]["io_bytes"], sum(int(c[2]) for c in commands))
        # fio's own log of it is the same workload.
        self.succeed("device", "time", "tiny.fiolog", "--model-device", "ufs40")


if __name__ == "__main__":
    unittest.main()
