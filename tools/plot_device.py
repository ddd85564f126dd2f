#!/usr/bin/python3
"""Draws a device: bandwidth by request size, and IOPS by depth.

Reads what `kvreplay device describe --csv` prints; lays the points of a `kvreplay device probe`
over it where one is given.
"""

import argparse
import json
import math
import pathlib
import sys

import plot_style
from plot_input import fail, table
from plot_style import plt
from matplotlib.ticker import FixedLocator, NullLocator

NEEDED = ("device", "range_bytes", "bytes", "depth", "iops", "mb_s")
CURVES = len(plot_style.COLOURS)  # more of them could not be told apart


def read_model(file):
    rows = table(file, NEEDED, "what `kvreplay device describe --csv` prints")
    points = [{"bytes": int(row["bytes"]), "depth": int(row["depth"]), "iops": float(row["iops"]),
               "mb_s": float(row["mb_s"])} for row in rows]
    share = float(rows[0].get("write_share") or 0)
    return rows[0]["device"], int(rows[0]["range_bytes"]), share, points


def read_probe(file, share):
    """The random requests of a probe with this share of writes, and what was probed."""
    try:
        probe = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        points = [point for point in probe["points"]
                  if point["pattern"] == "random" and point["write_share"] == share]
        target = probe["target"]["path"], int(probe["target"]["size_bytes"])
    except OSError as error:
        fail(f"{file}: {error.strerror}; allowed: the JSON of `kvreplay device probe`")
    except (ValueError, KeyError, TypeError):
        fail(f"{file}: is no probe; allowed: the JSON of `kvreplay device probe`")
    if not points:
        fail(f"{file}: has no random {requests_text(share)}; allowed: a probe with --mix "
             f"{100 * share:g}")
    return *target, points


def requests_text(share):
    return {0: "reads", 1: "writes"}.get(share, f"requests of which {100 * share:g} % are writes")


def size_text(size):
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def spread(values, wanted):
    """At most `wanted` of the sorted values, from the first to the last."""
    if len(values) <= wanted:
        return values
    return [values[round(i * (len(values) - 1) / (wanted - 1))] for i in range(wanted)]


def apart(values, least_share):
    """Of sorted values those that lie at least so far apart on a logarithmic axis, in shares of its
    length; the first and the last always."""
    length = math.log(values[-1] / values[0])
    kept = [values[0]]
    for value in values[1:-1]:
        if min(math.log(value / kept[-1]), math.log(values[-1] / value)) >= least_share * length:
            kept.append(value)
    return kept + values[-1:] if len(values) > 1 else kept


def draw_curves(axes, model, probe, curve, across, value, label):
    """A curve for each value of `curve`; probe points have the colour and marker of theirs."""
    names = spread(sorted({point[curve] for point in model}), CURVES)
    styles = plot_style.series_styles(names)
    for name in names:
        here = sorted((point for point in model if point[curve] == name),
                      key=lambda point: point[across])
        style = {"color": styles[name]["color"]}
        if probe is None:
            style.update(marker=styles[name]["marker"], markersize=3.5)
        axes.plot([point[across] for point in here], [point[value] for point in here],
                  linewidth=1.2, label=label(name), **style)
        if probe is not None:
            there = [point for point in probe if point[curve] == name]
            axes.scatter([point[across] for point in there], [point[value] for point in there],
                         s=14, zorder=3, **styles[name])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = apart(sorted({point[across] for point in model}), 0.1)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([size_text(tick) for tick in ticks])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, fontsize=7, handlelength=1.4,
                columnspacing=1.2)


def draw(title, model, probed, probe):
    figure, (by_size, by_depth) = plt.subplots(1, 2, figsize=(7, 3.3))
    draw_curves(by_size, model, probe, "depth", "bytes", "mb_s", lambda depth: f"depth {depth}")
    by_size.set_xlabel("Request size (bytes)")
    by_size.set_ylabel("Bandwidth (MB/s)")
    draw_curves(by_depth, model, probe, "bytes", "depth", "iops", size_text)
    by_depth.set_xlabel("Outstanding requests")
    by_depth.set_ylabel("IOPS")
    if probe is not None:
        title += f" (lines), measured on {probed} (points)"
    figure.suptitle(title, fontsize=8)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=pathlib.Path, metavar="CSV",
                        help="what `kvreplay device describe --csv` prints; - for standard input")
    parser.add_argument("--probe", type=pathlib.Path, metavar="JSON",
                        help="the result of a `kvreplay device probe`, drawn over the model")
    parser.add_argument("--title", help="of the figure (default: the device's name)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="the figure, .pdf or .png; both without either (default: beside CSV)")
    arguments = parser.parse_args()
    if str(arguments.csv) == "-" and arguments.out is None:
        fail("--out: found nothing; allowed with standard input: a file")
    device, described, share, model = read_model(arguments.csv)
    probed, probe = None, None
    if arguments.probe:
        probed, size, probe = read_probe(arguments.probe, share)
        if size != described:
            print(f"plot_device.py: warning: the model's requests are spread over {described} bytes, "
                  f"the probe's over {size}: describe --range {size}", file=sys.stderr)
    title = arguments.title or (f"{device}: model, random {requests_text(share)} over "
                                f"{size_text(described)}")
    name = arguments.out or arguments.csv.with_name(arguments.csv.name.removesuffix(".csv"))
    try:
        for file in plot_style.save(draw(title, model, probed, probe), name):
            print(file, file=sys.stderr if str(arguments.csv) == "-" else sys.stdout)
    except OSError as error:
        fail(f"{name}: {error.strerror}; allowed: a file that can be written")


if __name__ == "__main__":
    main()
