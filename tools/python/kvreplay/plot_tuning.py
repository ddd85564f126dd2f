"""Draws a search of `kvreplay tune`: quality against latency and against memory.

Reads evaluated.csv and manifest.json of its folder; writes figure.pdf and figure.png there. Systems
as they ship that no other one of them beats are named, where there is room.
"""

import json
import math
import pathlib
import sys
import textwrap

from matplotlib.ticker import LogFormatterMathtext

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
    """Where a logarithmic axis of lost quality shows no loss: the first power of ten well below the
    smallest loss."""
    smallest = min((point["lost"] for point in points if point["lost"] > 0), default=1)
    return 10.0 ** math.floor(math.log10(smallest) - 0.5)


class LostFormatter(LogFormatterMathtext):
    """Powers of ten, and "none" at the floor."""

    def __init__(self, floor):
        super().__init__()
        self.floor = floor

    def __call__(self, x, pos=None):
        return "none" if math.isclose(x, self.floor) else super().__call__(x, pos)


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


def add_names(panel, names, best):
    """Names beside points, in order, without those that would overlap another one or the best."""
    def in_axes(x, y):
        return panel.transAxes.inverted().transform(panel.transData.transform((x, y)))

    taken = [in_axes(*point) for point in best]
    for name, x, y in names:
        place = in_axes(x, y)
        if any(abs(place[0] - other[0]) < 0.25 and abs(place[1] - other[1]) < 0.035
               for other in taken):
            continue
        taken.append(place)
        panel.annotate(name, (x, y), xytext=(4, 2), textcoords="offset points", fontsize=5.5,
                       color=plot_style.COLOURS[1])


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
        add_names(panel, [(point["name"], point[key], height[id(point)])
                          for point in named(points)],
                  [(point[key], height[id(point)]) for point in points if point["best"]])
        panel.xaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:g}"))
        widest = max(point[key] for point in points) / min(point[key] for point in points)
        if widest < 30:
            panel.xaxis.set_minor_formatter(plt.FuncFormatter(
                lambda value, _: f"{value:g}" if str(f"{value:e}")[0] in "2345" else ""))
        panel.tick_params(axis="x", which="minor", labelsize=6)
        panel.set_xlabel(axis_label)
    if any(point["lost"] < floor for point in points):
        panels[0].yaxis.set_major_formatter(LostFormatter(floor))
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
