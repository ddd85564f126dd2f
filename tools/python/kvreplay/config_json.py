"""JSON files of configs/."""

import json
import pathlib

from kvreplay.errors import UserError


def read_json(file):
    """JSON with whole-line // comments, as all configs have them."""
    try:
        lines = pathlib.Path(file).read_text(encoding="utf-8").splitlines()
        return json.loads("\n".join("" if line.lstrip().startswith("//") else line
                                    for line in lines))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: line {error.lineno}: {error.msg}; allowed: JSON") from None
