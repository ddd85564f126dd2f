"""Draws what a trace holds: values, attention mass, and how its keys move as the text goes on.

Writes FOLDER/values, FOLDER/mass and FOLDER/keys, each as .pdf and .png. `kvreplay inspect --plot`
calls it.
"""

import pathlib
import sys

import numpy

from kvreplay import plot_options, plot_style
from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.plot_style import plt
from kvreplay.progress import Progress
from kvreplay.traces import trace as open_trace

MAX_LAYERS = 6  # panels; of more layers, this many are drawn, evenly spread
VECTORS = ("key", "value", "query")
MEASURED_STEPS = 24
SAMPLED_ROWS = 4096
SHIFT_POINTS = 3000


def drawn_layers(trace):
    chosen = numpy.linspace(0, len(trace.layers) - 1, min(len(trace.layers), MAX_LAYERS)).round()
    return [trace.layers[int(index)] for index in chosen]


def rotated(trace):
    return trace.attributes["key_state"] == "post_rope"


def turn(trace, layer, rows, positions, sign):
    """RoPE of the layer, on (1) or off (-1)."""
    by_layer = trace.attributes.get("layer_rope_theta")
    theta = float(trace.attributes["rope_theta"] if by_layer is None else
                  numpy.atleast_1d(by_layer)[trace.layers.index(layer)])
    if theta == 0:
        return rows
    pairs = trace.head_dim // 2
    frequencies = theta ** (-numpy.arange(pairs) / pairs)
    angle = sign * positions[:, None] * frequencies
    cosine, sine = numpy.cos(angle), numpy.sin(angle)
    interleaved = trace.attributes["rope_pairs"] == "interleaved"
    first = slice(0, None, 2) if interleaved else slice(0, pairs)
    second = slice(1, None, 2) if interleaved else slice(pairs, None)
    turned = numpy.array(rows)
    turned[:, first] = rows[:, first] * cosine - rows[:, second] * sine
    turned[:, second] = rows[:, first] * sine + rows[:, second] * cosine
    return turned


def titled(trace, what):
    mark = " \N{EM DASH} SYNTHETIC, not recorded" if trace.synthetic else ""
    drawn = f"{len(drawn_layers(trace))} of {len(trace.layers)} recorded layers"
    return f"{what}\n{trace.name}, {drawn}{mark}"


def draw_values(trace, progress):
    figure, axes = plt.subplots(len(VECTORS), 1, figsize=(4.6, 6))
    styles = plot_style.series_styles(drawn_layers(trace))
    for name, panel in zip(VECTORS, axes):
        for layer in drawn_layers(trace):
            vectors = trace.vectors(layer, name)
            values = vectors[:, ::max(1, vectors.shape[1] // SAMPLED_ROWS)].ravel()
            low, high = numpy.quantile(values, (0.0005, 0.9995))
            density, edges = numpy.histogram(values, bins=120, range=(low, high), density=True)
            panel.plot((edges[1:] + edges[:-1]) / 2, density, linewidth=1, label=f"layer {layer}",
                       color=styles[layer]["color"])
            progress.update()
        panel.set_yscale("log")
        panel.set_ylabel("Density")
        state = "" if name == "value" else ", after RoPE" if rotated(trace) else ", before RoPE"
        panel.set_xlabel(f"Component of a {name}{state}")
    plot_style.title(figure, titled(trace, "Values, the middle 99.9 %"), fontsize=8)
    plot_style.legend_below(figure, axes[0].get_lines())
    return figure


def mass_curve(trace, layer):
    """Mean mass of the B heaviest tokens, by B - 1, over steps and query heads."""
    queries, window = trace.queries(layer), trace.window(layer)
    spread = numpy.linspace(trace.prompt_tokens, trace.tokens - 1, MEASURED_STEPS)
    steps = numpy.unique(spread.astype(int))
    group = trace.query_heads // trace.kv_heads
    total = numpy.zeros(trace.tokens)
    for kv_head in range(trace.kv_heads):
        keys = trace.keys(layer)[kv_head]
        if not rotated(trace):
            keys = turn(trace, layer, keys, numpy.arange(trace.tokens), 1)
        for head in range(kv_head * group, (kv_head + 1) * group):
            asked = queries[head][steps - queries.first_position]
            if not rotated(trace):
                asked = turn(trace, layer, asked, steps, 1)
            for position, query in zip(steps, asked):
                begin = max(0, position + 1 - (window or position + 1))
                scores = keys[begin:position + 1] @ query * trace.softmax_scale
                weights = numpy.exp(scores - scores.max(), dtype=numpy.float64)
                heaviest = numpy.cumsum(numpy.sort(weights)[::-1]) / weights.sum()
                total[:len(heaviest)] += heaviest
                total[len(heaviest):] += 1
    return total / (len(steps) * trace.query_heads)


def draw_mass(trace, progress):
    figure, panel = plt.subplots(figsize=(4.6, 3.4))
    styles = plot_style.series_styles(drawn_layers(trace))
    for layer in drawn_layers(trace):
        panel.plot(numpy.arange(1, trace.tokens + 1), mass_curve(trace, layer), linewidth=1.4,
                   label=f"layer {layer}", color=styles[layer]["color"])
        progress.update()
    panel.set_xscale("log")
    panel.set_ylim(0, 1.01)
    panel.set_xlabel(f"B, tokens of up to {trace.tokens}")
    panel.set_ylabel("Attention mass of the B heaviest tokens")
    plot_style.title(figure, titled(trace, "Attention mass against the budget"), fontsize=8)
    plot_style.legend_below(figure, panel.get_lines())
    return figure


def draw_keys(trace, progress):
    """The first two principal components of one head's keys, coloured by position."""
    layers = drawn_layers(trace)
    columns = min(3, len(layers))
    lines = -(-len(layers) // columns)
    figure, axes = plt.subplots(lines, columns, squeeze=False,
                                figsize=(plot_style.PANEL_INCHES * columns + 1, 2.5 * lines + 0.5))
    positions = numpy.unique(numpy.linspace(0, trace.tokens - 1, SHIFT_POINTS).astype(int))
    back = rotated(trace) and trace.attributes["rope_scaling"] in ("none", "by layer")
    drawn = None
    for panel, layer in zip(axes.flat, layers):
        keys = trace.keys(layer)[0][positions]
        if back:
            keys = turn(trace, layer, keys, positions, -1)
        centred = keys[1:] - keys[1:].mean(axis=0)  # the sink would be a component of its own
        _, spread, directions = numpy.linalg.svd(centred, full_matrices=False)
        at = centred @ directions[:2].T
        share = spread[:2] ** 2 / max((spread ** 2).sum(), 1e-30)
        drawn = panel.scatter(at[:, 0], at[:, 1], c=positions[1:], s=3, linewidths=0,
                              cmap="viridis", rasterized=True)
        eighths = numpy.array([part.mean(axis=0) for part in numpy.array_split(at, 8)])
        panel.plot(*eighths.T, color="#D55E00", linewidth=1.2, marker="o", markersize=2.5)
        panel.plot(*eighths[0], color="#D55E00", marker="s", markersize=6, markeredgecolor="white",
                   markeredgewidth=0.6)
        panel.set_title(f"layer {layer}")
        panel.set_xlabel(f"Component 1 ({share[0]:.0%} of variance)")
        panel.set_ylabel(f"Component 2 ({share[1]:.0%})")
        progress.update()
    for panel in list(axes.flat)[len(layers):]:
        panel.set_visible(False)
    figure.colorbar(drawn, ax=axes, label="Position in the text (tokens)")
    state = "after RoPE" if rotated(trace) and not back else "before RoPE"
    what = f"Keys of KV head 0, {state}; line: means of eighths of the text, from the square"
    plot_style.title(figure, titled(trace, what), fontsize=8)
    return figure


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=pathlib.Path, metavar="TRACE", help="a .kvtrace.h5 file")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="for the figures")
    plot_options.add_look(parser, with_file=False)
    parser.add_argument("--title", help="instead of the figures' own; '' for none")
    arguments = parser.parse_args()
    plot_options.apply_look(arguments)
    try:
        trace = open_trace(arguments.trace)
        arguments.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{arguments.folder}: {error.strerror}; allowed: a writable "
                        "folder") from None
    figures = {"values": draw_values, "mass": draw_mass, "keys": draw_keys}
    panels = len(VECTORS) + 1 + 1  # per layer, in all figures
    drawn = []
    with Progress("draw", panels * len(drawn_layers(trace))) as progress:
        for name, draw in figures.items():
            progress.begin(name)
            drawn.append((name, draw(trace, progress)))
    print(*plot_options.save(drawn, arguments, arguments.folder), sep="\n")


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
