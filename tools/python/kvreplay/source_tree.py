"""The source tree that holds this package, and what was built from it."""

from __future__ import annotations

import os
import pathlib

from kvreplay.errors import UserError

TOP = pathlib.Path(__file__).resolve().parents[3]


def find_built(name: str, folder: str | os.PathLike | None, allowed: str) -> pathlib.Path:
    """The built file `name`, from the folder `folder` or else from build/release or build/dev."""
    folders = [pathlib.Path(folder)] if folder else [TOP / "build/release", TOP / "build/dev"]
    for built in folders:
        if (built / name).exists():
            return built / name
    raise UserError(f"{name}: not in {' or '.join(map(str, folders))}; allowed: {allowed}")
