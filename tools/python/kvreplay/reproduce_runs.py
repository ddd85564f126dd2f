"""The runs that a paper's claims need, by the built program."""

import csv
import json
import os
import pathlib
import shutil

from kvreplay.calls import execute
from kvreplay.config_json import read_json
from kvreplay.errors import UserError
from kvreplay.measuring import joined
from kvreplay.progress import Progress
from kvreplay.reproduce_papers import CLOSED_LOOP_MODEL, as_list
from kvreplay.source_tree import TOP
from kvreplay.traces import Trace

ROLES = ("story", "dialogue")
DESCRIBED_BYTES = (512, *(kib << 10 for kib in (4, 8, 16, 24, 32, 64, 128, 256, 512, 1024)))
DESCRIBED_DEPTHS = (1, 4, 32)


class Recordings:
    """The shipped recordings by role, or those given in their place, and a corpus by length."""

    def __init__(self, by_role, corpus=()):
        self.by_role, self.by_tokens = by_role, {}
        for file in corpus:
            with Trace(file) as trace:
                of_name = self.by_tokens.setdefault(trace.tokens, {}).setdefault(trace.name, {})
                of_name[len(trace.layers)] = file

    def of(self, run, settings):
        """The files that a variant of a run replays, and its settings for them: a recording of the
        length that the paper speaks of is not stretched to it. Of recordings with one name, the one
        with the fewest layers, or the most where the run asks for all."""
        settings = dict(settings)
        context = settings.get("model.context_tokens")
        tokens = settings.pop("tokens", context)
        if tokens in self.by_tokens:
            if tokens == context:
                del settings["model.context_tokens"]
            pick = max if run.get("all_layers") else min
            return [by_layers[pick(by_layers)] for by_layers in self.by_tokens[tokens].values()], \
                settings
        return [self.by_role[role] for role in run.get("traces", self.by_role)
                if role in self.by_role], settings

    def files(self):
        return [*self.by_role.values(), *(file for of_names in self.by_tokens.values()
                                          for by_layers in of_names.values()
                                          for file in by_layers.values())]


class Program:
    """The built kvreplay, and what all of its runs share."""

    def __init__(self, path, configs, recordings, steps):
        self.path, self.configs, self.recordings, self.steps = path, configs, recordings, steps

    def call(self, *arguments):
        return execute([self.path, *arguments], quiet=True)[0]

    def cut(self, trace, prompt_tokens, folder):
        """The last `prompt_tokens` of the prompt, with the steps that follow."""
        with Trace(trace) as recording:
            prompt, tokens = recording.prompt_tokens, recording.tokens
        folder.mkdir(parents=True, exist_ok=True)
        out = folder / pathlib.Path(trace).name
        if not out.exists():
            self.call("cut", trace, out, "--start", prompt - prompt_tokens, "--prompt",
                      prompt_tokens, "--decode", min(256, tokens - prompt))
        return out

    def run(self, run, variant, settings, out):
        """Rows of one variant of a run, written to the folder `out`."""
        traces, settings = self.recordings.of(run, settings)
        if "prompt_tokens" in settings:
            folder = out.parent / f"cut-{settings['prompt_tokens']}"
            traces = [self.cut(trace, settings["prompt_tokens"], folder) for trace in traces]
        # A sweep gives the same files and keeps what it has computed, so that a reproduction that was
        # interrupted goes on from there. Statistics need access logs, which a run alone writes.
        command = ["run", "--access-log"] if run.get("statistics") else ["sweep", "--quiet"]
        words = [*command, self.configs / "experiments" / f"{run['experiment']}.json", "--out", out,
                 "--format", "none"]
        if self.configs != TOP / "configs":
            words += ["--configs", self.configs]
        if self.steps:
            words += ["--steps", self.steps]
        if traces:
            words += ["--set", f"trace={joined(traces)}"]
        for key, value in settings.items():
            if key == "prompt_tokens":
                continue
            text = ",".join(item if isinstance(item, str) else json.dumps(item)
                            for item in as_list(value))
            words += ["--set", f"{key}={text}"]
        self.call(*words)
        rows = read_csv(out / "results.csv")
        for row in rows:
            row["variant"] = variant
        if run.get("statistics"):
            self.add_statistics(rows, traces, out)
        return rows

    def add_statistics(self, rows, traces, out):
        """Adds the columns of `kvreplay statistics`; the logs are large and are removed."""
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
        """Rows of the closed loop on the shipped story's tokens, with matrices of the dialogue;
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
                 for word in (f"--{name}", joined(spec[name]))]
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
                             joined(DESCRIBED_BYTES), "--depth", joined(DESCRIBED_DEPTHS))
            for row in csv.DictReader(line for line in text.splitlines() if line[0] != "#"):
                rows.append({**row, "device": device})
        return rows


def read_csv(file):
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def variants_of(run):
    """(name, settings) of each."""
    common = dict(run.get("set", {}))
    common |= {key: run[key] for key in ("tokens", "prompt_tokens") if key in run}
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
    with Progress("reproduce", len(jobs)) as progress:
        for paper, name, run, variant, settings in jobs:
            progress.begin(f"{paper} {name} {variant}")
            tag = "-".join(text for text in (paper, name, variant) if text).replace(" ", "_")
            if "devices" in run:
                tables[paper][name] += program.describe(run["devices"])
            elif "evaluate" in run:
                tables[paper][name] = program.evaluate(run["evaluate"], out / "runs" / tag)
            else:
                tables[paper][name] += program.run(run, variant, settings, out / "runs" / tag)
            progress.update()
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


def find_corpus(folders):
    """The traces in the folders."""
    files = []
    for folder in folders:
        found = sorted(pathlib.Path(folder).glob("*.kvtrace.h5"))
        if not found:
            raise UserError(f"--corpus {folder}: found no *.kvtrace.h5; allowed: a folder of "
                            "tools/scripts/record-corpus")
        files += [file.resolve() for file in found]
    return files


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
            raise UserError(f"--trace {text}: found no role; allowed: {', '.join(ROLES)}, as in"
                            " story=FILE")
        if file == "none":
            if role == ROLES[0]:
                raise UserError(f"--trace {text}: the first text cannot be left out; allowed: none"
                                f" for {', '.join(ROLES[1:])}")
            traces.pop(role, None)
            continue
        if not pathlib.Path(file).is_file():
            raise UserError(f"--trace {text}: no such file; allowed: a trace")
        traces[role] = pathlib.Path(file).resolve()
    return traces
