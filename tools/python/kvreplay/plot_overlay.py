"""Draws published measurements (points) over the device models (lines): a panel per table.

Reads what `kvreplay device compare --csv` prints. Tables of fewer than three sizes and depths are
left out, unless there is no other.
"""

import pathlib
import statistics
import sys

from matplotlib.ticker import FixedLocator, NullLocator

from kvreplay import plot_options, plot_style
from kvreplay.command_line import Parser, exit_code, figure_file
from kvreplay.errors import UserError
from kvreplay.plot_input import csv_rows
from kvreplay.plot_style import plt
from kvreplay.sizes import size_text

UNITS = {"mb_s": "MB/s", "mib_s": "MiB/s", "iops": "IOPS", "mean_us": "Mean latency (us)"}
NUMBERS = ("bytes", "depth", "measured", "model", "error_percent", "write_percent")
COLUMNS = 4
ALLOWED = "what `kvreplay device compare --csv` prints"


def read_tables(file):
    """Rows by table, in the order of the file."""
    try:
        rows = csv_rows(file)
        for row in rows:
            row.update({name: float(row[name]) for name in NUMBERS})
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; allowed: {ALLOWED}") from None
    except (KeyError, ValueError):
        rows = []
    if not rows:
        raise UserError(f"{file}: holds no comparison; allowed: {ALLOWED}")
    tables = {}
    for row in rows:
        tables.setdefault(row["table"], []).append(row)
    large = {name: table for name, table in tables.items()
             if len({(row["bytes"], row["depth"]) for row in table}) >= 3}
    return large or tables


def draw_table(axes, name, rows):
    """By size with a curve per depth, or by depth where there is one size."""
    sizes = sorted({row["bytes"] for row in rows})
    across, curve = ("bytes", "depth") if len(sizes) > 1 else ("depth", "bytes")
    curves = sorted({row[curve] for row in rows})
    styles = plot_style.series_styles(curves)

    def label(value):
        return f"depth {value:.0f}" if curve == "depth" else size_text(int(value))

    for value in curves:
        here = sorted((row for row in rows if row[curve] == value), key=lambda row: row[across])
        places = [row[across] for row in here]
        axes.plot(places, [row["model"] for row in here], linewidth=1.2,
                  color=styles[value]["color"])
        axes.scatter(places, [row["measured"] for row in here], s=14, zorder=3, label=label(value),
                     **styles[value])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    plot_style.label_ticks(axes.xaxis, sorted({row[across] for row in rows}), 0.17, across == "bytes")
    values = [row[key] for row in rows for key in ("measured", "model")]
    axes.set_ylim(min(values) / 1.25, max(values) * 1.25)
    axes.yaxis.set_major_locator(FixedLocator(value_ticks(min(values), max(values))))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    what = "Request size (KiB)" if across == "bytes" else "Outstanding requests"
    axes.set_xlabel(what if len(curves) > 1 else f"{what}, {label(curves[0])}")
    axes.set_ylabel(UNITS[rows[0]["quantity"]])
    median = statistics.median(abs(row["error_percent"]) for row in rows)
    axes.set_title(f"{rows[0]['preset']}: {name}\n{rows[0]['use']}, median error {median:.1f} %",
                   fontsize=7)
    if len(curves) > 1:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=3, fontsize=6,
                    handletextpad=0.1, columnspacing=0.8, borderpad=0)


def value_ticks(minimum, maximum):
    """Round numbers in and next to the range, finer ones where it is narrow."""
    steps = (1, 2, 5) if maximum / minimum > 6 else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    ticks = [step * 10.0 ** power for power in range(-3, 9) for step in steps]
    return [tick for tick in ticks if minimum / 1.25 <= tick <= maximum * 1.25]


def draw(tables, title):
    columns = min(COLUMNS, len(tables))
    lines = -(-len(tables) // columns)
    figure, panels = plt.subplots(lines, columns, squeeze=False,
                                  figsize=(max(3.2, 2.4 * columns), 2.35 * lines + 0.4))
    for axes, (name, rows) in zip(panels.flat, tables.items()):
        draw_table(axes, name, rows)
    for axes in panels.flat[len(tables):]:
        axes.set_visible(False)
    plot_style.title(figure, title, fontsize=9)
    return figure


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=pathlib.Path, metavar="CSV",
                        help="what `kvreplay device compare --csv` prints; - for standard input")
    parser.add_argument("--title", default="Measured (points) and modelled (lines)",
                        help="title of the figure")
    parser.add_argument("--out", type=figure_file, metavar="FILE", required=True,
                        help="the figure; without .pdf or .png, both are written")
    plot_options.add_look(parser, with_file=False)
    arguments = parser.parse_args()
    plot_options.apply_look(arguments)
    tables = read_tables(arguments.csv)
    try:
        for file in plot_style.save(draw(tables, arguments.title), arguments.out):
            print(file, file=sys.stderr)
    except OSError as error:
        raise UserError(f"{arguments.out}: {error.strerror}; allowed: a file that can be "
                        "written") from None


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
