"""Draws a validation of `kvreplay validate`: what the simulator says over what was measured."""

from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from kvreplay import plot_style
from kvreplay.errors import UserError
from kvreplay.plot_chart import number_text
from kvreplay.plot_input import table
from kvreplay.plot_overlay import value_ticks
from kvreplay.plot_style import plt

ALLOWED = "the folder of a `kvreplay validate`"
PANELS = (("latency_ms", "Latency"), ("compute_ms", "Computation"), ("io_ms", "I/O"))


def read(folder):
    """Rows with `system`, and `measured` and `modelled` times by column."""
    file = folder / "errors.csv"
    needed = ["system", *(f"{side}_{column}" for column, _ in PANELS for side in ("measured", "modelled"))]
    rows = []
    for place, row in enumerate(table(file, needed, ALLOWED)):
        try:
            rows.append({"system": row["system"],
                         **{side: {column: float(row[f"{side}_{column}"]) for column, _ in PANELS}
                            for side in ("measured", "modelled")}})
        except ValueError:
            raise UserError(f"{file}: row {place + 1} holds more than numbers; allowed: {ALLOWED}") from None
    return rows


def draw(rows):
    """A panel each of latency, computation and I/O: a mark on the line has no error."""
    figure, axes = plt.subplots(1, 3, figsize=(3 * plot_style.PANEL_INCHES, 3.2))
    styles = plot_style.series_styles(list(dict.fromkeys(row["system"] for row in rows)))
    handles = {}
    for axis, (column, name) in zip(axes, PANELS):
        axis.set(xlabel="Measured (ms, log scale)", ylabel="Modelled (ms, log scale)", title=name)
        values = [row[side][column] for row in rows for side in ("measured", "modelled")
                  if row[side][column] > 0]
        if not values:
            axis.set(xticks=[], yticks=[])
            axis.text(0.5, 0.5, "none", transform=axis.transAxes, ha="center")
            continue
        low, high = min(values) / 1.25, max(values) * 1.25
        axis.plot((low, high), (low, high), color="#999999", linewidth=0.8)
        for row in rows:
            if row["measured"][column] > 0 and row["modelled"][column] > 0:
                handles[row["system"]], = axis.plot(
                    row["measured"][column], row["modelled"][column], linestyle="none",
                    label=plot_style.shown_name(row["system"]), **styles[row["system"]])
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        ticks = [tick for tick in value_ticks(min(values), max(values)) if low <= tick <= high]
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(FixedLocator(ticks))
            one.set_major_formatter(number_text)
            one.set_minor_locator(NullLocator())
            one.set_minor_formatter(NullFormatter())
    plot_style.legend_below(figure, handles.values())
    return figure


def figures(folder):
    """(name, figure) of each figure of the folder."""
    return [("validation", draw(read(folder)))]
