#!/usr/bin/python3
"""Draws what a trace holds: values, attention mass, and how its keys move as the text goes on.

Writes FOLDER/values, FOLDER/mass and FOLDER/keys, each as .pdf and .png. `kvreplay inspect --plot`
calls it.
"""

import argparse
import pathlib

import h5py
import numpy

import plot_style
from plot_input import fail
from plot_style import plt

MOST_LAYERS = 6  # panels: more are drawn as this many, evenly spread
MEASURED_STEPS = 24
SAMPLED_ROWS = 4096
SHIFT_POINTS = 3000


def text(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Trace:
    def __init__(self, path):
        self.name = path.name.removesuffix(".kvtrace.h5")
        self.file = h5py.File(path, "r")
        attributes = self.file.attrs
        self.prompt, self.tokens = int(attributes["prompt_tokens"]), int(attributes["tokens"])
        self.query_heads, self.kv_heads = int(attributes["query_heads"]), int(attributes["kv_heads"])
        self.dim, self.scale = int(attributes["head_dim"]), float(attributes["softmax_scale"])
        self.brain = text(attributes["dtype"]) == "bf16"
        self.rotated = text(attributes["key_state"]) == "post_rope"
        self.interleaved = text(attributes["rope_pairs"]) == "interleaved"
        self.scaled = text(attributes["rope_scaling"]) != "none"
        self.theta = float(attributes["rope_theta"])
        self.synthetic = bool(attributes.get("synthetic", 0))
        layers = [int(layer) for layer in attributes["recorded_layers"]]
        self.windows = dict(zip(layers, (int(width) for width in attributes["sliding_window"])))
        chosen = numpy.linspace(0, len(layers) - 1, min(len(layers), MOST_LAYERS)).round()
        self.layers = [layers[int(index)] for index in chosen]

    def rows(self, layer, name, *where):
        """float32, read from the file by the range asked for."""
        stored = self.file[f"layer/{layer:02}/{name}"][where]
        if self.brain:
            return (stored.astype(numpy.uint32) << 16).view(numpy.float32)
        return stored.astype(numpy.float32)

    def query_start(self, layer):
        return int(self.file[f"layer/{layer:02}/query"].attrs["query_start"])

    def turn(self, rows, positions, sign):
        """RoPE, on (1) or off (-1)."""
        pairs = self.dim // 2
        angle = sign * positions[:, None] * self.theta ** (-numpy.arange(pairs) / pairs)
        cosine, sine = numpy.cos(angle), numpy.sin(angle)
        first = slice(0, None, 2) if self.interleaved else slice(0, pairs)
        second = slice(1, None, 2) if self.interleaved else slice(pairs, None)
        turned = numpy.array(rows)
        turned[:, first] = rows[:, first] * cosine - rows[:, second] * sine
        turned[:, second] = rows[:, first] * sine + rows[:, second] * cosine
        return turned

    def title(self, what):
        mark = " \N{EM DASH} SYNTHETIC, not recorded" if self.synthetic else ""
        return f"{what}\n{self.name}{mark}"


def draw_values(trace):
    names = ("key", "value", "query")
    figure, axes = plt.subplots(len(names), 1, figsize=(4.6, 6))
    styles = plot_style.series_styles(trace.layers)
    for name, panel in zip(names, axes):
        for layer in trace.layers:
            count = trace.file[f"layer/{layer:02}/{name}"].shape[1]
            step = max(1, count // SAMPLED_ROWS)
            values = trace.rows(layer, name, slice(None), slice(None, None, step)).ravel()
            low, high = numpy.quantile(values, (0.0005, 0.9995))
            density, edges = numpy.histogram(values, bins=120, range=(low, high), density=True)
            panel.plot((edges[1:] + edges[:-1]) / 2, density, linewidth=1, label=f"layer {layer}",
                       color=styles[layer]["color"])
        panel.set_yscale("log")
        panel.set_ylabel("Density")
        state = "" if name == "value" else ", after RoPE" if trace.rotated else ", before RoPE"
        panel.set_xlabel(f"Component of a {name}{state}")
    figure.suptitle(trace.title("Values, the middle 99.9 %"), fontsize=8)
    plot_style.legend_below(figure, axes[0].get_lines())
    return figure


def mass_curve(trace, layer):
    """Mean mass of the B heaviest tokens, by B - 1, over steps and query heads."""
    start = trace.query_start(layer)
    steps = numpy.unique(numpy.linspace(trace.prompt, trace.tokens - 1, MEASURED_STEPS).astype(int))
    group = trace.query_heads // trace.kv_heads
    total = numpy.zeros(trace.tokens)
    for kv_head in range(trace.kv_heads):
        keys = trace.rows(layer, "key", kv_head)
        if not trace.rotated:
            keys = trace.turn(keys, numpy.arange(trace.tokens), 1)
        for head in range(kv_head * group, (kv_head + 1) * group):
            queries = trace.rows(layer, "query", head)[steps - start]
            if not trace.rotated:
                queries = trace.turn(queries, steps, 1)
            for position, query in zip(steps, queries):
                begin = max(0, position + 1 - (trace.windows[layer] or position + 1))
                scores = keys[begin:position + 1] @ query * trace.scale
                weights = numpy.exp(scores - scores.max(), dtype=numpy.float64)
                heaviest = numpy.cumsum(numpy.sort(weights)[::-1]) / weights.sum()
                total[:len(heaviest)] += heaviest
                total[len(heaviest):] += 1
    return total / (len(steps) * trace.query_heads)


def draw_mass(trace):
    figure, panel = plt.subplots(figsize=(4.6, 3.4))
    styles = plot_style.series_styles(trace.layers)
    for layer in trace.layers:
        panel.plot(numpy.arange(1, trace.tokens + 1), mass_curve(trace, layer), linewidth=1.4,
                   label=f"layer {layer}", color=styles[layer]["color"])
    panel.set_xscale("log")
    panel.set_ylim(0, 1.01)
    panel.set_xlabel(f"B, tokens of up to {trace.tokens}")
    panel.set_ylabel("Attention mass of the B heaviest tokens")
    figure.suptitle(trace.title("Attention mass against the budget"), fontsize=8)
    plot_style.legend_below(figure, panel.get_lines())
    return figure


def draw_keys(trace):
    """The first two principal components of one head's keys, coloured by position."""
    columns = min(3, len(trace.layers))
    lines = -(-len(trace.layers) // columns)
    figure, axes = plt.subplots(lines, columns, squeeze=False,
                                figsize=(plot_style.PANEL_INCHES * columns + 1, 2.5 * lines + 0.5))
    positions = numpy.unique(numpy.linspace(0, trace.tokens - 1, SHIFT_POINTS).astype(int))
    back = trace.rotated and not trace.scaled
    drawn = None
    for panel, layer in zip(axes.flat, trace.layers):
        keys = trace.rows(layer, "key", 0)[positions]
        if back:
            keys = trace.turn(keys, positions, -1)
        centred = keys[1:] - keys[1:].mean(axis=0)  # the sink would be a component of its own
        _, spread, directions = numpy.linalg.svd(centred, full_matrices=False)
        at = centred @ directions[:2].T
        share = spread[:2] ** 2 / max((spread ** 2).sum(), 1e-30)
        drawn = panel.scatter(at[:, 0], at[:, 1], c=positions[1:], s=3, linewidths=0,
                              cmap="viridis", rasterized=True)
        eighths = numpy.array([part.mean(axis=0) for part in numpy.array_split(at, 8)])
        panel.plot(*eighths.T, color="#D55E00", linewidth=1.2, marker="o", markersize=2.5)
        panel.set_title(f"layer {layer}")
        panel.set_xlabel(f"Component 1 ({share[0]:.0%} of variance)")
        panel.set_ylabel(f"Component 2 ({share[1]:.0%})")
    for panel in list(axes.flat)[len(trace.layers):]:
        panel.set_visible(False)
    figure.colorbar(drawn, ax=axes, label="Position in the text")
    state = "after RoPE" if trace.rotated and not back else "before RoPE"
    figure.suptitle(trace.title(f"Keys of KV head 0, {state}; line: means of eighths of the text"),
                    fontsize=8)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=pathlib.Path, metavar="TRACE", help="a .kvtrace.h5 file")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER", help="where figures go")
    arguments = parser.parse_args()
    try:
        trace = Trace(arguments.trace)
        arguments.folder.mkdir(parents=True, exist_ok=True)
    except (OSError, KeyError) as error:
        fail(f"{error}; allowed: a trace that `kvreplay verify` accepts, and a writable folder")
    for name, draw in (("values", draw_values), ("mass", draw_mass), ("keys", draw_keys)):
        for file in plot_style.save(draw(trace), arguments.folder / name):
            print(file)


if __name__ == "__main__":
    main()
