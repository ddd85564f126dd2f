#!/usr/bin/env python3
"""`kvreplay device probe` on a connected device: by a local process, an emulated one, and ssh to a
server that the test starts; links that break; agents that were left behind. By adb: adb_test.py."""

import getpass
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import agents
from remote_case import GRID, PATIENCE, RemoteCase, children


class ProcessTest(RemoteCase):
    """The agent as a process of this machine."""

    def test_local_process(self):
        result = self.probe(f"local:{self.target}")
        self.assertEqual(result["agent_sha256"],
                         hashlib.sha256(agents.NATIVE.read_bytes()).hexdigest())

    def test_a_schedule_is_replayed_there_as_here(self):
        self.replays_as_here(f"local:{self.target}", "local:")
        self.refuses(("device", "replay", "plan", "--model-device", "ufs40", "--target",
                      f"local:{self.target}", "--compute", "kernels", "--out", "x"),
                     ("--compute kernels", "this machine"))

    def test_a_replay_keeps_the_steps_that_came_before_the_agent_was_killed(self):
        process = self.start_long_replay(f"local:{self.target}")
        for agent, name in children(process.pid):
            if name.startswith("kvreplay-agent"):
                os.kill(agent, signal.SIGKILL)
        self.replay_ends_incomplete(process, "the agent is lost")

    def test_aarch64_under_emulation(self):
        reason = agents.why_no_aarch64()
        if reason:
            self.skipTest(reason)
        result = self.probe(f"local:{agents.EMULATOR}:{self.target}", "--agent", agents.AARCH64)
        self.assertEqual(result["host"]["machine"], "aarch64")

    def test_a_new_file_there_is_made_and_goes(self):
        new = self.folder / "made there.bin"
        self.succeed(*self.words(f"local:{new}", *GRID, "--create", "2M", "--mix", "50"))
        self.assertTrue(json.loads(self.out.read_text())["complete"])
        self.assertFalse(new.exists())
        self.refuses(self.words(f"local:{self.target}", *GRID, "--create", "2M"),
                     ("local:", "exists already"))

    def test_writes_only_where_it_may(self):
        before = self.target.read_bytes()
        self.refuses(self.words(f"local:{self.target}", *GRID, "--mix", "50"),
                     ("--allow-destructive",))
        self.assertEqual(self.target.read_bytes(), before)
        self.probe(f"local:{self.target}", "--mix", "50", "--allow-destructive")
        self.assertNotEqual(self.target.read_bytes(), before)

    def test_agents_left_behind_are_used_or_removed(self):
        self.uses_or_removes_agents(f"local:{self.target}")

    def test_what_makes_no_sense_is_refused_in_a_line(self):
        for arguments, says in (
                (("local:/no/such/file",), ("local:", "/no/such/file", "no such file")),
                (("ssh:board:relative",), ("ssh:board:relative", "absolute path")),
                (("ssh:-x:/y",), ("host '-x'",)),
                ((f"local:{self.target}", "--size", "100"), ("not aligned", "multiples of")),
                ((f"local:{self.target}", "--engine", "uring"), ("did you mean 'io_uring'",)),
                ((f"local:{self.target}", "--agent", "nothing"), ("no agent", "nothing")),
                ((f"local:{self.target}", "--agent", "/bin/true"), ("agent is lost", "exit code 0")),
                ((self.target, "--agent", "/bin/true"), ("needs no agent",)),
                ((f"local:no-such-runner:{self.target}",), ("agent is lost", "exit code 127"))):
            with self.subTest(arguments=arguments):
                grid = () if "--size" in arguments else GRID
                self.refuses(self.words(*arguments, *grid), says)
        self.refuses(("device", "probe", f"local:{self.target}", "--agent-folder", "/proc/no", *GRID,
                      "--out", self.out), ("sending the agent to /proc/no",))

    def test_an_agent_that_dies(self):
        pid = self.folder / "agent.pid"
        self.on_path("noting-runner", f'#!/bin/sh\necho $$ > "{pid}"\nexec "$@"\n')
        process = self.start_long(f"local:noting-runner:{self.target}")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        self.ends_incomplete(process, "the agent is lost", "the link ended")

    def test_an_agent_that_falls_silent(self):
        pid = self.folder / "agent.pid"
        self.on_path("noting-runner", f'#!/bin/sh\necho $$ > "{pid}"\nexec "$@"\n')
        process = self.start_long(f"local:noting-runner:{self.target}", "--link-timeout", "2")
        os.kill(int(pid.read_text()), signal.SIGSTOP)
        self.ends_incomplete(process, "no sign of life for 2 s")

    def test_an_agent_that_talks_nonsense(self):
        self.on_path("odd-runner", "#!/bin/sh\necho Welcome to the board\nexec cat\n")
        self.refuses(self.words(f"local:odd-runner:{self.target}", *GRID),
                     ("the agent is lost", "Welcome to the board", "login shell"))

    def test_an_interrupt_keeps_what_was_measured(self):
        process = self.start_long(f"local:{self.target}")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, -signal.SIGINT, errors)
        result = json.loads(self.out.read_text())
        self.assertIs(result["complete"], False)
        self.assertEqual(result["ended_by"], "interrupted")


class SshTest(RemoteCase):
    """By ssh, from a server of this test's own on the loopback."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        server = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
        for program in ("ssh", "ssh-keygen"):
            if not shutil.which(program):
                raise unittest.SkipTest(f"no {program} (Debian: openssh-client)")
        if not server:
            raise unittest.SkipTest("no sshd (Debian: openssh-server)")
        if os.geteuid() == 0 and not os.path.isdir("/run/sshd"):
            os.mkdir("/run/sshd", 0o755)  # as its service does
            cls.addClassCleanup(os.rmdir, "/run/sshd")
        folder = cls.folder / "server"
        folder.mkdir(mode=0o700)
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key],
                           check=True)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            cls.port = listener.getsockname()[1]
        host_key = (folder / "host_key.pub").read_text().split()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{cls.port} {' '.join(host_key[:2])}\n")
        # Elsewhere: it grows while a test looks at what is left behind.
        log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        cls.addClassCleanup(log.close)
        cls.server = subprocess.Popen(
            [server, "-D", "-e", "-f", "/dev/null", "-p", str(cls.port), "-h", folder / "host_key",
             "-o", "ListenAddress=127.0.0.1", "-o", f'AuthorizedKeysFile="{folder}/key.pub"',
             "-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PidFile=none"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.addClassCleanup(cls.server.wait)
        cls.addClassCleanup(cls.server.kill)
        cls.options = []
        for option in (f'IdentityFile="{folder}/key"', "IdentitiesOnly=yes",
                       f'UserKnownHostsFile="{folder}/known_hosts"', "StrictHostKeyChecking=yes"):
            cls.options += ["--ssh-option", option]
        cls.address = f"ssh:{getpass.getuser()}@127.0.0.1:{cls.port}:"
        for _ in range(100):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", cls.port)) == 0:
                    return
            time.sleep(0.1)
        log.seek(0)
        raise unittest.SkipTest(f"sshd does not start here: {log.read().decode()}")

    def test_probe(self):
        result = self.probe(f"{self.address}{self.target}", *self.options)
        self.assertEqual(result["device"], self.address[:self.address.index(":", 4)])

    def test_a_link_that_is_cut(self):
        process = self.start_long(f"{self.address}{self.target}", *self.options)
        links = [child for child, name in children(process.pid) if name == "ssh"]
        self.assertEqual(len(links), 1)
        os.kill(links[0], signal.SIGKILL)
        self.ends_incomplete(process, "ssh:", "the link ended", "exit code 137")
        self.nobody_is_left()

    def test_who_is_not_let_in(self):
        self.refuses(self.words(f"{self.address}{self.target}", *GRID, "--ssh-option",
                                "StrictHostKeyChecking=yes", "--ssh-option",
                                "UserKnownHostsFile=/dev/null"), ("Host key verification failed",))
        self.refuses(self.words(f"ssh:127.0.0.1:1:{self.target}", *GRID),
                     ("ssh:127.0.0.1", "Connection refused"))


if __name__ == "__main__":
    unittest.main()
