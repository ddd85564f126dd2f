"""Draws the comparison that `kvreplay synth --report FILE.json` wrote: real heads against synthetic.

Writes the figure beside it, as FILE.pdf and FILE.png. One mark per query head; on the diagonal the
two are equal, in the grey band they differ by at most 10 %.
"""

import json
import pathlib
import sys

import numpy

from kvreplay import plot_options, plot_style
from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.plot_style import plt

PANELS = {
    "entropy_nats": "Entropy, nats",
    "top_16_mass": "Mass of the top 16",
    "top_64_mass": "Mass of the top 64",
    "top_256_mass": "Mass of the top 256",
    "top_64_overlap": "Overlap of the top 64\nfrom step to step",
    "first_16_mass": "Mass of the first 16",
}


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path, metavar="FILE.json")
    plot_options.add_look(parser)
    arguments = parser.parse_args()
    plot_options.apply_look(arguments)
    try:
        report = json.loads(arguments.report.read_text(encoding="utf-8"))
        heads = report["heads"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{arguments.report}: {error}; allowed: a file of `kvreplay synth "
                        "--report`") from None

    layers = sorted({head["layer"] for head in heads})
    styles = plot_style.series_styles(layers)
    figure, axes = plt.subplots(2, 3, figsize=(3 * plot_style.PANEL_INCHES, 5))
    for panel, (name, label) in zip(axes.flat, PANELS.items()):
        for layer in layers:
            of_layer = [head for head in heads if head["layer"] == layer]
            panel.scatter([head["recorded"][name] for head in of_layer],
                          [head["synthetic"][name] for head in of_layer], s=16, linewidths=0,
                          zorder=3, clip_on=False, **styles[layer])
        top = 1.05 * max(max(head[side][name] for side in ("recorded", "synthetic"))
                         for head in heads)
        line = numpy.array((0, top))
        panel.fill_between(line, 0.9 * line, 1.1 * line, color="#E4E4E4", linewidth=0)
        panel.plot(line, line, color="#888888", linewidth=0.8)
        panel.set_xlim(line)
        panel.set_ylim(line)
        panel.set_title(label)
        panel.set_xlabel("recorded")
        panel.set_ylabel("SYNTHETIC")
    plot_style.title(figure, f"SYNTHETIC heads against those of {report['source']}\n"
                    "grey band: within ±10 % of recorded", fontsize=8)
    plot_style.legend_below(figure, [plt.Line2D([], [], linestyle="none", label=f"layer {layer}",
                                                **styles[layer]) for layer in layers])
    name = arguments.report.name.removesuffix(".json")
    for file in plot_options.save([(name, figure)], arguments, arguments.report.parent):
        print(file)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
