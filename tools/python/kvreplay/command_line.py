"""What the programs of this package and of tools/ have in common: options, and how they end."""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
from collections.abc import Callable

from kvreplay.errors import UserError, reason


def exit_code(program: str, work: Callable[[], int | None],
              mistakes: tuple[type[Exception], ...] = ()) -> int:
    """Does `work()` and returns its exit code. A UserError, and any other error of `mistakes`, is
    printed as one line that begins with `program`, with exit code 2; so is a file or folder that
    cannot be read or written. Ctrl-C gives 130. Where nobody reads standard output any more, as
    behind `| head`, the exit code is that of a program that SIGPIPE ends."""
    def mistake(text: str) -> int:
        print(f"{program}: {' '.join(text.splitlines())}", file=sys.stderr)
        return 2

    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # __main__.py
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = work() or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where what fails is caught
        return code
    except (UserError, *mistakes) as error:
        return mistake(str(error))
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # What is still buffered has nowhere to go, and Python would try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None:
            raise
        return mistake(f"{error.filename}: {reason(error)}; allowed: a file or folder that can be "
                       "read and written")


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are UserErrors, without the usage."""

    def error(self, message):
        message = message.removeprefix("argument ")
        if "; allowed: " not in message:
            message += f"; allowed: what `{self.prog} --help` names"
        command = self.prog.removeprefix("kvreplay ")
        raise UserError(message if command == self.prog else f"{command}: {message}")


# A dot within a name, as of llama3.2-1b, is no ending.
OTHER_ENDINGS = (".bmp", ".eps", ".gif", ".jpeg", ".jpg", ".ps", ".svg", ".svgz", ".tif", ".tiff", ".webp")


def figure_file(text: str) -> pathlib.Path:
    """The `type` of an argument that names a figure."""
    file = pathlib.Path(text)
    if file.suffix.lower() in OTHER_ENDINGS:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a name that ends in .pdf or .png, or "
                                         "without an ending, which gives both")
    return file


def number(kind: type) -> Callable[[str], int | float]:
    """The `type` of an argument, int or float: argparse's messages do not say what is allowed."""
    def parse(text: str) -> int | float:
        try:
            return kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a {what}") from None
    return parse
