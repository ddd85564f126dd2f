"""Draws quality by layer: of `kvreplay run` (quality.csv) or `kvreplay evaluate` (layers.csv).

Reads FOLDER/quality.csv or FOLDER/layers.csv; writes FOLDER/layers.pdf and FOLDER/layers.png, a
panel for each trace. A series is a system with the settings that differ; a ring stands at its worst
layer.
"""

import math
import pathlib
import sys

from kvreplay import plot_options, plot_style
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
    """A line per series; those of one system share their colour and mark."""
    traces = list(dict.fromkeys(row.get("trace", "") for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    styles = plot_style.series_styles(systems)
    height = 2.6 + 0.17 * -(-len(systems) // 4)  # the legend's rows
    figure, axes = plt.subplots(1, len(traces), squeeze=False, sharey=True,
                                figsize=(plot_style.PANEL_INCHES * max(2, len(traces)), height))
    falls = quality in ("attention_mass", "recall")
    for panel, trace in zip(axes[0], traces):
        lines = {}
        for row in rows:
            value = float(row[quality])
            # What is exact has no place on a logarithmic axis.
            if row.get("trace", "") == trace and math.isfinite(value) and (falls or value > 0):
                lines.setdefault((row["system"], series_of(row)), []).append(
                    (int(row["layer"]), value))
        for (system, _), points in lines.items():
            panel.plot(*zip(*sorted(points)), **styles[system], markersize=3, linewidth=0.8)
            worst = (min if falls else max)(points, key=lambda point: point[1])
            panel.plot(*worst, marker="o", markersize=9, fillstyle="none",
                       color=styles[system]["color"])
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
    plot_options.add_look(parser)
    arguments = parser.parse_args()
    plot_options.apply_look(arguments)
    file, rows = read_rows(arguments.folder)
    quality = quality_of(rows, arguments.quality, arguments.folder / file)
    for made in plot_options.save([("layers", draw(rows, quality))], arguments, arguments.folder):
        print(made)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
