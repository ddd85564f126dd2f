"""Draws any columns of one or several folders of results against any other: lines over what was
swept, points for metric against metric, bars over names.

Rows that differ only in trace or seed become one mark, with an error bar over them.
"""

import math
import statistics
import textwrap

from matplotlib.ticker import (FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter,
                               NullLocator)

from kvreplay import plot_style
from kvreplay.errors import UserError, unknown
from kvreplay.plot_metrics import (HIGHER_IS_BETTER, axis_label, is_number, key_text,
                                   scale_of)
from kvreplay.plot_style import plt

FOLDER = "folder"  # the key that tells several folders apart
AVERAGED = ("trace", "seed")
NUMERIC_KEYS = ("batch", "budget", "layer", "seed")
NO_KEYS = ("projection", "marks", "composition", "reason", "check", "source", "synthetic")
MAX_NAMED = 12  # series of points; of more, those on the front have their names beside them
ERRORS = ("range", "ci", "std", "none")
# Student's t, two-sided 95 %, by degrees of freedom.
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)


def unique(values):
    return list(dict.fromkeys(values))


def settings_of(names):
    """The swept keys: what stands between `system` and `steps`."""
    if "system" in names and "steps" in names:
        return names[names.index("system") + 1:names.index("steps")]
    return []


def keys_of(rows):
    """Columns that tell rows apart, in their order; those that vary."""
    names = unique(name for row in rows for name in row)
    settings = {name for row in rows for name in settings_of(list(row))}
    keys = []
    for name in names:
        fields = [row[name] for row in rows if row.get(name)]
        is_text = any(not is_number(field) for field in fields)
        if name in NO_KEYS or not (is_text or name in settings or name in NUMERIC_KEYS):
            continue
        if len({row.get(name, "") for row in rows}) > 1:
            keys.append(name)
    return keys, settings


def full_name(rows, name, option):
    """A column; the last part of a swept key will do."""
    names = unique(column for row in rows for column in row)
    if name in names:
        return name
    ends = [column for column in names if column.endswith(f".{name}")]
    if len(ends) != 1:
        raise unknown(option, "column", name, names)
    return ends[0]


def filtered(rows, where):
    for key, values in where:
        name = full_name(rows, key, "--where")
        kept = [row for row in rows if row.get(name) in values]
        if not kept:
            raise UserError(f"--where: no row with {key}={','.join(values)}; allowed: "
                            + ", ".join(unique(row.get(name) or "nothing" for row in rows)))
        rows = kept
    return rows


def swept_number(rows, keys):
    """The key to draw lines over: numbers, with the most values; None where there is none."""
    counts = {}
    for name in keys:
        fields = {row[name] for row in rows if row.get(name)}
        is_free = name.rsplit(".", 1)[-1] not in (*AVERAGED, FOLDER)
        if is_free and len(fields) > 1 and all(map(is_number, fields)):
            counts[name] = len(fields)
    return max(counts, key=counts.get, default=None)


def quality_of(rows):
    for name in ("attention_mass", "output_error", "agreement", "recall"):
        if any(is_number(row.get(name)) for row in rows):
            return name
    return None


class Chart:
    """What is drawn: names of columns, and which rows go where."""

    def __init__(self, rows, x=None, y=None, by=None, panel=None, errors="range"):
        self.rows, self.errors = rows, errors
        keys, self.settings = keys_of(rows)
        self.averaged = [key for key in keys if key.rsplit(".", 1)[-1] in AVERAGED]
        free = [key for key in keys if key not in self.averaged]
        swept = swept_number(rows, free)
        quality = quality_of(rows)
        first = "latency_ms" if "latency_ms" in rows[0] else "kl_nats"
        if x is None:
            x = swept or "tokens_per_s"
        self.x = full_name(rows, x, "--x")
        if y is None:
            y = [quality or first] if self.x == "tokens_per_s" else [
                name for name in (first, quality) if name and name != self.x]
        self.ys = [full_name(rows, name, "--y") for name in y]
        self.x_is_key = self.x in keys or self.x in self.settings or self.x in NUMERIC_KEYS
        given = [row[self.x] for row in rows if row.get(self.x)]
        if not given:
            raise UserError(f"--x: column {self.x} is empty; allowed: one with values")
        self.bars = not all(map(is_number, given))
        if self.bars:
            self.x_is_key = True
        for name in self.ys:
            wrong = [row[name] for row in rows if row.get(name) and not is_number(row[name])]
            if wrong or not any(is_number(row.get(name)) for row in rows):
                raise UserError(f"--y: column {name} holds "
                                + (f"'{wrong[0]}'" if wrong else "nothing")
                                + "; allowed: columns of numbers")
        free = [key for key in free if key != self.x]
        self.by = None if by is None else [full_name(rows, name, "--by") for name in by]
        self.panel = None if panel is None else full_name(rows, panel, "--panel")
        free = [key for key in free if key != self.panel and key not in (self.by or ())]
        free = self.without_repeats(free)
        if self.panel is None and self.by is None and "device" in free and (
                len(free) > 1 or not self.bars) and self.count("device") <= 4:
            self.panel = "device"
            free.remove("device")
        connected = []
        if not self.x_is_key:  # points of a series along what was swept
            connected = [key for key in free if all(
                is_number(row[key]) for row in rows if row.get(key))]
        if self.by is None:
            self.by = [key for key in free if key not in connected]
            free = []
        others = [key for key in free if key not in connected]
        # Metric against metric, every row is a mark; over a key, one mark has one row.
        self.rest = others if self.x_is_key else []
        self.apart = [] if self.x_is_key else [*connected, *others]
        self.along = [] if others else connected
        self.panels = unique(row.get(self.panel, "") for row in rows) if self.panel else [""]
        self.check_points()

    def count(self, key):
        return len({row.get(key, "") for row in self.rows})

    def without_repeats(self, free):
        """A key whose values another one gives, as of a folder for each device, is left out; a
        model that stands for another platform stays."""
        if FOLDER not in free or len(free) == 1:
            return free
        others = [key for key in (*free, self.x, *(self.by or ()), self.panel)
                  if key and key != FOLDER]
        folders = {}
        for row in self.rows:
            folders.setdefault(tuple(row.get(key, "") for key in others), set()).add(row[FOLDER])
        return free if any(len(of) > 1 for of in folders.values()) else [
            key for key in free if key != FOLDER]

    def series(self, row):
        parts = []
        for key in self.by:
            value = key_text(key, row.get(key, ""))
            if value and key in self.settings:
                parts.append(f"{key.rsplit('.', 1)[-1]}={value}")
            elif value:
                parts.append(str(value) if not is_number(value) else f"{key} {value}")
        return ", ".join(parts).replace("$", r"\$")

    def place(self, row):
        """Of a mark: rows of one place are averaged."""
        own = [row.get(key, "") for key in self.apart]
        return (row.get(self.panel, "") if self.panel else "", self.series(row),
                row.get(self.x, "") if self.x_is_key else "", *own)

    def check_points(self):
        seen = {}
        for row in self.rows:
            values = {key: row.get(key, "") for key in self.rest}
            first = seen.setdefault(self.place(row), values)
            differ = [key for key in self.rest if first[key] != values[key]]
            if differ:
                key = differ[0]
                raise UserError(
                    f"--by: rows of one mark differ in {key}; allowed: --by "
                    f"{','.join([*self.by, key])}, --panel {key}, or --where "
                    f"{key}={first[key]}")

    def marks(self, panel, name):
        """{series: [(x, y, (x errors), (y errors), rows)]}; x None where the key does not reach."""
        groups = {}
        for row in self.rows:
            if (row.get(self.panel, "") if self.panel else "") == panel and is_number(row.get(name)):
                groups.setdefault(self.place(row), []).append(row)
        series = {}
        for place, rows in groups.items():
            y, y_error = self.middle([float(row[name]) for row in rows])
            x, x_error = None, (0, 0)
            if self.bars:
                x = rows[0].get(self.x, "")
            elif all(is_number(row.get(self.x)) for row in rows):
                x, x_error = self.middle([float(row[self.x]) for row in rows])
            elif not self.x_is_key:
                continue
            order = tuple(float(rows[0][key]) if is_number(rows[0].get(key)) else 0
                          for key in self.along)
            series.setdefault(place[1], []).append((x, y, x_error, y_error, rows, order))
        return series

    def middle(self, values):
        """The mean, and how far the error bar goes below and above it."""
        mean = statistics.fmean(values)
        if len(values) < 2 or self.errors == "none":
            return mean, (0, 0)
        if self.errors == "range":
            return mean, (max(0, mean - min(values)), max(0, max(values) - mean))
        half = statistics.stdev(values)
        if self.errors == "ci":
            half *= (T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.96) / math.sqrt(
                len(values))
        return mean, (half, half)


def shown_label(name, unit=""):
    """An axis' label: what --label gives for the column or the last part of its name."""
    for given in (name, name.rsplit(".", 1)[-1]):
        shown = plot_style.shown_name(given)
        if shown != given:
            return shown + (f" ({unit})" if unit else "")
    return axis_label(name, unit)


def does_not_fit(rows):
    return any(map(plot_style.does_not_fit, rows))


def pareto(points, x_name, y_name):
    """The (x, y) that no other equals or beats in both, by x."""
    x_sign = -1 if x_name in HIGHER_IS_BETTER else 1
    y_sign = -1 if y_name in HIGHER_IS_BETTER else 1
    front, best = [], math.inf
    for x, y in sorted(points, key=lambda p: (x_sign * p[0], y_sign * p[1])):
        if y_sign * y < best:
            front.append((x, y))
            best = y_sign * y
    return front


def add_names(axes, points):
    """The names beside (name, x, y), one below the other where they would overlap."""
    figure = axes.figure
    step = 1.25 * plt.rcParams["xtick.labelsize"] / 72 * figure.dpi
    taken = []
    for name, x, y in sorted(points, key=lambda point: axes.transData.transform(point[1:])[1]):
        place = axes.transData.transform((x, y))
        width = 0.45 * len(plot_style.shown_name(name)) * step
        right = place[0] + width < axes.get_window_extent().x1
        side = 1 if right else -1
        at = [place[0] + side * 0.4 * step, place[1]]

        def hits():
            low, high = sorted((at[0], at[0] + side * width))
            return any(abs(at[1] - y) < step and low < end and high > begin
                       for begin, end, y in taken)

        for _ in range(12):
            if not hits():
                break
            at[1] += step
        low, high = sorted((at[0], at[0] + side * width))
        taken.append((low, high, at[1]))
        points_of = 72 / figure.dpi  # per pixel
        axes.annotate(plot_style.shown_name(name), (x, y),
                      fontsize=0.85 * plt.rcParams["xtick.labelsize"],
                      xytext=((at[0] - place[0]) * points_of, (at[1] - place[1]) * points_of),
                      textcoords="offset points", ha="left" if right else "right", va="center",
                      color=plot_style.COLOURS[0], zorder=6,
                      arrowprops={"arrowstyle": "-", "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2,
                                  "color": plot_style.COLOURS[0]})


def wants_log(values, is_key):
    values = [value for value in values if value is not None]
    if len(set(values)) < 2 or min(values) <= 0:
        return False
    doubling = is_key and all(math.log2(value).is_integer() for value in values)
    return max(values) / min(values) >= (4 if doubling else 8 if is_key else 10)


def set_scale(axes, which, log, values, name, is_key=False):
    """Scale and ticks of one axis, as plain numbers; a few values of a key have a tick each."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    set_to = axes.set_xscale if which == "x" else axes.set_yscale
    values = sorted({value for value in values if value is not None})
    few = is_key and len(values) <= plot_style.MAX_TICKS
    if few and not log:
        axis.set_major_locator(FixedLocator(values))
    elif not log:
        room = axes.bbox.width if which == "x" else axes.bbox.height
        axis.set_major_locator(MaxNLocator(5 if room > 120 else 3, steps=(1, 2, 2.5, 5, 10)))
    else:
        positive = [value for value in values if value > 0]
        if not positive:
            raise UserError(f"--log: column {name} has no value above 0; allowed: an axis that has")
        doubling = all(math.log2(value).is_integer() for value in positive)
        set_to("log", base=2 if doubling else 10)
        if few or which == "x" and len(positive) > 1 and (doubling or len(positive) <= 6):
            plot_style.label_ticks(axis, positive, 0.12, False)
            axis.set_major_formatter(FuncFormatter(number_text))
        else:
            decades = math.log10(positive[-1] / positive[0]) if len(positive) > 1 else 0
            if decades < 0.6:
                axis.set_major_locator(MaxNLocator(4, steps=(1, 2, 2.5, 5, 10)))
                axis.set_minor_locator(NullLocator())
            else:
                axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 1.7 else (1,)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(number_text))


def number_text(value, _=None):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def size_of(count, rows, size):
    """The figure's inches: a column of a paper for one panel."""
    if size is not None:
        return size
    if plot_style.plt.rcParams["font.size"] > 8:  # --style screen
        return (6.4, 4) if count == 1 else (min(12, 0.6 + 3.6 * count), 0.8 + 2.8 * rows)
    return (3.3, 0.2 + 1.8 * rows) if count == 1 else (min(7, 0.5 + 2.2 * count), 0.4 + 1.7 * rows)


def set_names(axes, names, inches):
    """Names below bars: broken at spaces where that fits `inches`, else turned."""
    axes.kvreplay_names = True
    character = 0.6 * plt.rcParams["xtick.labelsize"] / 72
    room = int(0.8 * inches / len(names) / character)
    longest = max((len(word) for name in names for word in name.split()), default=0)
    if longest <= room:
        axes.set_xticks(range(len(names)), [textwrap.fill(name, max(room, 1)) for name in names])
        return
    axes.set_xticks(range(len(names)), [textwrap.fill(name, 24) for name in names])
    slanted = len(names) < 9
    for text in axes.get_xticklabels():
        text.set(rotation=40 if slanted else 90, ha="right" if slanted else "center",
                 rotation_mode="anchor" if slanted else "default")


def draw_bars(axes, series, chart, styles, scale, many):
    names = unique(row[chart.x] for row in chart.rows if row.get(chart.x))
    width = 0.8 / max(1, len(styles))
    for place, (name, style) in enumerate(styles.items()):
        marks = series.get(name, [])
        at = [names.index(mark[0]) + (place - (len(styles) - 1) / 2) * width for mark in marks]
        heights = [mark[1] / scale for mark in marks]
        errors = [[mark[3][side] / scale for mark in marks] for side in (0, 1)]
        bars = axes.bar(at, heights, 0.9 * width, color=style["color"],
                        yerr=errors if any(map(any, errors)) else None,
                        error_kw={"linewidth": 0.7, "capsize": 1.5})
        for bar, mark in zip(bars, marks):
            if does_not_fit(mark[4]):
                bar.set(fill=False, edgecolor=style["color"], hatch="////", linewidth=0.6)
    set_names(axes, [plot_style.shown_name(name) for name in names],
              axes.figure.get_figwidth() / max(1, many))
    axes.grid(axis="x", visible=False)


def draw_marks(axes, series, chart, styles, scales, colours_alone):
    x_scale, y_scale = scales
    for name, marks in series.items():
        style = dict(styles[name])
        if colours_alone:
            style["marker"] = "o"
        reached = [mark for mark in marks if mark[0] is not None]
        reached.sort(key=lambda mark: mark[0] if chart.x_is_key else mark[5])
        for mark in marks:
            if mark[0] is None:  # the swept key does not reach this one
                axes.axhline(mark[1] / y_scale, color=style["color"], linewidth=0.9,
                             linestyle=(0, (4, 2)))
        if not reached:
            continue
        xs, ys = ([mark[k] / scale for mark in reached] for k, scale in ((0, x_scale), (1, y_scale)))
        small = chart.x_is_key or len(chart.along) > 0 or len(styles) > MAX_NAMED
        joined = chart.x_is_key or (len(chart.along) > 0 and len(reached) > 1)
        axes.plot(xs, ys, linestyle="-" if joined else "none",
                  linewidth=1.1 if chart.x_is_key else 0.6, color=style["color"], zorder=2)
        for x, y, mark in zip(xs, ys, reached):
            bars = {}
            for at, scale, key in ((2, x_scale, "xerr"), (3, y_scale, "yerr")):
                if any(mark[at]):
                    bars[key] = [[mark[at][0] / scale], [mark[at][1] / scale]]
            hollow = {"markerfacecolor": "white"} if does_not_fit(mark[4]) else {}
            axes.errorbar(x, y, **bars, linestyle="none", color=style["color"],
                          marker=style["marker"], elinewidth=0.8, capsize=1.8, zorder=3,
                          markeredgewidth=0.9 if hollow else 0.4,
                          markeredgecolor=style["color"] if hollow else "white", **hollow,
                          markersize=plt.rcParams["lines.markersize"] * (0.7 if small else 1))


def draw(chart, title, log=None, show_pareto=None):
    """The figure; `log`: the axes that are logarithmic, such as "xy"; None = those with values over
    more than a decade."""
    by_panel = {(panel, name): chart.marks(panel, name) for panel in chart.panels
                for name in chart.ys}
    if not any(by_panel.values()):
        raise UserError(f"--y: no row has {', '.join(chart.ys)} with {chart.x}; allowed: columns "
                        "with values")
    names = unique(name for series in by_panel.values() for name in series)
    styles = plot_style.series_styles(names)
    unnamed = not chart.bars and not chart.x_is_key and len(names) > MAX_NAMED
    if unnamed:
        styles = {name: {"color": "#AAAAAA", "marker": "o"} for name in names}
    if len(chart.ys) == 1:
        columns = min(3, len(chart.panels))
        lines = -(-len(chart.panels) // columns)
        order = [(panel, chart.ys[0]) for panel in chart.panels]
    else:
        columns, lines = len(chart.panels), len(chart.ys)
        order = [(panel, name) for name in chart.ys for panel in chart.panels]
        if columns == 1 and plot_style.Look.size is None:
            columns, lines = len(chart.ys), 1
        elif columns == 1 and plot_style.Look.size[0] > 1.3 * plot_style.Look.size[1]:
            columns, lines = len(chart.ys), 1
    figure, grid = plt.subplots(lines, columns, squeeze=False, sharex=not chart.bars,
                                sharey="row" if len(chart.panels) > 1 else False,
                                figsize=size_of(columns, lines, plot_style.Look.size))
    if plot_style.Look.size is None and columns > 1 and len(chart.panels) == 1:
        figure.set_size_inches(min(7, 3.3 * columns), figure.get_figheight())
    figure.kvreplay_grows = True  # by its legend
    every = [mark for series in by_panel.values() for marks in series.values() for mark in marks]
    x_values = [] if chart.bars else [mark[0] for mark in every if mark[0] is not None]
    x_scale, x_unit = (1, "") if chart.bars else scale_of(chart.x, x_values)
    scaled_x = [value / x_scale for value in x_values]
    x_log = not chart.bars and (wants_log(x_values, chart.x_is_key) if log is None else "x" in log)
    both = not chart.x_is_key and not chart.bars
    show_pareto = both and len(every) > 2 if show_pareto is None else show_pareto
    fronts, later = 0, []
    for place, (panel, name) in enumerate(order):
        axes = grid[place // columns][place % columns]
        series = by_panel[panel, name]
        values = [mark[1] for of_panel, of in by_panel.items() if of_panel[1] == name
                  for marks in of.values() for mark in marks]
        y_scale, y_unit = scale_of(name, values)
        scaled_y = [value / y_scale for value in values]
        y_log = wants_log(values, False) if log is None else "y" in log
        if chart.bars:
            draw_bars(axes, series, chart, styles, y_scale, columns)
            y_log = log is not None and "y" in log
        else:
            draw_marks(axes, series, chart, styles, (x_scale, y_scale),
                       len(names) > len(plot_style.COLOURS) * 6)
            set_scale(axes, "x", x_log, scaled_x, chart.x, chart.x_is_key)
            if place // columns == lines - 1 or len(chart.ys) == 1 or columns > len(chart.panels):
                axes.set_xlabel(shown_label(chart.x, x_unit))
        set_scale(axes, "y", y_log, scaled_y, name)
        highest = max(mark[1] + mark[3][1] for of_panel, of in by_panel.items()
                      if of_panel[1] == name for marks in of.values() for mark in marks) / y_scale
        if not y_log and min(scaled_y) >= 0 and (chart.bars or (
                chart.x_is_key and min(scaled_y) < 0.4 * highest)):
            axes.set_ylim(0, 1.06 * highest or 1)
        if place % columns == 0 or len(chart.panels) == 1:
            axes.set_ylabel(shown_label(name, y_unit))
        if show_pareto and both:
            points = [(mark[0] / x_scale, mark[1] / y_scale) for marks in series.values()
                      for mark in marks if mark[0] is not None and not does_not_fit(mark[4])]
            front = pareto(points, chart.x, name)
            fronts += len(front) > 1
            if unnamed:
                named = {(mark[0] / x_scale, mark[1] / y_scale): name_of
                         for name_of, marks in series.items() for mark in marks
                         if mark[0] is not None}
                axes.plot(*zip(*front), linestyle="none", marker="o", zorder=4, markersize=4,
                          color=plot_style.COLOURS[0])
                later.append((axes, [(named[point], *point) for point in front]))
            axes.plot(*zip(*front), color="#888888", linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        if panel and (len(chart.ys) == 1 or place < len(chart.panels)):
            shown = key_text(chart.panel, panel)
            shown = f"{chart.panel.rsplit('.', 1)[-1]} {shown}" if is_number(panel) else shown
            axes.set_title(plot_style.shown_name(shown).replace("$", r"\$"))
        if chart.bars and chart.x not in ("system", "device", "model", "platform", "trace"):
            axes.set_xlabel(shown_label(chart.x))
    for unused in list(grid.flat)[len(order):]:
        unused.set_visible(False)
    if not chart.bars:
        figure.align_ylabels()
    plot_style.title(figure, title, plt.rcParams["xtick.labelsize"])
    plot_style.legend_below(figure, handles_of(chart, names, styles, by_panel, every, fronts > 0))
    if unnamed:  # places are in pixels: the layout comes first
        plot_style.finish(figure)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes, points in later:
            add_names(axes, points)
    if plot_style.Look.title == "" and any(row.get("synthetic") == "1" for row in chart.rows):
        figure.text(0.995, 0.995, "SYNTHETIC", ha="right", va="top", fontsize=6, color="#D55E00")
    return figure


def handles_of(chart, names, styles, by_panel, every, show_pareto):
    handles = []
    if not chart.bars and not chart.x_is_key and len(names) > MAX_NAMED:
        handles.append(plt.Line2D([], [], linestyle="none", marker="o", color="#AAAAAA",
                                  markersize=4, label=f"{len(names)} series; names: on the front"))
    elif len(names) > 1 or (names and names[0] and not chart.bars):
        for name in names:
            marks = [mark for series in by_panel.values() for mark in series.get(name, ())]
            if chart.bars:
                handles.append(plt.Rectangle((0, 0), 1, 1, color=styles[name]["color"], label=name))
            elif all(mark[0] is None for mark in marks):
                handles.append(plt.Line2D([], [], color=styles[name]["color"], linewidth=0.9,
                                          linestyle=(0, (4, 2)), label=name))
            else:
                handles.append(plt.Line2D([], [], linestyle="-" if chart.x_is_key else "none",
                                          linewidth=1.1, label=name,
                                          markersize=0.8 * plt.rcParams["lines.markersize"],
                                          **styles[name]))
    if show_pareto and not chart.x_is_key and not chart.bars:
        handles.append(plt.Line2D([], [], color="#888888", linewidth=0.8, linestyle=(0, (3, 2)),
                                  label="Pareto front"))
    counts = {len(mark[4]) for mark in every if any(mark[3]) or any(mark[2])}
    if counts:
        of = " and ".join(f"{key.rsplit('.', 1)[-1]}s" for key in chart.averaged)
        what = {"range": "range", "ci": "95 % interval", "std": "standard deviation"}[chart.errors]
        handles.append(plt.Line2D([], [], linestyle="none", marker="$\\mathrm{I}$", color="black",
                                  markersize=4,
                                  label=f"{what} of {max(counts)} {of}"))
    if any(does_not_fit(mark[4]) for mark in every):
        style = {"markerfacecolor": "white", "marker": "o", "linestyle": "none", "color": "black"}
        handle = (plt.Rectangle((0, 0), 1, 1, fill=False, hatch="////", label="")
                  if chart.bars else plt.Line2D([], [], markersize=4, **style))
        handle.set_label("does not fit in DRAM (dram_share above 1)")
        handles.append(handle)
    return handles
