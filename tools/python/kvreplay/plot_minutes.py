"""Draws the long runs in a folder of `kvreplay run` with `sustained_s`: tokens per second over minutes,
the processor's mean power, and the device's temperature where it has a thermal model."""

from kvreplay import plot_style
from kvreplay.plot_input import table
from kvreplay.plot_style import plt

ALLOWED = "the folder of a `kvreplay run` with sustained_s"
NEEDED = ("system", "model", "platform", "device", "from_s", "interval_s", "tokens_per_s",
          "mean_power_w", "device_c")
PANELS = (("tokens_per_s", "Tokens per second"), ("mean_power_w", "Mean power of the\nprocessor, W"),
          ("device_c", "Device, \N{DEGREE SIGN}C"))


def figures(folder):
    """(name, figure) of the folder's long runs."""
    rows = table(folder / "minutes.csv", NEEDED, ALLOWED)
    several = [key for key in ("model", "platform", "device") if len({row[key] for row in rows}) > 1]
    runs = {}
    for row in rows:
        name = ", ".join([plot_style.shown_name(row["system"]), *(row[key] for key in several)])
        runs.setdefault(name, []).append(row)
    panels = [(key, label) for key, label in PANELS if any(row[key] for row in rows)]
    figure, axes = plt.subplots(len(panels), 1, figsize=(7, 1.0 + 1.7 * len(panels)), sharex=True,
                                squeeze=False)
    styles = plot_style.series_styles(list(runs))
    for (key, label), panel in zip(panels, axes[:, 0]):
        for name, run in runs.items():
            shown = [row for row in run if row[key]]
            minutes = [(float(row["from_s"]) + float(row["interval_s"]) / 2) / 60 for row in shown]
            style = {**styles[name], "marker": ""}
            panel.plot(minutes, [float(row[key]) for row in shown], label=name, **style)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
    axes[-1, 0].set_xlabel("Minutes since the prompt")
    plot_style.title(figure, plot_style.made_with(rows))
    plot_style.legend_below(figure, axes[0, 0].get_lines())
    return [("minutes", figure)]
