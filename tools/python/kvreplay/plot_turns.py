"""Draws the turns of conversations in a folder of `kvreplay run`: the time to the first token of each
later turn, and what bringing the turns before it back takes beside computing them anew."""

from kvreplay import plot_style
from kvreplay.plot_input import table
from kvreplay.plot_style import plt

ALLOWED = "the folder of a `kvreplay run` on a conversation"
NEEDED = ("system", "turn", "earlier_tokens", "new_tokens", "ttft_ms", "prefill_compute_ms",
          "index_ms", "prompt_write_exposed_ms", "restore_ms", "recompute_ms")


def label_of(row, several):
    names = [plot_style.shown_name(row["system"])]
    names += [row[key] for key in several]
    return f"{', '.join(names)}, turn {row['turn']}"


def figures(folder):
    """(name, figure) of the folder's conversations; none where each has one turn."""
    rows = table(folder / "turns.csv", NEEDED, ALLOWED)
    rows = [row for row in rows if row["turn"] != "1"]
    if not rows:
        return []
    several = [key for key in ("trace", "model", "platform", "device")
               if len({row[key] for row in rows}) > 1]
    places = range(len(rows))
    figure, (first, again) = plt.subplots(1, 2, figsize=(7, 1.2 + 0.26 * len(rows)), sharey=True)
    left = [0.0] * len(rows)
    for names, colour in ((("prefill_compute_ms", "index_ms"), plot_style.COMPUTE),
                          (("prompt_write_exposed_ms",), plot_style.EXPOSED_IO)):
        widths = [sum(float(row[name]) for name in names) for row in rows]
        first.barh(places, widths, left=left, height=0.62, color=colour)
        left = [begin + width for begin, width in zip(left, widths)]
    first.set_yticks(places, [label_of(row, several) for row in rows])
    first.set_ylim(len(rows) - 0.5, -0.5)
    first.set_xlabel("Time to the turn's first token, ms")
    for name, marker, colour in (("restore_ms", "o", plot_style.COLOURS[0]),
                                 ("recompute_ms", "s", plot_style.COLOURS[1])):
        again.plot([float(row[name]) for row in rows], places, marker=marker, color=colour,
                   linestyle="none", markersize=4)
    again.set_xscale("log")
    again.set_xlabel("Earlier turns brought back, ms")
    for axes in (first, again):
        axes.grid(axis="y", visible=False)
    plot_style.title(figure, plot_style.made_with(rows))
    plot_style.legend_below(figure, [
        plt.Rectangle((0, 0), 1, 1, color=plot_style.COMPUTE, label="computing new tokens"),
        plt.Rectangle((0, 0), 1, 1, color=plot_style.EXPOSED_IO, label="waiting for the device"),
        *(plt.Line2D([], [], marker=marker, color=colour, linestyle="none", markersize=4, label=label)
          for marker, colour, label in (("o", plot_style.COLOURS[0], "read back"),
                                        ("s", plot_style.COLOURS[1], "computed anew")))])
    return [("turns", figure)]
