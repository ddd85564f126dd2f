"""How every figure of kvreplay looks: fonts, sizes, colours, markers, and how it is saved."""

import math

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)
from matplotlib.ticker import FixedLocator, NullLocator  # noqa: E402

# Okabe and Ito, 'Color Universal Design' (2008): distinct with every common colour vision. The
# markers distinguish the series in black and white. Orange is reserved for I/O.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#8A8A2B", "#7B5AA6")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

COMPUTE = "#7F8FA6"
EXPOSED_IO = "#E69F00"

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


def series_styles(names):
    """A colour and marker for each name: the same in every panel, 49 different pairs."""
    count = len(COLOURS)
    return {name: {"color": COLOURS[place % count],
                   "marker": MARKERS[(place + place // count) % count]}
            for place, name in enumerate(names)}


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
        texts[1] += " (projected)"
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
    """Ticks at those of the sorted values that lie apart(); as they are, or bytes in KiB."""
    ticks = apart(values, min_share)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([f"{tick / 1024 if kibibytes else tick:g}" for tick in ticks])


def legend_below(figure, handles):
    """One legend for all panels, in a strip below them."""
    columns = max(2, int(figure.get_figwidth()))
    lines = -(-len(handles) // columns)
    strip = (0.1 + 0.18 * lines) / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, strip, 1, 1 - strip))
    figure.legend(handles=handles, loc="lower center", ncols=columns, borderpad=0.2,
                  handlelength=1, handletextpad=0.4, columnspacing=1.4)


def save(figure, name):
    """Writes name.pdf and name.png, or only the one that `name` ends in; the same bytes for the same
    data. Returns the names."""
    files = [name]
    if name.suffix not in (".pdf", ".png"):  # a dot within the name, as of llama3.2-1b, stays
        files = [name.with_name(name.name + suffix) for suffix in (".pdf", ".png")]
    for file in files:
        date = {"CreationDate": None} if file.suffix == ".pdf" else {"Software": None}
        figure.savefig(file, metadata=date)
    plt.close(figure)
    return files
