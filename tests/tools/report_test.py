"""The page of `kvreplay report`, and the timeline of `kvreplay run`."""

import base64
import csv
import gzip
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
import sys
import unittest

from program import SOURCE, ProgramTest, python_tool

SMALL = ("--set", "timed_steps=2", "--set", "warm_up_steps=2", "--steps", "8", "--format", "none")
VOID = {"meta", "img", "input"}


class Page(html.parser.HTMLParser):
    """Checks that tags close in order; keeps tags, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)

    def text(self):
        return " ".join(self.words)

    def references(self):
        return [value for _, attributes in self.tags for name, value in attributes.items()
                if name in ("href", "src", "action", "data", "srcset", "background")]


class Report(ProgramTest):
    PYTHON_TOOLS = ("report",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trace = cls.cut_trace("small.kvtrace.h5", 256, 16)
        cls.succeed("run", "first", "--set", f"trace={cls.trace}", "--set", "device=ufs40,emmc51",
                    "--set", "system=quest,kvswap", *SMALL, "--out", "run", "--timeline",
                    "run/timeline.json")

    def page_of(self, run, *options):
        self.succeed("report", run, *options)
        return Page((self.folder / run / "report.html").read_text())

    def only_its_own_scripts(self, page, run):
        """Its data, and its program, whose hash alone the browser runs."""
        scripts = [attributes for tag, attributes in page.tags if tag == "script"]
        self.assertEqual(scripts, [{"type": "application/json", "id": "data"}, {}])
        content = (self.folder / run / "report.html").read_text()
        program = content[content.rindex("<script>") + len("<script>"):content.rindex("</script>")]
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        policy, = (attributes["content"] for tag, attributes in page.tags
                   if attributes.get("http-equiv") == "Content-Security-Policy")
        self.assertTrue(policy.startswith("default-src 'none';"))
        self.assertIn(f"script-src 'sha256-{digest}'", policy)
        self.assertEqual(sorted(re.findall(r"\w+-src", policy)),
                         ["default-src", "img-src", "script-src", "style-src"])

    def rows(self, run="run"):
        with open(self.folder / run / "results.csv", newline="") as stream:
            return list(csv.DictReader(stream))

    def test_the_page_holds_all_that_it_shows(self):
        page = self.page_of("run")
        for reference in page.references():
            self.assertRegex(reference, r"\Adata:(image/png|text/csv|application/gzip);base64,")
        self.only_its_own_scripts(page, "run")
        self.assertNotIn("@import", (self.folder / "run/report.html").read_text())
        self.assertNotRegex((self.folder / "run/report.html").read_text(), r"url\(")

    def test_the_page_has_tables_figures_and_provenance(self):
        page = self.page_of("run")
        manifest = json.loads((self.folder / "run/manifest.json").read_text())
        said = page.text()
        for words in (manifest["config_sha256"], manifest["traces"][0]["sha256"],
                      manifest["kvreplay_version"], manifest["compiler"], manifest["command"],
                      "kvreplay run first --set", "quest", "kvswap", "emmc51", "tokens_per_s",
                      "bytes of groups found in the cache / bytes of groups requested",
                      "ui.perfetto.dev"):
            self.assertIn(words, said)
        self.assertNotIn("SYNTHETIC", said)
        images = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
        self.assertEqual(len(images), 1)
        self.assertTrue(base64.b64decode(images[0].split(",")[1]).startswith(b"\x89PNG"))
        links = {attributes["download"]: attributes["href"] for tag, attributes in page.tags
                 if tag == "a"}
        kept = base64.b64decode(links["results.csv"].split(",")[1])
        self.assertEqual(kept, (self.folder / "run/results.csv").read_bytes())
        timeline = gzip.decompress(base64.b64decode(links["run-timeline.json.gz"].split(",")[1]))
        self.assertEqual(json.loads(timeline),
                         json.loads((self.folder / "run/timeline.json").read_text()))

    def test_the_title_says_what_was_run(self):
        title = (self.folder / "run/manifest.json").read_text()
        self.assertIn("Five systems", title)  # the experiment's, which this run has little to do with
        page = (self.folder / "run/report.html")
        self.succeed("report", "run")
        heading = re.search(r"<h1>(.*?)</h1>", page.read_text())[1]
        self.assertEqual(heading, "quest, kvswap on ufs40, emmc51")
        self.assertIn(f"<title>{heading}</title>", page.read_text())

    def test_what_does_not_fit_is_said_at_the_top(self):
        self.succeed("run", "first", "--set", f"trace={self.trace}", "--set", "device=ufs40", "--set",
                     "system=quest", "--set", "platform.dram_bytes=1GiB", *SMALL, "--out", "tight")
        self.assertIn("Does not fit", self.page_of("tight").text())
        self.assertNotIn("Does not fit", self.page_of("run").text())

    def test_the_same_page_again_and_elsewhere(self):
        self.succeed("report", "run")
        first = (self.folder / "run/report.html").read_bytes()
        self.succeed("report", "run", "--out", "elsewhere.html")
        self.assertEqual((self.folder / "elsewhere.html").read_bytes(), first)

    def test_the_timeline_has_the_steps_of_the_results(self):
        events = json.loads((self.folder / "run/timeline.json").read_text())["traceEvents"]
        rows = self.rows()
        self.assertEqual({event["pid"] for event in events}, set(range(1, len(rows) + 1)))
        for place, row in enumerate(rows):
            mine = [event for event in events if event["pid"] == place + 1]
            names = [event["args"]["name"] for event in mine if event["name"] == "process_name"]
            self.assertTrue(names[0].startswith(f"{row['system']} on {row['device']}, "), names)
            steps = [event for event in mine if event["name"].startswith("step ")]
            self.assertEqual(len(steps), 2)
            self.assertAlmostEqual(sum(event["dur"] for event in steps) / 2000,
                                   float(row["latency_ms"]), places=6)
            read = sum(event["args"]["bytes"] for event in mine
                       if event["ph"] == "X" and 100 <= event["tid"] < 200)
            self.assertEqual(read / 2, float(row["read_bytes_per_step"]))

    def test_a_timeline_changes_no_result(self):
        self.succeed("run", "first", "--set", f"trace={self.trace}", "--set",
                     "device=ufs40,emmc51", "--set", "system=quest,kvswap", *SMALL, "--out", "plain")
        for name in ("results.csv", "results.json", "quality.csv", "table.txt", "manifest.json"):
            self.assertEqual((self.folder / "plain" / name).read_bytes(),
                             (self.folder / "run" / name).read_bytes(), name)
        self.assertFalse((self.folder / "plain/timeline.json").exists())
        self.assertIn("This run has no timeline", self.page_of("plain").text())

    def test_sweeps_and_merged_shards(self):
        sweep = ("sweep", "first", "--set", f"trace={self.trace}", "--set", "device=ufs40", "--set",
                 "system=quest,kvswap", "--set", "system.selection.budget_tokens=64,128", *SMALL,
                 "--no-cache", "--quiet")
        self.succeed(*sweep, "--out", "sweep")
        for shard in (1, 2):
            self.succeed(*sweep, "--shard", f"{shard}/2", "--out", f"part-{shard}")
        self.succeed("merge", "part-1", "part-2", "--out", "merged")
        whole = self.page_of("sweep")
        self.assertIn("system.selection.budget_tokens", whole.text())
        merged = (self.page_of("merged").text())
        self.assertEqual(merged, whole.text())
        self.page_of("part-1")

    def test_a_sweep_shows_cells_that_it_had_timed_before(self):
        sweep = ("sweep", "first", "--set", f"trace={self.trace}", "--set", "device=ufs40,emmc51",
                 "--set", "system=quest,kvswap", *SMALL, "--cache", "cache", "--quiet")
        self.succeed(*sweep, "--out", "first")
        self.succeed(*sweep, "--out", "again", "--timeline", "again/timeline.json")
        for name in ("results.csv", "timeline.json"):
            self.assertEqual((self.folder / "again" / name).read_bytes(),
                             (self.folder / "run" / name).read_bytes(), name)

    def test_a_synthetic_trace_is_marked(self):
        self.succeed("synth", "made.synthetic.kvtrace.h5", "--like", self.trace, "--tokens", "300")
        self.succeed("run", "first", "--set", "trace=made.synthetic.kvtrace.h5", "--set",
                     "device=ufs40", "--set", "system=quest", *SMALL, "--out", "synthetic")
        page = self.page_of("synthetic")
        self.assertIn("SYNTHETIC", page.text())
        self.assertIn("not recorded from a model", page.text())

    def test_names_are_escaped(self):
        shutil.copytree(self.folder / "run", self.folder / "evil")
        evil = "<script>alert(1)</script> & \" ' $x_1$"
        for name in ("results.csv", "quality.csv"):
            file = self.folder / "evil" / name
            field = '"' + evil.replace('"', '""') + '"'
            file.write_text(re.sub(r"\bquest\b", lambda _: field, file.read_text()))
        for name in ("manifest.json", "timeline.json"):
            file = self.folder / "evil" / name
            inside = json.dumps(evil)[1:-1]
            file.write_text(re.sub(r"\bquest\b", lambda _: inside, file.read_text()))
        page = self.page_of("evil")
        self.only_its_own_scripts(page, "evil")
        self.assertIn(evil, page.text())
        self.assertNotIn("<script>alert", (self.folder / "evil/report.html").read_text())

    def test_what_is_no_result_is_refused(self):
        (self.folder / "empty").mkdir()
        self.refuses(["report", "nowhere"], ["nowhere", "kvreplay run"])
        self.refuses(["report", "empty"], ["manifest.json", "kvreplay run"])
        self.refuses(["report", "small.kvtrace.h5"], ["small.kvtrace.h5", "folder"])
        self.refuses(["report"], ["report", "RUN"])
        self.refuses(["report", "run", "--nonsense"], ["--nonsense"])
        self.refuses(["report", "run", "--out", "nowhere/page.html"], ["nowhere/page.html"])
        self.refuses(["report", "run", "--out", "empty"], ["empty", "regular file"])
        self.refuses(["report", "run", "--timeline", "nowhere.json"], ["nowhere.json"])
        self.refuses(["report", "run", "--timeline", "run/results.csv"], ["run/results.csv", "JSON"])
        self.refuses(["report", "run", "--timeline", "run/manifest.json"], ["traceEvents"])

    def test_damaged_files_are_refused(self):
        def damaged(name, change):
            shutil.rmtree(self.folder / "damaged", ignore_errors=True)
            shutil.copytree(self.folder / "run", self.folder / "damaged")
            file = self.folder / "damaged" / name
            file.write_bytes(change(file.read_bytes()))
            self.refuses(["report", "damaged"], [f"damaged/{name}"])

        damaged("results.csv", lambda content: content[:-40])
        damaged("results.csv", lambda content: content[:content.index(b"\n") + 1])
        damaged("results.csv", lambda content: b"")
        damaged("results.csv", lambda content: b"\xff\x00" + content)
        damaged("results.csv", lambda content: content.replace(b"latency_ms", b"lateness", 1))
        speed = self.rows()[0]["tokens_per_s"].encode()
        damaged("results.csv", lambda content: content.replace(speed, b"fast", 1))
        damaged("quality.csv", lambda content: content[:-10].rsplit(b",", 2)[0])
        damaged("manifest.json", lambda content: content[:100])
        damaged("manifest.json", lambda content: b"[]")
        damaged("timeline.json", lambda content: content[:-20])
        damaged("timeline.json", lambda content: content.replace(b'"dur"', b'"for"', 1))

    def test_the_timeline_goes_where_it_can(self):
        run = ["run", "first", "--set", f"trace={self.trace}", "--set", "device=ufs40", "--set",
               "system=quest", *SMALL]
        self.refuses([*run, "--timeline", "nowhere/timeline.json"], ["--timeline", "nowhere"])
        self.refuses([*run, "--out", "new", "--timeline", "new/deeper/t.json"], ["--timeline"])

    def test_plot_tells_swept_settings_apart_and_refuses_what_it_cannot_read(self):
        self.succeed("sweep", "first", "--set", f"trace={self.trace}", "--set", "device=ufs40",
                     "--set", "system=kvswap", "--set", "system.selection.budget_tokens=64,128",
                     *SMALL, "--no-cache", "--quiet", "--out", "swept")

        def plot(*words):
            return python_tool(self.folder, "plot", *words)

        self.assertEqual(plot("swept").returncode, 0)
        self.assertTrue((self.folder / "swept/figure.png").exists())
        results = (self.folder / "swept/results.csv").read_text()
        (self.folder / "dotted").mkdir()
        header, rows = results.split("\n", 1)
        self.assertIn("qwen2.5-1.5b", rows)
        (self.folder / "dotted/results.csv").write_text(
            f"{header}\n{rows}{rows.replace('qwen2.5-1.5b', 'llama3.2-1b')}")
        self.assertEqual(plot("dotted").returncode, 0)
        figures = [path.name for path in (self.folder / "dotted").glob("figure-*")]
        self.assertEqual(len(figures), 4, figures)  # two models, two formats

        for kind in ((), ("closed-loop",), ("results",)):
            result = plot(*kind, "nowhere")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"\Akvreplay: nowhere/[^\n]*\n\Z")
        self.assertRegex(plot("results", "--nonsense").stderr,
                         r"\Akvreplay: [^\n]*; allowed: [^\n]*\n\Z")

    def test_list_metrics_has_every_column(self):
        listed = [line.split()[0] for line in self.succeed("list", "metrics").splitlines()]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertTrue(set(self.rows()[0]) <= set(listed))


if __name__ == "__main__":
    unittest.main()
