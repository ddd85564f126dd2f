"""Where this package's program and data are: in the source tree that holds it, in the prefix where
`cmake --install` put both, or in the package itself, where pip did."""

from __future__ import annotations

import os
import pathlib

from kvreplay.errors import UserError

_HERE = pathlib.Path(__file__).resolve().parent
_DATA = "share/kvreplay"
_PACKED = _HERE / "_program" / _DATA

# The folder of configs/, traces/data/ and tools/.
TOP = _PACKED if _PACKED.is_dir() else _HERE.parents[2]

if TOP.as_posix().endswith(f"/{_DATA}"):
    BUILT = [TOP.parents[1] / "bin", TOP.parents[1] / "libexec/kvreplay"]
else:
    BUILT = [TOP / "build/release", TOP / "build/dev"]


def find_built(name: str, folder: str | os.PathLike | None, allowed: str) -> pathlib.Path:
    """The built file `name`, from the folder `folder` or else from where builds and installations
    leave it."""
    folders = [pathlib.Path(folder)] if folder else BUILT
    for built in folders:
        if (built / name).exists():
            return built / name
    raise UserError(f"{name}: not in {' or '.join(map(str, folders))}; allowed: {allowed}")
