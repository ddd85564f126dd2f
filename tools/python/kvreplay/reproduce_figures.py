"""The figures of `kvreplay reproduce`: the paper's points beside ours, panel by panel."""

import math
import re

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from kvreplay import plot_style
from kvreplay.plot_style import plt
from kvreplay.reproduce_verdicts import matching, rows_of

PAPER = "#BBBBBB"
OURS = plot_style.COLOURS[0]


def plain(value, _=None):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def draw_lines(axes, points, styles, log_y):
    """Ours solid, with the range over the traces where there are several; the paper's dashed with
    hollow marks; x in equal steps, as papers draw them."""
    claim = points[0].claim
    places = {x: place for place, x in enumerate(claim["xs"])}
    for series in dict.fromkeys(point.series for point in points):
        own = [point for point in points if point.series == series]
        at = [places[point.x] for point in own]
        style = styles[series]
        axes.plot(at, [point.value for point in own], linewidth=1.1, markersize=4, **style)
        axes.vlines(at, [point.low for point in own], [point.high for point in own], linewidth=0.8,
                    color=style["color"])
        axes.plot(at, [point.reported for point in own], linestyle=(0, (3, 2)), linewidth=0.8,
                  markersize=4.5, markerfacecolor="none", markeredgewidth=0.8, **style)
    names = claim.get("labels", {})
    axes.set_xticks(list(places.values()), [names.get(str(x), str(x)) for x in places])
    axes.margins(x=0.08)
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        shown = [value for point in points for value in (point.high, point.reported)]
        axes.set_ylim(0, 1.08 * max(value for value in shown if not math.isnan(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def draw_bars(axes, points, log_x):
    """One pair of bars per number, with its value, and the range over the traces where there are
    several. Dots on a logarithmic axis, which has no zero for a bar to begin at."""
    axes.set_xscale("log" if log_x else "linear")
    shown = []
    for place, point in enumerate(points):
        bound = "" if point.bound == "=" else point.bound
        for at, value, end, colour, text in (
                (place - 0.2, point.reported, point.reported, PAPER, bound + plain(point.reported)),
                (place + 0.2, point.value, point.high, OURS, plain(point.value))):
            if math.isnan(value):
                continue
            shown += [value, end]
            if log_x:
                axes.plot(value, at, marker="o", markersize=5, color=colour)
            else:
                axes.barh(at, value, height=0.36, color=colour)
            axes.annotate(text, (max(value, end, 0), at), xytext=(4, 0), fontsize=6.5,
                          textcoords="offset points", va="center")
        if point.low < point.high:
            axes.plot((point.low, point.high), (place + 0.2,) * 2, color="black", linewidth=1)
    axes.set_yticks(range(len(points)),
                    [wrapped(point.label or point.claim["claim"], 38) for point in points])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    if log_x:
        axes.set_xlim(min(shown) / 3, max(shown) * 30)
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, 1.3 * max(shown))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))


def made_with(claims, tables):
    """The rows of a figure's claims, in words."""
    rows = []
    for claim in claims:
        where = dict(claim.get("where", {}))
        if "series" in claim:
            where[claim["series"]] = list(claim["reported"])
        rows += matching(rows_of(claim["run"], tables), where)
    return plot_style.made_with(rows)


def unit_of(points):
    unit = points[0].claim.get("unit", "")
    return {"x": "Ratio", "": "Share", "entries": "Entries", "tokens": "Tokens",
            "tokens/s": "Tokens/s"}.get(unit, unit)


def wrapped(text, columns):
    lines = [""]
    for word in re.sub(r"\b(Fig|Tab) ", "\\1\N{NO-BREAK SPACE}", text).split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > columns:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)


def draw(figure_spec, panels, content, tables):
    """`panels`: {title: points}."""
    by_x = all(points[0].x is not None and len({p.claim["name"] for p in points}) == 1
               for points in panels.values())
    columns = min(2, len(panels)) if by_x else 1
    lines = -(-len(panels) // columns)
    series = list(dict.fromkeys(p.series for points in panels.values() for p in points))
    styles = plot_style.series_styles(series)
    if by_x:
        width, heights = max(4.6, 0.6 + 3.1 * columns), [2.3] * lines
    else:
        width, heights = 6.6, [0.55 + 0.36 * len(points) for points in panels.values()]
    figure, axes = plt.subplots(lines, columns, squeeze=False, height_ratios=heights,
                                figsize=(width, sum(heights) + 1.0))
    for place, (title, points) in enumerate(panels.items()):
        panel = axes[place // columns][place % columns]
        if by_x:
            draw_lines(panel, points, styles, figure_spec.get("log", False))
            panel.set_xlabel(figure_spec.get("x", points[0].claim["x"]))
            panel.set_ylabel(figure_spec.get("y", unit_of(points)))
        else:
            draw_bars(panel, points, figure_spec.get("log", False))
            panel.set_xlabel(figure_spec.get("y", unit_of(points)))
        if title:
            panel.set_title(title)
    for unused in list(axes.flat)[len(panels):]:
        unused.set_visible(False)
    claims = list({p.claim["name"]: p.claim for points in panels.values() for p in points}.values())
    title = f"{content['title']}: {figure_spec['title']}"
    caption = "\n".join(wrapped(text, int(width * 16)) for text in (title, made_with(claims, tables)))
    plot_style.title(figure, caption, fontsize=7.5)
    if by_x:
        names = {key: value for claim in claims for key, value in claim.get("labels", {}).items()}
        handles = [plt.Line2D([], [], label=names.get(name, name), markersize=5, **styles[name])
                   for name in series if name]
        handles.append(plt.Line2D([], [], color="black", label="simulated"))
        if any(p.judged for points in panels.values() for p in points):
            handles.append(plt.Line2D([], [], color="black", linestyle=(0, (3, 2)), marker="o",
                                      markerfacecolor="none", markersize=5, label="paper"))
    else:
        shape = {"linestyle": "none", "marker": "o" if figure_spec.get("log") else "s"}
        handles = [plt.Line2D([], [], color=PAPER, label="paper", **shape),
                   plt.Line2D([], [], color=OURS, label="simulated", **shape)]
    if any(point.low < point.high for points in panels.values() for point in points):
        handles.append(plt.Line2D([], [], linestyle="none", marker="$\\mathrm{I}$", color="black",
                                  label="range of traces"))
    plot_style.legend_below(figure, handles)
    return figure


def draw_all(paper, content, points_by_claim, tables, out):
    """OUT/PAPER-FIGURE.pdf and .png for every figure of the paper's file."""
    for name, spec in content.get("figures", {}).items():
        panels = {}
        for claim in content["claims"]:
            if claim.get("figure") == name and claim["name"] in points_by_claim:
                panels.setdefault(claim.get("panel", ""), []).extend(points_by_claim[claim["name"]])
        if panels:
            plot_style.save(draw(spec, panels, content, tables), out / f"{paper}-{name}")
