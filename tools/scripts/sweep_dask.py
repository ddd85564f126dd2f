#!/usr/bin/env python3
"""A sweep on a Dask cluster: every task is one shard, `kvreplay sweep --shard I/N`; then `kvreplay
merge` puts them together. The result is, byte for byte, that of one local sweep.

Without --scheduler a cluster of local processes is started. On several machines, the experiment, its
traces, --out and --cache must lie where all of them see them, and the program must be the same.
Needs the Python packages "dask[distributed]" and tqdm.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import Parser, exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402
from kvreplay.source_tree import BUILT  # noqa: E402

NAME = "tools/scripts/sweep_dask.py"  # begins its messages


def parse_arguments():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", metavar="EXPERIMENT",
                        help="a file, or a name from `kvreplay list experiments`")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="DIR",
                        help="new folder for the results")
    parser.add_argument("--shards", type=int, metavar="N",
                        help="parts of the sweep (default: four for each worker)")
    parser.add_argument("--scheduler", metavar="ADDRESS",
                        help="a running scheduler, such as tcp://host:8786 (default: a local "
                        "cluster)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N",
                        help="processes of the local cluster (default: %(default)s, the machine's)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="threads per shard (default: %(default)s)")
    parser.add_argument("--program", type=pathlib.Path, metavar="FILE",
                        default=BUILT[0] / "kvreplay",
                        help="kvreplay (default: %(default)s)")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="-- OPTIONS",
                        help="further options of `kvreplay sweep`, such as -- --set device=ufs40")
    arguments = parser.parse_args()
    if arguments.options[:1] == ["--"]:
        del arguments.options[0]
    for name in ("shards", "workers", "jobs"):
        number = getattr(arguments, name)
        if number is not None and number < 1:
            raise UserError(f"--{name}: found {number}; allowed: an integer from 1")
    return arguments


def run(command):
    """Runs a shard; returns its exit code and messages."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr


def sweep(client, arguments, shards_folder):
    """Runs all shards; returns their folders."""
    from dask.distributed import as_completed

    from kvreplay.progress import Progress

    workers = max(len(client.scheduler_info()["workers"]), 1)
    count = arguments.shards or 4 * workers
    experiment = arguments.experiment
    if pathlib.Path(experiment).exists():
        experiment = str(pathlib.Path(experiment).resolve())
    folders = [str(shards_folder / str(index)) for index in range(1, count + 1)]
    commands = [[str(arguments.program.resolve()), "sweep", experiment, "--shard",
                 f"{index}/{count}", "--out", folder, "--jobs", str(arguments.jobs), "--format",
                 "none", "--quiet", *arguments.options]
                for index, folder in enumerate(folders, 1)]
    # A shard lost with its worker may run twice, so results must not be taken from memory.
    tasks = [client.submit(run, command, pure=False) for command in commands]
    with Progress("shards", count) as progress:
        for task in as_completed(tasks):
            code, _, said = task.result()
            if code != 0:
                client.cancel(tasks)
                said = (said.strip().splitlines() or [f"a shard failed: {code}"])[-1]
                print(f"{NAME}: {said}", file=sys.stderr)
                sys.exit(code)
            progress.update()
    return folders


def main():
    arguments = parse_arguments()
    try:
        import tqdm  # noqa: F401
        from dask.distributed import Client, LocalCluster
    except ImportError as error:
        raise UserError(f'{error}; allowed: Python with the packages "dask[distributed]" and '
                        "tqdm") from None
    if not arguments.program.exists():
        raise UserError(f"{arguments.program}: is missing; allowed: --program FILE, a built "
                        "kvreplay")
    if arguments.out.exists() and any(arguments.out.iterdir()):
        raise UserError(f"{arguments.out}: is there already; allowed: a new or empty folder")
    shards_folder = arguments.out.resolve().with_name(
        f"{arguments.out.resolve().name}.shards-{os.getpid()}")
    try:
        if arguments.scheduler:
            with Client(arguments.scheduler) as client:
                folders = sweep(client, arguments, shards_folder)
        else:
            with LocalCluster(n_workers=arguments.workers, threads_per_worker=1,
                              dashboard_address=None) as cluster, Client(cluster) as client:
                folders = sweep(client, arguments, shards_folder)
        code, _, said = run([str(arguments.program), "merge", *folders, "--out",
                             str(arguments.out)])
        print(said, end="", file=sys.stderr)
        return code
    finally:
        shutil.rmtree(shards_folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(exit_code(NAME, main))
