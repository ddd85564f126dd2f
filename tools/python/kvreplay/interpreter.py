"""Which Python runs the modules of this package: this one, if it has the packages that they need,
else the first python3 on PATH that has them. Several Pythons on one machine are common, and the
one with the packages is often not the first.

Runs in any Python 3: so that an old one can hand over, nothing here is new. As a program, prints
the Python that was found."""

import importlib.util
import os
import subprocess
import sys

PACKAGES = ("h5py", "jsonschema", "matplotlib", "numpy", "pandas", "tqdm")


def missing():
    """The packages that this Python lacks."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def _candidates():
    """$KVREPLAY_PYTHON, and each python3 on PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    files = [os.path.join(folder, "python3") for folder in folders if folder]
    return [file for file in [os.environ.get("KVREPLAY_PYTHON"), *files]
            if file and os.access(file, os.X_OK)]


def find():
    """A Python that has the packages; this one where none has."""
    if not missing():
        return sys.executable
    tried = set()
    for file in _candidates():
        if os.path.realpath(file) in tried:
            continue
        tried.add(os.path.realpath(file))
        asked = subprocess.run([file, "-B", os.path.abspath(__file__), "missing"], check=False,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if asked.returncode == 0 and not asked.stdout.strip():
            return file
    return sys.executable


def hand_over():
    """Runs this program again in the Python that has the packages, where this one lacks some."""
    if not missing():
        return
    found = find()
    if found != sys.executable:
        os.environ["KVREPLAY_PYTHON"] = found
        os.execv(found, [found, "-B", *sys.argv])


if __name__ == "__main__":
    print(" ".join(missing()) if sys.argv[1:] == ["missing"] else find())
