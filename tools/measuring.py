"""What the tools that measure check before they begin: what is asked for, and where results go."""

import argparse
import os
import pathlib
import re
import tempfile

from command import Mistake

SUFFIXES = {"": 1, "K": 1024, "M": 1024**2}
BLOCK_BYTES = 512
LARGEST_BYTES = 64 << 20
LARGEST_DEPTH = 1024


def number(kind):
    """For argparse, whose own words do not tell what is allowed."""
    def parse(text):
        try:
            return kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a {what}") from None
    return parse


def sizes(text):
    """Of --size: request sizes in bytes."""
    found = []
    for word in text.split(","):
        parts = re.fullmatch(r"([0-9]{1,9})([KM]?)", word)
        bytes_ = int(parts[1]) * SUFFIXES[parts[2]] if parts else 0
        if not 0 < bytes_ <= LARGEST_BYTES or bytes_ % BLOCK_BYTES:
            raise Mistake(f"--size: found {word!r}; allowed: multiples of {BLOCK_BYTES} bytes "
                          f"up to {LARGEST_BYTES >> 20}M, with commas, K or M (1024)")
        found.append(bytes_)
    return found


def depths(text):
    """Of --depth: outstanding requests."""
    for word in text.split(","):
        if not re.fullmatch("[0-9]{1,4}", word) or not 1 <= int(word) <= LARGEST_DEPTH:
            raise Mistake(f"--depth: found {word!r}; allowed: whole numbers from 1 to "
                          f"{LARGEST_DEPTH}, with commas")
    return [int(word) for word in text.split(",")]


def same_file(one, other):
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False  # one of them is not there


def out_file(place, path, inputs):
    """The file to write, behind links: new or a regular one, and none of `inputs`."""
    found = f"{place}: found '{path}'"
    target = pathlib.Path(os.path.realpath(path))
    for other in inputs:
        if same_file(target, other):
            raise Mistake(f"{found}, which is read; allowed: another file")
    try:
        if os.path.lexists(target) and not target.is_file():
            raise Mistake(f"{found}, which is no regular file; allowed: a file")
        if target.is_file():
            os.close(os.open(target, os.O_WRONLY))
        else:
            os.stat(target.parent)
            target.exists()  # whether its name is too long
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise Mistake(f"{found}, which cannot be written: {error.strerror}; allowed: a file in a "
                      "folder that is there and may be written to") from None
    return target
