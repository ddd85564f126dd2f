#!/usr/bin/env python3
"""A peer that lies: a device that is no agent of ours, before kvreplay; a host that is no kvreplay,
before the agent; other users, before the socket of a served device. docs/security.md says what each
of them cannot do."""

import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest

import agents
from agents import Agent, probe_request
from program import PROGRAM, SOURCE, ProgramTest, tree
from remote_case import GRID, MIB, PATIENCE, RemoteCase

PEER = '''#!{python}
import json, os, struct, sys
os.unlink(sys.argv[1])
with open({answers!r}, "rb") as file:
    answers = eval(file.read())
while len(header := sys.stdin.buffer.read(8)) == 8:
    request = json.loads(sys.stdin.buffer.read(struct.unpack("<4xI", header)[0]))
    for payload in answers.get(request["verb"], ()):
        sys.stdout.buffer.write(b"KVR1" + struct.pack("<I", len(payload)) + payload)
    sys.stdout.buffer.flush()
    if request["verb"] in {last!r}:
        break
'''
DEEP = b'{"event":"setting","setting":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
SETTING = {"target": {"path": "/x", "size_bytes": 4 * MIB}, "host": {},
           "engine": {"name": "sync", "refused": []}, "seed": 0, "points_wanted": 2}
POINT = {"bytes": 65536, "depth": 1, "iops": 1.0}
STEPS = [[1000, 0, 900, 12288, 2, 0, 0], [1000, 0, 900, 4096, 1, 0, 0]]
REQUESTS = [[0, 500], [0, 900], [1000, 1900]]
PLAN = ("kvreplay schedule 1\nmade_from test\nlimits 4096 524288 8\n"
        "step\nsubmit 2\nr 0 4096\nr 65536 8192\nwait 0\nstep\nsubmit 1\nr 4096 4096\nwait 1\n"
        "end 2 3\n")
MOST_BYTES = 1 << 30  # of memory; honest runs take some tens of MB


def event(name, **members):
    return json.dumps({"event": name, **members}).encode()


def setting(**changes):
    return event("setting", setting={**SETTING, **changes})


def measurement(steps=None, requests=None, **more):
    return json.dumps({"interrupted": False, "steps": STEPS if steps is None else steps,
                       "requests": REQUESTS if requests is None else requests, **more})


def step(**changes):
    """The first step with another value in a column, by its number."""
    changed = list(STEPS[0])
    for column, value in changes.items():
        changed[int(column[1:])] = value
    return [changed, STEPS[1]]


class HostileDevice(RemoteCase):
    """What comes from a device, before kvreplay."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hello = event("hello", protocol=1, sha256=hashlib.sha256(
            agents.NATIVE.read_bytes()).hexdigest())
        (cls.folder / "plan").write_text(PLAN)

    @classmethod
    def tearDownClass(cls):
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        assert most < MOST_BYTES, f"{most} bytes of memory were used"
        super().tearDownClass()

    def refused(self, words, answers, *says):
        """The program among such answers: one line, exit code 2, nothing written."""
        file = self.folder / "answers"
        file.write_bytes(repr({"hello": [self.hello], "open": [event("target")],
                               "schedule": [event("received")], **answers}).encode())
        self.on_path("hostile-runner", PEER.format(
            python=sys.executable, answers=str(file), last=list(answers)))
        before = tree(self.folder)
        result = self.kvreplay(*words, "--agent-folder", self.home, "--link-timeout", "2")
        self.assertEqual(result.returncode, 2, result.stderr[:2000])
        line = result.stderr.splitlines()[-1]
        self.assertRegex(line, r"\Akvreplay: ")
        self.assertLess(len(result.stderr), 3000)
        self.assertFalse(set(result.stderr) & {"\x1b", "\x07", "\x7f"}, repr(result.stderr))
        for text in says:
            self.assertIn(text, line)
        after = tree(self.folder)
        for name in ("probe.json", "replayed"):  # what had been measured may be kept, as incomplete
            if name not in after:
                continue
            path = self.folder / name
            kept = json.loads((path if path.is_file() else path / "replay.json").read_text())
            self.assertIs(kept["complete"], False)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.assertEqual(set(tree(self.folder)) - set(before), set())

    def probe_refused(self, answers, *says, more=()):
        self.refused(("device", "probe", f"local:hostile-runner:{self.target}", *GRID, "--out",
                      "probe.json", *more),
                     answers if isinstance(answers, dict) else {"probe": answers}, *says)

    def replay_refused(self, answers, *says):
        self.refused(("device", "replay", "plan", "--model-device", "ufs40", "--target",
                      f"local:hostile-runner:{self.target}", "--out", "replayed"),
                     {"replay": answers}, *says)

    def test_events_that_are_none(self):
        for payload in (b"", b"x", b"[]", b"5", b'{"event": 5}', b'{"verb": "hello"}', b"\xff",
                        b'{"event":"hello","x":' + b"[" * 200_000, DEEP):
            for verb in ("hello", "open", "probe"):
                with self.subTest(payload=payload[:30], verb=verb):
                    self.probe_refused({verb: [payload]}, "the agent is lost")

    def test_frames_without_end(self):
        self.on_path("hostile-runner", "#!/bin/sh\nrm -f \"$1\"\nprintf 'KVR1\\377\\377\\377\\377'\n"
                                       "exec cat /dev/zero\n")
        self.refuses(("device", "probe", f"local:hostile-runner:{self.target}", *GRID,
                      "--agent-folder", self.home, "--out", "probe.json"),
                     ("the agent is lost", "4294967295 bytes"))

    def test_large_events(self):
        text = "x" * (1 << 20)
        for answers in ([event("setting", setting={**SETTING, "host": {"kernel": text}})],
                        [setting(), event("point", point={"x": text})],
                        [event("alive", x=text)], [event("error", message=text)]):
            self.probe_refused(answers, "the agent is lost", "an event of", "up to 65536")

    def test_an_error_with_other_words_than_ours(self):
        self.probe_refused([event("error", message="\x1b[2J\x07\nkvreplay: done\n" + "x" * 50_000)],
                           " [2J  kvreplay: done", "xxx ...")

    def test_another_agent_than_was_sent(self):
        for value in (5, None, "", "0" * 64, ["x"]):
            self.probe_refused({"hello": [event("hello", sha256=value)]}, "another agent answers")

    def test_settings_that_lie(self):
        for changes, says in (
                ({"engine": 5}, "/engine"), ({"engine": {"name": "sync"}}, "refused"),
                ({"engine": {"name": 5, "refused": []}}, "/engine/name"),
                ({"engine": {"name": "sync", "refused": [{"engine": "aio"}]}}, "reason"),
                ({"host": 5}, "/host"), ({"target": {}}, "size_bytes"),
                ({"target": {"size_bytes": -1}}, "size_bytes"), ({"points_wanted": 0}, "points_wanted"),
                ({"points_wanted": 1e300}, "points_wanted"), ({"complete": True}, "complete"),
                ({"points": []}, "points"), ({"sha256": ""}, "sha256")):
            with self.subTest(changes=changes):
                self.probe_refused([setting(**changes)], says)
                self.replay_refused([setting(**changes)], says)

    def test_events_out_of_turn(self):
        point = event("point", point=POINT)
        end = event("end", end={"ended_by": "", "temperatures": []})
        for answers, says in (([point], "a point before the setting"), ([end], "without a setting"),
                              ([setting(), setting()], "a second setting"),
                              ([setting(), event("point", point=5)], "a point that is none"),
                              ([setting(), point, point, point], "more points than"),
                              ([setting(), event("end")], "end"),
                              ([setting(), event("end", end={"ended_by": 5, "temperatures": []})],
                               "ended_by")):
            with self.subTest(says):
                self.probe_refused(answers, says)

    def test_progress_beyond_the_end(self):
        for done in (2**64 - 1, -1, 1e300):
            self.probe_refused({"create": [event("progress", done=done), event("error", message="so")]},
                               "so", more=("--create", "1M"))
        self.probe_refused({"create": [event("progress", done="x")]}, "of another form",
                           more=("--create", "1M"))

    def test_measurements_of_something_else(self):
        end = event("end", ended_by="")
        for text, says in (
                (measurement([*STEPS, STEPS[0]]), "too many steps"),
                (measurement(requests=[*REQUESTS, [0, 1]]), "too many steps or requests"),
                (measurement(step(_0=-1)), "step 0"), (measurement(step(_0=2**63 - 1)), "step 0"),
                (measurement(step(_3=4096)), "step 0"), (measurement(step(_6=1)), "step 0"),
                (measurement(requests=[[0, 500], [0, -2], [0, 1]]), "request 1"),
                (measurement(requests=[[0, 500], [9, 2], [0, 1]]), "request 1"),
                (measurement(STEPS[:1]), "before the last step"),
                (measurement([[1, 2]]), "no measurement"), ("[" * 500, "no measurement"), ("", "no"),
                (measurement(x="y" * 5000), "endless")):
            with self.subTest(says=says):
                self.replay_refused([setting(), event("measurement", text=text), end], says)
                self.replay_refused([setting(), event("steps", part={
                    "first_request": 0, "text": text})], "")
        for part in (5, {}, {"first_request": 10**18, "text": measurement()},
                     {"first_request": -1, "text": measurement()}):
            self.replay_refused([setting(), event("steps", part=part)], "")
        self.replay_refused([event("measurement", text=measurement())], "before the setting")
        self.replay_refused([setting(), event("end", ended_by=5)], "")

    def test_a_shell_that_lies(self):
        """Of the words that come from there, one becomes part of a name here, and some are names of
        files to remove there."""
        precious = self.folder / "precious"
        precious.write_text("x")
        secret = self.folder / "kvreplay-agent-secret"
        secret.write_text("x")
        words = self.words(f"local:{self.target}", *GRID)
        for machine in ("../../etc/passwd", "", "x y", "\\033[2J", "x" * 100):
            self.on_path("uname", f"#!/bin/sh\nprintf '{machine}\\n'\n")
            result = self.kvreplay(*words)
            self.assertEqual(result.returncode, 2)
            self.assertIn("`uname -m`", result.stderr)
            self.assertNotIn("\x1b", result.stderr)
        self.on_path("uname", "#!/bin/sh\nexec yes\n")
        self.refuses(words, ("`uname -m`", "endless output"))
        self.on_path("uname", f"#!/bin/sh\n/bin/uname -m\nfor f in {'0' * 64}; do\n"
                     f"echo \"$f  {precious}\"\necho \"Read {secret}\"\n"
                     f"echo \"$f  {self.home}/kvreplay-agent-/../../precious\"\ndone\n")
        self.succeed(*words)
        self.assertTrue(precious.exists() and secret.exists())
        precious.unlink()
        secret.unlink()


class HostileHost(ProgramTest):
    """What comes from a host, before the agent."""

    def setUp(self):
        self.target = self.folder / "target.bin"
        if not self.target.exists():
            self.target.write_bytes(os.urandom(4 * MIB))

    def opened(self):
        agent = Agent([agents.NATIVE])
        agent.hello(self.target)
        if agent.ask({"verb": "open", "write": False}, ("target", "error"))[-1]["event"] != "target":
            agent.__exit__()
            self.skipTest("no direct I/O in the temporary folder (set TMPDIR)")
        return agent

    def test_requests_without_end(self):
        """While one is at work, others wait: some, not all that fit into memory."""
        for payload, count in ((b"{" + b" " * (7 << 20) + b"}", 4), (b"{}", 100)):
            with self.opened() as agent:
                agent.send(probe_request(depths=[1] * 1000, seconds=0.2))
                self.assertEqual(agent.event()["event"], "setting")
                try:
                    for _ in range(count):
                        agent.send(payload)
                except BrokenPipeError:
                    pass
                agent.process.wait(PATIENCE)
                self.assertEqual(agent.process.returncode, 2)
                self.assertIn(b"too many requests wait", agent.process.stderr.read())

    def test_more_memory_than_there_is(self):
        with self.opened() as agent:
            message = agent.ask(probe_request(depths=[1024], sizes_bytes=[64 * MIB]))[-1]["message"]
            self.assertIn("bytes of memory", message)
            message = agent.ask(probe_request(depths=[1] * 400, sizes_bytes=[4096] * 400))[-1]["message"]
            self.assertIn("too many points", message)
            text = PLAN.replace("limits 4096 524288 8", f"limits 4096 {1 << 30} {1 << 16}")
            agent.ask({"verb": "schedule", "begin": True, "text": text}, ("received",))
            message = agent.ask({"verb": "replay", "request": {
                "engine": "", "depth": 0, "wrap": False, "pages": "ordinary",
                "request_timeout": 60}})[-1]["message"]
            self.assertIn("bytes of memory", message)

    def test_deep_requests(self):
        with self.opened() as agent:
            for payload in (b'{"verb":"probe","request":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
                            b'{"verb":' + b'{"a":' * 200_000):
                self.assertIn("deeper than", agent.ask(payload)[-1]["message"])
            self.assertEqual(agent.ask(probe_request(), ("end", "error"))[-1]["event"], "end")

    def test_a_new_file_follows_no_link(self):
        elsewhere = self.folder / "elsewhere"
        link = self.folder / "link"
        link.symlink_to(elsewhere)
        with Agent([agents.NATIVE]) as agent:
            agent.hello(link)
            self.assertIn("exists already", agent.ask({"verb": "create", "bytes": MIB})[-1]["message"])
        self.assertFalse(elsewhere.exists())

    def test_words_beside_its_verbs_do_nothing(self):
        before = tree(self.folder)
        with Agent([agents.NATIVE]) as agent:
            for verb in ("shell", "exec", "read", "write", "hello; id", "../hello", "HELLO", "", "_"):
                self.assertIn("unknown verb", agent.ask({"verb": verb})[-1]["message"])
            for target in ("relative", "", "/a\0b"):
                self.assertIn("absolute path", agent.ask({
                    "verb": "hello", "protocol": 1, "target": target,
                    "allow_destructive": True})[-1]["message"])
        self.assertEqual(tree(self.folder), before)


class SocketOfAServedDevice(ProgramTest):
    def setUp(self):
        if not shutil.which("nbdkit") or not (
                pathlib.Path(PROGRAM).parent / "nbdkit-kvreplay-plugin.so").exists():
            self.skipTest("no nbdkit, or no plugin for it in this build")

    def serve(self, *options):
        """The server, its socket, and the umask that lets everybody do everything."""
        process = subprocess.Popen(
            [SOURCE / "tools/serve-device", "ufs40", "--size", "1MiB", "--build",
             pathlib.Path(PROGRAM).parent, *options], cwd=self.folder, stderr=subprocess.PIPE,
            text=True, preexec_fn=lambda: os.umask(0))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, process.stderr.readline()

    def test_is_its_user_s_alone(self):
        path = self.folder / "socket"
        process, said = self.serve("--socket", path)
        self.assertIn("Ctrl-C", said)
        self.assertEqual(path.stat().st_mode & 0o077, 0)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            self.assertEqual(client.recv(8), b"NBDMAGIC")
        if os.geteuid() == 0:
            os.chmod(self.folder, 0o755)
            stranger = subprocess.run(
                [sys.executable, "-c", "import os, socket, sys\nos.setuid(65534)\n"
                 "socket.socket(socket.AF_UNIX).connect(sys.argv[1])", path],
                stderr=subprocess.PIPE, text=True, check=False)
            self.assertIn("PermissionError", stranger.stderr)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        self.assertFalse(path.exists())

    def test_lies_in_a_folder_that_is_its_user_s_alone(self):
        process, said = self.serve()
        folder = pathlib.Path(said.split("socket=")[1].split("/socket")[0].replace("%2F", "/"))
        self.assertEqual(folder.stat().st_mode & 0o077, 0)
        self.assertEqual((folder / "socket").stat().st_mode & 0o077, 0)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        self.assertFalse(folder.exists())

    def test_bytes_that_are_no_nbd(self):
        path = self.folder / "socket of another"
        process, _ = self.serve("--socket", path)
        for sent in (b"", b"x", b"\0" * 100, b"\xff" * 100_000,
                     struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 6, 0xffffffff)):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(PATIENCE)
                client.connect(str(path))
                client.recv(18, socket.MSG_WAITALL)
                try:
                    client.sendall(sent)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(1 << 16):
                        pass
                except OSError:
                    pass  # it has closed the connection
        self.assertIsNone(process.poll())
        with socket.socket(socket.AF_UNIX) as client:  # others are served
            client.connect(str(path))
            self.assertEqual(client.recv(8), b"NBDMAGIC")


if __name__ == "__main__":
    unittest.main()
