"""Draws a `kvreplay live` run: the latency of each step, and how much of it waited for I/O."""

import json

from matplotlib.ticker import MaxNLocator

from kvreplay import plot_style
from kvreplay.errors import UserError
from kvreplay.plot_input import table
from kvreplay.plot_style import plt

ALLOWED = "the folder of a `kvreplay live` run"
NEEDED = ("step", "latency_us", "compute_us", "exposed_io_us", "read_bytes")


def numbers(rows, name, file):
    try:
        return [float(row[name]) for row in rows]
    except ValueError:
        raise UserError(f"{file}: column {name} holds more than numbers; allowed: "
                        f"{ALLOWED}") from None


def title_of(folder):
    try:
        row = table(folder / "results.csv", ("model", "system", "device"), ALLOWED)[0]
        json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: {error}; allowed: {ALLOWED}") from None
    return f"{row['system']}, run live: {row['model']}, {row['device'].removeprefix('live: ')}"


def figures(folder):
    """(name, figure) of each figure of the folder."""
    file = folder / "steps.csv"
    rows = table(file, NEEDED, ALLOWED)
    steps, compute, exposed = (numbers(rows, name, file) for name in ("step", "compute_us",
                                                                      "exposed_io_us"))
    figure, (by_step, ranked) = plt.subplots(1, 2, figsize=(7, 2.6), width_ratios=(2, 1))
    # The outer steps are as wide as the others: each half a step beyond its middle.
    ends = [steps[0] - 1, *steps, steps[-1] + 1]
    by_step.stackplot(ends, *([value / 1e3 for value in (part[0], *part, part[-1])]
                              for part in (compute, exposed)),
                      colors=(plot_style.COMPUTE, plot_style.EXPOSED_IO), step="mid", linewidth=0)
    by_step.set_xlabel("Step")
    by_step.set_ylabel("Time per token (ms)")
    by_step.set_ylim(bottom=0)
    by_step.set_xlim(min(steps) - 0.5, max(steps) + 0.5)
    by_step.xaxis.set_major_locator(MaxNLocator(integer=True))
    latency = sorted(numbers(rows, "latency_us", file))
    ranked.plot([value / 1e3 for value in latency],
                [100 * (place + 1) / len(latency) for place in range(len(latency))],
                color=plot_style.COLOURS[0], linewidth=1.2)
    ranked.set_xlabel("Time per token (ms)")
    ranked.set_ylabel("Steps (%)")
    ranked.set_ylim(0, 101)
    plot_style.title(figure, title_of(folder))
    plot_style.legend_below(figure, [
        plt.Rectangle((0, 0), 1, 1, color=plot_style.COMPUTE, label="compute"),
        plt.Rectangle((0, 0), 1, 1, color=plot_style.EXPOSED_IO, label="exposed I/O")])
    return [("live", figure)]
