"""The page of `kvreplay report` in a real browser: sorting, filtering, columns, points and cells."""

import csv
import json
import os
import pathlib
import unittest

import browser
from program import ProgramTest

SMALL = ("--set", "timed_steps=2", "--set", "warm_up_steps=2", "--steps", "8", "--format", "none")


@unittest.skipUnless(browser.installed(), "no browser: this test needs Debian's chromium")
class ReportInABrowser(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        trace = cls.cut_trace("small.kvtrace.h5", 256, 16)
        cls.succeed("run", "first", "--set", f"trace={trace}", "--set", "device=ufs40,emmc51",
                    "--set", "system=in_memory,quest,kvswap", *SMALL, "--out", "run", "--timeline",
                    "run/timeline.json")
        cls.succeed("report", "run")
        cls.succeed("sweep", "first", "--set", f"trace={trace}", "--set", "device=ufs40", "--set",
                    "system=quest,clusterkv", "--set", "system.selection.budget_tokens=32,64,128",
                    "--set", "platform.dram_bytes=64MiB", *SMALL, "--quiet", "--no-cache", "--out",
                    "swept")
        cls.succeed("report", "swept")
        cls.page = browser.Browser()
        cls.addClassCleanup(cls.page.close)

    def open(self, run, width=1280):
        self.page.complaints.clear()
        self.page.open(self.folder / run / "report.html", width)

    def rows(self, run):
        with open(self.folder / run / "results.csv", newline="") as stream:
            return list(csv.DictReader(stream))

    def column(self, name):
        """The texts of a column of the table, as it stands."""
        return self.page.value(f"""(() => {{
            const heads = [...document.querySelectorAll('#rows th')].map(one => one.dataset.name);
            return [...document.querySelectorAll('#rows tbody tr')].map(
                row => row.children[heads.indexOf({json.dumps(name)})].textContent); }})()""")

    def numbers(self, name):
        """The unrounded values of a column, in the order of the table."""
        return self.page.value(f"""(() => {{
            const data = JSON.parse(document.getElementById('data').textContent);
            const at = data.columns.indexOf({json.dumps(name)});
            return [...document.querySelectorAll('#rows tbody tr')].map(
                row => Number(data.rows[row.dataset.row][at])); }})()""")

    def test_the_page_asks_nothing_of_the_network_and_complains_of_nothing(self):
        for run in ("run", "swept"):
            for width in (1280, 390):
                self.open(run, width)
                others = [url for url in self.page.requests if not url.startswith(("file:", "data:"))]
                self.assertEqual(others, [])
                self.assertEqual(self.page.complaints, [])

    def test_a_heading_sorts_and_sorts_back(self):
        self.open("run")
        before = self.column("system")
        self.assertEqual(before, [row["system"] for row in self.rows("run")])
        expected = sorted(float(row["latency_ms"]) for row in self.rows("run"))
        self.page.click('#rows th[data-name="latency_ms"]')
        self.assertEqual(self.numbers("latency_ms"), expected)
        self.page.click('#rows th[data-name="latency_ms"]')
        self.assertEqual(self.numbers("latency_ms"), expected[::-1])
        self.page.click('#rows th[data-name="latency_ms"]')
        self.assertEqual(self.column("system"), before)
        # Of what is better when it is more, the best comes first.
        self.page.click('#rows th[data-name="tokens_per_s"]')
        speeds = self.numbers("tokens_per_s")
        self.assertEqual(speeds, sorted(speeds, reverse=True))

    def test_the_filter_takes_words_and_comparisons(self):
        rows = self.rows("run")
        limit = sorted(float(row["latency_ms"]) for row in rows)[2]
        for said, kept in (("quest", lambda row: row["system"] == "quest"),
                           ("quest emmc", lambda row: (row["system"], row["device"]) ==
                            ("quest", "emmc51")),
                           (f"latency_ms<={limit}", lambda row: float(row["latency_ms"]) <= limit),
                           ("device=ufs40 system=kvswap", lambda row: (row["device"], row["system"])
                            == ("ufs40", "kvswap")),
                           ("nothing_like_it", lambda row: False)):
            self.open("run")
            self.page.type("#filter", said)
            wanted = [row for row in rows if kept(row)]
            self.assertEqual(self.column("system"), [row["system"] for row in wanted], said)
            self.assertIn(f"{len(wanted)} of {len(rows)}",
                          self.page.value("document.getElementById('count').textContent"))
            points = self.page.value("document.querySelectorAll('#chart circle').length")
            self.assertEqual(points, len(wanted), said)

    def test_columns_are_chosen(self):
        self.open("run")
        self.assertEqual(self.page.value(
            "document.querySelectorAll('#rows th[data-name=dram_share]').length"), 0)
        self.page.click("details:has(#columns) summary")
        self.page.click('#columns input[value="dram_share"]')
        self.assertEqual(self.numbers("dram_share"),
                         [float(row["dram_share"]) for row in self.rows("run")])
        self.page.click("#all")
        heads = self.page.value(
            "[...document.querySelectorAll('#rows th')].map(one => one.dataset.name)")
        self.assertEqual(heads, list(self.rows("run")[0]))
        self.page.click("#usual")
        self.assertEqual(self.page.value(
            "document.querySelectorAll('#rows th[data-name=dram_share]').length"), 0)

    def test_a_point_has_a_tooltip_and_a_click_shows_its_settings(self):
        self.open("run")
        rows = self.rows("run")
        # Of equal points the last one lies on top.
        index = max(i for i, row in enumerate(rows) if row["system"] == "quest")
        self.page.hover(f'#chart circle[data-row="{index}"]')
        tip = self.page.value("document.getElementById('tip').innerText")
        for word in ("quest", rows[index]["device"], "tokens_per_s", "attention_mass"):
            self.assertIn(word, tip)
        self.page.click(f'#chart circle[data-row="{index}"]')
        said = self.page.value("document.getElementById('cell').innerText")
        config = json.loads((self.folder / "run/manifest.json").read_text())["config"]
        selection = config["system"]["quest"]["selection"]
        for word in ("system quest", selection["part"], f"budget_tokens {selection['budget_tokens']}"):
            self.assertIn(word, said)
        self.assertEqual(self.page.value(
            "document.querySelectorAll('#rows tr.chosen').length"), 1)
        self.assertEqual(self.page.value(
            "document.querySelector('#timelines figure.chosen').dataset.cell"), str(index))
        self.page.click(".close")
        self.assertTrue(self.page.value("document.getElementById('cell').hidden"))
        self.page.click(f'#rows tr[data-row="{index}"]')
        self.assertFalse(self.page.value("document.getElementById('cell').hidden"))

    def test_a_swept_cell_shows_its_own_variant(self):
        self.open("swept")
        rows = self.rows("swept")
        for index in (0, len(rows) - 1):
            self.page.click(f'#rows tr[data-row="{index}"]')
            budget = rows[index]["system.selection.budget_tokens"]
            said = self.page.value("document.querySelector('#cell details').innerText")
            self.assertRegex(said, rf"budget_tokens {budget}\b")
            self.assertNotIn("variants", said)

    def test_the_chart_draws_what_is_chosen(self):
        self.open("swept")
        lines = self.page.value("document.querySelectorAll('#chart polyline').length")
        self.assertEqual(lines, 2)  # a line for each system over the budget
        self.page.value("""(() => { const list = document.getElementById('y');
            list.value = 'latency_ms'; list.dispatchEvent(new Event('change')); })()""")
        self.assertIn("latency_ms", self.page.value(
            "[...document.querySelectorAll('#chart text.axis')].map(one => one.textContent)"))
        self.page.click("#legend button")
        self.assertEqual(self.page.value("document.querySelectorAll('#chart polyline').length"), 1)

    def test_what_does_not_fit_is_marked(self):
        self.open("swept")
        self.assertIn("Does not fit", self.page.value("document.querySelector('.mark').innerText"))
        self.assertEqual(self.page.value("document.querySelectorAll('#rows tr.nofit').length"),
                         len(self.rows("swept")))
        self.page.hover("#chart circle")
        self.assertIn("does not fit in DRAM",
                      self.page.value("document.getElementById('tip').innerText"))

    def test_it_fits_wide_and_narrow_windows(self):
        for run in ("run", "swept"):
            for width in (1280, 390):
                self.open(run, width)
                self.assertLessEqual(self.page.value("document.documentElement.scrollWidth"), width)
                if keep := os.environ.get("SCREENSHOTS"):
                    self.page.screenshot(pathlib.Path(keep, f"{run}-{width}.png"), whole=True)
            self.open(run, 1280)
            for name in ("attention_mass", "output_error"):
                right = self.page.value(f"""document.querySelector(
                    '#rows th[data-name="{name}"]').getBoundingClientRect().right""")
                self.assertLessEqual(right, 1280, name)

    def test_keys_do_what_clicks_do(self):
        self.open("run")
        self.page.value("document.querySelector('#rows th[data-name=\"latency_ms\"]').focus()")
        for kind in ("keyDown", "keyUp"):
            self.page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter",
                           windowsVirtualKeyCode=13)
        latencies = self.numbers("latency_ms")
        self.assertEqual(latencies, sorted(latencies))


if __name__ == "__main__":
    unittest.main()
