"""The one error that is the user's, and how its line is made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What the user has to change, in one line: the place, what was found and what is allowed."""


def nearest_first(name: object, allowed: Iterable[object]) -> str:
    """The allowed names as a text, starting with the one that was probably meant."""
    names = [str(one) for one in allowed]
    near = difflib.get_close_matches(str(name), names, n=1)
    return (f"{near[0]}, or another of " if near else "") + (", ".join(names) or "none")


def unknown(where: object, kind: str, name: object, allowed: Iterable[object]) -> UserError:
    return UserError(f"{where}: no {kind} {name}; allowed: {nearest_first(name, allowed)}")


def reason(error: Exception) -> str:
    """The message of an error of Python or of a library, in one line."""
    said = getattr(error, "strerror", None) or str(error.args[0] if error.args else error)
    return (said.strip().splitlines() or [type(error).__name__])[0]
