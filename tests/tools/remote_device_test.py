#!/usr/bin/python3
"""`kvreplay device probe` on a connected device: by a local process, an emulated one, a fake adb
and ssh to a server that the test starts; links that break; agents that were left behind."""

import getpass
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import agents
from program import PROGRAM, ProgramTest

MIB = 1 << 20
PATIENCE = 120  # seconds; only a hang takes as long
GRID = ("--size", "64K", "--depth", "1,2", "--seconds", "0.02")
LONG_GRID = ("--size", "64K", "--depth", ",".join(["1"] * 1000), "--seconds", "0.2")


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
    """A target, a place for agents, and a probe of the one by the other."""

    def setUp(self):
        self.target = self.folder / "a target's file.bin"
        if not self.target.exists():
            self.target.write_bytes(os.urandom(4 * MIB))
        self.home = self.folder / "agent folder"  # where agents are put
        self.home.mkdir(exist_ok=True)
        self.out = self.folder / "probe.json"
        self.out.unlink(missing_ok=True)
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
        return ("device", "probe", address, "--agent-folder", self.home, "--out", self.out,
                *arguments)

    def probe(self, address, *arguments):
        self.succeed(*self.words(address, *GRID, *arguments))
        result = json.loads(self.out.read_text())
        self.assertTrue(result["complete"])
        self.assertEqual(len(result["points"]), 2)
        self.assertEqual(result["target"]["path"], str(self.target))
        return result

    def start_long(self, address, *arguments):
        """A probe that goes on for minutes, with one point measured at least."""
        process = subprocess.Popen(
            [PROGRAM, *map(str, self.words(address, *LONG_GRID, *arguments))], cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if "probe [" in line:  # the bar, two seconds after the first point
                return process
        self.fail(f"ended early: {process.wait()}")

    def ends_incomplete(self, process, *says):
        _, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 2, errors)
        complaint = errors.strip().splitlines()[-1]
        for text in says:
            self.assertIn(text, complaint)
        result = json.loads(self.out.read_text())
        self.assertIs(result["complete"], False)
        self.assertIn(result["ended_by"], complaint)
        self.assertGreater(len(result["points"]), 0)
        self.assertLess(len(result["points"]), 1000)


class ProcessTest(RemoteCase):
    """The agent as a process of this machine."""

    def test_local_process(self):
        result = self.probe(f"local:{self.target}")
        self.assertEqual(result["agent_sha256"],
                         hashlib.sha256(agents.NATIVE.read_bytes()).hexdigest())

    def test_a_schedule_is_replayed_there_as_here(self):
        text = ("kvreplay schedule 1\nmade_from test\nlimits 4096 524288 8\n" +
                "".join(f"step\nsubmit 2\nr {at << 16} 4096\nr {at << 17} 8192\ncompute 100000\n"
                        f"wait {at}\n" for at in range(20)) + "end 20 40\n")
        (self.folder / "plan").write_text(text)
        results = []
        for target, options in ((self.target, ()), (f"local:{self.target}", (
                "--agent-folder", self.home))):
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
        self.assertEqual(results[1]["device"], "local:")
        self.refuses(("device", "replay", "plan", "--model-device", "ufs40", "--target",
                      f"local:{self.target}", "--compute", "kernels", "--out", "x"),
                     ("--compute kernels", "this machine"))

    def test_a_replay_keeps_the_steps_that_came_before_the_agent_was_killed(self):
        steps = 3000
        (self.folder / "long plan").write_text(
            "kvreplay schedule 1\nmade_from test\nlimits 4096 524288 8\n" +
            "".join(f"step\nsubmit 2\nr 0 4096\nr 65536 8192\ncompute 50000000\nwait {at}\n"
                    for at in range(steps)) + f"end {steps} {2 * steps}\n")
        out = self.folder / "killed"
        process = subprocess.Popen(
            [PROGRAM, "device", "replay", "long plan", "--model-device", "ufs40", "--target",
             f"local:{self.target}", "--agent-folder", str(self.home), "--out", str(out)],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if "replay [" in line:  # the bar, after steps have come
                break
        for agent, name in children(process.pid):
            if name.startswith("kvreplay-agent"):
                os.kill(agent, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 2, errors)
        complaint = errors.strip().splitlines()[-1]
        self.assertIn("the agent is lost", complaint)
        result = json.loads((out / "replay.json").read_text())
        self.assertIs(result["complete"], False)
        self.assertIn(result["ended_by"], complaint)
        self.assertGreater(result["steps"], 0)
        self.assertLess(result["steps"], steps)
        self.assertEqual(result["requests"], 2 * result["steps"])
        rows = (out / "steps.csv").read_text().splitlines()[1:]
        self.assertEqual(len(rows), result["steps"])
        for row in rows:
            self.assertGreaterEqual(float(row.split(",")[6]), 50)  # measured_compute_ms
        self.assertEqual([path.name for path in self.folder.iterdir() if "partial" in path.name], [])

    def test_aarch64_under_emulation(self):
        reason = agents.why_no_aarch64()
        if reason:
            self.skipTest(reason)
        result = self.probe(f"local:{agents.EMULATOR}:{self.target}", "--agent", agents.AARCH64)
        self.assertEqual(result["host"]["machine"], "aarch64")

    def test_adb(self):
        """A fake adb, which runs everything here: no phone was asked."""
        self.on_path("adb", '#!/bin/sh\n[ "$1 $2" = "-s FAKE123" ] || exit 9\nshift 2\n'
                            'case $1 in\nshell) [ "$2" = -T ] && exec sh -c "$3";;\n'
                            'push) exec cp "$2" "$3";;\nesac\nexit 9\n')
        self.assertEqual(self.probe(f"adb:FAKE123:{self.target}")["device"], "adb:FAKE123")
        self.refuses(self.words(f"adb:OTHER:{self.target}", *GRID), ("adb:OTHER", "exit code 9"))

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
        sha256 = hashlib.sha256(agents.NATIVE.read_bytes()).hexdigest()
        same = self.home / f"kvreplay-agent-{sha256[:16]}"
        for content in (agents.NATIVE.read_bytes(), b"#!/bin/sh\nexit 1\n"):
            same.write_bytes(content)
            same.chmod(0o700)
            (self.home / "kvreplay-agent-0123456789abcdef").write_bytes(b"old")
            self.probe(f"local:{self.target}")
            self.assertEqual(list(self.home.iterdir()), [])

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
                      "--out", self.out), ("cannot be sent to /proc/no",))

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
        # The agent sees the end of its input, and ends: nobody of that name is left.
        for _ in range(PATIENCE * 10):
            running = [link for link in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                       if str(self.home).encode() in self.text_of(link)]
            if not running:
                return
            time.sleep(0.1)
        self.fail(f"still running: {running}")

    @staticmethod
    def text_of(link):
        try:
            return link.read_bytes()
        except OSError:
            return b""

    def test_who_is_not_let_in(self):
        self.refuses(self.words(f"{self.address}{self.target}", *GRID, "--ssh-option",
                                "StrictHostKeyChecking=yes", "--ssh-option",
                                "UserKnownHostsFile=/dev/null"), ("Host key verification failed",))
        self.refuses(self.words(f"ssh:127.0.0.1:1:{self.target}", *GRID),
                     ("ssh:127.0.0.1", "Connection refused"))


if __name__ == "__main__":
    unittest.main()
