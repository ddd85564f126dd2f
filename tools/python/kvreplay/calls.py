"""Calls of the built program."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Union

from kvreplay.errors import UserError, reason
from kvreplay.source_tree import BUILT

PathLike = Union[str, os.PathLike]


def program() -> pathlib.Path:
    """The built kvreplay: $KVREPLAY, $KVREPLAY_PROGRAM (as tests name it), the one that was built or
    installed with this package, or the one on PATH."""
    for name in ("KVREPLAY", "KVREPLAY_PROGRAM"):
        if os.environ.get(name):
            found = shutil.which(os.environ[name])
            if found is None:
                raise UserError(f"${name}: {os.environ[name]} cannot be run; allowed: a built "
                                "kvreplay")
            return pathlib.Path(found)
    built = [folder / "kvreplay" for folder in BUILT]
    for file in [*built, shutil.which("kvreplay")]:
        if file and os.access(file, os.X_OK):
            return pathlib.Path(file)
    raise UserError(f"{built[0]}: not built; allowed: build it (`cmake --preset release && cmake "
                    "--build --preset release`), or name one in $KVREPLAY")


def execute(words: Iterable[object], quiet: bool = False) -> tuple[str, str]:
    """Standard output and error of a command; unless `quiet`, its progress is shown at
    once. A failure is a UserError with the last line of what it said."""
    words = [str(word) for word in words]
    said = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            process = subprocess.Popen(words, stdout=output, stderr=subprocess.PIPE, text=True,
                                       errors="replace")
        except (OSError, ValueError) as error:  # no program; a NUL in an argument
            raise UserError(f"{words[0]}: cannot be run ({reason(error)}); allowed: a built "
                            "kvreplay and words of its command line") from None
        with process:
            for line in process.stderr:
                said.append(line)
                if not quiet:
                    sys.stderr.write(line)
        if process.returncode != 0:
            last = said[-1].strip() if said else f"failed ({process.returncode})"
            raise UserError(last.removeprefix("kvreplay: "))
        output.seek(0)
        return output.read(), "".join(said)


def call(*arguments: object) -> str:
    """What `kvreplay ARGUMENTS` prints. Progress goes to standard error; a failure is a UserError
    with the program's message."""
    return execute([program(), *arguments])[0]


def settings_words(settings: Mapping[str, object]) -> list[str]:
    """`--set KEY=VALUE` per setting: texts as they are, lists as values, ranges as objects."""
    def text(value: object) -> str:
        if isinstance(value, (list, tuple)):
            return ",".join(text(item) for item in value)
        if isinstance(value, (str, os.PathLike)):
            return str(value)
        try:
            return json.dumps(value.item() if hasattr(value, "item") else value)  # a numpy number
        except (TypeError, ValueError):
            raise UserError(f"settings: found {type(value).__name__} {value}; allowed: a text, a "
                            'number, a list of them, or a range such as {"from": 1, "to": 8}'
                            ) from None

    return [word for key, value in settings.items() for word in ("--set", f"{key}={text(value)}")]


def _replay(command: str, experiment: PathLike, settings: Mapping[str, object] | None,
            options: Iterable[object], out: PathLike | None) -> pathlib.Path:
    where = [] if out is None else ["--out", out]
    _, said = execute([program(), command, experiment, "--format", "none",
                       *settings_words(settings or {}), *options, *where])
    folders = re.findall(r"^kvreplay: results in (.*) \(.*\)$", said, re.MULTILINE)
    if not folders:
        raise UserError(f"{command}: made no folder of results; allowed: options with which it "
                        f"does; call(\"{command}\", ...) takes all")
    return pathlib.Path(folders[-1])


def run(experiment: PathLike, settings: Mapping[str, object] | None = None, *options: object,
        out: PathLike | None = None) -> pathlib.Path:
    """`kvreplay run`: replays an experiment (a name of configs/experiments, or a file) with some of
    its settings replaced. `options` are further words of the command line, such as "--access-log".

    Returns the folder of results: `out`, which must be new, or results/EXPERIMENT, numbered when
    taken."""
    return _replay("run", experiment, settings, options, out)


def sweep(experiment: PathLike, settings: Mapping[str, object] | None = None, *options: object,
          out: PathLike | None = None) -> pathlib.Path:
    """`kvreplay sweep`: as run(), and keeps every finished piece in a cache for the next time."""
    return _replay("sweep", experiment, settings, options, out)
