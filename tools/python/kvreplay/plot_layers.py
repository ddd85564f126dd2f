"""Draws quality by layer: of `kvreplay run` (quality.csv) or `kvreplay evaluate` (layers.csv).

Reads FOLDER/quality.csv or FOLDER/layers.csv; writes FOLDER/layers.pdf and FOLDER/layers.png, a
panel for each trace. A ring stands at the worst layer of a series.
"""

import math
import pathlib
import sys

from kvreplay import plot_style
from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.plot_input import table
from kvreplay.plot_style import plt

QUALITIES = {
    "residual_error": "Error against the residual stream",
    "output_error": "Relative error of the attention output",
    "attention_mass": "Attention mass covered",
    "recall": "Recall of the true top tokens",
}
ALLOWED = "the folder of a `kvreplay run` or `kvreplay evaluate`"


def read_rows(folder):
    names = [name for name in ("quality.csv", "layers.csv") if (folder / name).exists()]
    if not names:
        raise UserError(f"{folder}: holds neither quality.csv nor layers.csv; allowed: {ALLOWED}")
    return names[0], table(folder / names[0], ("system", "layer", "output_error"), ALLOWED)


def series_of(row):
    """The system with the settings that differ: those between `system` and `layer`."""
    names = list(row)
    settings = names[names.index("system") + 1:names.index("layer")]
    return " ".join([row["system"], *(row[name] for name in settings
                                      if row[name] and name != "budget_unit")])


def quality_of(rows, wanted, file):
    known = [name for name in QUALITIES if name in rows[0]]
    if wanted is None:
        full = [name for name in known if all(row[name] for row in rows)]
        wanted = full[0]
    if wanted not in known or not all(row[wanted] for row in rows):
        raise UserError(f"{file}: {wanted} is empty: the trace lacks what it is computed from; "
                        f"allowed: {', '.join(known)}")
    return wanted


def draw(rows, quality):
    traces = list(dict.fromkeys(row.get("trace", "") for row in rows))
    names = list(dict.fromkeys(map(series_of, rows)))
    styles = plot_style.series_styles(names)
    figure, axes = plt.subplots(1, len(traces), squeeze=False, sharey=True,
                                figsize=(plot_style.PANEL_INCHES * max(2, len(traces)), 2.8))
    falls = quality in ("attention_mass", "recall")
    for panel, trace in zip(axes[0], traces):
        for name in names:
            here = [(int(row["layer"]), float(row[quality])) for row in rows
                    if series_of(row) == name and row.get("trace", "") == trace]
            points = sorted((layer, value) for layer, value in here
                            if math.isfinite(value) and (falls or value > 0))
            if not points:  # exact everywhere
                continue
            panel.plot(*zip(*points), label=name, **styles[name])
            worst = (min if falls else max)(points, key=lambda point: point[1])
            panel.plot(*worst, marker="o", markersize=11, fillstyle="none",
                       color=styles[name]["color"])
        if not falls:
            panel.set_yscale("log")
        panel.set_xlabel("Layer")
        if trace:
            panel.set_title(trace)
    axes[0][0].set_ylabel(QUALITIES[quality].replace(" of ", "\nof ", 1))
    plot_style.legend_below(figure, [plt.Line2D([], [], linestyle="none", label=name, **style)
                                     for name, style in styles.items()])
    return figure


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="what --out named")
    parser.add_argument("--quality", choices=QUALITIES,
                        help="the vertical axis (default: residual_error, or output_error where "
                        "the trace lacks what that is computed from)")
    arguments = parser.parse_args()
    file, rows = read_rows(arguments.folder)
    quality = quality_of(rows, arguments.quality, arguments.folder / file)
    for made in plot_style.save(draw(rows, quality), arguments.folder / "layers"):
        print(made)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
