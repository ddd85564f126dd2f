"""Options that every figure has: size, font, names, title, file, resolution, style."""

import argparse
import pathlib
import re

from kvreplay import plot_style
from kvreplay.command_line import figure_file
from kvreplay.errors import UserError


def size(text):
    found = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", text)
    inches = tuple(map(float, found.groups())) if found else (0, 0)
    if not all(1 <= length <= 40 for length in inches):
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: WIDTHxHEIGHT in inches, from 1 to "
                                         "40 each, such as 3.3x2.2")
    return inches


def pair(text):
    name, equal, shown = text.partition("=")
    if not name or not equal:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: NAME=TEXT")
    return name, shown


def resolution(text):
    if not text.isdigit() or not 20 <= int(text) <= 2400:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a whole number from 20 to 2400")
    return int(text)


def add_look(parser, with_file=True):
    """`with_file`: also --title and --out, unless the parser has its own."""
    look = parser.add_argument_group("look of the figure")
    look.add_argument("--size", type=size, metavar="WxH",
                      help="width and height in inches, such as 3.3x2.2 (a column of a paper)")
    look.add_argument("--font", metavar="FAMILY", help="serif, sans-serif or an installed font")
    look.add_argument("--label", type=pair, action="append", default=[], metavar="NAME=TEXT",
                      help="show TEXT for a name of the results, as kvswap=Ours; may be given again")
    look.add_argument("--dpi", type=resolution, metavar="N", help="of a .png")
    look.add_argument("--style", choices=sorted(plot_style.STYLES),
                      help="paper: small type, no title, 300 dpi; screen: large type")
    if with_file:
        look.add_argument("--title", help="instead of the figure's own; '' for none")
        look.add_argument("--out", type=figure_file, metavar="FILE",
                          help="the figure, .pdf or .png; both without an ending (default: in the "
                               "folder)")


def apply_look(arguments):
    look = plot_style.Look
    look.size = arguments.size
    look.names = {name: shown.replace("$", r"\$") for name, shown in arguments.label}
    look.title = arguments.title
    if arguments.title is None and arguments.style == "paper":
        look.title = ""
    try:
        plot_style.set_style(arguments.style, arguments.font, arguments.dpi)
    except ValueError:
        raise UserError(f"--font: found '{arguments.font}', which is not installed; allowed: serif, "
                        "sans-serif, or a family of `fc-list`") from None


def save(figures, arguments, folder):
    """Writes (name, figure) pairs into the folder, or to --out; returns the files."""
    out = getattr(arguments, "out", None)
    files = []
    for _, figure in figures:
        plot_style.finish(figure)
    try:
        for name, figure in figures:
            target = folder / name
            if out is not None:
                target = out if len(figures) == 1 else out.with_name(
                    f"{out.stem if out.suffix in ('.pdf', '.png') else out.name}-{name}"
                    + (out.suffix if out.suffix in (".pdf", ".png") else ""))
            files += plot_style.save(figure, target)
    except OSError as error:
        raise UserError(f"{target}: {error.strerror}; allowed: a file that can be written") from None
    return files
