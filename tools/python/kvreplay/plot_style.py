"""How every figure of kvreplay looks: fonts, sizes, colours, markers, and how it is saved."""

import math
import textwrap

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)
from matplotlib import font_manager  # noqa: E402
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator  # noqa: E402

from kvreplay.errors import unknown  # noqa: E402

# Okabe and Ito, 'Color Universal Design' (2008): distinct with every common colour vision. The
# markers distinguish the series in black and white. Orange is reserved for I/O.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#8A8A2B", "#7B5AA6")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

COMPUTE = "#7F8FA6"
EXPOSED_IO = "#E69F00"

MAX_TICKS = 8  # values that were swept, each with a tick of its own
PANEL_INCHES = 2.3  # width of one panel; three of them fill a page's 7 inches

plt.rcParams.update({
    "pdf.fonttype": 42,  # TrueType: what publishers accept
    "ps.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.markersize": 6,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
})

# "serif" and "sans-serif": what publishers set papers in, where it is installed; the last ones come
# with matplotlib.
plt.rcParams["font.serif"] = ["Times New Roman", "Nimbus Roman", "Liberation Serif", "STIXGeneral"]
plt.rcParams["font.sans-serif"] = ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"]

STYLES = {
    "paper": {"font.size": 7, "axes.titlesize": 7.5, "axes.titleweight": "normal",
              "axes.labelsize": 7, "xtick.labelsize": 6.5, "ytick.labelsize": 6.5,
              "legend.fontsize": 6.5, "lines.markersize": 4, "lines.linewidth": 1,
              "savefig.dpi": 300},
    "screen": {"font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "xtick.labelsize": 8,
               "ytick.labelsize": 8, "legend.fontsize": 9, "lines.linewidth": 1.6,
               "savefig.dpi": 150},
}


class Look:
    """What the user asked of every figure that this process draws; plot_options sets it."""

    size = None  # inches (width, height); None = the figure's own
    title = None  # instead of the figure's own; "" = none
    names = {}  # shown instead of a name of the results
    asked = set()  # the names that figures have shown so far, before that


def set_style(style=None, font=None, dpi=None):
    """`style`: of STYLES; `font`: serif, sans-serif or an installed family. ValueError for a font
    that is not there."""
    plt.rcParams.update(STYLES.get(style, {}))
    if font is not None:
        if font not in ("serif", "sans-serif"):
            font_manager.findfont(font, fallback_to_default=False)
        plt.rcParams["font.family"] = font
        plt.rcParams["mathtext.fontset"] = "stix" if font == "serif" else "dejavusans"
    if dpi is not None:
        plt.rcParams["savefig.dpi"] = dpi


def shown_name(name):
    """The name as figures show it: what --label gives for it, or for one of its parts, as of
    "kvswap, budget_tokens=64"."""
    Look.asked |= {name, *name.split(", ")}
    if name in Look.names:
        return Look.names[name]
    return ", ".join(Look.names.get(part, part) for part in name.split(", "))


def check_labels():
    """Once all figures are finished: a --label of a name that none of them has changed nothing."""
    for name in Look.names:
        if name not in Look.asked:
            raise unknown("--label", "name", name, sorted(Look.asked))


def series_styles(names):
    """A colour and marker for each name: the same in every panel, 49 different pairs."""
    count = len(COLOURS)
    return {name: {"color": COLOURS[place % count],
                   "marker": MARKERS[(place + place // count) % count]}
            for place, name in enumerate(names)}


def is_stretched(row):
    """Whether a row of results stands for a longer sequence than was recorded: its hit rates are of
    the recording's length, and it has no quality."""
    return ", stretched from " in (row.get("projection") or "")


def does_not_fit(row):
    """Whether a row of results needs more memory than its platform has."""
    try:
        return float(row.get("dram_share") or 0) > 1
    except ValueError:
        return False


def made_with(rows):
    """What every caption should say of rows of results: trace, model, platform, device; whether
    decisions are projected onto the model, and whether a trace is synthetic."""
    texts = []
    for column in ("trace", "model", "platform", "device"):
        names = list(dict.fromkeys(row[column] for row in rows if row.get(column)))
        if names:
            texts.append(f"{column} {', '.join(names)}")
    if any(str(row.get("synthetic")) == "1" for row in rows):
        texts[0] += " (SYNTHETIC, not recorded)"
    if any(row.get("projection", "none") != "none" for row in rows):
        stretched = any(map(is_stretched, rows))
        texts[1] += " (projected, hit rates of a shorter recording)" if stretched else " (projected)"
    return "; ".join(texts)


def apart(values, min_share):
    """Of sorted values those that lie at least so far apart on a logarithmic axis, in shares of its
    length; the first and the last always."""
    length = math.log(values[-1] / values[0])
    kept = [values[0]]
    for value in values[1:-1]:
        if min(math.log(value / kept[-1]), math.log(values[-1] / value)) >= min_share * length:
            kept.append(value)
    return kept + values[-1:] if len(values) > 1 else kept


def label_ticks(axis, values, min_share, kibibytes):
    """Ticks at the sorted values, of more than a few at those that lie apart(); as they are, or bytes
    in KiB."""
    ticks = values if len(values) <= MAX_TICKS else apart(values, min_share)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([f"{tick / 1024 if kibibytes else tick:g}" for tick in ticks])


def title(figure, text, fontsize=None):
    """The figure's title, unless the user gave another one. finish() breaks it into lines."""
    text = text if Look.title is None else Look.title
    if text:
        figure.suptitle(text, fontsize=fontsize or plt.rcParams["axes.labelsize"])


def legend_below(figure, handles):
    """One legend for all panels, in a strip below them that finish() makes as high as it needs."""
    figure.kvreplay_legend = list(handles)


def broken(text, share):
    """The text in lines of at most this share of its present width."""
    lines = []
    for line in text.split("\n"):
        width = max(8, int(len(line) * share))
        lines += textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def fit_title(figure, renderer):
    title_text = figure._suptitle  # there is no public name
    if title_text is None or not title_text.get_text():
        return
    room = 0.97 * figure.bbox.width
    for _ in range(4):
        width = title_text.get_window_extent(renderer).width
        if width <= room:
            return
        longest = max(map(len, title_text.get_text().split("\n")))
        share = room / width
        title_text.set_text("\n".join(
            part for line in title_text.get_text().split("\n")
            for part in (textwrap.wrap(line, max(8, int(longest * share))) or [""])))


def place_legend(figure, renderer):
    """As many columns as fit the figure's width; a label that is too long for one is broken."""
    handles = getattr(figure, "kvreplay_legend", [])
    if not handles:
        return
    for handle in handles:
        handle.set_label(shown_name(handle.get_label()))
    room = 0.99 * figure.bbox.width
    legend = None
    count = len(handles)
    for columns in range(min(count, 8), 0, -1):
        if -(-count // (columns + 1)) == -(-count // columns) and legend is not None:
            continue  # as many lines as with one column more
        if legend is not None:
            legend.remove()
        columns = -(-count // -(-count // columns))  # lines of equal length
        legend = figure.legend(handles=handles, loc="lower center", ncols=columns, borderpad=0.2,
                               handlelength=1.2, handletextpad=0.4, columnspacing=1.2,
                               borderaxespad=0.2)
        width = legend.get_window_extent(renderer).width
        if width <= room:
            break
    if width > room:  # of one column
        for text in legend.get_texts():
            own = text.get_window_extent(renderer).width
            beside = width - max(t.get_window_extent(renderer).width for t in legend.get_texts())
            if own > room - beside:
                text.set_text(broken(text.get_text(), 0.95 * (room - beside) / own))
    space = 5 / 72 * figure.dpi  # above and below the legend
    height = 1.03 * legend.get_window_extent(renderer).height + space
    if Look.size is None and getattr(figure, "kvreplay_grows", False):
        figure.set_figheight(figure.get_figheight() + height / figure.dpi)
    strip = height / figure.bbox.height
    if figure.get_layout_engine() is not None:
        figure.get_layout_engine().set(rect=(0, strip, 1, 1 - strip))


def fit_axis_labels(figure, renderer):
    """Breaks the labels of axes that are longer than their axes, at the last space that helps."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        for label, side in ((axes.xaxis.label, "width"), (axes.yaxis.label, "height")):
            room = getattr(axes.bbox, side)
            length = getattr(label.get_window_extent(renderer), side)
            if label.get_visible() and "\n" not in label.get_text() and length > 1.05 * room:
                label.set_text(broken(label.get_text(), max(0.5, room / length)))


def thin_ticks(figure, renderer):
    """Leaves out labels of x axes that would run into one another; names below bars stay."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        if getattr(axes, "kvreplay_names", False) or not axes.get_visible():
            continue
        low, high = sorted(axes.get_xlim())
        shown = [(tick.get_loc(), tick.label1) for tick in axes.xaxis.get_major_ticks()
                 if low <= tick.get_loc() <= high and tick.label1.get_text()
                 and tick.label1.get_visible()]
        boxes = [label.get_window_extent(renderer) for _, label in shown]
        gap = 0.3 * plt.rcParams["xtick.labelsize"] / 72 * figure.dpi

        def collide(step):
            kept = boxes[::step]
            return any(left.x1 + gap > right.x0 for left, right in zip(kept, kept[1:]))

        step = next((step for step in range(1, len(boxes) + 1) if not collide(step)), 1)
        if step > 1:  # a few keep their ticks
            few = len(shown) <= MAX_TICKS
            kept = [(place, "" if index % step else label.get_text())
                    for index, (place, label) in enumerate(shown) if few or index % step == 0]
            axes.xaxis.set_major_locator(FixedLocator([place for place, _ in kept]))
            axes.xaxis.set_major_formatter(FixedFormatter([text for _, text in kept]))
            figure.draw_without_rendering()  # other panels may share this axis


def finish(figure):
    """Brings a drawn figure to the size that was asked for, and fits title and legend into it; once."""
    if getattr(figure, "kvreplay_finished", False):
        return
    figure.kvreplay_finished = True
    if Look.size is not None:
        figure.set_size_inches(*Look.size)
    renderer = figure.canvas.get_renderer()
    fit_title(figure, renderer)
    place_legend(figure, renderer)
    fit_axis_labels(figure, renderer)
    thin_ticks(figure, renderer)


def save(figure, name):
    """Writes name.pdf and name.png, or only the one that `name` ends in; the same bytes for the same
    data. Returns the names."""
    finish(figure)
    check_labels()
    files = [name]
    if name.suffix not in (".pdf", ".png"):  # a dot within the name, as of llama3.2-1b, stays
        files = [name.with_name(name.name + suffix) for suffix in (".pdf", ".png")]
    for file in files:
        date = {"CreationDate": None} if file.suffix == ".pdf" else {"Software": None}
        figure.savefig(file, metadata=date)
    plt.close(figure)
    return files
