#!/usr/bin/python3
"""Draws the results of `kvreplay evaluate`: divergence and perplexity against the budget, and
what a replay had said against what the model then did.

Reads FOLDER/closed_loop.csv; writes FOLDER/closed_loop.pdf and FOLDER/closed_loop.png.
"""

import argparse
import pathlib

import plot_style
from plot_input import table
from plot_style import plt

NEEDED = ("system", "budget", "budget_unit", "stored_bits", "perplexity", "full_perplexity", "kl",
          "output_error")


def draw_curves(axes, rows, unit, x_name, y, styles):
    """A line a system, over the budgets of this unit."""
    for system, style in styles.items():
        here = [row for row in rows if row["system"] == system and row["budget_unit"] == unit]
        if here:
            axes.plot([float(row[x_name]) for row in here], [y(row) for row in here], **style,
                      label=system)
    axes.set_yscale("log")


def draw(rows):
    systems = list(dict.fromkeys(row["system"] for row in rows))
    styles = plot_style.series_styles(systems)
    for system in systems[len(plot_style.MARKERS):]:  # the second round of markers is open
        styles[system]["fillstyle"] = "none"
    figure, axes = plt.subplots(1, 4, figsize=(4 * plot_style.PANEL_INCHES, 2.6))

    def kl(row):
        return max(float(row["kl"]), 1e-7)

    def excess(row):
        return float(row["perplexity"]) / float(row["full_perplexity"])

    draw_curves(axes[0], rows, "tokens", "budget", kl, styles)
    axes[0].set_ylabel("KL to full attention (nats)")
    draw_curves(axes[1], rows, "tokens", "budget", excess, styles)
    axes[1].set_ylabel("Perplexity / full attention's")
    for panel in axes[:2]:
        panel.set_xscale("log", base=2)
        panel.set_xlabel("Token budget")
    for system, style in styles.items():
        here = [row for row in rows if row["system"] == system and row["budget_unit"] != "tokens"]
        if here:
            axes[2].plot([float(row["stored_bits"]) for row in here], [kl(row) for row in here],
                         **style)
    axes[2].set_yscale("log")
    axes[2].set_xlabel("Stored bits an element")
    axes[2].set_ylabel("KL to full attention (nats)")
    for row in rows:
        axes[3].plot(float(row["output_error"]), kl(row), linestyle="none",
                     **styles[row["system"]])
    axes[3].set_yscale("log")
    axes[3].set_xlabel("Output error of the replay")
    axes[3].set_ylabel("KL of the closed loop (nats)")
    plot_style.legend_below(figure, [plt.Line2D([], [], linestyle="none", label=name, **style)
                                     for name, style in styles.items()])
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER",
                        help="what `kvreplay evaluate --out FOLDER` wrote")
    folder = parser.parse_args().folder
    figure = draw(table(folder / "closed_loop.csv", NEEDED, "the folder of a `kvreplay evaluate`"))
    for file in plot_style.save(figure, folder / "closed_loop"):
        print(file)


if __name__ == "__main__":
    main()
