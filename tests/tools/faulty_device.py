"""Devices that fail, served from nbdkit through FUSE."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

from program import PROGRAM, ProgramTest

MIB = 1 << 20
PATIENCE = 120  # seconds; only a hang takes as long


class FaultyDeviceTest(ProgramTest):
    def setUp(self):
        for program, package in (("nbdkit", "nbdkit"), ("nbdfuse", "libnbd-bin")):
            if not shutil.which(program):
                self.skipTest(f"no {program} (Debian: {package})")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("/dev/fuse cannot be opened")

    def serve(self, *plugin):
        """A file served by the nbdkit plugin."""
        mount = pathlib.Path(tempfile.mkdtemp(prefix="mount ", dir=self.folder))
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

    def start(self, words, stdout=subprocess.DEVNULL):
        """`kvreplay WORDS`, whose standard error can be read; it ends with the test, or if it hangs."""
        process = subprocess.Popen([PROGRAM, *map(str, words)], cwd=self.folder,
                                   stdout=stdout, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        hang = threading.Timer(PATIENCE, process.kill)
        hang.start()
        self.addCleanup(hang.cancel)
        return process

    def full_device(self, size="2m"):
        """Of 8 MiB, of which `size` can be written."""
        if os.geteuid() != 0:
            self.skipTest("only root can mount a tmpfs")
        small = self.folder / "small"
        small.mkdir()
        self.addCleanup(small.rmdir)
        result = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", small],
                                capture_output=True, text=True, check=False)
        if result.returncode != 0:
            self.skipTest(f"no tmpfs can be mounted: {result.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=False)
        with open(small / "disk", "wb") as file:
            file.truncate(8 * MIB)
        return self.serve("file", small / "disk")
