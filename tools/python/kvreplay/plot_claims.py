"""Draws the claims of a `kvreplay reproduce` folder: what kvreplay computes over what the paper
reports, by paper and verdict."""

from matplotlib.ticker import FuncFormatter, NullLocator

from kvreplay import plot_style
from kvreplay.plot_input import table
from kvreplay.plot_metrics import is_number
from kvreplay.plot_style import plt
from kvreplay.reproduce_verdicts import VERDICTS

ALLOWED = "the folder of a `kvreplay reproduce`"
NEEDED = ("paper", "claim", "case", "ratio", "verdict")
FAR = 10  # ratios beyond are drawn at the edge


def figures(folder):
    """(name, figure) of each figure of the folder."""
    rows = table(folder / "claims.csv", NEEDED, ALLOWED)
    papers = list(dict.fromkeys(row["paper"] for row in rows))
    # In one order with one colour each, whichever come first in the file.
    known_verdicts = dict.fromkeys([*VERDICTS, *(row["verdict"] for row in rows)])
    colours = dict(zip(known_verdicts, plot_style.COLOURS))
    verdicts = [name for name in known_verdicts if any(row["verdict"] == name for row in rows)]
    height = 0.7 + 0.34 * len(papers)
    figure, (counts, ratios) = plt.subplots(1, 2, figsize=(7, height + 0.5), sharey=True)
    for place, paper in enumerate(papers):
        here = [row for row in rows if row["paper"] == paper]
        left = 0
        for verdict in verdicts:
            number = sum(row["verdict"] == verdict for row in here)
            counts.barh(place, number, left=left, height=0.62, color=colours[verdict])
            left += number
        known = [row for row in here if is_number(row["ratio"]) and float(row["ratio"]) > 0]
        for number, row in enumerate(known):
            spread = ((number * 7) % 11 - 5) / 18  # so that equal ratios do not hide each other
            ratio = min(FAR, max(1 / FAR, float(row["ratio"])))
            ratios.plot(ratio, place + spread, marker=".", markersize=4, linestyle="none",
                        color=colours[row["verdict"]])
    counts.set_yticks(range(len(papers)), [plot_style.shown_name(paper) for paper in papers])
    counts.set_ylim(len(papers) - 0.5, -0.5)
    counts.set_xlabel("Rows of claims")
    counts.grid(axis="y", visible=False)
    ratios.set_xscale("log")
    ratios.axvline(1, color="black", linewidth=0.7)
    ratios.set_xlim(0.9 / FAR, 1.1 * FAR)
    ratios.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10])
    ratios.xaxis.set_minor_locator(NullLocator())
    ratios.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ratios.set_xlabel("Simulated / reported (ends: beyond)")
    ratios.grid(axis="y", visible=False)
    plot_style.title(figure, "Claims of papers, reproduced: " + ", ".join(
        f"{sum(row['verdict'] == verdict for row in rows)} {verdict}" for verdict in verdicts))
    plot_style.legend_below(figure, [plt.Rectangle((0, 0), 1, 1, color=colours[verdict],
                                                   label=verdict) for verdict in verdicts])
    return [("claims", figure)]
