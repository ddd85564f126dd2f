"""Sweeps beyond one process: Dask, and a Slurm cluster of one node that the test starts. Both give
the bytes of a local sweep. Each is skipped where its software is missing."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from program import PROGRAM, SOURCE, ProgramTest

# A Python with dask[distributed]: that of the test, or one named by the environment.
DASK_PYTHON = os.environ.get("KVREPLAY_DASK_PYTHON", sys.executable)

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5", "system": ["quest", "kvswap"],
    "model": "smollm2-135m", "platform": "orin_agx", "device": ["ufs40", "emmc51"], "batch": 1,
    "warm_up_steps": 2, "timed_steps": 8,
    "set": {"system.cache.part": ["fifo", "lru"], "system.cache.capacity_groups": [8, 64]},
}


def has_dask():
    return subprocess.run([DASK_PYTHON, "-c", "import dask.distributed, tqdm"], capture_output=True,
                          check=False).returncode == 0


def missing_for_slurm():
    """Why no Slurm can be started here; "" when it can."""
    programs = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "scontrol")
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if missing:
        return f"{', '.join(missing)} missing (Debian: slurmctld slurmd slurm-client munge)"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class Cluster(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, 24)
        (cls.folder / "experiment.json").write_text(json.dumps(EXPERIMENT))
        cls.succeed("sweep", "experiment.json", "--cache", "cache", "--format", "none", "--out",
                    "whole")
        cls.expected = cls.files("whole")

    @classmethod
    def files(cls, name):
        return {file.name: file.read_bytes() for file in (cls.folder / name).iterdir()}

    def tool(self, *words, **environment):
        return subprocess.run([str(word) for word in words], cwd=self.folder, text=True,
                              capture_output=True, check=False,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment})


@unittest.skipUnless(has_dask(), 'Python packages "dask[distributed]" and tqdm missing')
class Dask(Cluster):
    def dask(self, *options):
        return self.tool(DASK_PYTHON, SOURCE / "tools/scripts/sweep_dask.py", "--program", PROGRAM,
                         "--workers", 2, *options)

    def test_equals_a_local_sweep(self):
        result = self.dask("--shards", 5, "--out", "dask", "experiment.json", "--", "--cache",
                           self.folder / "dask cache")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.files("dask"), self.expected)
        self.assertFalse(list(self.folder.glob("dask.shards*")))

    def test_a_mistake_is_one_of_kvreplay(self):
        result = self.dask("--shards", 2, "--out", "dask-bad", "experiment.json", "--", "--no-cache",
                           "--set", "device=ufs41")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("did you mean 'ufs40'", result.stderr)
        self.assertFalse((self.folder / "dask-bad").exists())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class SlurmCluster:
    """munged, slurmctld and slurmd of its own, on the loopback interface, in a folder of its own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kvreplay-slurm-"))
        self.processes = []
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf"),
                            "PATH": os.environ["PATH"] + ":/usr/sbin"}
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(f"""
ClusterName=kvreplay
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName=node NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes=node Default=YES State=UP
""")

    def __enter__(self):
        try:
            key = self.folder / "munge.key"
            self.call("mungekey", "--create", f"--keyfile={key}")
            self.start("munged", "--foreground", "--force", f"--key-file={key}",
                       f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                       f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munge.log")
            self.wait_for(lambda: (self.folder / "munge.socket").exists())
            self.start("slurmctld", "-D")
            self.start("slurmd", "-D", "-N", "node")
            self.wait_for(lambda: "idle" in self.call("sinfo", "--noheader", "-o", "%t", check=False))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *command):
        log = open(self.folder / f"{command[0]}.out", "wb")
        with log:
            self.processes.append(subprocess.Popen(
                [shutil.which(command[0], path=self.environment["PATH"]), *command[1:]], stdout=log,
                stderr=log, env={**os.environ, **self.environment}))

    def call(self, *command, check=True):
        return subprocess.run(command, text=True, capture_output=True, check=check,
                              env={**os.environ, **self.environment}).stdout

    def wait_for(self, done):
        while not done():
            for process in self.processes:
                if process.poll() is not None:
                    logs = "\n".join(file.read_text(errors="replace")[-2000:]
                                     for file in self.folder.glob("*.*")
                                     if file.suffix in (".out", ".log"))
                    raise RuntimeError(f"{process.args[0]} ended: {process.returncode}\n{logs}")
            time.sleep(0.1)


@unittest.skipIf(missing_for_slurm(), f"no Slurm: {missing_for_slurm()}")
class Slurm(Cluster):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm = SlurmCluster()
        cls.slurm.__enter__()
        cls.addClassCleanup(cls.slurm.__exit__)

    def slurm_sweep(self, *options):
        return self.tool(SOURCE / "tools/scripts/sweep_slurm.sh", "--program", PROGRAM, "--wait", *options,
                         **self.slurm.environment)

    def test_equals_a_local_sweep(self):
        result = self.slurm_sweep("--shards", 3, "--out", "slurm out", "experiment.json", "--cache",
                                  self.folder / "slurm cache")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.files("slurm out"), self.expected)
        self.assertFalse(list(self.folder.glob("slurm out.*")))

    def test_a_mistake_fails(self):
        result = self.slurm_sweep("--shards", 2, "--out", "slurm-bad", "experiment.json",
                                  "--no-cache", "--set", "device=ufs41")
        self.assertNotEqual(result.returncode, 0)
        self.assertFalse((self.folder / "slurm-bad").exists())
        logs = "".join(file.read_text() for file in self.folder.glob("slurm-bad.*.log"))
        self.assertIn("did you mean 'ufs40'", logs)


if __name__ == "__main__":
    unittest.main()
