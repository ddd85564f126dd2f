"""Draws the results of `kvreplay run` and `sweep`: quality against speed, and where the time of a
token goes.

Reads FOLDER/results.csv; writes FOLDER/figure.pdf and FOLDER/figure.png, one pair for each (trace,
model, platform, batch) of the results. A series is a system with the settings that differ.
"""

import math

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kvreplay import plot_style
from kvreplay.errors import UserError
from kvreplay.plot_input import table
from kvreplay.plot_metrics import is_number
from kvreplay.plot_style import plt

QUALITIES = {
    "attention_mass": "Attention mass covered",
    "output_error": "Relative error of the attention output",
    "residual_error": "Error against the residual stream",
    "recall": "Recall of the true top tokens",
}
CASE = ("trace", "model", "platform", "batch")  # what one figure holds fixed
NUMBERS = ("tokens_per_s", "latency_ms", "compute_ms", "exposed_io_ms")
NEEDED = (*CASE, "projection", "device", "system", "steps", *NUMBERS)
MAX_BARS = 40  # of a panel, and numbers


def read_rows(file, quality):
    rows = table(file, (*NEEDED, quality), "the folder of a `kvreplay run`")
    for place, row in enumerate(rows):
        # A recording says nothing of the quality of a longer context.
        known_only = () if plot_style.is_stretched(row) and not row[quality] else (quality,)
        for name in (*NUMBERS, *known_only):
            try:
                known = math.isfinite(float(row[name]))
            except ValueError:
                known = False
            if not known:
                raise UserError(f"{file}: row {place + 1}: {name}: found '{row[name]}'; allowed: "
                                "a number")
    return rows


def swept_columns(rows):
    """The settings that differ between rows stand between `system` and `steps`."""
    names = list(rows[0])
    return names[names.index("system") + 1:names.index("steps")]


def unique(values):
    return list(dict.fromkeys(values))


def cases_of(rows):
    """(case, its rows) of each figure."""
    def case_of(row):
        return tuple(row[name] for name in CASE)
    return [(case, [row for row in rows if case_of(row) == case])
            for case in unique(map(case_of, rows))]


def plain(text):
    """The text, escaped for matplotlib, which takes text between dollars as a formula."""
    return text.replace("$", r"\$")


def varied_settings(rows):
    """The settings that differ; without those that another one gives for each system, such as what
    was swept along with it."""
    varied = [name for name in swept_columns(rows) if len({row[name] for row in rows}) > 1]

    def gives(one, other):
        values = {}
        for row in rows:
            values.setdefault((row["system"], row[one]), set()).add(row[other])
        return all(len(found) == 1 for found in values.values())

    kept = []
    for name in sorted(varied, key=lambda name: -sum(bool(row[name]) for row in rows)):
        if not any(gives(other, name) for other in kept):
            kept.append(name)
    return [name for name in varied if name in kept]


def with_series(rows):
    """The rows, each with its series: the system, and the settings that differ within the case."""
    varied = varied_settings(rows)
    last = [name.rsplit(".", 1)[-1] for name in varied]
    short_names = {name: end if last.count(end) == 1 else name.removeprefix("system.")
                   for name, end in zip(varied, last)}

    def series(row):
        settings = [f"{short_names[name]}={row[name]}" for name in varied if row[name]]
        return plain(", ".join([row["system"], *settings]))

    return [dict(row, series=series(row)) for row in rows]


def styles_of(rows, names):
    """Of each series; of several systems with one setting that differs, a colour per system and a
    marker per value."""
    styles = plot_style.series_styles(names)
    systems, varied = unique(row["system"] for row in rows), varied_settings(rows)
    if len(systems) < 2 or len(varied) != 1 or len(names) > len(plot_style.MARKERS):
        return styles
    values = unique(row[varied[0]] for row in rows)
    of_system = plot_style.series_styles(systems)
    return {row["series"]: dict(of_system[row["system"]],
                                marker=plot_style.MARKERS[values.index(row[varied[0]])])
            for row in rows}


def join_systems(axes, rows, styles, quality):
    """A line through the points of each system, along the one setting that differs."""
    varied = varied_settings(rows)
    numbers = len(varied) == 1 and all(is_number(row[varied[0]]) for row in rows if row[varied[0]])
    systems = unique(row["system"] for row in rows)
    if not numbers or len(systems) < 2:
        return
    for system in systems:
        points = sorted((row for row in rows if row["system"] == system and row[varied[0]]
                         and row[quality]), key=lambda row: float(row[varied[0]]))
        if len(points) > 1:
            axes.plot([float(row["tokens_per_s"]) for row in points],
                      [float(row[quality]) for row in points], linewidth=0.8, zorder=2,
                      color=styles[points[0]["series"]]["color"])


def plain_log_ticks(axis, low, high):
    """Ticks at 1, 2, 5 of each decade, written as plain numbers; fewer over many decades."""
    decades = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 1.7 else (1, )))
    axis.set_minor_locator(LogLocator(subs=range(2, 10)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def short(number):
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def draw_quality(axes, rows, styles, many, quality, limits):
    """One mark per series; small numbered marks where there are more series than marks."""
    known = [row for row in rows if row[quality]]
    if not known:
        axes.text(0.5, 0.5, "not known: the context is\nlonger than the recording", fontsize=7,
                  transform=axes.transAxes, ha="center", va="center")
    for row in known:
        style = dict(styles[row["series"]], **({"marker": "o"} if many else {}))
        size = 6 if many else (1.05 * plt.rcParams["lines.markersize"]) ** 2 * 34 / 40
        edge = "none" if many else "white"
        if plot_style.does_not_fit(row):
            style["facecolors"], edge = "white", style.pop("color")
        axes.scatter(float(row["tokens_per_s"]), float(row[quality]), s=size, zorder=3,
                     clip_on=False, edgecolors=edge, linewidths=0.6, **style)
    axes.set_xscale("log")
    axes.set_xlim(limits)
    plain_log_ticks(axes.xaxis, *limits)
    axes.set_xlabel("Tokens/s")


def number_points(axes, rows, numbers, quality):
    """Writes each point's number beside it, where it covers no other number and no point: on the
    nearest of some rings around it, with a line to the point from the second ring on. The figure has
    been laid out, since places are in pixels."""
    pixels = axes.figure.dpi / 72
    points = {row["series"]: axes.transData.transform((float(row["tokens_per_s"]),
                                                       float(row[quality]))) for row in rows}
    room = axes.get_window_extent()
    taken = [(x, y, 2 * pixels, 2 * pixels) for x, y in points.values()]

    def free(box):
        x, y, half_width, half_height = box
        inside = room.x0 < x < room.x1 and room.y0 < y < room.y1
        return inside and all(abs(x - other_x) >= half_width + other_width
                              or abs(y - other_y) >= half_height + other_height
                              for other_x, other_y, other_width, other_height in taken)

    for series, (x, y) in points.items():
        text = str(numbers[series])
        half = (2 * len(text) * pixels, 3.2 * pixels)  # of 6-point digits
        rings = [(ring, 7 * ring * pixels, turn * math.pi / 8)
                 for ring in range(1, 12) for turn in range(16)]
        boxes = ((ring, (x + radius * math.cos(angle), y + radius * math.sin(angle), *half))
                 for ring, radius, angle in rings)
        ring, box = next(((ring, box) for ring, box in boxes if free(box)), (1, (x, y, *half)))
        taken.append(box)
        line = {"arrowstyle": "-", "linewidth": 0.4, "color": "#888888", "shrinkA": 0, "shrinkB": 1}
        to_fraction = axes.figure.transFigure.inverted().transform
        axes.annotate(text, to_fraction((x, y)), xytext=to_fraction(box[:2]), fontsize=6,
                      xycoords="figure fraction", textcoords="figure fraction", ha="center",
                      va="center", arrowprops=line if ring > 1 else None)


def draw_latency(axes, rows, names, numbers):
    """One bar per series, with lengths in proportion to time; a scale per device."""
    for place, name in enumerate(names):
        for row in (row for row in rows if row["series"] == name):
            compute = float(row["compute_ms"])
            exposed = float(row["exposed_io_ms"])
            total = float(row["latency_ms"])
            axes.barh(place, compute, height=0.62, color=plot_style.COMPUTE)
            axes.barh(place, exposed, left=compute, height=0.62, color=plot_style.EXPOSED_IO)
            axes.annotate(f"{short(total)} ms{'*' if row.get('marks') else ''}", (total, place), xytext=(3, 0), fontsize=7,
                          textcoords="offset points", va="center")
    shown = [float(row["latency_ms"]) for row in rows if row["series"] in names]
    axes.set_xlim(0, 1.35 * max(shown, default=1))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("Time per token (ms)")
    labels = [plot_style.shown_name(name) + (f"  {numbers[name]}" if numbers else "")
              for name in names]
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def padded(values, factor_low, factor_high):
    return min(values) / factor_low, max(values) * factor_high


def title_of(case, rows, hidden):
    trace, model, platform, batch = map(plain, case)
    title = f"{model} on {platform}, batch {batch}; trace {trace}"
    if any(row.get("synthetic") == "1" for row in rows):
        title += " (SYNTHETIC, not recorded)"
    if rows[0]["projection"] != "none":
        title += f"\nprojected, query heads/KV heads x size: {plain(rows[0]['projection'])}"
    marks = sorted({mark for row in rows for mark in row.get("marks", "").split()})
    if "exceeds_dram" in marks:
        marks.remove("exceeds_dram")
        title += "\n* hollow: does not fit in the platform's DRAM (dram_share above 1)"
    if marks:
        title += f"\n* {', '.join(marks)}: column marks of results.csv"
    if hidden > 0:
        title += f"\nbars and numbers: the first {MAX_BARS} of {MAX_BARS + hidden}"
    return title.replace("->", "\N{RIGHTWARDS ARROW}")


def draw(case, rows, quality):
    """The figure of one case of cases_of()."""
    rows = with_series(rows)
    names = unique(row["series"] for row in rows)
    devices = unique(row["device"] for row in rows)
    styles = styles_of(rows, names)
    many = len(names) > len(plot_style.MARKERS)
    numbers = {name: place + 1 for place, name in enumerate(names)} if many else {}
    speeds = padded([float(row["tokens_per_s"]) for row in rows], 1.5, 1.5)
    barred = names[:MAX_BARS]

    width = plot_style.PANEL_INCHES * max(2, len(devices)) + 0.3
    width += 0.05 * max(0, max(map(len, barred)) - 20)  # long names of series
    bars = 0.9 + 0.19 * len(barred)
    figure, axes = plt.subplots(2, len(devices), sharey="row", squeeze=False,
                                figsize=(width, 2.1 + bars), height_ratios=(2, bars))
    for column, device in enumerate(devices):
        here = [row for row in rows if row["device"] == device]
        draw_quality(axes[0][column], here, styles, many, quality, speeds)
        if not many:
            join_systems(axes[0][column], here, styles, quality)
        draw_latency(axes[1][column], here, barred, numbers)
        axes[0][column].set_title(plain(device))
    axes[0][0].set_ylabel(QUALITIES[quality].replace(" of ", "\nof ", 1))

    plot_style.title(figure, title_of(case, rows, len(names) - len(barred)), fontsize=8)
    marks = [plt.Line2D([], [], linestyle="none", label=name, **styles[name])
             for name in names if not many]
    marks += [plt.Rectangle((0, 0), 1, 1, color=plot_style.COMPUTE, label="compute"),
              plt.Rectangle((0, 0), 1, 1, color=plot_style.EXPOSED_IO, label="exposed I/O")]
    plot_style.legend_below(figure, marks)
    if many:
        plot_style.finish(figure)
        figure.canvas.draw()
        figure.set_layout_engine("none")  # positions stay as they are now
        for column, device in enumerate(devices):
            number_points(axes[0][column], [row for row in rows if row["device"] == device
                                            and row["series"] in barred and row[quality]],
                          numbers, quality)
    return figure


def figures(folder, quality="attention_mass"):
    """(name, figure) of each case of the folder's results."""
    cases = cases_of(read_rows(folder / "results.csv", quality))
    return [("figure" if len(cases) == 1 else "figure-" + "-".join(case).replace("/", "_"),
             draw(case, here, quality)) for case, here in cases]
