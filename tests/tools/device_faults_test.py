#!/usr/bin/env python3
"""Real faults in the middle of a replay, by every engine: an I/O error, a full device, a file that
becomes shorter, a device that does not answer (in a probe too, and where an agent does it)."""

import json
import os
import shutil
import time
import unittest

import agents
from faulty_device import MIB, PATIENCE, FaultyDeviceTest

ENGINES = ("io_uring", "aio", "threads", "sync")


class Fault:
    """A target, and a plan during which it fails."""

    def __init__(self, target, steps, complaint, engines=ENGINES, options=(), once_said="",
                 then=None):
        self.target = target
        self.steps = steps  # lines of each
        self.complaint = complaint
        self.engines = engines
        self.options = options
        self.once_said = once_said
        self.then = then


class DeviceFaultsTest(FaultyDeviceTest):
    def serve_silence(self):
        """Like serve_script(), with silence there for at most a minute; and a function that ends it.
        A process may end before its requests do, so each has its own device."""
        answers = self.folder / "answers"
        answers.mkdir(exist_ok=True)
        answer = answers / str(time.monotonic_ns())
        target = self.serve_script(f"n=0; while [ ! -e '{answer}' ] && [ $n -lt 1200 ]; do "
                                   "sleep 0.05; n=$(($n + 1)); done")
        self.addCleanup(answer.touch)  # before the server is told to end
        return target, answer.touch

    def serve_script(self, there):
        """Zeros, where a read in the third mebibyte first runs `there`. What is read before a replay
        begins, to prove that direct I/O is in effect, is elsewhere."""
        return self.serve(
            "eval", f"get_size=echo {8 * MIB}", "thread_model=echo parallel",
            f"pread=if [ $(($4 / {MIB})) -eq 2 ]; then {there}; fi; head -c $3 /dev/zero")

    def ends_with_2(self, words, once_said="", then=None):
        """Its standard error. `then` is called once it has printed `once_said`."""
        process = self.start(words)
        said = []
        with process.stderr:
            for line in process.stderr:
                said.append(line)
                if then and once_said in line:
                    then()
                    then = None
        process.wait(timeout=PATIENCE)
        errors = "".join(said)
        if "engine " in errors and ("not permitted" in errors or "not implemented" in errors):
            self.skipTest(f"this system refuses it: {errors}")
        self.assertEqual(process.returncode, 2, errors)
        return errors

    def replay(self, fault, engine):
        """Its error message and its result."""
        commands = [line for step in fault.steps for line in step if line[:2] in ("r ", "w ")]
        plan, out = self.folder / "plan", self.folder / "out"
        plan.write_text("\n".join(
            ["kvreplay schedule 1", "made_from test", "limits 4096 524288 4",
             *(line for step in fault.steps for line in ("step", *step)),
             f"end {len(fault.steps)} {len(commands)}"]) + "\n")
        before = set(self.folder.iterdir())
        errors = self.ends_with_2(
            ["device", "replay", plan, "--model-device", "ufs40", "--target", fault.target,
             "--engine", engine, "--out", out, *fault.options], fault.once_said, fault.then)
        self.assertEqual(set(self.folder.iterdir()) - before, {out}, errors)
        result = json.loads((out / "replay.json").read_text())
        shutil.rmtree(out)
        complaint = errors.strip().splitlines()[-1]
        self.assertIs(result["complete"], False)
        self.assertIn(result["ended_by"], complaint)
        self.assertEqual(errors.count(result["ended_by"]), 1, errors)
        return complaint, result

    def fails(self, make):
        """`make(engine)` gives the fault, newly for each engine."""
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
        # Each engine writes over what the previous one wrote, so all fail at the same place.
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
                         once_said="replay [", then=lambda: os.truncate(target, MIB))
        self.assertEqual(len(list(self.fails(make))), len(ENGINES))

    def silences(self, steps, engines, *options):
        """The results of replays on a device that answers only once it has been given up."""
        def make():
            target, answer = self.serve_silence()
            return Fault(target, steps, "has had no answer for", engines,
                         ("--request-timeout", "1", *options), "has had no answer", answer)
        return self.fails(make)

    def test_a_device_that_does_not_answer(self):
        for result in self.silences(self.reads(0, 65536, 2 * MIB, 8192), ENGINES):
            self.assertIn("read of 4096 bytes at offset 2097152 ", result["ended_by"])
            self.assertEqual(result["steps"], 2)

    def test_a_device_that_takes_no_more_requests(self):
        # A FUSE file takes 12 in the background; the 13th holds up the system call that submits it.
        many = ["submit 16", *(f"r {2 * MIB + at * 8192} 4096" for at in range(16)), "wait 2"]
        for result in self.silences([*self.reads(0, 65536), many], ("io_uring", "aio", "threads"),
                                    "--depth", "16"):
            self.assertEqual(result["steps"], 2)

    def test_a_device_that_does_not_answer_a_probe(self):
        # Waiting for an agent that the kernel does not release takes seconds, so one engine is enough.
        for place, engines in (("", ENGINES), ("local:", ("sync",))):
            for engine in engines:
                with self.subTest(place=place, engine=engine):
                    if place and not agents.NATIVE.exists():
                        self.skipTest("no agent was built")
                    target, answer = self.serve_silence()
                    out = self.folder / "probe.json"
                    errors = self.ends_with_2(
                        # The second point comes to the third mebibyte, in its ninth request.
                        ["device", "probe", f"{place}{target}", "--pattern", "sequential", "--size",
                         "4K,256K", "--depth", "1" if engine == "sync" else "4", "--seconds", "0.01",
                         "--engine", engine, "--request-timeout", "1", "--out", out,
                         *(("--agent-folder", self.folder) if place else ())],
                        "has had no answer", answer)
                    result = json.loads(out.read_text())
                    out.unlink()
                    self.assertEqual(len(result["points"]), 1)
                    self.assertIs(result["complete"], False)
                    # Not always one of the third mebibyte: others may wait behind it.
                    self.assertIn("read of 262144 bytes at offset ", result["ended_by"])
                    self.assertIn("has had no answer for", result["ended_by"])
                    self.assertIn(result["ended_by"], errors.strip().splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
