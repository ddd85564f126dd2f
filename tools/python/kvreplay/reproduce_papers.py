"""The files of configs/papers: what a paper reports, and the runs that give our numbers."""

import pathlib

from kvreplay import json_schema
from kvreplay.config_json import read_json
from kvreplay.errors import UserError, nearest_first
from kvreplay.source_tree import TOP

SCHEMA = TOP / "configs/papers/paper.schema.json"
CLOSED_LOOP_MODEL = "smollm2-135m"


def as_list(value):
    return value if isinstance(value, list) else [value]


def one_of(value, allowed, where):
    if value not in allowed:
        raise UserError(f"{where}: found '{value}'; allowed: {nearest_first(value, allowed)}")


def check_claim(claim, paper, where):
    """Checks what no schema can: the claim against the rest of its paper."""
    for run in as_list(claim.get("run", [])):
        one_of(run, paper["runs"], f"{where}/run")
    if "figure" in claim:
        one_of(claim["figure"], paper.get("figures", {}), f"{where}/figure")
    if "x" not in claim or "reported" not in claim or "not_simulated" in claim:
        return
    reported = claim["reported"]
    for values in reported.values() if "series" in claim else [reported]:
        if len(as_list(values)) != len(claim["xs"]):
            raise UserError(f"{where}/reported: found {len(as_list(values))} values; allowed: one "
                            f"for each of the {len(claim['xs'])} of xs")


def load_paper(file):
    """The checked content of a paper's file."""
    paper = read_json(file)
    json_schema.check(paper, read_json(SCHEMA), file)
    names = [claim["name"] for claim in paper["claims"]]
    for place, claim in enumerate(paper["claims"]):
        check_claim(claim, paper, f"{file}: /claims/{place} ({claim['name']})")
        if names.count(claim["name"]) > 1:
            raise UserError(f"{file}: /claims/{place}: found '{claim['name']}' twice; allowed: "
                            "once")
    return paper


def only_figure(paper, name, file):
    """The paper with one figure: its claims, other claims about the same runs, and those runs."""
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
    """{name: file} of `name`: of all in `configs`, of one of them, or of a file."""
    known = {path.stem: path for path in sorted((configs / "papers").glob("*.json"))
             if not path.name.endswith(".schema.json")}
    if name == "all":
        return known
    if "/" in name or name.endswith(".json"):
        return {pathlib.Path(name).stem: pathlib.Path(name)}
    if name not in known:
        raise UserError(f"reproduce: unknown paper '{name}'; allowed: "
                        f"{nearest_first(name, [*known, 'all'])}")
    return {name: known[name]}
