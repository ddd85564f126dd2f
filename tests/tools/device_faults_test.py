#!/usr/bin/python3
"""Real faults in the middle of a replay, by every engine: an I/O error, a full device, a file that
becomes shorter, a device that does not answer."""

import json
import os
import shutil
import subprocess
import time
import unittest

from program import PROGRAM, ProgramTest

MIB = 1 << 20
PATIENCE = 120  # seconds; only a hang takes as long
ENGINES = ("io_uring", "aio", "threads", "sync")


class Fault:
    """A target and the plan in which it goes wrong."""

    def __init__(self, target, steps, complaint, engines=ENGINES, options=(), once_running=None):
        self.target = target
        self.steps = steps  # lines of each
        self.complaint = complaint
        self.engines = engines
        self.options = options
        self.once_running = once_running


class DeviceFaultsTest(ProgramTest):
    def setUp(self):
        for program, package in (("nbdkit", "nbdkit"), ("nbdfuse", "libnbd-bin")):
            if not shutil.which(program):
                self.skipTest(f"no {program} (Debian: {package})")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("/dev/fuse cannot be opened")

    def serve(self, *plugin):
        """A file of what the nbdkit plugin serves."""
        mount = self.folder / "mount"
        mount.mkdir()
        self.addCleanup(mount.rmdir)
        server = subprocess.Popen(
            ["nbdfuse", mount / "device", "--command", "nbdkit", "--single", *plugin],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def stop():
            server.terminate()
            try:
                server.communicate(timeout=PATIENCE)
            finally:
                if os.path.ismount(mount):
                    subprocess.run(["umount", "-l", mount], check=False)
        self.addCleanup(stop)
        end = time.monotonic() + PATIENCE
        while not (mount / "device").exists():
            if server.poll() is not None or time.monotonic() > end:
                self.fail(f"nbdfuse did not start: {server.communicate()[1]}")
            time.sleep(0.01)
        return mount / "device"

    def serve_script(self, there):
        """Zeros; a read in the third mebibyte first does `there`. What is read before a replay
        begins, to prove that direct I/O is in effect, lies elsewhere."""
        return self.serve(
            "eval", f"get_size=echo {8 * MIB}", "thread_model=echo parallel",
            f"pread=if [ $(($4 / {MIB})) -eq 2 ]; then {there}; fi; head -c $3 /dev/zero")

    def full_device(self):
        if os.geteuid() != 0:
            self.skipTest("only root can mount a tmpfs")
        small = self.folder / "small"
        small.mkdir()
        self.addCleanup(small.rmdir)
        result = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small],
                                capture_output=True, text=True, check=False)
        if result.returncode != 0:
            self.skipTest(f"no tmpfs can be mounted: {result.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=False)
        with open(small / "disk", "wb") as file:
            file.truncate(8 * MIB)
        return self.serve("file", small / "disk")

    def replay(self, fault, engine):
        """Its complaint and its result."""
        commands = [line for step in fault.steps for line in step if line[:2] in ("r ", "w ")]
        plan, out = self.folder / "plan", self.folder / "out"
        plan.write_text("\n".join(
            ["kvreplay schedule 1", "made_from test", "limits 4096 524288 4",
             *(line for step in fault.steps for line in ("step", *step)),
             f"end {len(fault.steps)} {len(commands)}"]) + "\n")
        before = set(self.folder.iterdir())
        process = subprocess.Popen(
            [PROGRAM, "device", "replay", plan, "--model-device", "ufs40", "--target", fault.target,
             "--engine", engine, "--out", out, *fault.options],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        if fault.once_running:
            for line in process.stderr:
                if "replay [" in line:
                    fault.once_running()
                    break
        _, errors = process.communicate(timeout=PATIENCE)
        if "engine " in errors and ("not permitted" in errors or "not implemented" in errors):
            self.skipTest(f"this system refuses it: {errors}")
        self.assertEqual(process.returncode, 2, errors)
        self.assertEqual(set(self.folder.iterdir()) - before, {out}, errors)
        result = json.loads((out / "replay.json").read_text())
        shutil.rmtree(out)
        complaint = errors.strip().splitlines()[-1]
        self.assertIs(result["complete"], False)
        self.assertIn(result["ended_by"], complaint)
        self.assertEqual(errors.count(result["ended_by"]), 1, errors)
        return complaint, result

    def fails(self, make):
        """`make(engine)` gives the fault, anew for each engine."""
        for engine in ENGINES:
            with self.subTest(engine=engine):
                fault = make()
                if engine not in fault.engines:
                    continue
                complaint, result = self.replay(fault, engine)
                for text in (str(fault.target), fault.complaint):
                    self.assertIn(text, complaint)
                self.assertGreater(result["steps"], 0)
                self.assertLess(result["steps"], len(fault.steps))
                yield result

    @staticmethod
    def reads(*offsets):
        return [["submit 1", f"r {offset} 4096", f"wait {step}"]
                for step, offset in enumerate(offsets)]

    def test_an_io_error(self):
        target = self.serve_script("echo EIO no >&2; exit 1")
        for result in self.fails(lambda: Fault(
                target, self.reads(0, 65536, 2 * MIB, 8192),
                "read of 4096 bytes at offset 2097152 failed (Input/output error)")):
            self.assertEqual(result["steps"], 2)

    def test_a_full_device(self):
        target = self.full_device()
        size = MIB // 2
        steps = [["submit 1", f"w {step * size} {size}", f"wait {step}"] for step in range(8)]
        # What one engine has written is in the way of the next: all fail at the same place.
        for result in self.fails(lambda: Fault(target, steps, "failed (No space left on device)",
                                               options=("--allow-destructive",))):
            self.assertLessEqual(result["steps"], 4)

    def test_a_file_that_becomes_shorter(self):
        target = self.folder / "file"
        steps = [["compute 20000000", "submit 1", f"r {3 * MIB} 4096", f"wait {step}"]
                 for step in range(5000)]

        def make():
            target.write_bytes(os.urandom(4 * MIB))
            return Fault(target, steps, "transferred only 0",
                         once_running=lambda: os.truncate(target, MIB))
        self.assertEqual(len(list(self.fails(make))), len(ENGINES))

    def test_a_device_that_does_not_answer(self):
        target = self.serve_script("sleep 8")
        for result in self.fails(lambda: Fault(
                target, self.reads(0, 65536, 2 * MIB, 8192),
                "read of 4096 bytes at offset 2097152 has had no answer for",
                engines=("io_uring", "aio", "threads"), options=("--request-timeout", "1"))):
            self.assertEqual(result["steps"], 2)


if __name__ == "__main__":
    unittest.main()
