"""What the programs of this package and of tools/ have in common: options, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from kvreplay.errors import UserError


def exit_code(program: str, work: Callable[[], int | None],
              mistakes: tuple[type[Exception], ...] = ()) -> int:
    """Does `work()` and returns its exit code. A UserError, and any other error of `mistakes`, is
    printed as one line that begins with `program`, with exit code 2. Ctrl-C gives 130."""
    try:
        return work() or 0
    except (UserError, *mistakes) as error:
        print(f"{program}: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are UserErrors, without the usage."""

    def error(self, message):
        message = message.removeprefix("argument ")
        if "; allowed: " not in message:
            message += f"; allowed: what `{self.prog} --help` names"
        command = self.prog.removeprefix("kvreplay ")
        raise UserError(message if command == self.prog else f"{command}: {message}")


def number(kind: type) -> Callable[[str], int | float]:
    """The `type` of an argument, int or float: argparse's messages do not say what is allowed."""
    def parse(text: str) -> int | float:
        try:
            return kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a {what}") from None
    return parse
