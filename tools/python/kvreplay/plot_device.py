"""Draws a device: bandwidth by request size, and IOPS by depth.

Reads what `kvreplay device describe --csv` prints, and lays the points of a `kvreplay device probe`
over it where one is given; or the probe alone.
"""

import hashlib
import json
import pathlib
import re
import sys

from kvreplay import plot_options, plot_style
from kvreplay.command_line import Parser, exit_code, figure_file
from kvreplay.errors import UserError
from kvreplay.plot_input import table
from kvreplay.plot_style import plt
from kvreplay.sizes import size_text

PROBE = "the JSON of `kvreplay device probe`"
NEEDED = ("device", "range_bytes", "bytes", "depth", "iops", "mb_s")
CURVES = len(plot_style.COLOURS)  # more could not be distinguished


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
        check_unchanged(probe, file)
        points = [point for point in probe["points"]
                  if point["pattern"] == "random" and point["write_share"] == share]
        target = probe["target"]["path"], int(probe["target"]["size_bytes"])
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; allowed: {PROBE}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{file}: is no probe; allowed: {PROBE}") from None
    if not points and share == 0:
        raise UserError(f"{file}: has no random reads; allowed: a probe of random requests")
    if not points:
        raise UserError(f"{file}: has no random {requests_text(share)}; allowed: a probe with "
                        f"--mix {100 * share:g}")
    return *target, points


def checksum(probe):
    content = json.dumps({name: value for name, value in probe.items() if name != "sha256"},
                         sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # A number that came as text between zero bytes stands for itself.
    content = re.sub(r'"\\u0000([^"\\]*)\\u0000"', r"\1", content)
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()


def check_unchanged(probe, file):
    """The checksum of devices/real/probe.cpp: of the document without it, in one layout and order.
    Numbers count as they are written: the program's shortest text of one in some thousand is
    longer than Python's."""
    said = probe.get("sha256")
    if said is None or checksum(probe) == said:
        return
    as_written = json.loads(pathlib.Path(file).read_text(encoding="utf-8"),
                            parse_float=lambda text: f"\0{text}\0")
    if checksum(as_written) != said:
        raise UserError(f"{file}: /sha256: does not match the measurement; allowed: an undamaged one; "
                        "none after a change by hand")


def read_alone(file):
    """A probe that is drawn without a model: its reads, or else its writes."""
    try:
        path, size, points = read_probe(file, 0)
        share = 0
    except UserError as error:
        if "has no random" not in str(error):
            raise
        try:
            path, size, points = read_probe(file, 1)
        except UserError:
            raise error from None
        share = 1
    title = f"{path}: measured, random {requests_text(share)} over {size_text(size)}"
    return size, share, points, title


def requests_text(share):
    return {0: "reads", 1: "writes"}.get(share, f"requests of which {100 * share:g} % are writes")


def spread(values, wanted):
    """At most `wanted` of the sorted values, from the first to the last."""
    if len(values) <= wanted:
        return values
    return [values[round(i * (len(values) - 1) / (wanted - 1))] for i in range(wanted)]


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
    plot_style.label_ticks(axes.xaxis, sorted({point[across] for point in model}), 0.1, across == "bytes")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, handlelength=1.4,
                fontsize=min(7, plt.rcParams["legend.fontsize"]), columnspacing=1.2)


def draw(title, model, probed, probe):
    narrow = plot_style.Look.size is not None and plot_style.Look.size[0] < 5  # one column of a paper
    figure, (by_size, by_depth) = plt.subplots(*((2, 1) if narrow else (1, 2)), figsize=(7, 3.3))
    draw_curves(by_size, model, probe, "depth", "bytes", "mb_s", lambda depth: f"depth {depth}")
    by_size.set_xlabel("Request size (KiB)")
    by_size.set_ylabel("Bandwidth (MB/s)")
    draw_curves(by_depth, model, probe, "bytes", "depth", "iops", size_text)
    by_depth.set_xlabel("Outstanding requests")
    by_depth.set_ylabel("IOPS")
    if probe is not None:
        title += f" (lines), measured on {probed} (points)"
    plot_style.title(figure, title, fontsize=8)
    return figure


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=pathlib.Path, metavar="CSV",
                        help="what `kvreplay device describe --csv` prints, - for standard input; "
                             "or the JSON of a `kvreplay device probe`")
    parser.add_argument("--probe", type=pathlib.Path, metavar="JSON",
                        help="the result of a `kvreplay device probe`, drawn over the model")
    parser.add_argument("--title", help="title of the figure (default: the device's name)")
    parser.add_argument("--out", type=figure_file, metavar="FILE",
                        help="the figure; both without .pdf or .png (default: beside CSV)")
    plot_options.add_look(parser, with_file=False)
    arguments = parser.parse_args()
    plot_options.apply_look(arguments)
    if str(arguments.csv) == "-" and arguments.out is None:
        raise UserError("--out: found nothing; allowed with standard input: a file")
    if arguments.csv.suffix == ".json":
        described, share, model, title = read_alone(arguments.csv)
    else:
        device, described, share, model = read_model(arguments.csv)
        title = f"{device}: model, random {requests_text(share)} over {size_text(described)}"
    probed, probe = None, None
    if arguments.probe:
        probed, size, probe = read_probe(arguments.probe, share)
        if size != described:
            print(f"kvreplay: warning: the model's requests are spread over {described} bytes, "
                  f"the probe's over {size}: describe --range {size}", file=sys.stderr)
    title = arguments.title or title
    name = arguments.out or arguments.csv.with_name(
        arguments.csv.name.removesuffix(".csv").removesuffix(".json"))
    try:
        for file in plot_style.save(draw(title, model, probed, probe), name):
            print(file, file=sys.stderr if str(arguments.csv) == "-" else sys.stdout)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; allowed: a file that can be written") from None


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
