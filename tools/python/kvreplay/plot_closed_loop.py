"""Draws the results of `kvreplay evaluate`: divergence and perplexity against the budget, and
what a replay had said against what the model then did.

Reads FOLDER/closed_loop.csv and manifest.json; writes FOLDER/closed_loop.pdf and FOLDER/closed_loop.png.
"""

import json
import pathlib

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kvreplay import plot_style
from kvreplay.errors import UserError
from kvreplay.plot_input import table
from kvreplay.plot_style import plt

NEEDED = ("system", "budget", "budget_unit", "stored_bits", "perplexity", "full_perplexity",
          "kl_nats", "output_error")
ALLOWED = "the folder of a `kvreplay evaluate`"


def draw_curves(axes, rows, unit, x_name, y, styles):
    """A line per system, over the budgets of this unit."""
    for system, style in styles.items():
        here = [row for row in rows if row["system"] == system and row["budget_unit"] == unit]
        if here:
            axes.plot([float(row[x_name]) for row in here], [y(row) for row in here], **style,
                      label=system)
    axes.set_yscale("log")


def draw_scatter(axes, rows, x, y, styles, line):
    for system, style in styles.items():
        here = [row for row in rows if row["system"] == system]
        if here:
            axes.plot([x(row) for row in here], [y(row) for row in here],
                      linestyle="-" if line else "none", **style)
    axes.set_yscale("log")


def number_ticks(axis):
    """At least two labelled ticks, as plain numbers, however short the logarithmic axis is."""
    low, high = axis.get_view_interval()
    if high / low < 4:
        axis.set_major_locator(MaxNLocator(4))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def draw(rows, title):
    systems = list(dict.fromkeys(row["system"] for row in rows))
    styles = plot_style.series_styles(systems)
    for system in systems[len(plot_style.MARKERS):]:  # the second round of markers is open
        styles[system]["fillstyle"] = "none"

    def kl(row):
        return max(float(row["kl_nats"]), 1e-7)

    def excess(row):
        return float(row["perplexity"]) / float(row["full_perplexity"])

    by_budget = [row for row in rows if row["budget_unit"] == "tokens"]
    by_bits = [row for row in rows if row["budget_unit"] != "tokens"]
    count = 1 + 2 * bool(by_budget) + bool(by_bits)  # no panel without data
    columns = count
    if plot_style.Look.size is not None and plot_style.Look.size[0] < 1.4 * count:
        columns = min(2, count)
    width = plot_style.PANEL_INCHES * max(2, columns)
    figure, axes = plt.subplots(-(-count // columns), columns, figsize=(width, 2.8), squeeze=False)
    for unused in list(axes.flat)[count:]:
        unused.set_visible(False)
    panels = iter(axes.flat)
    if by_budget:
        budgets = sorted({int(row["budget"]) for row in by_budget})
        for y, label in ((kl, "KL to full attention (nats)"),
                         (excess, "Perplexity / full attention's")):
            panel = next(panels)
            draw_curves(panel, by_budget, "tokens", "budget", y, styles)
            panel.set_xscale("log", base=2)
            plot_style.label_ticks(panel.xaxis, budgets, 0.12, False)
            panel.set_xlabel("Token budget")
            panel.set_ylabel(label)
        number_ticks(panel.yaxis)
    if by_bits:
        panel = next(panels)
        draw_scatter(panel, by_bits, lambda row: float(row["stored_bits"]), kl, styles, line=True)
        panel.set_xlabel("Stored bits per element")
        panel.set_ylabel("KL to full attention (nats)")
    panel = next(panels)
    if all(row.get("residual_error") for row in rows):
        draw_scatter(panel, rows, lambda row: max(float(row["residual_error"]), 1e-5), kl, styles,
                     line=False)
        panel.set_xscale("log")
        panel.set_xlabel("Residual error of the replay")
    else:
        draw_scatter(panel, rows, lambda row: float(row["output_error"]), kl, styles, line=False)
        panel.set_xlabel("Output error of the replay")
    panel.set_ylabel("KL of the closed loop (nats)")
    plot_style.title(figure, title, fontsize=8)
    plot_style.legend_below(figure, [plt.Line2D([], [], linestyle="none", label=name, **style)
                                     for name, style in styles.items()])
    return figure


def title_of(folder):
    """Model, text, prompt and steps, of the manifest."""
    file = folder / "manifest.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        text = pathlib.Path(about["text_source"]).name
        title = (f"{about['model']} on {text}: {about['prompt_tokens']:,} prompt tokens, "
                 f"{about['steps']:,} steps")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; allowed: {ALLOWED}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{file}: is of something else; allowed: {ALLOWED}") from None
    return title.replace("$", r"\$")


def figures(folder):
    """(name, figure) of each figure of the folder."""
    rows = table(folder / "closed_loop.csv", NEEDED, ALLOWED)
    return [("closed_loop", draw(rows, title_of(folder)))]
