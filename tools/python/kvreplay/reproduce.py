"""Runs the experiments of configs/papers and compares what they give with what the papers report.

Writes OUT/claims.csv and OUT/claims.md, one figure per table or figure of the paper, and the
results of every run in OUT/runs. docs/papers.md describes the paper files and the verdicts.
"""

import argparse
import csv
import itertools
import os
import pathlib
import shutil
import sys

from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.partial_names import partial_path
from kvreplay.reproduce_papers import load_paper, only_figure, paper_files
from kvreplay.reproduce_runs import (ROLES, Program, Recordings, find_corpus, find_traces,
                                     read_tables, run_all, write_text)
from kvreplay.reproduce_verdicts import VERDICTS, judge
from kvreplay.source_tree import BUILT, TOP


def write_csv(file, rows):
    with open(file, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}


def replayed(tables, files):
    """The names of those of the files that rows are of."""
    names = {row.get("trace") for runs in tables.values() for rows in runs.values() for row in rows or ()}
    return [name for name in dict.fromkeys(pathlib.Path(file).name for file in files)
            if name.removesuffix(".kvtrace.h5") in names]


def markdown(papers, rows, traces, figure=None):
    count = len(papers)
    whose = (next(iter(papers.values()))["title"] if count == 1
             else f"{COUNTS.get(count, count)} papers")
    lines = [f"# Claims of {whose}, as produced", "",
             "`kvreplay reproduce` writes this page; docs/papers.md says how to read it. Traces: "
             + (", ".join(traces) or "none") + "."
             + (f" Only the figure {figure}, with what its runs say of other claims." if figure else ""),
             ""]
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    lines += ["| " + " | ".join(VERDICTS) + " |", "|" + "---|" * len(VERDICTS),
              "| " + " | ".join(str(counts[verdict]) for verdict in VERDICTS) + " |", ""]
    for paper, content in papers.items():
        lines += [f"## {content['title']}", "", content["source"], ""]
        lines += [f"- Calibrated: {text}" for text in content.get("calibrated", [])]
        if content.get("calibrated"):
            lines.append("")
        lines += ["| claim | case | source | reported | simulated | range | ratio | verdict | reason |",
                  "|---|---|---|---|---|---|---|---|---|"]
        shown, checks = "", []
        for row in (row for row in rows if row["paper"] == paper):
            reason = row["reason"]
            if row["check"]:
                if row["check"] not in checks:
                    checks.append(row["check"])
                reason += f" (check {checks.index(row['check']) + 1})"
            reason, shown = "as above" if reason and reason == shown else reason, reason or shown
            spread = f"{row['lowest']} to {row['highest']}" if row["lowest"] != row["highest"] else ""
            unit = f" {row['unit']}" if row["unit"] else ""
            cells = [row["claim"], row["case"], row["source"],
                     row["reported"] and row["reported"] + unit,
                     row["simulated"] and row["simulated"] + unit, spread, row["ratio"],
                     row["verdict"], reason]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        lines += ["", *(f"{number}. {check}" for number, check in enumerate(checks, 1))]
        lines += [""] if checks else []
    return "\n".join(lines)


def main_summary(rows):
    for verdict in VERDICTS:
        print(f"{sum(row['verdict'] == verdict for row in rows):5} {verdict}")
    for row in rows:
        if row["case"].startswith("mean absolute error"):
            print(f"      {row['claim']}: {row['case']}: {row['simulated']} %")


def parse_arguments():
    parser = Parser(prog="kvreplay reproduce", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", metavar="PAPER",
                        help="a file such as configs/papers/kvswap.json, its name, or all")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="new folder (default: results/PAPER, numbered when taken)")
    parser.add_argument("--trace", action="append", default=[], metavar="ROLE=FILE",
                        help=f"a recording instead of the shipped one; ROLE: {', '.join(ROLES)};"
                             " FILE none leaves it out; may be given again")
    parser.add_argument("--corpus", action="append", default=[], metavar="FOLDER",
                        help="traces of tools/scripts/record-corpus: a run whose paper speaks of the "
                             "length of some replays these, and nothing is stretched to that length; "
                             "may be given again")
    parser.add_argument("--steps", type=int, metavar="N",
                        help="replay only the first N decode steps (default: all)")
    parser.add_argument("--figure", metavar="NAME",
                        help="only this figure of the paper, such as recall, and the runs it needs")
    parser.add_argument("--figures-only", action="store_true",
                        help="judge and draw the results in --out DIR, without running anything")
    parser.add_argument("--configs", type=pathlib.Path, default=TOP / "configs", metavar="DIR",
                        help="folder of papers, experiments, systems (default: the source tree's)")
    return parser.parse_args()


def free_folder(path, name):
    if path is not None:
        if path.exists() and any(path.iterdir()):
            raise UserError(f"{path}: is there already; allowed: a new or empty folder")
        return path
    names = itertools.chain([f"results/{name}"], (f"results/{name}-{n}" for n in itertools.count(2)))
    return next(folder for folder in map(pathlib.Path, names) if not folder.exists())


def reproduce(arguments, out, papers, recordings):
    program = Program(os.environ.get("KVREPLAY_PROGRAM", str(BUILT[0] / "kvreplay")),
                      arguments.configs.resolve(), recordings, arguments.steps)
    tables = read_tables(papers, out) if arguments.figures_only else run_all(papers, program, out)
    rows, figures = [], []
    for paper, content in papers.items():
        judged, points = judge(paper, content, tables[paper])
        rows += judged
        figures.append((paper, content, points, tables[paper]))
    from kvreplay import reproduce_figures  # after the runs: matplotlib takes a second
    for figure in figures:
        reproduce_figures.draw_all(*figure, out)
    write_csv(out / "claims.csv", rows)
    write_text(out / "claims.md", markdown(papers, rows, replayed(tables, recordings.files()), arguments.figure))
    return rows


def main():
    arguments = parse_arguments()
    papers = {name: load_paper(file)
              for name, file in paper_files(arguments.paper, arguments.configs).items()}
    if arguments.figure:
        papers = {name: only_figure(paper, arguments.figure, name)
                  for name, paper in papers.items()}
    recordings = Recordings(find_traces(arguments.trace), find_corpus(arguments.corpus))
    if arguments.figures_only:
        if arguments.out is None:
            raise UserError("--figures-only: no --out; allowed: the folder of an earlier run")
        rows, final = reproduce(arguments, arguments.out, papers, recordings), arguments.out
    else:
        final = free_folder(arguments.out, pathlib.Path(arguments.paper).stem)
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_path(final).resolve()
        try:
            rows = reproduce(arguments, partial, papers, recordings)
            partial.rename(final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    main_summary(rows)
    print(f"kvreplay: {len(rows)} rows in {final / 'claims.csv'}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
