"""`kvreplay reproduce`: verdicts on hand-made results, one tiny paper end to end, and bad papers."""

import copy
import csv
import json
import unittest

from program import SHIPPED_TRACE, SOURCE, ProgramTest

from kvreplay import UserError, reproduce, reproduce_papers, reproduce_runs, reproduce_verdicts

DIALOGUE = "smollm2-135m-dialogue-6k.kvtrace.h5"


def row(system, batch, value, trace="t", **more):
    return {"trace": trace, "system": system, "batch": str(batch), "speed": str(value), **more}


TABLE = {"run": [row("a", 1, 10), row("b", 1, 4), row("a", 2, 20), row("b", 2, 30)]}
CLAIM = {"name": "speed", "claim": "speed", "source": "Tab 1", "run": "run", "metric": "speed",
         "series": "system", "x": "batch", "xs": [1, 2], "direction": "rank", "tolerance": 0.1,
         "reported": {"a": [10.5, 40], "b": [2, 20]}, "reason": "another trace"}


def judge(claim, tables=None):
    rows, _ = reproduce_verdicts.judge("p", {"claims": [claim]}, tables or TABLE)
    return rows


class Verdicts(unittest.TestCase):
    def verdicts(self, claim, tables=None):
        return [found["verdict"] for found in judge(claim, tables)]

    def test_a_cell_is_near_or_keeps_its_rank_or_neither(self):
        rows = judge(CLAIM)
        self.assertEqual([found["case"] for found in rows[:4]],
                         ["a, batch 1", "a, batch 2", "b, batch 1", "b, batch 2"])
        self.assertEqual([found["verdict"] for found in rows[:4]],
                         ["reproduced", "not reproduced", "direction only", "not reproduced"])
        self.assertEqual([found["ratio"] for found in rows[:4]], ["0.952", "0.5", "2", "1.5"])
        self.assertEqual([found["reason"] for found in rows[:4]], ["", *["another trace"] * 3])

    def test_a_table_of_systems_has_its_orders_and_its_error(self):
        orders, error = judge(CLAIM)[4:6], judge(CLAIM)[6]
        self.assertEqual([found["verdict"] for found in orders], ["reproduced", "not reproduced"])
        self.assertEqual(orders[1]["reported"], "a > b")
        self.assertEqual(orders[1]["simulated"], "b > a")
        # |10/10.5 - 1|, 0.5, from 2.5, and 0.5
        self.assertEqual(error["simulated"], reproduce_verdicts.short(
            100 * (0.5 / 10.5 + 0.5 + 0.6 + 0.5) / 4))

    def test_an_error_counts_from_the_edge_of_what_was_printed(self):
        error = reproduce_verdicts.error
        for value, reported, expected in ((0.157, 0.1, 0.157 / 0.15 - 1), (0.14, 0.1, 0),
                                          (0.04, 0.1, 0.2), (0.3, 0.2, 0.2), (9, 8, 9 / 8.5 - 1),
                                          (5, 4.0, 0.25), (8, 10, 0.2), (0.66, 0.68, 0.02 / 0.68)):
            self.assertAlmostEqual(error(value, reported), expected, places=12)

    def test_what_was_calibrated_on_is_no_prediction(self):
        claim = {**CLAIM, "calibrated_on": [["a", 1], ["b", 2]]}
        rows = judge(claim)
        self.assertEqual([found["verdict"] for found in rows[:4]],
                         ["calibrated", "not reproduced", "direction only", "calibrated"])
        self.assertEqual(rows[6]["case"], "mean absolute error of 2 cells")

    def one(self, reported, **more):
        return {"name": "one", "claim": "one", "source": "2", "run": "run", "metric": "speed",
                "where": {"system": "a", "batch": 1}, "reported": reported, **more}

    def test_bounds(self):
        for reported, verdict in (("<10.1", "reproduced"), ("<10", "not reproduced"),
                                  (">9", "reproduced"), (">10", "not reproduced")):
            self.assertEqual(self.verdicts(self.one(reported)), [verdict], reported)

    def test_the_side_of_one(self):
        over = {"where": {"system": "b"}}
        for reported, verdict in ((2.4, "reproduced"), (1.1, "direction only"),
                                  (0.9, "not reproduced")):
            claim = self.one(reported, over=over, direction="side", tolerance=0.1)
            self.assertEqual(self.verdicts(claim), [verdict], reported)
            self.assertEqual(judge(claim)[0]["simulated"], "2.5")

    def test_a_trend(self):
        claim = {**CLAIM, "direction": "trend", "reported": {"a": [1, 2], "b": [5, 1]}}
        self.assertEqual(self.verdicts(claim),
                         ["direction only", "direction only", "not reproduced", "not reproduced"])

    def test_values_of_several_traces_are_their_mean_with_the_range(self):
        tables = {"run": [row("a", 1, 10), row("a", 1, 14, trace="u")]}
        found = judge(self.one(12), tables)[0]
        self.assertEqual((found["simulated"], found["lowest"], found["highest"]), ("12", "10", "14"))
        found = judge(self.one(14, pick="max", tolerance=0), tables)[0]
        self.assertEqual(found["verdict"], "reproduced")

    def test_sums_complements_scales_and_names_with_x(self):
        tables = {"run": [row("a", 1, 10, one="0.25", two="0.5")]}
        claim = self.one(75, metric=["one", "two"], scale=100)
        self.assertEqual(judge(claim, tables)[0]["simulated"], "75")
        claim = self.one(20, metric="one", scale=100, over={"metric": {"one": 1, "two": 2}})
        self.assertEqual(judge(claim, tables)[0]["simulated"], "20")
        claim = self.one(1, metric="one", complement=True)
        self.assertEqual(judge(claim, tables)[0]["simulated"], "0.75")
        claim = self.one([0.2, 0.5], metric="{x}", x="t", xs=["one", "two"])
        self.assertEqual([found["simulated"] for found in judge(claim, tables)], ["0.25", "0.5"])

    def test_an_order_names_what_breaks_it(self):
        claim = {"name": "o", "claim": "o", "source": "1", "run": "run", "metric": "speed",
                 "series": "system", "where": {"batch": 1}, "order": ["a", "b"]}
        self.assertEqual(self.verdicts(claim), ["reproduced"])
        found = judge({**claim, "order": ["b", "a"], "reason": "why"})[0]
        self.assertEqual((found["verdict"], found["reason"]),
                         ("not reproduced", "0 of 1 pairs hold; why"))

    def test_how_to_check_stands_where_the_reason_does(self):
        claim = {**CLAIM, "reason": {"a": "of a", "": "of others"}, "check": {"a": "look here"}}
        self.assertEqual([(found["reason"], found["check"]) for found in judge(claim)[:4]],
                         [("", ""), ("of a", "look here"), ("of others", ""), ("of others", "")])
        page = reproduce.markdown({"p": {"title": "P", "source": "s"}}, judge(claim), [])
        self.assertIn("| of a (check 1) |", page)
        self.assertIn("\n1. look here\n", page)

    def test_without_weights_the_closed_loop_is_not_simulated(self):
        found, = judge(self.one(1), {"run": None})
        self.assertEqual(found["verdict"], "not simulated")
        self.assertIn("fetch-model", found["reason"])

    def test_what_is_not_simulated_and_what_is_only_drawn(self):
        claim = {"name": "n", "claim": "n", "source": "3", "reported": "1 ms",
                 "not_simulated": "no part"}
        self.assertEqual(self.verdicts(claim), ["not simulated"])
        self.assertEqual(judge(self.one(None)), [])


PAPER = {
    "title": "Tiny", "source": "no paper",
    "runs": {"run": {"experiment": "first", "statistics": True,
                     "set": {"system": ["in_memory", "quest"], "device": "ufs40"},
                     "variants": {"as it is": {}, "8K": {"model.context_tokens": 8192}}},
             "devices": {"devices": ["ufs40"]}},
    "figures": {"speed": {"title": "speed"}},
    "claims": [
        {"name": "speed", "claim": "speed", "source": "1", "unit": "tokens/s", "run": "run",
         "metric": "tokens_per_s", "series": "system", "x": "variant", "xs": ["as it is", "8K"],
         "reported": {"in_memory": [10, 9], "quest": [9, 9]}, "figure": "speed"},
        {"name": "reuse", "claim": "reuse", "source": "1", "run": "run", "metric": "reused_share",
         "where": {"system": "quest", "variant": "8K"}, "reported": ">0", "figure": "speed",
         "panel": "Reuse"},
        {"name": "link", "claim": "bandwidth", "source": "2", "run": "devices", "metric": "mb_s",
         "where": {"bytes": 1048576, "depth": 32}, "reported": ">1"},
    ],
}


class Recordings(unittest.TestCase):
    """Which recordings a run replays. The shipped story stands for a corpus of its length."""

    def setUp(self):
        self.roles = {"story": "s.h5", "dialogue": "d.h5"}
        self.tokens = 3328
        self.recordings = reproduce_runs.Recordings(self.roles, [SHIPPED_TRACE])

    def test_one_of_the_papers_length_is_not_stretched(self):
        for settings in ({"model.context_tokens": self.tokens, "batch": 4},
                         {"tokens": self.tokens, "batch": 4}):
            self.assertEqual(self.recordings.of({"traces": ["story"]}, settings),
                             ([SHIPPED_TRACE], {"batch": 4}))

    def test_other_lengths_take_the_roles_and_stretch_them(self):
        self.assertEqual(self.recordings.of({}, {"model.context_tokens": 8192}),
                         (["s.h5", "d.h5"], {"model.context_tokens": 8192}))
        self.assertEqual(self.recordings.of({"traces": ["dialogue"]}, {"tokens": 8192}),
                         (["d.h5"], {}))
        self.assertEqual(self.recordings.of({}, {}), (["s.h5", "d.h5"], {}))

    def test_a_corpus_is_a_folder_of_traces(self):
        self.assertEqual(len(reproduce_runs.find_corpus([SHIPPED_TRACE.parent])), 3)
        with self.assertRaisesRegex(UserError, r"--corpus .*configs: found no \*.kvtrace.h5"):
            reproduce_runs.find_corpus([SOURCE / "configs"])


class Reproduce(ProgramTest):
    PYTHON_TOOLS = ("reproduce",)

    def paper(self, change=lambda paper: None):
        paper = copy.deepcopy(PAPER)
        change(paper)
        file = self.folder / "tiny.json"
        file.write_text("// a comment\n" + json.dumps(paper))
        return file

    def test_a_paper_becomes_claims_and_figures(self):
        out = self.folder / "out"
        shown = self.succeed("reproduce", self.paper(), "--out", out, "--steps", 24)
        with open(out / "claims.csv", newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        self.assertEqual(len(rows), 6)
        self.assertIn("reproduced", shown)
        speed = {found["case"]: float(found["simulated"]) for found in rows[:4]}
        self.assertGreater(speed["in_memory, as it is"], speed["in_memory, 8K"])
        for name in ("tiny-speed.pdf", "tiny-speed.png", "claims.md", "runs/tiny-run.json"):
            self.assertGreater((out / name).stat().st_size, 100, name)
        self.assertEqual(self.traces_of(out), {SHIPPED_TRACE.name, DIALOGUE})
        before = (out / "claims.csv").read_bytes()
        self.succeed("reproduce", self.paper(), "--out", out, "--figures-only")
        self.assertEqual((out / "claims.csv").read_bytes(), before)

    def traces_of(self, out):
        rows = json.loads((out / "runs/tiny-run.json").read_text())
        return {row["trace"] + ".kvtrace.h5" for row in rows}

    def test_a_recording_can_be_left_out(self):
        self.succeed("reproduce", self.paper(), "--out", self.folder / "one", "--steps", 20,
                     "--trace", "dialogue=none", "--figure", "speed")
        self.assertEqual(self.traces_of(self.folder / "one"), {SHIPPED_TRACE.name})
        page = (self.folder / "one/claims.md").read_text()
        self.assertTrue(page.startswith(f"# Claims of {PAPER['title']}, as produced\n"), page[:80])
        self.assertIn(f"Traces: {SHIPPED_TRACE.name}. Only the figure speed", page)
        self.assertNotIn("](", page)

    def test_numbers_of_the_shipped_recordings_stay_with_them(self):
        claim = {"run": "r", "reason": {"": "256 of 3.3K tokens", "quest": "pages hold both"},
                 "check": "`kvreplay run a`, `kvreplay statistics b`: recall 0.50, below 0.51"}
        shipped = {"r": [{"trace": SHIPPED_TRACE.name.removesuffix(".kvtrace.h5")}]}
        self.assertEqual(reproduce_verdicts.of_own_recordings(claim, shipped), claim)
        others = reproduce_verdicts.of_own_recordings(claim, {"r": [{"trace": "longer"}]})
        self.assertEqual(others["reason"], {"": "", "quest": "pages hold both"})
        self.assertEqual(others["check"], "`kvreplay run a`, `kvreplay statistics b`")

    def test_one_figure_needs_its_runs_alone(self):
        paper = copy.deepcopy(PAPER)
        paper["runs"]["other"] = {"experiment": "first"}
        paper["claims"] += [{"name": "order", "claim": "o", "source": "1", "run": "run",
                             "metric": "recall", "series": "system", "order": ["in_memory", "quest"]},
                            {"name": "far", "claim": "f", "source": "1", "run": "other",
                             "metric": "recall", "reported": 1}]
        part = reproduce_papers.only_figure(paper, "speed", "tiny")
        self.assertEqual(list(part["runs"]), ["run"])
        self.assertEqual([claim["name"] for claim in part["claims"]], ["speed", "reuse", "order"])
        with self.assertRaisesRegex(UserError, "spede.*allowed: speed"):
            reproduce_papers.only_figure(paper, "spede", "tiny")

    def test_mistakes_are_one_line(self):
        claim = lambda **more: lambda paper: paper["claims"][0].update(more)  # noqa: E731
        for change, says in (
                (claim(colour="red"), ["claims/0", "colour", "reported"]),
                (claim(run="rum"), ["claims/0", "rum", "devices"]),
                (claim(figure="fast"), ["figure", "fast", "speed"]),
                (claim(direction="up"), ["direction", "up", "trend"]),
                (claim(reported={"in_memory": [1]}), ["reported", "1 values", "2 of xs"]),
                (claim(reported={"in_memory": [1, "many"]}), ["reported", "many", "number"]),
                (lambda paper: paper["claims"].append(paper["claims"][0]), ["speed", "twice"]),
                (lambda paper: paper["runs"]["run"].update(evaluate={}), ["runs/run", "one of"]),
                (lambda paper: paper.pop("claims"), ["no 'claims'"]),
                (lambda paper: paper.update(claims={}),
                 ["/claims: found an empty object", "a list"]),
                (lambda paper: paper["runs"]["run"].update(statistcs=True),
                 ["/runs/run: unknown key 'statistcs'", "allowed: statistics"]),
                (lambda paper: paper["runs"]["run"].update(statistics="yes"),
                 ['/runs/run/statistics: found "yes"', "true or false"]),
                (lambda paper: paper["runs"].update(closed={"evaluate": {"systems": ["quest"]}}),
                 ["/runs/closed/evaluate: no 'prompt'"]),
                (lambda paper: paper["figures"]["speed"].update(log="yes"),
                 ["/figures/speed/log", "true or false"]),
                (lambda paper: paper["claims"][1].pop("metric"), ["/claims/1: no 'metric'"]),
                (lambda paper: paper["claims"][0].pop("xs"), ["/claims/0: no 'xs'"]),
                (claim(tolerance=-1), ["/claims/0/tolerance: found -1", "from 0"]),
                (claim(reported={"in_memory": [1, "<x"], "quest": [1, 1]}),
                 ['/claims/0/reported/in_memory/1: found "<x"', "<number"])):
            with self.subTest(says):
                self.refuses(["reproduce", self.paper(change), "--out", "bad"], says)
        self.refuses(["reproduce", "nobody"], ["nobody", "kvswap", "all"])
        self.refuses(["reproduce", "nobody.json"], ["nobody.json"])
        self.refuses(["reproduce", self.paper(), "--trace", "poem=x"], ["poem", "story"])
        self.refuses(["reproduce"], ["PAPER"])

    def test_the_page_says_how_to_check_what_is_not_reproduced(self):
        page = (SOURCE / "docs/results/papers-claims.md").read_text()
        rows = [line for line in page.splitlines() if "| not reproduced |" in line]
        rows = rows[1:]  # the counts' header
        self.assertGreater(len(rows), 10)
        for row in rows:
            self.assertRegex(row, r"\(check \d+\) \|$|\| as above \|$")

    def test_a_failed_run_leaves_nothing(self):
        result = self.kvreplay("reproduce", self.paper(
            lambda p: p["runs"]["run"]["set"].update(system=["qest"])), "--out", "bad")
        self.assertEqual(result.returncode, 2)
        self.assertIn("quest", result.stderr.splitlines()[-1])
        self.assertFalse([path for path in self.folder.iterdir() if path.name.startswith("bad")])

    def test_the_papers_that_ship_are_sound(self):
        papers = reproduce_papers.paper_files("all", SOURCE / "configs")
        self.assertEqual(len(papers), 5)
        for file in papers.values():
            with self.subTest(file.name):
                paper = reproduce_papers.load_paper(file)
                for run in paper["runs"].values():
                    if "experiment" in run:
                        name = f"configs/experiments/{run['experiment']}.json"
                        self.assertTrue((SOURCE / name).is_file(), name)


if __name__ == "__main__":
    unittest.main()
