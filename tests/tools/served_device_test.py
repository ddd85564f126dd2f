"""A modelled device served in real time by nbdkit: tools/serve-device and tools/round-trip."""

import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import unittest
import urllib.parse

from program import PROGRAM, SOURCE, ProgramTest, tree

BUILD = pathlib.Path(PROGRAM).parent
MIB = 1 << 20


def missing(*programs):
    """What a test needs and does not find; "" when nothing is missing."""
    if not (BUILD / "nbdkit-kvreplay-plugin.so").exists():
        return "no nbdkit-kvreplay-plugin.so: built without nbdkit-plugin-dev, or with a sanitizer"
    gone = [program for program in ("nbdkit", *programs) if not shutil.which(program)]
    if "nbdfuse" in programs and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        gone.append("/dev/fuse")
    if "nbdfuse" in programs and os.geteuid() != 0 and not shutil.which("fusermount3"):
        gone.append("fusermount3")
    return f"missing: {', '.join(gone)}" if gone else ""


class ServedDevice(ProgramTest):
    def need(self, *programs):
        if why := missing(*programs):
            self.skipTest(why)

    def words(self, *arguments):
        return [str(SOURCE / "tools/serve-device"), *map(str, arguments)]

    def environment(self):
        return dict(os.environ, TMPDIR=str(self.folder))

    def serve(self, *arguments, command):
        """Its result; it must leave nothing but `report.json`."""
        (self.folder / "report.json").unlink(missing_ok=True)
        before = tree(self.folder)
        result = subprocess.run(
            self.words(*arguments, "--build", BUILD, "--report", "report.json", "--", *command),
            cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, check=False)
        self.assertEqual(set(tree(self.folder)) - set(before) - {"report.json"}, set())
        return result

    @staticmethod
    def socket_folder(said):
        """The socket in the line that reports where the device is."""
        return pathlib.Path(urllib.parse.unquote(re.search(r"socket=(\S+)/socket", said).group(1)))

    @staticmethod
    def runs(process):
        """Whether the process of a /proc folder runs; a zombie does not."""
        try:
            return "\nState:\tZ" not in (process / "status").read_text()
        except OSError:
            return False

    def report(self):
        return json.loads((self.folder / "report.json").read_text())

    def test_what_is_written_is_read_back(self):
        self.need("nbdcopy")
        data = os.urandom(3 * MIB)
        (self.folder / "in").write_bytes(data)
        (self.folder / "out").write_bytes(b"")
        copy = ('nbdcopy in "$SERVED_URI" && nbdcopy "$SERVED_URI" out', )
        result = self.serve("ufs40", "--size", "3MiB", command=("sh", "-c", *copy))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.folder / "out").read_bytes(), data)
        report = self.report()
        self.assertEqual(report["writes"]["bytes"], 3 * MIB)
        self.assertEqual(report["reads"]["bytes"], 3 * MIB)
        self.assertEqual(report["counters"]["host_read_bytes"], 3 * MIB)
        self.assertGreater(report["reads"]["modelled_mean_us"], 0)
        self.assertRegex(result.stderr, r"kvreplay: ufs40: \d+ requests, modelled mean [\d.]+ us, "
                                        r"timer error mean")
        requests = report["reads"]["requests"] + report["writes"]["requests"]
        self.assertEqual("did not keep up" in result.stderr,
                         report["late_requests"] * 100 > requests)

    def test_without_requests_nothing_is_said_of_time(self):
        self.need()
        result = self.serve("ufs40", "--size", "1MiB", command=("true",))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ufs40: no requests", result.stderr)
        self.assertNotIn("keep up", result.stderr)

    def test_sizes_are_of_one_grammar(self):
        self.need()
        for text, size in (("2GB", 2 * 10**9), ("2GiB", 2**31)):
            result = self.serve("emmc51", "--size", text, command=("true",))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(self.report()["size_bytes"], size)

    def test_a_file_holds_the_bytes(self):
        self.need("nbdcopy")
        data = os.urandom(MIB)
        (self.folder / "in").write_bytes(data)
        (self.folder / "disk").write_bytes(bytes(MIB + 100))
        result = self.serve("emmc51", "--file", "disk",
                            command=("sh", "-c", 'nbdcopy in "$SERVED_URI"'))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.report()["size_bytes"], MIB)  # whole blocks of the file
        self.assertEqual((self.folder / "disk").read_bytes(), data + bytes(100))

    def test_a_mounted_file_takes_any_program(self):
        self.need("nbdfuse")
        script = ("import os, sys\n"
                  "file = os.open(os.environ['SERVED_FILE'], os.O_RDWR)\n"
                  "os.pwrite(file, b'kv' * 5000, 12345)\n"
                  "assert os.pread(file, 10000, 12345) == b'kv' * 5000\n"
                  "assert os.pread(file, 4096, 1 << 20) == bytes(4096)\n"
                  "sys.exit(7)")
        result = self.serve("ufs40", "--size", "16MiB", "--mount", "mount",
                            command=(sys.executable, "-c", script))
        self.assertEqual(result.returncode, 7, result.stderr)

    def test_a_wrong_configuration_is_told_in_a_line(self):
        self.need()
        for arguments, says in (
                (("ufs41",), ("device", "ufs41", "did you mean 'ufs40'")),
                (("./none.json",), ("none.json",)),
                (("ufs40", "--size", "100"), ("size", "100", "4096 bytes")),
                (("ufs40", "--size", "much"), ("--size", "much")),
                (("ufs40", "--size", "2Gi"), ("--size", "2Gi", "GiB")),
                (("ufs40", "--file", "nothing"), ("nothing", "cannot be opened")),
                (("ufs40", "--spin-us", "1e9"), ("spin_us", "1e9", "10000 us")),
                (("ufs40", "--threads", "0"), ("--threads", "0")),
                (("ufs40", "--sise", "1GiB"), ("--sise",))):
            with self.subTest(arguments=arguments):
                result = self.serve(*arguments, command=("true",))
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertRegex(result.stderr, r"\Aserve-device: [^\n]*\n\Z")
                for text in says:
                    self.assertIn(text, result.stderr)
                self.assertFalse((self.folder / "report.json").exists())

    def test_a_signal_leaves_nothing(self):
        self.need()
        mount = [] if missing("nbdfuse") else ["--mount", self.folder / "mount"]
        before = tree(self.folder)
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(self.words("ufs40", *mount, "--build", BUILD), cwd=self.folder,
                                  env=self.environment(), stderr=subprocess.PIPE,
                                  text=True) as process:
                said = process.stderr.readline()  # that it is ready
                self.assertIn("Ctrl-C", said)
                folder = self.socket_folder(said)
                server = int((folder / "nbdkit.pid").read_text())
                process.send_signal(number)
                process.communicate()
            self.assertEqual(process.returncode, 128 + number)
            self.assertEqual(tree(self.folder), before)
            self.assertFalse(pathlib.Path(f"/proc/{server}").exists())

    def test_killed_outright_it_leaves_no_process(self):
        self.need()
        with subprocess.Popen(self.words("ufs40", "--build", BUILD), cwd=self.folder,
                              env=self.environment(), stderr=subprocess.PIPE,
                              text=True) as process:
            said = process.stderr.readline()
            folder = self.socket_folder(said)
            server = pathlib.Path("/proc") / (folder / "nbdkit.pid").read_text().strip()
            process.kill()
            process.communicate()
        end = time.monotonic() + 60
        while self.runs(server):
            self.assertLess(time.monotonic(), end, "nbdkit is still there")
            time.sleep(0.01)
        shutil.rmtree(folder)  # a kill leaves the folder of the socket

    def round_trip(self, via):
        """Latency and rate of a served eMMC, recovered by measuring it. The device is slow enough
        for the machine to keep up; a busy one only warns."""
        result = subprocess.run(
            [str(SOURCE / "tools/round-trip"), "emmc51", "--via", via, "--build", BUILD,
             "--size", "4KiB,32KiB,128KiB", "--depth", "1,4,16", "--seconds", "0.4", "--out", via],
            cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, check=False)
        if "allowed: a device that takes no time" in result.stderr:
            self.skipTest("the machine did not keep up: the way took longer alone than with a device")
        self.assertEqual(result.returncode, 0, result.stderr)
        print(f"\nRound trip by {via}:\n{result.stdout}", file=sys.stderr)
        rates = re.findall(r"^ +\d+ +\d+ +(\d+) +(\d+) ", result.stdout, re.MULTILINE)
        self.assertEqual(len(rates), 9)
        share = statistics.median(int(fit) / int(true) for true, fit in rates)
        # A reply is never early, whatever else the machine does.
        self.assertLess(share, 1.5)
        served = json.loads((self.folder / via / "served.json").read_text())
        if served["late_requests"] > served["reads"]["requests"] / 100 or (
                os.getloadavg()[0] > os.cpu_count()):
            self.skipTest("the machine did not keep up: only checked that no reply was early")
        self.assertGreater(share, 0.7)

    def test_round_trip_by_nbd(self):
        self.need("fio")
        self.round_trip("nbd")

    def test_round_trip_by_fuse(self):
        self.need("nbdfuse")
        self.round_trip("fuse")


if __name__ == "__main__":
    unittest.main()
