"""Sizes in bytes, as base/size.hpp reads and writes them."""

from __future__ import annotations

import fractions
import re

from kvreplay.errors import UserError

UNITS = {"": 1, "B": 1,
         "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SHORT = {letter: 2**(10 * power) for power, letter in enumerate("KMGT", start=1)}
GRAMMAR = ("a whole number of bytes, or a number with B, KB, MB, GB, TB (powers of 1000), KiB, "
           "MiB, GiB or TiB (powers of 1024); 4K is short for 4KiB")
LARGEST = 2**62


def parse_size(text: str, where: str) -> int:
    """Bytes of "4096", "64KiB", "1.5 MiB", "2GB". A fraction is taken where the result is a whole
    number of bytes. A bare K, M, G or T after a whole number is short for KiB, MiB, GiB or TiB.

    Raises UserError, which begins with `where`."""
    parts = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([A-Za-z]*)", text)
    if parts and parts[1].isdigit() and parts[2].upper() in SHORT:
        size = int(parts[1]) * SHORT[parts[2].upper()]
        if size <= LARGEST:
            return size
    if parts is None or parts[2] not in UNITS:
        raise UserError(f"{where}: found '{text}'; allowed: {GRAMMAR}")
    size = fractions.Fraction(parts[1]) * UNITS[parts[2]]
    if size.denominator != 1:
        raise UserError(f"{where}: found '{text}', which is no whole number of bytes; allowed: "
                        f"{GRAMMAR}")
    if size > LARGEST:
        raise UserError(f"{where}: found '{text}'; allowed: at most {LARGEST} bytes")
    return int(size)


def size_text(size: int) -> str:
    """In the largest power of 1024 that divides it, for parse_size() too: "4 KiB", "1000 B"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= UNITS[unit] and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]} {unit}"
    return f"{size} B"
