"""What the tests of connected devices beside this file share, whatever the way to the device."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import time

import agents
from program import PROGRAM, ProgramTest

MIB = 1 << 20
PATIENCE = 120  # seconds; only a hang takes as long
GRID = ("--size", "64K", "--depth", "1,2", "--seconds", "0.02")
LONG_GRID = ("--size", "64K", "--depth", ",".join(["1"] * 1000), "--seconds", "0.2")
LONG_STEPS = 3000


def children(process):
    """(process, name) of what it has started."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = folder.joinpath("stat").read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        if int(rest.split()[1]) == process:
            found.append((int(folder.name), name.partition("(")[2]))
    return found


class RemoteCase(ProgramTest):
    """A target, a place for agents, and a probe of the target by an agent."""

    def setUp(self):
        self.target = self.folder / "a target's file.bin"
        if not self.target.exists():
            self.target.write_bytes(os.urandom(4 * MIB))
        self.home = self.folder / "agent folder"  # where agents are put
        self.home.mkdir(exist_ok=True)
        self.out = self.folder / "probe.json"
        self.out.unlink(missing_ok=True)
        (self.folder / "check.json").unlink(missing_ok=True)
        check = self.kvreplay("device", "probe", self.target, *GRID, "--out", "check.json")
        if check.returncode != 0:
            self.skipTest(f"no direct I/O in the temporary folder (set TMPDIR): {check.stderr}")

    def tearDown(self):
        self.assertEqual(list(self.home.iterdir()), [], "an agent was left behind")

    def on_path(self, name, text):
        """A program of that name, first on PATH for this test."""
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}:{before}"
        self.addCleanup(os.environ.__setitem__, "PATH", before)

    def words(self, address, *arguments):
        self.out.unlink(missing_ok=True)  # of the call before
        return ("device", "probe", address, "--agent-folder", self.home, "--out", self.out,
                *arguments)

    def probe(self, address, *arguments):
        self.succeed(*self.words(address, *GRID, *arguments))
        result = json.loads(self.out.read_text())
        self.assertTrue(result["complete"])
        self.assertEqual(len(result["points"]), 2)
        self.assertEqual(result["target"]["path"], str(self.target))
        return result

    def start(self, bar, *words):
        """The program, once its progress bar of that name has come."""
        process = subprocess.Popen([PROGRAM, *map(str, words)], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if f"{bar} [" in line:
                return process
        self.fail(f"ended early: {process.wait()}")

    def incomplete(self, process, file, *says):
        """What the program wrote there; it must end with an error that contains the texts."""
        _, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 2, errors)
        complaint = errors.strip().splitlines()[-1]
        for text in says:
            self.assertIn(text, complaint)
        result = json.loads(file.read_text())
        self.assertIs(result["complete"], False)
        self.assertIn(result["ended_by"], complaint)
        return result

    def start_long(self, address, *arguments):
        """A probe that goes on for minutes, with at least one measured point; its bar appears two
        seconds after the first."""
        return self.start("probe", *self.words(address, *LONG_GRID, *arguments))

    def ends_incomplete(self, process, *says):
        result = self.incomplete(process, self.out, *says)
        self.assertGreater(len(result["points"]), 0)
        self.assertLess(len(result["points"]), 1000)

    def uses_or_removes_agents(self, address):
        """Those that were left behind: one that is the same is used, others are removed."""
        sha256 = hashlib.sha256(agents.NATIVE.read_bytes()).hexdigest()
        same = self.home / f"kvreplay-agent-{sha256[:16]}"
        for content in (agents.NATIVE.read_bytes(), b"#!/bin/sh\nexit 1\n"):
            same.write_bytes(content)
            same.chmod(0o700)
            (self.home / "kvreplay-agent-0123456789abcdef").write_bytes(b"old")
            self.probe(address)
            self.assertEqual(list(self.home.iterdir()), [])

    def replays_as_here(self, address, device):
        """A schedule, on the target by its address and by its path."""
        text = ("kvreplay schedule 1\nmade_from test\nlimits 4096 524288 8\n" +
                "".join(f"step\nsubmit 2\nr {at << 16} 4096\nr {at << 17} 8192\ncompute 100000\n"
                        f"wait {at}\n" for at in range(20)) + "end 20 40\n")
        (self.folder / "plan").write_text(text)
        results = []
        for target, options in ((self.target, ()), (address, ("--agent-folder", self.home))):
            out = self.folder / "replayed"
            self.succeed("device", "replay", "plan", "--model-device", "ufs40", "--target", target,
                         "--out", out, *options)
            results.append(json.loads((out / "replay.json").read_text()))
            shutil.rmtree(out)
        for result in results:
            self.assertTrue(result["complete"])
            self.assertEqual((result["steps"], result["requests"]), (20, 40))
            self.assertEqual(result["target"]["path"], str(self.target))
        for same in ("schedule", "model_device", "modelled"):
            self.assertEqual(results[0][same], results[1][same])
        self.assertEqual(results[1]["device"], device)

    def start_long_replay(self, address, *arguments):
        """A replay that runs for minutes, with at least some measured steps."""
        (self.folder / "long plan").write_text(
            "kvreplay schedule 1\nmade_from test\nlimits 4096 524288 8\n" +
            "".join(f"step\nsubmit 2\nr 0 4096\nr 65536 8192\ncompute 50000000\nwait {at}\n"
                    for at in range(LONG_STEPS)) + f"end {LONG_STEPS} {2 * LONG_STEPS}\n")
        return self.start("replay", "device", "replay", "long plan", "--model-device", "ufs40",
                          "--target", address, "--agent-folder", self.home, "--out", "cut",
                          *arguments)

    def replay_ends_incomplete(self, process, *says):
        out = self.folder / "cut"
        result = self.incomplete(process, out / "replay.json", *says)
        self.assertGreater(result["steps"], 0)
        self.assertLess(result["steps"], LONG_STEPS)
        self.assertEqual(result["requests"], 2 * result["steps"])
        rows = (out / "steps.csv").read_text().splitlines()[1:]
        self.assertEqual(len(rows), result["steps"])
        for row in rows:
            self.assertGreaterEqual(float(row.split(",")[6]), 50)  # measured_compute_ms
        self.assertEqual([path.name for path in self.folder.iterdir() if "partial" in path.name], [])
        shutil.rmtree(out)

    def nobody_is_left(self):
        """The agent sees the end of its input, and ends."""
        def command(process):
            try:
                return (process / "cmdline").read_bytes()
            except OSError:
                return b""  # it ended meanwhile

        for _ in range(PATIENCE * 10):
            running = [process for process in pathlib.Path("/proc").glob("[0-9]*")
                       if str(self.home).encode() in command(process)]
            if not running:
                return
            time.sleep(0.1)
        self.fail(f"still running: {running}")
