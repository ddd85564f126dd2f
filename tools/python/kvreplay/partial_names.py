"""Names of outputs that are not finished: NAME.partial-HOST-PID, as the program's own have them."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil


def partial_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """The temporary name beside `path`. Removes what killed writers of it on this host left."""
    path = pathlib.Path(path)
    host = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]
    beginning = f"{path.name}.partial-{host}-"
    folder = path.parent
    for left in folder.iterdir() if folder.is_dir() else ():
        writer = re.match(r"\d+", left.name.removeprefix(beginning))
        if left.name.startswith(beginning) and writer and not runs(int(writer[0])):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
    return path.with_name(f"{beginning}{os.getpid()}")


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True
