#!/usr/bin/env python3
"""Removes outputs, execution counts and an editor's metadata from notebooks/*.ipynb. Only what
was written is committed, and a test runs it."""

import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}


def stripped(text):
    book = json.loads(text)
    book["metadata"] = METADATA
    for cell in book["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell.update(execution_count=None, outputs=[])
    return json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main():
    for path in sorted(FOLDER.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        if text != stripped(text):
            path.write_text(stripped(text), encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
