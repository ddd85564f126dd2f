"""Sets two folders of results side by side: rows joined by system and settings, differences in per
cent, a figure.

A folder is that of `kvreplay run`, `sweep`, `live` or `device replay`. Rows are joined by system,
swept settings and what else both have that tells rows apart; what only one folder has is listed, and so
is what rows that are joined differ in: trace, model, steps, the block of requests. A difference is B / A - 1.
"""

import argparse
import json
import math
import pathlib
import sys
import textwrap

import pandas

from kvreplay import result_tables
from kvreplay.command_line import Parser, exit_code, figure_file
from kvreplay.errors import UserError, reason, unknown

# What names a row, most telling first; other columns of text name what the folders differ in.
KEYS = ("system", "model", "trace", "batch", "platform", "device", "projection")
SHOWN = ("tokens_per_s", "latency_ms", "latency_p99_ms", "compute_ms", "exposed_io_ms", "hidden_io_ms",
         "read_bytes_per_step", "read_requests_per_step", "written_bytes_per_step",
         "write_requests_per_step", "hit_rate", "dram_kv_bytes")
ALLOWED = "the folder of a `kvreplay run`, `sweep`, `live` or `device replay`"
WIDTH = 100  # of what is printed
# What rows were made with, beside swept settings: where it differs, the numbers are of other things.
CONDITIONS = (*KEYS[1:], "steps", "seed")
PANELS = ("latency_ms", "compute_ms", "exposed_io_ms")


def replay_row(folder):
    """What `device replay` measured, as a row."""
    file = folder / "replay.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        workload = about["workload"]
        file = folder / "steps.csv"
        steps = pandas.read_csv(file)
        if not file.read_text(encoding="utf-8").endswith("\n"):
            raise ValueError("is cut: its last line does not end")
    except KeyError:  # `tune` writes a replay.json, too: the experiment of what it found
        raise UserError(f"{file}: is not of a device replay; allowed: {ALLOWED}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {reason(error)}; allowed: {ALLOWED}") from None
    row = {"system": workload.get("system") or workload.get("source") or folder.name,
           "device": about["target"]["path"], "steps": len(steps)}
    latency = steps["measured_latency_ms"]
    row["tokens_per_s"] = 1e3 / latency.mean()
    row["latency_ms"] = latency.mean()
    row["latency_p99_ms"] = latency.quantile(0.99, interpolation="higher")
    for column in ("compute_ms", "exposed_io_ms"):
        if f"measured_{column}" in steps:
            row[column] = steps[f"measured_{column}"].mean()
    return pandas.DataFrame([row])


def read_run(name):
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise UserError(f"{name}: is no folder; allowed: {ALLOWED}")
    if (folder / "results.csv").exists():
        frame = result_tables.results(folder)
        check_numbers(frame, folder / "results.csv")
        return frame
    if (folder / "replay.json").exists():
        return replay_row(folder)
    raise UserError(f"{name}: has neither results.csv nor replay.json; allowed: {ALLOWED}")


def check_numbers(frame, file):
    """What is compared by default must be finite numbers, or empty."""
    for column in (c for c in SHOWN if c in frame):
        for place, value in enumerate(frame[column]):
            try:
                good = pandas.isna(value) or math.isfinite(float(value))
            except ValueError:
                good = False
            if not good:
                raise UserError(f"{file}: row {place + 1}, column {column}: found {value}; allowed: a "
                                "number")


def check_writable(options):
    """Before the table is printed."""
    for option, name in (("--csv", options.csv), ("--plot", options.plot)):
        folder = pathlib.Path(name).absolute().parent if name else None
        if folder and not folder.is_dir():
            raise UserError(f"{option}: there is no folder {folder}; allowed: a file in a folder that "
                            "is there")


def settings_of(frame):
    """Swept keys stand between `system` and the first number."""
    columns = list(frame.columns)
    begin = columns.index("system") + 1
    end = columns.index("steps") if "steps" in columns else begin
    return columns[begin:end]


def names(frame, columns):
    return [" ".join("-" if pandas.isna(row[c]) else str(row[c]) for c in columns)
            for _, row in frame.iterrows()]


def join_columns(a, b, wanted):
    """The fewest columns that tell rows apart and have something in common; `system` and settings
    always."""
    if wanted:
        for column in wanted:
            for frame in (a, b):
                if column not in frame:
                    raise unknown("--by", "column", column, list(frame.columns))
        return list(wanted)
    columns = ["system"] + [c for c in settings_of(a) if c in settings_of(b)]
    for column in KEYS[1:]:
        if column not in a or column not in b or not set(a[column].map(str)) & set(b[column].map(str)):
            continue
        if any(len(set(names(frame, [*columns, column]))) > len(set(names(frame, columns)))
               for frame in (a, b)):
            columns.append(column)
    return columns


def label_columns(a, b, columns):
    """Of the columns that join, those that a row's name needs: `system`, and what varies."""
    return [c for c in columns if c == "system" or len({*a[c].map(str), *b[c].map(str)}) > 1]


def few(values, most=3):
    shown = list(dict.fromkeys("-" if pandas.isna(value) else str(value) for value in values))
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def conditions(a, b, columns):
    """A line per column in which rows that are joined differ although it does not join them."""
    left, right = (dict(zip(names(frame, columns), frame.to_dict("records"))) for frame in (a, b))
    both = [key for key in left if key in right]
    lines = []
    for column in CONDITIONS:
        if column in columns or column not in a or column not in b:
            continue
        pairs = [(left[key][column], right[key][column]) for key in both]
        pairs = [pair for pair in pairs if str(pair[0]) != str(pair[1])]
        if pairs:
            lines.append(f"they differ in {column}: A {few(p[0] for p in pairs)}; B {few(p[1] for p in pairs)}")
    return lines


def blocks_of(name):
    """The units in which a folder's runs ask for bytes: of the devices of a replay, or of a live run."""
    try:
        manifest = json.loads((pathlib.Path(name) / "manifest.json").read_text(encoding="utf-8"))
        if "block_bytes" in manifest:
            return {manifest["block_bytes"]}
        return {device["logical_block_bytes"] for device in manifest["config"]["device"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()  # it does not say


def block_line(options):
    a, b = sorted(blocks_of(options.a)), sorted(blocks_of(options.b))
    if not a or not b or a == b:
        return []
    return [f"they differ in the block of requests: A {few(a)} bytes; B {few(b)} bytes, which changes what is "
            "read and written (run --set device.logical_block_bytes=N, live --block N)"]


def check_distinct(frame, columns, name):
    found = names(frame, columns)
    twice = sorted({key for key in found if found.count(key) > 1})
    if twice:
        raise UserError(f"{name}: {len(twice)} rows cannot be told apart by {', '.join(columns)}, such "
                        f"as {twice[0]}; allowed: --by with more columns")


def difference(a, b):
    if pandas.isna(a) or pandas.isna(b):
        return math.nan
    if a == b:
        return 0.0
    return math.inf if a == 0 else b / a - 1


def percent(share):
    if math.isnan(share):
        return "-"
    return "new" if math.isinf(share) else f"{share * 100:+.1f} %"


def number(value):
    if pandas.isna(value):
        return "-"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"


def numeric(frame):
    return [c for c in frame.columns if pandas.api.types.is_numeric_dtype(frame[c])]


def compare(a, b, columns, shown):
    """One row per joined row and column: key, column, a, b, difference."""
    left = dict(zip(names(a, columns), a.to_dict("records")))
    right = dict(zip(names(b, columns), b.to_dict("records")))
    label = label_columns(a, b, columns)
    label_of = dict(zip([*names(a, columns), *names(b, columns)], [*names(a, label), *names(b, label)]))
    rows = [{"key": label_of[key], "column": column, "a": left[key][column], "b": right[key][column],
             "difference": difference(left[key][column], right[key][column])}
            for key in left if key in right for column in shown]
    return (pandas.DataFrame(rows, columns=["key", "column", "a", "b", "difference"]),
            [label_of[key] for key in left if key not in right],
            [label_of[key] for key in right if key not in left])


def cut(text, room):
    """The text, without its middle where it is longer."""
    if len(text) <= room:
        return text
    end = max(1, room // 2 - 1)
    return f"{text[:room - end - 3]}...{text[-end:]}"


def table(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths)))
                     .rstrip() for line in lines)


def summary(rows, shown):
    """Of each column, over the joined rows: the median and the greatest difference by magnitude."""
    lines = [["column", "", "median |B/A - 1|", "greatest", "of"]]
    for column in shown:
        of_column = rows[rows["column"] == column]
        finite = of_column[of_column["difference"].map(math.isfinite)]
        if finite.empty:
            continue
        size = finite["difference"].abs()
        at = size.idxmax()
        lines.append([column, "", f"{size.median() * 100:.1f} %", percent(finite["difference"][at]),
                      finite["key"][at]])
    room = WIDTH - sum(2 + max(len(line[i]) for line in lines) for i in range(4))
    return table([[*line[:4], cut(line[4], room)] for line in lines])


def rows_table(rows):
    """A row's name begins its lines, or has a line of its own where they would be too long."""
    heads = ["column", "A", "B", "B / A - 1"]
    lines = [[row.key, row.column, number(row.a), number(row.b), percent(row.difference)]
             for row in rows.itertuples()]
    width = sum(2 + max(len(line[i]) for line in [["", *heads], *lines]) for i in range(1, 5))
    room = WIDTH - width
    beside = all(len(line[0]) <= room for line in lines)
    shown = [["", *heads]]
    last = None
    for line in lines:
        if line[0] != last and not beside:
            shown.append([line[0]])
        shown.append([line[0] if line[0] != last and beside else "", *line[1:]])
        last = line[0]
    if beside:
        return table(shown)
    made = iter(table([line for line in shown if len(line) > 1]).splitlines())
    return "\n".join(cut(line[0], WIDTH) if len(line) == 1 else next(made) for line in shown)


def plot(rows, names_of_runs, stem):
    from kvreplay import plot_style  # its backend takes half a second
    from kvreplay.plot_style import plt

    panels = [c for c in PANELS if c in set(rows["column"])]
    keys = list(dict.fromkeys(rows["key"]))
    height = 0.22 * len(keys) + 0.9
    figure, axes = plt.subplots(1, len(panels), figsize=(plot_style.PANEL_INCHES * len(panels), height),
                                sharey=True, squeeze=False)
    figure.kvreplay_grows = True  # by its legend
    for axis, column in zip(axes[0], panels):
        of_column = rows[rows["column"] == column].set_index("key")
        for run, offset, colour in ((0, -0.2, plot_style.COLOURS[0]), (1, 0.2, plot_style.COLOURS[1])):
            axis.barh([i + offset for i in range(len(keys))],
                      [of_column["ab"[run]].get(key, math.nan) for key in keys], height=0.36,
                      color=colour, label=names_of_runs[run])
        axis.set_title(column)
        axis.set_yticks(range(len(keys)), keys)
    axes[0][0].invert_yaxis()
    plot_style.legend_below(figure, axes[0][0].get_legend_handles_labels()[0])
    plot_style.save(figure, pathlib.Path(stem))


def parse_arguments():
    parser = Parser(prog="kvreplay compare", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A", help="a folder of results")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument("--by", metavar="COLUMN,COLUMN", default="",
                        help="columns that join rows (default: system, swept settings, and what else "
                             "tells rows apart and both have)")
    parser.add_argument("--columns", metavar="COLUMN,COLUMN", default="",
                        help="numbers to compare (default: time, I/O, hit rate and memory)")
    parser.add_argument("--csv", metavar="FILE", help="write one row per joined row and column")
    parser.add_argument("--plot", metavar="STEM", type=figure_file, help="draw STEM.pdf and STEM.png")
    return parser.parse_args()


def listed(text):
    return [word for word in text.split(",") if word]


def main():
    options = parse_arguments()
    check_writable(options)
    a, b = read_run(options.a), read_run(options.b)
    columns = join_columns(a, b, listed(options.by))
    for frame, name in ((a, options.a), (b, options.b)):
        check_distinct(frame, columns, name)
    both = [c for c in numeric(a) if c in numeric(b) and c not in columns]
    shown = listed(options.columns) or [c for c in SHOWN if c in both]
    for column in shown:
        if column not in both:
            raise unknown("--columns", "column", column, both)
    rows, only_a, only_b = compare(a, b, columns, shown)
    if rows.empty:
        what = f"row by {', '.join(columns)}" if shown else "column of numbers to compare"
        raise UserError(f"{options.b}: has no {what} in common with {options.a}; allowed: folders with "
                        "rows in common, or other columns in --by")

    print(f"A: {options.a}\nB: {options.b}\njoined by {', '.join(columns)}")
    for line in [*conditions(a, b, columns), *block_line(options)]:
        print("\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="  ")))
    print(f"\n{rows_table(rows)}")
    print(f"\n{summary(rows, shown)}")
    for name, only in ((options.a, only_a), (options.b, only_b)):
        for key in only:
            print(f"only in {name}: {key}")
    if options.csv:
        rows.to_csv(options.csv, index=False)
    if options.plot:
        plot(rows, (options.a, options.b), options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
