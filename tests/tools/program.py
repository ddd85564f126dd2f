"""Runs the built kvreplay in a folder of its own; for the tests beside this file."""

import os
import pathlib
import resource
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("KVREPLAY_PROGRAM", str(SOURCE / "build/dev/kvreplay"))
SHIPPED_TRACE = SOURCE / "traces/data/smollm2-135m-story-3k.kvtrace.h5"


def kvreplay(*arguments, folder, file_bytes=None, stdout=subprocess.PIPE):
    """What `kvreplay ARGUMENTS` gave, run in `folder`; no file may grow beyond `file_bytes`."""
    def limit():
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run([PROGRAM, *map(str, arguments)], cwd=folder, stdout=stdout,
                          stderr=subprocess.PIPE, text=True, preexec_fn=limit, check=False)


def succeed(*arguments, folder):
    """Standard output; a failure is shown with what the program said."""
    result = kvreplay(*arguments, folder=folder)
    if result.returncode != 0:
        raise AssertionError(f"kvreplay {arguments}: {result.returncode}\n{result.stderr}")
    return result.stdout


def temporary_folder():
    """A folder whose name has a space, as a user's may."""
    return tempfile.TemporaryDirectory(prefix="kvreplay test ")


def tree(folder):
    """Every file and folder below `folder`, with the sizes of the files."""
    return {str(path.relative_to(folder)): path.stat().st_size if path.is_file() else None
            for path in pathlib.Path(folder).rglob("*")}
