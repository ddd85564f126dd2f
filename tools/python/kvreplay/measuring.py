"""Checks of the measuring programs before they begin: what is requested, and where results go."""

from __future__ import annotations

import os
import pathlib
import re
import tempfile
from collections.abc import Iterable

from kvreplay.errors import UserError
from kvreplay.sizes import parse_size, size_text

BLOCK_BYTES = 512
MAX_BYTES = 64 << 20
MAX_DEPTH = 1024


def request_sizes(text: str) -> list[int]:
    """The request sizes of --size, in bytes."""
    found = []
    for word in text.split(","):
        size = parse_size(word, "--size")
        if not 0 < size <= MAX_BYTES or size % BLOCK_BYTES:
            raise UserError(f"--size: found '{word}'; allowed: multiples of {BLOCK_BYTES} bytes up "
                            f"to {size_text(MAX_BYTES)}, with commas")
        found.append(size)
    return found


def depths(text: str) -> list[int]:
    """The outstanding requests of --depth."""
    for word in text.split(","):
        if not re.fullmatch("[0-9]{1,4}", word) or not 1 <= int(word) <= MAX_DEPTH:
            raise UserError(f"--depth: found {word!r}; allowed: whole numbers from 1 to "
                            f"{MAX_DEPTH}, with commas")
    return [int(word) for word in text.split(",")]


def joined(values: Iterable[object]) -> str:
    """A list in the form of kvreplay's options."""
    return ",".join(map(str, values))


def same_file(one: object, other: object) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False  # one of them is not there


def out_file(place: str, path: str, inputs: Iterable[object]) -> pathlib.Path:
    """The file to write, with links resolved: new or a regular file, and none of `inputs`."""
    found = f"{place}: found '{path}'"
    target = pathlib.Path(os.path.realpath(path))
    for other in inputs:
        if same_file(target, other):
            raise UserError(f"{found}, which is read; allowed: another file")
    try:
        if os.path.lexists(target) and not target.is_file():
            raise UserError(f"{found}, which is no regular file; allowed: a file")
        if target.is_file():
            os.close(os.open(target, os.O_WRONLY))
        else:
            os.stat(target.parent)
            target.exists()  # whether its name is too long
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise UserError(f"{found}, which cannot be written: {error.strerror}; allowed: a file in a "
                        "folder that is there and may be written to") from None
    return target
