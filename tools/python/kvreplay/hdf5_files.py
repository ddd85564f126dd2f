"""What traces and access logs have in common: HDF5 files of which any part may be missing."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable
from typing import Union

import h5py
import numpy

from kvreplay.errors import UserError, reason, unknown

PathLike = Union[str, os.PathLike]


@contextlib.contextmanager
def reading(where: object, allowed: str):
    """Errors that h5py raises for a missing, truncated or foreign member become UserErrors."""
    try:
        yield
    except UserError:
        raise
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{where}: {reason(error)}; allowed: {allowed}") from None


class File:
    """An HDF5 file of kvreplay's, open for reading; `with` closes it."""

    def __init__(self, path: PathLike, form: str, needed: Iterable[str], what: str) -> None:
        self.path, self._what = pathlib.Path(path), what
        if not self.path.exists():
            raise UserError(f"{self.path}: no such file; allowed: {what}")
        with self._reading():
            self.file = h5py.File(self.path, "r")
            #: Attributes of the root, as Python's own types and numpy arrays.
            self.attributes = {name: plain(value) for name, value in self.file.attrs.items()}
        found = self.attributes.get("format", "none")
        missing = [name for name in needed if name not in self.attributes]
        if found != form or missing:
            self.close()
            wrong = f"format is {found}" if found != form else f"no attribute {missing[0]}"
            raise UserError(f"{self.path}: {wrong}; allowed: {what}")

    def _reading(self):
        return reading(self.path, self._what)

    def close(self) -> None:
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _layer(self, layer: int, layers: list[int]) -> h5py.Group:
        if layer not in layers:
            raise unknown(self.path, "layer", layer, layers)
        with self._reading():
            return self.file[f"layer/{layer:02}"]


def plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, numpy.generic) else value


def check_index(where: object, kind: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise UserError(f"{where}: no {kind} {number}; allowed: 0 to {count - 1}")
