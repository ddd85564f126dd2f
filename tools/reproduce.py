#!/usr/bin/python3
"""Runs the experiments of configs/papers and sets what they give beside what the papers report.

Writes OUT/claims.csv and OUT/claims.md, a figure for each table or figure of the paper, and the
results of every run in OUT/runs. docs/papers.md describes the paper files and the verdicts.
"""

import argparse
import csv
import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

from command import Mistake, run
from progress import Progress

TOP = pathlib.Path(__file__).resolve().parents[1]
ROLES = ("story", "dialogue")
IDENTITY = ("trace", "model", "platform", "device", "batch", "system", "variant")

REPRODUCED, DIRECTION, NOT = "reproduced", "direction only", "not reproduced"
CALIBRATED, NOT_SIMULATED = "calibrated", "not simulated"
VERDICTS = (REPRODUCED, DIRECTION, NOT, CALIBRATED, NOT_SIMULATED)

DISTINCT = 0.05  # reported values that differ by less have no order to keep
NOTICED = 0.01  # ours that differ by less are in no order
TOLERANCE = 0.25

PAPER_KEYS = {"title", "source", "calibrated", "runs", "claims", "figures"}
RUN_KEYS = {"experiment", "set", "variants", "statistics", "prompt_tokens", "traces", "devices",
            "evaluate"}
EVALUATE_KEYS = {"systems", "budgets", "bits", "prompt", "steps"}
CLAIM_KEYS = {"name", "claim", "source", "unit", "run", "metric", "scale", "complement", "where", "over", "pick",
              "series", "x", "xs", "reported", "order", "labels", "proxy", "tolerance", "direction",
              "calibrated_on", "reason", "check", "not_simulated", "figure", "panel"}
FIGURE_KEYS = {"title", "x", "y", "log"}
CLOSED_LOOP_MODEL = "smollm2-135m"
NO_WEIGHTS = ("the closed loop needs the model's weights: "
              f"kvreplay fetch-model {CLOSED_LOOP_MODEL}, then kvreplay reproduce again")
PICKS = {"mean": lambda values: sum(values) / len(values), "max": max, "min": min}
DIRECTIONS = ("rank", "trend", "side")


# --- Paper files ---------------------------------------------------------------------------------

def read_json(file):
    """JSON with whole-line // comments, as all configs have them."""
    try:
        lines = pathlib.Path(file).read_text(encoding="utf-8").splitlines()
        return json.loads("\n".join("" if line.lstrip().startswith("//") else line for line in lines))
    except OSError as error:
        raise Mistake(f"{file}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise Mistake(f"{file}: line {error.lineno}: {error.msg}; allowed: JSON") from None


def allow_only(value, keys, where):
    if not isinstance(value, dict):
        raise Mistake(f"{where}: found no object; allowed: one with {', '.join(sorted(keys))}")
    for key in value:
        if key not in keys:
            raise Mistake(f"{where}: unknown key '{key}'; allowed: {', '.join(sorted(keys))}")


def need(value, keys, where):
    for key in keys:
        if key not in value:
            raise Mistake(f"{where}: no '{key}'; allowed: an object that has it")


def one_of(value, allowed, where):
    if value not in allowed:
        raise Mistake(f"{where}: found '{value}'; allowed: {', '.join(allowed)}")


def check_claim(claim, paper, where):
    allow_only(claim, CLAIM_KEYS, where)
    need(claim, ("name", "claim", "source"), where)
    where = f"{where} ({claim['name']})"
    if "not_simulated" in claim:
        need(claim, ("reported",), where)
        return
    need(claim, ("run", "metric"), where)
    for run in as_list(claim["run"]):
        one_of(run, paper["runs"], f"{where}/run")
    one_of(claim.get("pick", "mean"), PICKS, f"{where}/pick")
    if "order" in claim:
        need(claim, ("series",), where)
    else:
        need(claim, ("reported",), where)
        for number in flat(claim["reported"]):
            bound_of(number, f"{where}/reported")
    if "direction" in claim:
        one_of(claim["direction"], DIRECTIONS, f"{where}/direction")
    if "x" in claim:
        need(claim, ("xs",), where)
        for series in (claim["reported"].values() if "series" in claim else [claim["reported"]]):
            if len(series) != len(claim["xs"]):
                raise Mistake(f"{where}/reported: found {len(series)} values; allowed: one for each"
                              f" of the {len(claim['xs'])} of xs")
    if "figure" in claim:
        one_of(claim["figure"], paper.get("figures", {}), f"{where}/figure")


def load_paper(file):
    paper = read_json(file)
    allow_only(paper, PAPER_KEYS, file)
    need(paper, ("title", "source", "runs", "claims"), file)
    for name, run in paper["runs"].items():
        where = f"{file}: /runs/{name}"
        allow_only(run, RUN_KEYS, where)
        if sum(kind in run for kind in ("experiment", "devices", "evaluate")) != 1:
            raise Mistake(f"{where}: allowed: one of 'experiment', 'devices' and 'evaluate'")
        if "evaluate" in run:
            allow_only(run["evaluate"], EVALUATE_KEYS, f"{where}/evaluate")
            need(run["evaluate"], ("systems", "prompt", "steps"), f"{where}/evaluate")
    for name, figure in paper.get("figures", {}).items():
        allow_only(figure, FIGURE_KEYS, f"{file}: /figures/{name}")
    names = [claim.get("name") for claim in paper["claims"]]
    for place, claim in enumerate(paper["claims"]):
        check_claim(claim, paper, f"{file}: /claims/{place}")
        if names.count(claim["name"]) > 1:
            raise Mistake(f"{file}: /claims/{place}: found '{claim['name']}' twice; allowed: once")
    return paper


def as_list(value):
    return value if isinstance(value, list) else [value]


def flat(value):
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flat(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def bound_of(reported, where=""):
    """("<", 7.9) of "<7.9"; ("=", 2.3) of 2.3; a null is drawn and not judged."""
    if reported is None:
        return "", math.nan
    if isinstance(reported, (int, float)):
        return "=", float(reported)
    try:
        if reported[0] in "<>":
            return reported[0], float(reported[1:])
    except (TypeError, ValueError, IndexError):
        pass
    raise Mistake(f"{where}: found {json.dumps(reported)}; allowed: a number, \"<number\","
                  " \">number\" or null")


# --- Runs ----------------------------------------------------------------------------------------

class Program:
    """The built kvreplay, and what all of its runs share."""

    def __init__(self, path, configs, traces, steps):
        self.path, self.configs, self.traces, self.steps = path, configs, traces, steps

    def call(self, *arguments):
        words = [str(word) for word in (self.path, *arguments)]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            said = result.stderr.strip().splitlines() or [f"failed ({result.returncode})"]
            raise Mistake(said[-1].removeprefix("kvreplay: "))
        return result.stdout

    def cut(self, trace, prompt_tokens, folder):
        """The last `prompt_tokens` of the prompt, with the steps that follow."""
        import h5py
        with h5py.File(trace) as file:
            prompt, tokens = int(file.attrs["prompt_tokens"]), int(file.attrs["tokens"])
        folder.mkdir(parents=True, exist_ok=True)
        out = folder / pathlib.Path(trace).name
        if not out.exists():
            self.call("cut", trace, out, "--start", prompt - prompt_tokens, "--prompt",
                      prompt_tokens, "--decode", min(256, tokens - prompt))
        return out

    def run(self, run, variant, settings, out):
        """Rows of one variant of a run, written to the folder `out`."""
        traces = [self.traces[role] for role in run.get("traces", self.traces) if role in self.traces]
        if "prompt_tokens" in settings:
            folder = out.parent / f"cut-{settings['prompt_tokens']}"
            traces = [self.cut(trace, settings["prompt_tokens"], folder) for trace in traces]
        words = ["run", self.configs / "experiments" / f"{run['experiment']}.json", "--out", out,
                 "--format", "csv"]
        if self.configs != TOP / "configs":
            words += ["--configs", self.configs]
        if self.steps:
            words += ["--steps", self.steps]
        if traces:
            words += ["--set", "trace=" + ",".join(map(str, traces))]
        for key, value in settings.items():
            if key == "prompt_tokens":
                continue
            text = ",".join(item if isinstance(item, str) else json.dumps(item)
                            for item in as_list(value))
            words += ["--set", f"{key}={text}"]
        if run.get("statistics"):
            words.append("--access-log")
        self.call(*words)
        rows = read_csv(out / "results.csv")
        for row in rows:
            row["variant"] = variant
        if run.get("statistics"):
            self.add_statistics(rows, traces, out)
        return rows

    def add_statistics(self, rows, traces, out):
        """Adds the columns of `kvreplay statistics`; the logs are large and go."""
        for trace in traces:
            name = pathlib.Path(trace).name.removesuffix(".kvtrace.h5")
            logs = sorted(out.glob(f"{name}.*.access.h5"))
            found = {row["system"]: row for row in
                     json.loads(self.call("statistics", *logs, "--trace", trace, "--json"))}
            for row in rows:
                if row["trace"] == name:
                    row.update({key: value for key, value in found[row["system"]].items()
                                if key not in ("system", "layer")})
            for log in logs:
                log.unlink()

    def evaluate(self, spec, out):
        """Rows of the closed loop on the shipped story's tokens, with matrices of the dialogue's;
        None without the weights. The budget is the row's variant."""
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        if not (cache / f"kvreplay/models/{CLOSED_LOOP_MODEL}.kvmodel").exists():
            return None
        traces = find_traces([])
        steps = min(spec["steps"], self.steps or spec["steps"])
        length = ["--model", CLOSED_LOOP_MODEL, "--prompt", spec["prompt"]]
        adapters = out.parent / "cut-adapters" / f"{spec['prompt']}.kvtrace.h5"
        if not adapters.exists():
            adapters.parent.mkdir(parents=True, exist_ok=True)
            self.call("record", *length, "--steps", 64, "--from-trace", traces["dialogue"],
                      "--out", adapters)
        lists = [word for name in ("systems", "budgets", "bits") if name in spec
                 for word in (f"--{name}", ",".join(map(str, spec[name])))]
        self.call("evaluate", *length, "--steps", steps, "--from-trace", traces["story"],
                  "--adapter-trace", adapters, *lists, "--out", out)
        rows = read_csv(out / "closed_loop.csv")
        text = traces["story"].name.removesuffix(".kvtrace.h5")
        return [{**row, "variant": row["budget"], "trace": text, "model": CLOSED_LOOP_MODEL}
                for row in rows]

    def describe(self, devices):
        rows = []
        for device in devices:
            text = self.call("device", "describe", device, "--csv", "--size",
                             "512,4K,8K,16K,24K,32K,64K,128K,256K,512K,1M", "--depth", "1,4,32")
            for row in csv.DictReader(line for line in text.splitlines() if line[0] != "#"):
                rows.append({**row, "device": device})
        return rows


def read_csv(file):
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def variants_of(run):
    """(name, settings) of each."""
    common = dict(run.get("set", {}))
    if "prompt_tokens" in run:
        common["prompt_tokens"] = run["prompt_tokens"]
    variants = run.get("variants", {"": {}})
    return [(name, {**common, **settings}) for name, settings in variants.items()]


def run_all(papers, program, out):
    """{paper: {run: rows}}, or None in place of rows of a run that could not be made; every run's
    rows also in out/runs/PAPER-RUN.json."""
    jobs = [(paper, name, run, variant, settings)
            for paper, content in papers.items()
            for name, run in content["runs"].items()
            for variant, settings in variants_of(run)]
    tables = {paper: {name: [] for name in content["runs"]} for paper, content in papers.items()}
    progress = Progress("reproduce", len(jobs))
    for paper, name, run, variant, settings in jobs:
        progress.begin(f"{paper} {name} {variant}")
        tag = "-".join(text for text in (paper, name, variant) if text).replace(" ", "_")
        if "devices" in run:
            tables[paper][name] += program.describe(run["devices"])
        elif "evaluate" in run:
            tables[paper][name] = program.evaluate(run["evaluate"], out / "runs" / tag)
        else:
            tables[paper][name] += program.run(run, variant, settings, out / "runs" / tag)
        progress.advance()
    progress.end()
    for cut in (out / "runs").glob("cut-*"):
        shutil.rmtree(cut)
    for paper, runs in tables.items():
        for name, rows in runs.items():
            write_text(out / "runs" / f"{paper}-{name}.json", json.dumps(rows, indent=1) + "\n")
    return tables


def read_tables(papers, out):
    return {paper: {name: read_json(out / "runs" / f"{paper}-{name}.json")
                    for name in content["runs"]} for paper, content in papers.items()}


def write_text(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


# --- From rows to verdicts -----------------------------------------------------------------------

def rows_of(runs, tables):
    return [row for run in as_list(runs) for row in tables[run]]


def matching(rows, where):
    return [row for row in rows
            if all(str(row.get(key)) in map(str, as_list(value))
                   for key, value in where.items())]


def number_of(row, metric, where):
    """A column, or the sum of several."""
    total = 0.0
    for name in as_list(metric):
        if name not in row:
            raise Mistake(f"{where}: unknown column '{name}'; allowed: {', '.join(row)}")
        if row[name] in ("", None):
            raise Mistake(f"{where}: column '{name}' is empty in the row of "
                          + " ".join(str(row.get(key, "")) for key in IDENTITY))
        total += float(row[name])
    return total


def simulated(claim, tables, selector, x=None):
    """Of each row that matches: the metric, over that of its partner where the claim has one."""
    where = f"claim {claim['name']}"
    metric = [name.replace("{x}", str(x)) for name in as_list(claim["metric"])]
    chosen = {**claim.get("where", {}), **selector}
    found = matching(rows_of(claim["run"], tables), chosen)
    if not found:
        raise Mistake(f"{where}: no row has {json.dumps(chosen)}; allowed: what its run gives")
    values = []
    for row in found:
        value = number_of(row, metric, where) * claim.get("scale", 1)
        if claim.get("complement"):
            value = 1 - value
        if "over" in claim:
            other = claim["over"]
            same = {key: row[key] for key in IDENTITY if key in row}
            partners = matching(rows_of(other.get("run", claim["run"]), tables),
                                {**same, **other.get("where", {})})
            if len(partners) != 1:
                raise Mistake(f"{where}/over: found {len(partners)} rows; allowed: one")
            base = number_of(partners[0], other.get("metric", metric), where)
            if claim.get("complement"):
                base = 1 - base
            if base == 0:
                raise Mistake(f"{where}/over: the denominator is 0")
            value /= base
        values.append((str(row.get("trace", "")), value))
    return values


def spread(claim, values):
    """The pick, and its lowest and highest over the traces."""
    pick = PICKS[claim.get("pick", "mean")]
    traces = list(dict.fromkeys(trace for trace, _ in values))
    by_trace = [pick([value for trace, value in values if trace == name]) for name in traces]
    return pick([value for _, value in values]), min(by_trace), max(by_trace)


class Point:
    """One number of a paper with ours."""

    def __init__(self, claim, series, x, reported, value, low, high):
        self.claim, self.series, self.x = claim, series, x
        self.bound, self.reported = bound_of(reported)
        self.value, self.low, self.high = value, low, high

    @property
    def ratio(self):
        return self.value / self.reported if self.reported else None

    @property
    def judged(self):
        return not math.isnan(self.reported)

    @property
    def label(self):
        names = self.claim.get("labels", {})
        x = "" if self.x is None else names.get(str(self.x), str(self.x))
        if x and self.claim["x"] != "variant":
            x = f"{self.claim['x']} {x}"
        return ", ".join(text for text in (names.get(self.series, self.series), x) if text)


def points_of(claim, tables):
    """All points of a claim, by series, then x. Where x is in the metric's name, it selects no row."""
    points = []
    reported = claim["reported"]
    x_selects = "x" in claim and not any("{x}" in name for name in as_list(claim["metric"]))
    for series, values in (reported.items() if "series" in claim else [("", reported)]):
        selector = {claim["series"]: series} if series else {}
        for x, number in (zip(claim["xs"], values) if "x" in claim else [(None, values)]):
            if x_selects:
                selector = {**selector, claim["x"]: x}
            found = simulated(claim, tables, selector, x)
            points.append(Point(claim, series, x, number, *spread(claim, found)))
    return points


def differ(one, two, share):
    return abs(one - two) > share * max(abs(one), abs(two))


def same_order(one, two):
    """Whether ours stand to each other as the paper's do; None where those are not distinct."""
    if not differ(one.reported, two.reported, DISTINCT):
        return None
    return (differ(one.value, two.value, NOTICED)
            and (one.reported - two.reported) * (one.value - two.value) > 0)


def keeps_direction(point, points):
    direction = point.claim.get("direction")
    if direction == "side":
        return differ(point.value, 1, NOTICED) and (point.reported - 1) * (point.value - 1) > 0
    if direction == "rank":
        peers = [other for other in points if other.x == point.x and other is not point]
    elif direction == "trend":
        peers = [other for other in points if other.series == point.series and other is not point]
    else:
        return False
    kept = [same_order(point, other) for other in peers]
    return True in kept and False not in kept


def is_near(point):
    """Within the tolerance of what is reported. A gain or loss is judged by its distance from 1: 1.0
    is no fair copy of 1.2."""
    base = 1 if point.claim.get("direction") == "side" else 0
    tolerance = point.claim.get("tolerance", TOLERANCE)
    return abs(point.value - point.reported) <= tolerance * abs(point.reported - base)


def verdict_of(point, points):
    claim = point.claim
    if [point.series, point.x] in claim.get("calibrated_on", []):
        return CALIBRATED
    if point.bound == "<" and point.value < point.reported:
        return REPRODUCED
    if point.bound == ">" and point.value > point.reported:
        return REPRODUCED
    if point.bound == "=" and is_near(point):
        return REPRODUCED
    return DIRECTION if keeps_direction(point, points) else NOT


def why(claim, series, verdict):
    """The cells "reason" and "check" of a row whose number is another than the paper's."""
    if verdict in (REPRODUCED, CALIBRATED):
        return {}

    def text(key):
        found = claim.get(key, "")
        return found.get(series, found.get("", "")) if isinstance(found, dict) else found

    return {"reason": text("reason"), "check": text("check")}


def short(value):
    if value is None:
        return ""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def order_text(points, key):
    ranked = sorted(points, key=key, reverse=True)
    text = ranked[0].series
    for above, below in itertools.pairwise(ranked):
        equal = key(above) - key(below) <= DISTINCT * abs(key(above))
        text += (" = " if equal else " > ") + below.series
    return text


def row_of(paper, claim, case, **values):
    name = claim["claim"] + (f" (proxy: {claim['proxy']})" if "proxy" in claim else "")
    return {"paper": paper, "claim": name, "case": case, "source": claim["source"],
            "unit": claim.get("unit", ""), "reported": "", "simulated": "", "lowest": "",
            "highest": "", "ratio": "", "verdict": "", "reason": "", "check": "", **values}


def summary_rows(paper, claim, points):
    """Of a table of systems: the order of each column, and the mean absolute error."""
    rows = []
    for x in claim["xs"]:
        column = [point for point in points if point.x == x]
        pairs = [same_order(one, two) for one, two in itertools.combinations(column, 2)]
        verdict = NOT if False in pairs else REPRODUCED
        rows.append(row_of(paper, claim, f"order, {claim['x']} {x}", unit="",
                           reported=order_text(column, lambda p: p.reported),
                           simulated=order_text(column, lambda p: p.value), verdict=verdict,
                           **why(claim, "", verdict)))
    free = [point for point in points if verdict_of(point, points) != CALIBRATED]
    error = sum(abs(point.ratio - 1) for point in free) / len(free)
    rows.append(row_of(paper, claim, f"mean absolute error of {len(free)} cells", unit="%",
                       simulated=short(100 * error)))
    return rows


def order_row(paper, claim, tables):
    tiers = [as_list(tier) for tier in claim["order"]]
    values = {name: spread(claim, simulated(claim, tables, {claim["series"]: name}))[0]
              for tier in tiers for name in tier}
    pairs = [(better, worse) for high, low in itertools.combinations(tiers, 2)
             for better in high for worse in low]
    broken = [f"{worse} above {better}" for better, worse in pairs if values[worse] >= values[better]]
    ranked = sorted(values, key=values.get, reverse=True)
    verdict = NOT if broken else REPRODUCED
    cells = why(claim, "", verdict)
    if broken:
        held = f"{len(pairs) - len(broken)} of {len(pairs)} pairs hold"
        cells["reason"] = "; ".join(filter(None, [held, cells["reason"]]))
    return row_of(paper, claim, "order", verdict=verdict, **cells,
                  reported=" > ".join(", ".join(tier) for tier in tiers),
                  simulated=" > ".join(f"{name} {short(values[name])}" for name in ranked))


def judge(paper, content, tables):
    """Rows of claims.csv, and the points of each claim by name."""
    rows, points_by_claim = [], {}
    for claim in content["claims"]:
        if "not_simulated" in claim:
            rows.append(row_of(paper, claim, "", reported=claim["reported"], verdict=NOT_SIMULATED,
                               reason=claim["not_simulated"]))
            continue
        if any(tables[run] is None for run in as_list(claim["run"])):
            rows.append(row_of(paper, claim, "", verdict=NOT_SIMULATED, reason=NO_WEIGHTS))
            continue
        if "order" in claim:
            rows.append(order_row(paper, claim, tables))
            continue
        points = points_of(claim, tables)
        points_by_claim[claim["name"]] = points
        points = [point for point in points if point.judged]
        for point in points:
            verdict = verdict_of(point, points)
            bound = "" if point.bound == "=" else point.bound
            rows.append(row_of(paper, claim, point.label, reported=bound + short(point.reported),
                               simulated=short(point.value), lowest=short(point.low),
                               highest=short(point.high),
                               ratio=short(point.ratio) if point.bound == "=" else "",
                               verdict=verdict, **why(claim, point.series, verdict)))
        if claim.get("direction") == "rank" and "x" in claim:
            rows += summary_rows(paper, claim, points)
    return rows, points_by_claim


# --- Output --------------------------------------------------------------------------------------

def write_csv(file, rows):
    with open(file, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(papers, rows, traces):
    lines = ["# Claims of five papers, as produced", "",
             "`kvreplay reproduce` writes this page; [papers.md](papers.md) says how to read it. Traces: "
             + ", ".join(pathlib.Path(trace).name for trace in traces) + ".", ""]
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


# --- Command -------------------------------------------------------------------------------------

class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Mistake(f"reproduce: {message}; allowed: see kvreplay reproduce --help")


def parse_arguments(words):
    parser = Parser(prog="kvreplay reproduce", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", metavar="PAPER",
                        help="a file such as configs/papers/kvswap.json, its name, or all")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="new folder (default: results/PAPER, numbered when taken)")
    parser.add_argument("--trace", action="append", default=[], metavar="ROLE=FILE",
                        help=f"a recording to use in the shipped one's place; ROLE: {', '.join(ROLES)};"
                             " FILE none leaves it out; may be given again")
    parser.add_argument("--steps", type=int, metavar="N",
                        help="replay only the first N decode steps (default: all)")
    parser.add_argument("--figure", metavar="NAME",
                        help="only this figure of the paper, such as recall, and the runs it needs")
    parser.add_argument("--figures-only", action="store_true",
                        help="judge and draw what the runs in --out DIR gave, without running them")
    parser.add_argument("--configs", type=pathlib.Path, default=TOP / "configs", metavar="DIR",
                        help="where papers, experiments and systems are (default: the source tree's)")
    return parser.parse_args(words)


def only_figure(paper, name, file):
    """The paper with one figure: its claims, what else is said of the same runs, and those runs."""
    figures = paper.get("figures", {})
    one_of(name, figures, f"{file}: --figure")
    drawn = {run for claim in paper["claims"] if claim.get("figure") == name
             for run in runs_of(claim)}
    claims = [claim for claim in paper["claims"] if claim.get("figure", name) == name
              and "not_simulated" not in claim and drawn.issuperset(runs_of(claim))]
    return {**paper, "claims": claims, "figures": {name: figures[name]},
            "runs": {run: paper["runs"][run] for run in paper["runs"] if run in drawn}}


def runs_of(claim):
    return {*as_list(claim.get("run", [])), *as_list(claim.get("over", {}).get("run", []))}


def paper_files(name, configs):
    known = {path.stem: path for path in sorted((configs / "papers").glob("*.json"))}
    if name == "all":
        return known
    if "/" in name or name.endswith(".json"):
        return {pathlib.Path(name).stem: pathlib.Path(name)}
    if name not in known:
        raise Mistake(f"reproduce: unknown paper '{name}'; allowed: {', '.join([*known, 'all'])}")
    return {name: known[name]}


def find_traces(given):
    """{role: file}: the shipped ones, or those given in their place."""
    traces = {}
    for role in ROLES:
        shipped = sorted((TOP / "traces/data").glob(f"*-{role}-*.kvtrace.h5"))
        if shipped:
            traces[role] = shipped[0]
    for text in given:
        role, equals, file = text.partition("=")
        if not equals or role not in ROLES:
            raise Mistake(f"--trace {text}: found no role; allowed: {', '.join(ROLES)}, as in"
                          " story=FILE")
        if file == "none":
            if role == ROLES[0]:
                raise Mistake(f"--trace {text}: the first text cannot be left out; allowed: none"
                              f" for {', '.join(ROLES[1:])}")
            traces.pop(role, None)
            continue
        if not pathlib.Path(file).is_file():
            raise Mistake(f"--trace {text}: no such file; allowed: a trace")
        traces[role] = pathlib.Path(file).resolve()
    return traces


def free_folder(path, name):
    if path is not None:
        if path.exists() and any(path.iterdir()):
            raise Mistake(f"{path}: is there already; allowed: a new or empty folder")
        return path
    names = itertools.chain([f"results/{name}"], (f"results/{name}-{n}" for n in itertools.count(2)))
    return next(folder for folder in map(pathlib.Path, names) if not folder.exists())


def reproduce(arguments, out, papers, traces):
    program = Program(os.environ.get("KVREPLAY_PROGRAM", str(TOP / "build/release/kvreplay")),
                      arguments.configs.resolve(), traces, arguments.steps)
    tables = read_tables(papers, out) if arguments.figures_only else run_all(papers, program, out)
    rows, figures = [], []
    for paper, content in papers.items():
        judged, points = judge(paper, content, tables[paper])
        rows += judged
        figures.append((paper, content, points, tables[paper]))
    import reproduce_figures  # after the runs: matplotlib takes a second
    for figure in figures:
        reproduce_figures.draw_all(*figure, out)
    write_csv(out / "claims.csv", rows)
    write_text(out / "claims.md", markdown(papers, rows, traces.values()))
    return rows


def main(words):
    arguments = parse_arguments(words)
    papers = {name: load_paper(file)
              for name, file in paper_files(arguments.paper, arguments.configs).items()}
    if arguments.figure:
        papers = {name: only_figure(paper, arguments.figure, name)
                  for name, paper in papers.items()}
    traces = find_traces(arguments.trace)
    if arguments.figures_only:
        if arguments.out is None:
            raise Mistake("--figures-only: no --out; allowed: the folder of an earlier run")
        rows, final = reproduce(arguments, arguments.out, papers, traces), arguments.out
    else:
        final = free_folder(arguments.out, pathlib.Path(arguments.paper).stem)
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.with_name(f"{final.name}.partial-{os.getpid()}").resolve()
        try:
            rows = reproduce(arguments, partial, papers, traces)
            partial.rename(final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    main_summary(rows)
    print(f"kvreplay: {len(rows)} rows in {final / 'claims.csv'}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
