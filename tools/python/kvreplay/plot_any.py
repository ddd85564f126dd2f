"""Draws a folder of results, or several in one figure.

A folder's own figure comes without options: of a run, sweep, search (tune), recommendation,
evaluation, live run, validation, device replay or reproduction. With --x, --y, --by or --panel, or
of several folders, the figure shows any column against any other: lines over a swept number, points
for metric against metric, bars over names.
"""

import pathlib

from kvreplay import plot_options, plot_style
from kvreplay.command_line import Parser
from kvreplay.errors import UserError
from kvreplay.plot_input import table

# What each kind of folder has, in the order in which they are looked for.
KINDS = {
    "claims": "claims.csv",
    "tuning": "evaluated.csv",
    "closed-loop": "closed_loop.csv",
    "needles": "needle.csv",
    "validation": "errors.csv",
    "recommendation": "ranked.csv",
    "replay": "replay.json",
    "results": "results.csv",
}
QUALITIES = ("attention_mass", "output_error", "recall")
ALLOWED = "a folder of results"
MAX_BARS = 40


def kind_of(folder):
    for kind, name in KINDS.items():
        if (folder / name).exists():
            live = kind == "results" and (folder / "steps.csv").exists()
            return "live" if live else kind
    return "results"


def chart_rows(folders):
    """The rows of every folder, each with its folder where there are several."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    rows = []
    for folder, name in zip(folders, names):
        kind = kind_of(folder)
        if kind == "replay":
            file = folder / "steps.csv"
        else:
            file = folder / KINDS.get(kind, "results.csv")
        for row in table(file, (), ALLOWED):
            rows.append({"folder": name, **row} if len(folders) > 1 else row)
    return rows


def is_wide_sweep(folder):
    """A sweep over numbers that bars could not show: lines do."""
    from kvreplay import plot_chart, plot_results

    rows = table(folder / "results.csv", plot_results.NEEDED, "the folder of a `kvreplay run`")
    keys, settings = plot_chart.keys_of(rows)
    swept = plot_chart.swept_number(rows, [key for key in keys if key in settings])
    series = {row["series"] for row in plot_results.with_series(rows)}
    values = {row[swept] for row in rows if row[swept]} if swept else ()
    return len(values) > 2 or (len(values) > 1 and len(series) > len(plot_style.MARKERS))


def title_of(rows, folders):
    for name in ("trace", "model"):
        if name not in rows[0]:
            return ", ".join(folder.resolve().name for folder in folders)
    return plot_style.made_with(rows).replace("$", r"\$") + marks_text(rows)


def marks_text(rows):
    """A line that says which systems have marks; what does not fit in DRAM is drawn hollow."""
    systems = {}
    for row in rows:
        for mark in (row.get("marks") or "").split():
            if mark != "exceeds_dram":
                systems.setdefault(mark, set()).add(row.get("system", ""))
    said = [f"{mark}: {', '.join(sorted(of))}" for mark, of in sorted(systems.items())]
    return f"\nmarks of results.csv: {'; '.join(said)}" if said else ""


def chart(folders, arguments):
    from kvreplay import plot_chart

    rows = plot_chart.filtered(chart_rows(folders), arguments.where)

    def names(text):
        return None if text is None else [name for name in text.split(",") if name]

    drawn = plot_chart.Chart(rows, arguments.x, names(arguments.y), names(arguments.by),
                             arguments.panel, arguments.errors)
    return plot_chart.draw(drawn, title_of(rows, folders), arguments.log, arguments.pareto)


def own_figures(kind, folder, quality):
    """(name, figure) of each figure that the kind of folder has of its own."""
    from kvreplay import plot_chart, plot_claims, plot_closed_loop, plot_live, plot_replay
    from kvreplay import plot_minutes, plot_results, plot_tuning, plot_turns, plot_validation

    if kind == "results":
        turns = [figure for name, module in (("turns", plot_turns), ("minutes", plot_minutes))
                 if (folder / f"{name}.csv").exists() for figure in module.figures(folder)]
        if is_wide_sweep(folder):
            rows = chart_rows([folder])
            drawn = plot_chart.Chart(rows, y=["latency_ms", quality])
            return [("figure", plot_chart.draw(drawn, title_of(rows, [folder]))), *turns]
        return [*plot_results.figures(folder, quality), *turns]
    if kind == "needles":
        rows = chart_rows([folder])
        drawn = plot_chart.Chart(rows)
        return [("needles", plot_chart.draw(drawn, title_of(rows, [folder])))]
    if kind == "recommendation":
        rows = chart_rows([folder])
        drawn = plot_chart.Chart(rows, x="tokens_per_s", y=["output_error"], by=["system"])
        return [("figure", plot_chart.draw(drawn, title_of(rows, [folder])))]
    modules = {"claims": plot_claims, "closed-loop": plot_closed_loop, "live": plot_live,
               "replay": plot_replay, "tuning": plot_tuning, "validation": plot_validation}
    return modules[kind].figures(folder)


def condition(text):
    key, equal, values = text.partition("=")
    if not key or not equal:
        raise UserError(f"--where: found '{text}'; allowed: KEY=VALUE, or KEY=VALUE,VALUE")
    return key, values.split(",")


def log_axes(text):
    axes = set(text.replace(",", "")) if text != "none" else set()
    if not axes <= {"x", "y"}:
        raise UserError(f"--log: found '{text}'; allowed: x, y, xy or none")
    return axes


def parser_of(prog):
    parser = Parser(prog=prog, description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=pathlib.Path, metavar="DIR", nargs="+",
                        help="a folder of `kvreplay run`, `sweep`, `tune`, `recommend`, `evaluate`, "
                             "`live`, `validate`, `device replay` or `reproduce`")
    shown = parser.add_argument_group("what is shown (the last part of a swept key's name will do)")
    shown.add_argument("--x", metavar="KEY", help="a metric, a swept key, or a name such as system")
    shown.add_argument("--y", metavar="METRIC[,METRIC]", help="a row of panels for each")
    shown.add_argument("--by", metavar="KEY[,KEY]", help="a line, colour and marker for each value")
    shown.add_argument("--panel", metavar="KEY", help="a panel for each value")
    shown.add_argument("--where", type=condition, action="append", default=[],
                       metavar="KEY=VALUE[,VALUE]", help="only these rows; may be given again")
    shown.add_argument("--log", type=log_axes, metavar="x|y|xy|none",
                       help="the axes that are logarithmic (default: those of wide ranges)")
    shown.add_argument("--pareto", action="store_true", default=None,
                       help="draw the front of the points that no other beats (default: where "
                            "metrics are drawn against each other)")
    shown.add_argument("--no-pareto", action="store_false", dest="pareto", help="draw none")
    shown.add_argument("--errors", choices=("range", "ci", "std", "none"), default="range",
                       help="error bars over traces and seeds: lowest to highest, 95 %% interval "
                            "of the mean, standard deviation (default: %(default)s)")
    shown.add_argument("--quality", choices=QUALITIES, default="attention_mass",
                       help="of the figure of a run or sweep (default: %(default)s)")
    plot_options.add_look(parser)
    return parser


def main(prog="tools/plot", kind=None):
    arguments = parser_of(prog).parse_args()
    plot_options.apply_look(arguments)
    folders = arguments.folders
    for folder in folders:
        if folder.is_file():
            raise UserError(f"{folder}: is no folder; allowed: {ALLOWED}, or `plot device "
                            f"{folder}` for points of a device")
    kind = kind or kind_of(folders[0])
    asked = any(value is not None for value in (arguments.x, arguments.y, arguments.by,
                                                arguments.panel)) or arguments.where
    if len(folders) > 1 and kind == "replay" and not asked:
        from kvreplay import plot_replay
        figures = plot_replay.figures(*folders)
    elif asked or len(folders) > 1:
        name = "chart" if len(folders) == 1 else "comparison"
        figures = [(name, chart(folders, arguments))]
    else:
        figures = own_figures(kind, folders[0], arguments.quality)
    for file in plot_options.save(figures, arguments, folders[0]):
        print(file)
