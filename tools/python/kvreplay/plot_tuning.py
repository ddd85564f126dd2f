"""Draws a search of `kvreplay tune`: quality against latency and against memory.

Reads evaluated.csv and manifest.json of its folder; writes figure.pdf and figure.png there. Systems
as they ship that no other one of them beats are named, where there is room.
"""

import json
import math
import pathlib
import sys
import textwrap

from matplotlib.ticker import FixedLocator, FuncFormatter

from kvreplay import plot_style
from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.plot_input import csv_rows
from kvreplay.plot_style import plt

QUALITIES = {"output_error": ("Relative error of the attention output", lambda value: value),
             "attention_mass": ("Attention mass not covered", lambda value: 1 - value)}
MIB = 1 << 20
ALLOWED = "allowed: the folder of a `kvreplay tune` search"


def read(folder):
    """The points, the search's description, and the name of what the quality axis shows."""
    try:
        about = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["tune"]
        label, lost = QUALITIES[about["quality"]]
        points = [{"name": row["system"], "latency": float(row["latency_ms"]),
                   "memory": float(row["dram_kv_bytes"]) / MIB,
                   "lost": lost(float(row[about["quality"]])),
                   "reference": row["reference"] == "1", "feasible": row["feasible"] == "1",
                   "front": row["front"] == "1", "best": row["system"] == about["best"]}
                  for row in csv_rows(folder / "evaluated.csv")]
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; {ALLOWED}") from None
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{folder}: has not what is needed in evaluated.csv and manifest.json; "
                        f"{ALLOWED}") from None
    return points, about, label


def named(points):
    """References within the limits that no other reference equals or beats in everything."""
    references = [point for point in points if point["reference"] and point["feasible"]]
    keys = ("latency", "memory", "lost")

    def is_beaten(point):
        return any(other is not point and all(other[key] <= point[key] for key in keys) and
                   any(other[key] < point[key] for key in keys) for other in references)

    return [point for point in references if not is_beaten(point)]


def floor_of(points):
    """Where a logarithmic axis of lost quality shows no loss: a decade below the smallest loss."""
    return min((point["lost"] for point in points if point["lost"] > 0), default=1) / 10


KINDS = (  # what is drawn, from the back to the front
    ("outside the limits", lambda p: not p["feasible"] and not p["reference"],
     {"color": "#CCCCCC", "marker": ".", "markersize": 3}),
    ("found", lambda p: p["feasible"] and not p["reference"] and not p["front"],
     {"color": plot_style.COLOURS[4], "marker": ".", "markersize": 4}),
    ("system as it ships, outside the limits", lambda p: not p["feasible"] and p["reference"],
     {"color": plot_style.COLOURS[1], "marker": "s", "markersize": 4, "fillstyle": "none"}),
    ("system as it ships", lambda p: p["feasible"] and p["reference"],
     {"color": plot_style.COLOURS[1], "marker": "s", "markersize": 4}),
    ("front", lambda p: p["front"] and not p["reference"],
     {"color": plot_style.COLOURS[0], "marker": "o", "markersize": 4}),
    ("best", lambda p: p["best"],
     {"color": plot_style.COLOURS[5], "marker": "*", "markersize": 10, "fillstyle": "none"}),
)


def add_names(panel, names, marks):
    """Names beside points, in order, to the right or else to the left: without those that would run
    into another name or a mark. `marks`: (x, y) of all that is drawn."""
    def place_of(x, y):
        return panel.transAxes.inverted().transform(panel.transData.transform((x, y)))

    # Of a panel of 3 by 2.6 inches, in shares: a character, a line of names, half a mark.
    character, line, half = 0.0155, 0.034, 0.012
    boxes = [(x - half, x + half, y - half, y + half) for x, y in (place_of(*mark) for mark in marks)]

    def is_free(box):
        return box[0] > 0 and box[1] < 1.08 and all(
            box[1] < other[0] or box[0] > other[1] or box[3] < other[2] or box[2] > other[3]
            for other in boxes)

    for name, x, y in names:
        at, base = place_of(x, y)
        length = character * len(name)
        sides = [(1, (at + 0.018, at + 0.018 + length)), (-1, (at - 0.018 - length, at - 0.018))]
        # Its own mark is beside it, and begins below it.
        found = next(((side, (*ends, base + half + 0.001, base + half + line)) for side, ends in sides
                      if is_free((*ends, base + half + 0.001, base + half + line))), None)
        if found is None:
            continue
        side, box = found
        boxes.append(box)
        panel.annotate(name, (x, y), xytext=(4 * side, 2.5), textcoords="offset points", fontsize=5.5,
                       color=plot_style.COLOURS[1], ha="left" if side > 0 else "right")


def mark_none(axes, floor):
    """The lowest tick is of those that lose nothing, for which a logarithmic axis has no place."""
    high = axes.get_ylim()[1]
    decades = range(math.ceil(math.log10(2 * floor)), math.floor(math.log10(high)) + 1)
    axes.set_ylim(bottom=floor / 1.8)
    axes.yaxis.set_major_locator(FixedLocator([floor, *(10.0 ** power for power in decades)]))
    axes.yaxis.set_major_formatter(FuncFormatter(
        lambda value, _: "none" if math.isclose(value, floor) else f"$10^{{{round(math.log10(value))}}}$"))
    axes.yaxis.set_minor_locator(FixedLocator([step * 10.0 ** (power - 1) for power in decades
                                               for step in range(2, 10)
                                               if step * 10.0 ** (power - 1) > 2 * floor]))


def draw(points, about, label):
    figure, panels = plt.subplots(1, 2, figsize=(7, 3.6), sharey=True)
    floor = floor_of(points)
    height = {id(point): max(point["lost"], floor) for point in points}
    handles = []
    for panel, key, axis_label, limit in (
            (panels[0], "latency", "Latency per token (ms)", about["max_latency_ms"]),
            (panels[1], "memory", "Memory of KV management (MiB)", about["max_dram_bytes"] / MIB)):
        handles = []
        for name, belongs, style in KINDS:
            of_kind = [point for point in points if belongs(point)]
            if of_kind:
                handles += panel.plot([point[key] for point in of_kind],
                                      [height[id(point)] for point in of_kind],
                                      linestyle="none", label=name, **style)
        if limit > 0:
            panel.axvline(limit, color="black", linewidth=0.7, linestyle="--")
        panel.set_xscale("log")
        panel.set_yscale("log")
        if any(point["lost"] < floor for point in points):
            mark_none(panel, floor)
        add_names(panel, [(point["name"], point[key], height[id(point)]) for point in named(points)],
                  [(point[key], height[id(point)]) for point in points])
        panel.xaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:g}"))
        widest = max(point[key] for point in points) / min(point[key] for point in points)
        if widest < 30:
            panel.xaxis.set_minor_formatter(plt.FuncFormatter(
                lambda value, _: f"{value:g}" if str(f"{value:e}")[0] in "2345" else ""))
        panel.tick_params(axis="x", which="minor", labelsize=6)
        panel.set_xlabel(axis_label)
    panels[0].set_ylabel(label)
    plot_style.title(figure, "\n".join(textwrap.wrap(about["about"], 100)), fontsize=8)
    plot_style.legend_below(figure, handles)
    return figure


def figures(folder):
    """(name, figure) of each figure of the folder."""
    return [("figure", draw(*read(folder)))]


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER",
                        help="the results of a `kvreplay tune` search")
    folder = parser.parse_args().folder
    for name, figure in figures(folder):
        plot_style.save(figure, folder / name)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
