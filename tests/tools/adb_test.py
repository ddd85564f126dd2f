#!/usr/bin/env python3
"""`kvreplay device probe` and `replay` by the real adb client, which talks to adbd.py: no phone."""

import hashlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import agents
from remote_case import GRID, MIB, PATIENCE, RemoteCase

ADBD = pathlib.Path(__file__).with_name("adbd.py")
ODD = "it's $(an) `odd` \\ \"one\" *; &"


class AdbTest(RemoteCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("adb"):
            raise unittest.SkipTest("no adb (Debian: adb)")
        super().setUpClass()
        # A server and a key of this test's own, in a folder that is its user's alone: it looks at no
        # emulator, and an existing server sees nothing of it.
        private = tempfile.TemporaryDirectory(prefix="kvreplay-adb-")
        cls.addClassCleanup(private.cleanup)
        environment = {"HOME": private.name, "TMPDIR": private.name,
                       "ADB_SERVER_SOCKET": f"localfilesystem:{private.name}/server",
                       "ADB_LOCAL_TRANSPORT_MAX_PORT": "1"}
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)

        def restore():
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        cls.addClassCleanup(restore)
        cls.adb("start-server")
        cls.addClassCleanup(cls.adb, "kill-server")
        cls.key = pathlib.Path(private.name) / ".android/adbkey.pub"

    @classmethod
    def adb(cls, *arguments, **options):
        return subprocess.run(["adb", *arguments], capture_output=True, timeout=PATIENCE,
                              check=not options, **options)

    def setUp(self):
        super().setUp()
        self.tmp = self.folder / "data local tmp"
        self.tmp.mkdir(exist_ok=True)
        self.daemon, self.serial = self.start_daemon("--key", self.key)

    def tearDown(self):
        super().tearDown()
        self.assertEqual(list(self.tmp.iterdir()), [], "an agent was left behind")

    def start_daemon(self, *options, host="127.0.0.1"):
        """The process, and the serial by which adb is connected to it."""
        daemon = subprocess.Popen([sys.executable, "-B", ADBD, self.tmp, *options],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        serial = f"{host}:{int(daemon.stdout.readline())}"
        self.adb("connect", serial)
        self.addCleanup(subprocess.run, ["adb", "disconnect", serial], capture_output=True,
                        check=False)
        return daemon, serial

    @property
    def address(self):
        return f"adb:{self.serial}:{self.target}"

    def test_probe(self):
        result = self.probe(self.address)
        self.assertEqual(result["device"], f"adb:{self.serial}")
        self.assertEqual(result["agent_sha256"],
                         hashlib.sha256(agents.NATIVE.read_bytes()).hexdigest())

    def test_a_schedule_is_replayed_there_as_here(self):
        self.replays_as_here(self.address, f"adb:{self.serial}")

    def test_odd_paths(self):
        self.home = self.folder / f"agents {ODD}"
        self.home.mkdir()
        self.target = self.target.rename(self.folder / f"target {ODD}")
        self.probe(self.address)

    def test_an_address_of_ipv6(self):
        if not socket.has_ipv6:
            self.skipTest("no IPv6")
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 on the loopback: {error}")
        _, self.serial = self.start_daemon("--key", self.key, "--address", "::1", host="[::1]")
        self.assertEqual(self.probe(self.address)["device"], f"adb:{self.serial}")

    def test_where_agents_go_by_themselves(self):
        words = ("device", "probe", self.address, *GRID, "--out", self.out)
        self.succeed(*words)
        # A missing folder is not created.
        self.out.unlink()
        self.tmp.rmdir()
        self.refuses(words, (f"adb:{self.serial}", "sending the agent to /data/local/tmp",
                             "--agent-folder"))
        self.tmp.mkdir()

    def test_agents_left_behind_are_used_or_removed(self):
        self.uses_or_removes_agents(self.address)

    def test_a_new_file_there_is_made_and_goes(self):
        self.target = self.folder / "made there.bin"
        self.succeed(*self.words(self.address, *GRID, "--create", "2M", "--mix", "50"))
        self.assertFalse(self.target.exists())

    def test_bytes_and_exit_codes_pass_unchanged(self):
        """Input and output of the line that RemoteDevice runs, with the three streams kept apart."""
        data = bytes(range(256)) * 64 + b"\r\n\n\r~.\n~.\x04\x1a" + random.Random(1).randbytes(MIB)
        for line, said, errors, code in (
                ("cat", data, b"", 0), ("cat >&2", b"", data, 0),
                ("cat; printf 'a\\nb\\r\\n' >&2; exit 7", data, b"a\nb\r\n", 7),
                ("cat >/dev/null; kill -9 $$", b"", b"", 137), ("exit 255", b"", b"", 255)):
            with self.subTest(line):
                result = self.adb("-s", self.serial, "shell", "-T", line, input=data)
                self.assertEqual((result.returncode, result.stdout, result.stderr),
                                 (code, said, errors))

    def test_a_line_that_ends_without_reading_its_input(self):
        for size in (1, MIB):
            result = self.adb("-s", self.serial, "shell", "-T", "sleep 0.3; echo said; exit 3",
                              input=bytes(size))
            self.assertEqual((result.returncode, result.stdout, result.stderr), (3, b"said\n", b""))

    def test_a_daemon_that_dies(self):
        process = self.start_long(self.address)
        self.daemon.kill()
        self.ends_incomplete(process, f"adb:{self.serial}", "the link ended")
        self.nobody_is_left()

    def test_a_replay_whose_daemon_dies(self):
        process = self.start_long_replay(self.address)
        self.daemon.kill()
        self.replay_ends_incomplete(process, f"adb:{self.serial}", "the link ended")
        self.nobody_is_left()

    def test_a_daemon_that_falls_silent(self):
        process = self.start_long(self.address, "--link-timeout", "2")
        self.daemon.send_signal(signal.SIGSTOP)
        self.ends_incomplete(process, "no sign of life for 2 s")
        self.daemon.kill()
        self.nobody_is_left()

    def test_a_server_that_dies(self):
        process = self.start_long(self.address)
        self.adb("kill-server")
        self.ends_incomplete(process, f"adb:{self.serial}", "the link ended")
        self.adb("start-server")
        self.nobody_is_left()

    def test_an_interrupt_keeps_what_was_measured(self):
        process = self.start_long(self.address)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.nobody_is_left()

    def test_devices_that_cannot_be_used(self):
        self.refuses(self.words(f"adb:127.0.0.1:1:{self.target}", *GRID),
                     ("adb:127.0.0.1:1", "not found"))
        _, serial = self.start_daemon()
        for _ in range(PATIENCE * 10):
            if f"{serial}\tunauthorized".encode() in self.adb("devices").stdout:
                break
            time.sleep(0.1)
        self.refuses(self.words(f"adb:{serial}:{self.target}", *GRID),
                     (f"adb:{serial}", "unauthorized"))


if __name__ == "__main__":
    unittest.main()
