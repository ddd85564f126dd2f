"""Processor time that the host of a virtual machine gave to others while this machine wanted it."""

from __future__ import annotations

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Ticks:
    """Of all processors since the start."""

    passed: int
    stolen: int


def ticks(stat: pathlib.Path = pathlib.Path("/proc/stat")) -> Ticks:
    """Both are 0 where the system does not tell."""
    try:
        words = stat.read_text(encoding="ascii").split("\n", 1)[0].split()
        each = [int(word) for word in words[1:9]]  # user, nice, system, idle, iowait, irq, softirq, steal
    except (OSError, ValueError):
        return Ticks(0, 0)
    return Ticks(sum(each), each[7]) if len(each) == 8 else Ticks(0, 0)


def share(before: Ticks, after: Ticks) -> float:
    """What was stolen of the time of all processors between the two."""
    passed = after.passed - before.passed
    return (after.stolen - before.stolen) / passed if passed > 0 else 0.0
