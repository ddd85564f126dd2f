#!/usr/bin/env python3
"""kvreplay-agent alone: its verbs, bytes that are not requests, and what it leaves behind."""

import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import unittest

import agents
from agents import Agent, frame, probe_request
from program import ProgramTest

MIB = 1 << 20
PATIENCE = 120  # seconds; only a hang takes as long


class AgentTest(ProgramTest):
    """The agent of this machine."""

    agent = agents.NATIVE
    runner = ()

    def setUp(self):
        self.target = self.folder / "target.bin"
        if not self.target.exists():
            self.target.write_bytes(os.urandom(4 * MIB))

    def start(self):
        return Agent([*self.runner, self.agent])

    def need_direct_io(self, agent):
        event = agent.ask({"verb": "open", "write": False}, ("target", "error"))[-1]
        if event["event"] != "target":
            self.skipTest(f"no direct I/O in the temporary folder (set TMPDIR): {event}")

    def refused(self, agent, request, *says):
        event = agent.ask(request)[-1]
        for text in says:
            self.assertIn(text, event["message"])

    def test_says_what_it_is(self):
        with self.start() as agent:
            hello = agent.hello(self.target)
            self.assertEqual(hello["sha256"], hashlib.sha256(self.agent.read_bytes()).hexdigest())
            self.assertEqual(hello["engines"], ["io_uring", "aio", "threads", "sync"])
            self.assertEqual(hello["host"]["machine"], self.agent.name.rsplit("-", 1)[1])
            self.assertGreater(hello["free_bytes"], 0)
            self.assertTrue(hello["file_system"])
            self.assertIsInstance(hello["temperatures"], list)
            self.assertEqual(agent.ask({"verb": "bye"}, ("bye",))[-1]["event"], "bye")
            self.assertEqual(agent.process.wait(PATIENCE), 0)

    def test_probes_point_by_point(self):
        with self.start() as agent:
            agent.hello(self.target)
            self.need_direct_io(agent)
            events = agent.ask(probe_request(), ("end", "error"))
            self.assertEqual([event["event"] for event in events],
                             ["setting", "point", "point", "end"], events[-1])
            self.assertEqual(events[0]["setting"]["points_wanted"], 2)
            for event in events[1:3]:
                self.assertGreater(event["point"]["iops"], 0)
            self.assertEqual(events[-1]["end"]["ended_by"], "")

    def test_the_target_is_settled_by_hello(self):
        with self.start() as agent:
            self.refused(agent, {"verb": "open", "write": False}, "comes before hello")
            self.refused(agent, {"verb": "hello", "protocol": 2, "target": "/x",
                                 "allow_destructive": False}, "/protocol", "1 to 1")
            self.refused(agent, {"verb": "hello", "protocol": 1, "target": "x",
                                 "allow_destructive": False}, "no absolute path")
            self.assertEqual(agent.hello(self.target)["event"], "hello")
            self.assertIn("second hello", agent.hello("/etc/passwd")["message"])
            self.refused(agent, {"verb": "open", "write": False, "target": "/etc/passwd"},
                         "unknown member 'target'")

    def test_writes_only_where_it_may(self):
        before = self.target.read_bytes()
        with self.start() as agent:
            agent.hello(self.target)
            self.refused(agent, {"verb": "open", "write": True}, "--allow-destructive")
            self.refused(agent, {"verb": "create", "bytes": MIB}, "exists already")
            self.need_direct_io(agent)
            self.refused(agent, probe_request(write_shares=[0, 0.5]), "open for reading only")
        self.assertEqual(self.target.read_bytes(), before)

    def test_refuses_requests_that_make_no_sense(self):
        with self.start() as agent:
            agent.hello(self.target)
            self.refused(agent, probe_request(), "is not open")
            self.need_direct_io(agent)
            for changes in ({"depths": [0]}, {"depths": [1025]}, {"depths": []}, {"depths": 1.5},
                            {"depths": [-1]}, {"depths": "x"}, {"sizes_bytes": [0]},
                            {"sizes_bytes": [1 << 40]}, {"sizes_bytes": [100]},
                            {"seconds": 1e300}, {"seconds": -1}, {"seconds": None},
                            {"write_shares": [2]}, {"patterns": ["spiral"]}, {"seed": -1},
                            {"engine": "uring"}, {"engine": 5}, {"pages": 1}, {"pages": "small"}, {"request_timeout": 0},
                            {"more": 1}):
                with self.subTest(changes=changes):
                    self.assertTrue(agent.ask(probe_request(**changes))[-1]["message"])
            for request in (b"", b"[]", b"5", b"null", b"{", b"\xff\xfe", b'{"verb":1}',
                            b'{"verb":"shell"}', b"[" * 5000, {"verb": "probe"},
                            {"verb": "create", "bytes": "1G"}, {"verb": "create", "bytes": 0}):
                with self.subTest(request=request[:20] if isinstance(request, bytes) else request):
                    self.assertTrue(agent.ask(request)[-1]["message"])
            self.assertEqual(agent.ask(probe_request(), ("end", "error"))[-1]["event"], "end")

    def test_replays_a_schedule_that_comes_in_pieces(self):
        text = ("kvreplay schedule 1\nmade_from test\nlimits 4096 524288 8\nstep\nsubmit 2\n"
                "r 0 4096\nr 65536 8192\ncompute 1000000\nwait 0\nstep\nsubmit 1\nr 4096 4096\n"
                "wait 1\nend 2 3\n")
        request = {"engine": "", "depth": 0, "wrap": False, "pages": "ordinary",
                   "request_timeout": 60}
        with self.start() as agent:
            agent.hello(self.target)
            self.need_direct_io(agent)
            self.refused(agent, {"verb": "replay", "request": request}, "schedule")
            for at in range(0, len(text), 50):
                event = agent.ask({"verb": "schedule", "begin": at == 0, "text": text[at:at + 50]},
                                  ("received", "error"))[-1]
                self.assertEqual(event, {"event": "received", "bytes": min(at + 50, len(text))})
            for _ in range(2):
                events = agent.ask({"verb": "replay", "request": request}, ("end", "error"))
                events = [event for event in events if event["event"] != "steps"]
                self.assertEqual([event["event"] for event in events],
                                 ["setting", "measurement", "end"], events[-1])
                measured = json.loads(events[1]["text"])
                self.assertEqual([step[3] for step in measured["steps"]], [12288, 4096])
                self.assertGreaterEqual(measured["steps"][0][0], 1_000_000)
                self.assertEqual(len(measured["requests"]), 3)
                self.assertEqual(events[-1]["ended_by"], "")
            writing = text.replace("r 0 4096", "w 0 4096")
            agent.ask({"verb": "schedule", "begin": True, "text": writing}, ("received",))
            self.refused(agent, {"verb": "replay", "request": request}, "open for reading only")
            beyond = text.replace("r 0 4096", "r 1073741824 4096")
            agent.ask({"verb": "schedule", "begin": True, "text": beyond}, ("received",))
            self.refused(agent, {"verb": "replay", "request": request}, "the plan uses", "--wrap")

    def test_stop_ends_a_probe_between_points(self):
        with self.start() as agent:
            agent.hello(self.target)
            self.need_direct_io(agent)
            agent.send(probe_request(depths=[1] * 1000, seconds=0.2))
            self.assertEqual(agent.event()["event"], "setting")
            self.assertEqual(agent.event()["event"], "point")
            events = agent.ask({"verb": "stop"}, ("end",))
            self.assertEqual(events[-1]["end"]["ended_by"], "interrupted")
            self.assertLess(len(events), 900)

    def test_a_stop_right_behind_the_request_is_not_missed(self):
        with self.start() as agent:
            agent.hello(self.target)
            self.need_direct_io(agent)
            for _ in range(50):
                # Both in one piece.
                agent.process.stdin.write(frame(probe_request(depths=[1] * 1000, seconds=0.2)))
                events = agent.ask({"verb": "stop"}, ("end", "error"))
                self.assertEqual(events[-1]["end"]["ended_by"], "interrupted")
                self.assertLess(len(events), 900)

    def test_a_created_file_is_gone_however_it_ends(self):
        new = self.folder / "new.bin"
        for end in ("bye", "remove", "close", "kill"):
            with self.subTest(end=end), self.start() as agent:
                agent.hello(new)
                event = agent.ask({"verb": "create", "bytes": 2 * MIB}, ("target", "error"))[-1]
                if event["event"] == "error":
                    self.skipTest(f"no direct I/O in the temporary folder (set TMPDIR): {event}")
                self.assertEqual(event["size_bytes"], 2 * MIB)
                agent.send(probe_request(depths=[1] * 1000, seconds=0.2))
                self.assertEqual(agent.event()["event"], "setting")
                if end in ("bye", "remove"):
                    agent.ask({"verb": "stop"}, ("end",))
                    agent.ask({"verb": end}, ("bye", "removed"))
                elif end == "close":
                    agent.process.stdin.close()
                    self.assertEqual(agent.process.wait(PATIENCE), 3)
                else:
                    agent.process.send_signal(signal.SIGKILL)
                    agent.process.wait(PATIENCE)
                self.assertFalse(new.exists())

    def test_removes_its_own_file_when_told(self):
        copy = self.folder / "copy-of-the-agent"
        shutil.copy(self.agent, copy)
        with Agent([*self.runner, copy, "--remove-self"]) as agent:
            hello = agent.hello(self.target)
            self.assertEqual(hello["sha256"], hashlib.sha256(self.agent.read_bytes()).hexdigest())
            self.assertFalse(copy.exists())

    def test_bytes_that_are_no_frames_end_it(self):
        streams = {
            "nothing": (b"", 3),
            "half a header": (b"KV", 3),
            "half a frame": (frame({"verb": "hello"})[:-1], 3),
            "a shell": (b"ls -l /\n", 2),
            "too large": (b"KVR1" + struct.pack("<I", (8 << 20) + 1), 2),
            "the largest number": (b"KVR1\xff\xff\xff\xff", 2)}
        for name, (stream, code) in streams.items():
            with self.subTest(name), self.start() as agent:
                # The end of the input races with the error message, so either code is an orderly end.
                _, errors = agent.process.communicate(stream, timeout=PATIENCE)
                self.assertIn(agent.process.returncode, (code, 3), errors)

    def test_random_bytes_never_crash_it(self):
        chance = random.Random(1)
        hello = frame({"verb": "hello", "protocol": 1, "target": str(self.target),
                       "allow_destructive": False})
        whole = hello + frame({"verb": "open", "write": False}) + frame(probe_request()) + \
            frame({"verb": "bye"})
        for round_ in range(12 if self.runner else 60):
            stream = bytearray(whole)
            for _ in range(chance.randrange(1, 8)):
                stream[chance.randrange(len(stream))] = chance.randrange(256)
            del stream[chance.randrange(len(stream)):]
            with self.subTest(round=round_), self.start() as agent:
                output, errors = agent.process.communicate(bytes(stream), timeout=PATIENCE)
                self.assertIn(agent.process.returncode, (0, 2, 3), errors)
                while output:  # what it says are frames, the last perhaps cut off
                    self.assertEqual(output[:4], b"KVR1"[:len(output)])
                    length = struct.unpack("<4xI", output[:8])[0] if len(output) >= 8 else 0
                    payload, output = output[8:8 + length], output[8 + length:]
                    if len(payload) == length and length:
                        self.assertIn("event", json.loads(payload))

    def test_without_arguments_that_it_knows_it_explains_itself(self):
        result = subprocess.run([*self.runner, self.agent, "--help"], stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("kvreplay device", result.stderr)


class Aarch64AgentTest(AgentTest):
    """The agent for 64-bit ARM, emulated. The emulator has no io_uring and no Linux AIO."""

    agent = agents.AARCH64
    runner = (agents.EMULATOR,)

    def setUp(self):
        reason = agents.why_no_aarch64()
        if reason:
            self.skipTest(reason)
        super().setUp()


if __name__ == "__main__":
    unittest.main()
