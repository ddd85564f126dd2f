"""The agents beside the built kvreplay, and a conversation with one; for the tests beside this file."""

import json
import pathlib
import platform
import shutil
import struct
import subprocess

from program import PROGRAM

FOLDER = pathlib.Path(PROGRAM).resolve().parent
NATIVE = FOLDER / f"kvreplay-agent-{platform.machine()}"
AARCH64 = FOLDER / "kvreplay-agent-aarch64"
EMULATOR = "qemu-aarch64-static"


def why_no_aarch64():
    """Why the agent for 64-bit ARM cannot be tested here; None when it can."""
    if not AARCH64.exists():
        return "no kvreplay-agent-aarch64: g++-aarch64-linux-gnu was not there when this was built"
    if not shutil.which(EMULATOR):
        return f"no {EMULATOR} (Debian: qemu-user-static)"
    return None


def frame(payload):
    if not isinstance(payload, bytes):
        payload = json.dumps(payload).encode()
    return b"KVR1" + struct.pack("<I", len(payload)) + payload


class Agent:
    """A started agent; `with` kills it at the end."""

    def __init__(self, words):
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # what was not sent is lost

    def send(self, payload):
        self.process.stdin.write(frame(payload))
        self.process.stdin.flush()

    def event(self):
        """The next event other than a sign of life; None at the end."""
        while True:
            header = self.process.stdout.read(8)
            if len(header) < 8:
                return None
            event = json.loads(self.process.stdout.read(struct.unpack("<4xI", header)[0]))
            if event["event"] != "alive":
                return event

    def ask(self, payload, last=("error",)):
        """All events up to one of `last`, that one at the end."""
        self.send(payload)
        events = [self.event()]
        while events[-1] is not None and events[-1]["event"] not in last:
            events.append(self.event())
        return events

    def hello(self, target, allow_destructive=False):
        return self.ask({"verb": "hello", "protocol": 1, "target": str(target),
                         "allow_destructive": allow_destructive}, ("hello", "error"))[-1]


def probe_request(**changes):
    return {"verb": "probe", "request": {
        "patterns": ["random"], "write_shares": [0], "sizes_bytes": [65536], "depths": [1, 2],
        "seconds": 0.02, "seed": 0, "engine": "", "pages": "ordinary",
        "request_timeout": 60, **changes}}
