"""`tools/plot`: the figures of folders of results, and any column of them against any other."""

import csv
import pathlib
import struct
import unittest

from program import ProgramTest, python_tool

from kvreplay import plot_any, plot_chart, plot_results, plot_style

SMALL = ("--set", "timed_steps=2", "--set", "warm_up_steps=2", "--steps", "8", "--format", "none",
         "--quiet", "--cache", "cache")


def png_size(file):
    return struct.unpack(">II", file.read_bytes()[16:24])


def outside(figure):
    """How far what is drawn reaches beyond the page, in inches; 0 where it does not."""
    figure.canvas.draw()
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())
    width, height = figure.get_size_inches()
    return max(0, -drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)


class Plot(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trace = cls.cut_trace("small.kvtrace.h5", 256, 16)
        cls.other = cls.cut_trace("other.kvtrace.h5", 300, 16)
        base = ("first", "--set", f"trace={cls.trace}")
        cls.succeed("sweep", *base, "--set", "device=ufs40,emmc51", "--set",
                    "system=in_memory,quest,kvswap", "--set",
                    "system.selection.budget_tokens=32,64,128", *SMALL, "--out", "swept")
        cls.succeed("sweep", "first", "--set", f"trace={cls.trace},{cls.other}", "--set",
                    "device=ufs40", "--set", "seed=1,2", "--set", "system=quest,clusterkv",
                    *SMALL, "--out", "repeated")
        cls.succeed("sweep", *base, "--set", "device=ufs40", "--set", "platform.dram_bytes=64MiB",
                    *SMALL, "--out", "tight")
        cls.succeed("sweep", *base, "--set", "device=ufs40", "--set", "model=llama3.2-1b", *SMALL,
                    "--out", "small")

    def tearDown(self):
        plot_style.Look.size = plot_style.Look.title = None
        plot_style.Look.names = {}
        plot_style.plt.close("all")

    def plot(self, *words):
        return python_tool(self.folder, "plot", *words)

    def draws(self, *words):
        result = self.plot(*words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [pathlib.Path(self.folder, line) for line in result.stdout.splitlines()]

    def rows(self, name):
        with open(self.folder / name / "results.csv", newline="") as stream:
            return list(csv.DictReader(stream))

    def test_a_sweep_is_drawn_as_lines(self):
        ((name, figure),) = plot_any.own_figures("results", self.folder / "swept", "attention_mass")
        self.assertEqual(name, "figure")
        self.assertEqual(len(figure.axes), 4)  # two metrics on two devices
        for axes in figure.axes:
            self.assertFalse(axes.patches, "bars")
            lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 3]
            self.assertEqual(len(lines), 2)  # quest and kvswap; the budget does not reach in_memory
            for line in lines:
                self.assertEqual(list(line.get_xdata()), [32, 64, 128])
            self.assertTrue(any(len(set(line.get_ydata())) == 1 and line.get_linestyle() == "--"
                                for line in axes.get_lines()))

    def test_a_few_swept_values_have_a_tick_each(self):
        rows = [row for row in self.rows("swept") if row["device"] == "ufs40"]
        for budgets in ("32,64,128", "100,300,500", "10,100,128", "3,70,1000"):
            values = dict(zip(("32", "64", "128"), budgets.split(",")))
            shown = [{**row, "system.selection.budget_tokens": values.get(
                row["system.selection.budget_tokens"], "")} for row in rows]
            figure = plot_chart.draw(plot_chart.Chart(shown, y=["latency_ms"]), "")
            plot_style.finish(figure)
            (axes,) = figure.axes
            self.assertEqual(list(axes.get_xticks()), [float(value) for value in values.values()])
        self.assertEqual(len(plot_style.apart([2 ** power for power in range(20)], 0.1)), 10)

    def test_an_axis_takes_a_label(self):
        plot_style.Look.names = {"budget_tokens": "Budget", "latency_ms": "Latency [ms]"}
        figure = plot_chart.draw(plot_chart.Chart(
            [row for row in self.rows("swept") if row["device"] == "ufs40"], y=["latency_ms"]), "")
        self.assertEqual([figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()],
                         ["Budget", "Latency [ms]"])
        plot_style.check_labels()

    def test_the_lines_have_the_numbers_of_the_rows(self):
        rows = [row for row in self.rows("swept") if row["device"] == "ufs40"]
        chart = plot_chart.Chart(rows, y=["latency_ms"])
        marks = chart.marks("", "latency_ms")["quest"]
        expected = {float(row["system.selection.budget_tokens"]): float(row["latency_ms"])
                    for row in rows if row["system"] == "quest"}
        self.assertEqual({mark[0]: mark[1] for mark in marks}, expected)

    def test_error_bars_are_over_traces_and_seeds(self):
        rows = self.rows("repeated")
        chart = plot_chart.Chart(rows, x="system", y=["output_error"])
        ((_, marks),) = [(name, marks) for name, marks in
                         chart.marks("", "output_error").items()]
        self.assertEqual(len(marks), 2)
        for mark in marks:
            values = [float(row["output_error"]) for row in rows if row["system"] == mark[0]]
            self.assertEqual(len(mark[4]), 4)
            self.assertAlmostEqual(mark[1], sum(values) / 4)
            self.assertAlmostEqual(mark[1] - mark[3][0], min(values))
            self.assertAlmostEqual(mark[1] + mark[3][1], max(values))
        interval = plot_chart.Chart(rows, x="system", y=["output_error"], errors="ci")
        wide = interval.middle([1.0, 2.0, 3.0])
        self.assertAlmostEqual(wide[1][0], 4.30 / 3 ** 0.5)
        figure = plot_chart.draw(chart, "")
        plot_style.finish(figure)
        self.assertIn("range of 4 traces and seeds",
                      [text.get_text() for text in figure.legends[0].get_texts()])

    def test_rows_that_differ_in_more_are_not_averaged(self):
        result = self.plot("swept", "--x", "budget_tokens", "--y", "latency_ms", "--by", "system")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\Akvreplay: --by: [^\n]*device[^\n]*--panel device[^\n]*\n\Z")
        self.draws("swept", "--x", "budget_tokens", "--y", "latency_ms", "--by", "system", "--panel",
                   "device")
        self.draws("swept", "--x", "budget_tokens", "--y", "latency_ms", "--by", "system", "--where",
                   "device=ufs40", "--out", "one.png")

    def test_the_front_has_what_nothing_beats(self):
        points = [(1, 5), (2, 4), (3, 4), (4, 1), (5, 9)]
        self.assertEqual(plot_chart.pareto(points, "latency_ms", "output_error"),
                         [(1, 5), (2, 4), (4, 1)])
        self.assertEqual(plot_chart.pareto(points, "tokens_per_s", "attention_mass"), [(5, 9)])
        self.assertEqual(plot_chart.pareto(points, "tokens_per_s", "output_error"),
                         [(5, 9), (4, 1)])

    def test_what_moves_with_a_setting_is_not_named_again(self):
        def row(system, budget, groups, speed):
            return {"device": "ufs40", "system": system, "system.kvswap.cache.capacity_groups": groups,
                    "system.selection.budget_tokens": budget, "steps": "8", "tokens_per_s": speed,
                    "attention_mass": "0.5"}

        rows = [row("kvswap", "512", "256", "9"), row("quest", "512", "", "8"),
                row("kvswap", "1024", "512", "7"), row("quest", "1024", "", "6")]
        named = plot_results.with_series(rows)
        names = [one["series"] for one in named]
        self.assertEqual(names, ["kvswap, budget_tokens=512", "quest, budget_tokens=512",
                                 "kvswap, budget_tokens=1024", "quest, budget_tokens=1024"])
        styles = plot_results.styles_of(named, names)
        self.assertEqual(styles[names[0]]["color"], styles[names[2]]["color"])
        self.assertEqual(styles[names[0]]["marker"], styles[names[1]]["marker"])
        self.assertNotEqual(styles[names[0]], styles[names[1]])
        _, axes = plot_style.plt.subplots()
        plot_results.join_systems(axes, named, styles, "attention_mass")
        self.assertEqual([list(line.get_xdata()) for line in axes.lines], [[9, 7], [8, 6]])
        crossed = [row("kvswap", budget, groups, "9") for budget in ("1", "2") for groups in ("3", "4")]
        self.assertEqual(plot_results.varied_settings(crossed),
                         ["system.kvswap.cache.capacity_groups", "system.selection.budget_tokens"])

    def test_marks_are_named_above_a_figure(self):
        rows = [{"system": "kvswap", "marks": "cache_below_step exceeds_dram"},
                {"system": "quest", "marks": ""}]
        self.assertEqual(plot_any.marks_text(rows), "\nmarks of results.csv: cache_below_step: kvswap")
        self.assertEqual(plot_any.marks_text(rows[1:]), "")

    def test_size_and_resolution_are_those_asked_for(self):
        (file,) = self.draws("swept", "--x", "tokens_per_s", "--y", "output_error", "--by", "system",
                             "--where", "device=ufs40", "--size", "3.3x2.2", "--dpi", "100",
                             "--font", "serif", "--style", "paper", "--label", "kvswap=Ours",
                             "--out", "paper.png")
        self.assertEqual(png_size(file), (330, 220))
        files = self.draws("swept", "--title", "A title", "--out", "both")
        self.assertEqual([file.name for file in files], ["both.pdf", "both.png"])
        again = self.folder / "again.pdf"
        self.draws("swept", "--title", "A title", "--out", "again.pdf")
        self.assertEqual(again.read_bytes(), files[0].read_bytes())

    def test_everything_is_on_the_page_at_any_length(self):
        long = "A system whose name says what it does, how, and to which memory"
        for size in ((3.3, 2.2), (3.3, 2.8), (7, 3), None):
            for names in ({}, {"kvswap": long, "quest": "Another " + long}):
                for folder, words in (("swept", {}), ("swept", {"x": "system", "y": ["latency_ms"],
                                                                "by": ["budget_tokens"]}),
                                      ("tight", {}), ("repeated", {"x": "system"})):
                    plot_style.Look.size, plot_style.Look.names = size, names
                    rows = plot_chart.filtered(self.rows(folder), [("device", ["ufs40"])])
                    figure = plot_chart.draw(plot_chart.Chart(rows, **words), "The title " + long)
                    plot_style.finish(figure)
                    self.assertLess(outside(figure), 0.02, (size, bool(names), folder, words))
                    plot_style.plt.close("all")
        plot_style.Look.size, plot_style.Look.names = None, {"kvswap": long, "quest": long + "."}
        for folder in ("small", "tight"):
            for _, figure in plot_results.figures(self.folder / folder):
                plot_style.finish(figure)
                self.assertLess(outside(figure), 0.02)

    def test_what_no_machine_could_hold_is_said(self):
        rows = self.rows("tight")
        self.assertTrue(all(float(row["dram_share"]) > 1 for row in rows))
        figure = plot_chart.draw(plot_chart.Chart(rows), "")
        plot_style.finish(figure)
        self.assertIn("does not fit in DRAM (dram_share above 1)",
                      [" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()])
        ((_, figure),) = plot_results.figures(self.folder / "tight")
        self.assertIn("does not fit in the platform's DRAM",
                      " ".join(figure._suptitle.get_text().split()))

    def test_several_folders_in_one_figure(self):
        files = self.draws("small", "tight", "--x", "system", "--y", "latency_ms", "--by", "model")
        self.assertEqual(files[0].parent.name, "small")
        self.assertEqual({file.name for file in files}, {"comparison.pdf", "comparison.png"})
        rows = plot_any.chart_rows([self.folder / "small", self.folder / "tight"])
        self.assertEqual({row["folder"] for row in rows}, {"small", "tight"})
        chart = plot_chart.Chart(rows, x="system", y=["latency_ms"])
        self.assertNotIn("folder", chart.by, "the model tells them apart already")

    def test_what_cannot_be_drawn_is_refused(self):
        for words, says in ((("swept", "--x", "latncy_ms"), "latency_ms"),
                            (("swept", "--y", "system"), "--y"),
                            (("swept", "--size", "3x"), "--size"),
                            (("swept", "--font", "No Such Font"), "--font"),
                            (("swept", "--label", "kvswap"), "NAME=TEXT"),
                            (("swept", "--label", "kvswapp=Ours"), "--label: no name kvswapp; allowed: kvswap"),
                            (("swept", "--out", "a.jpg"), "ends in .pdf or .png"),
                            (("swept", "--where", "device=nvme"), "ufs40"),
                            (("swept", "--log", "z"), "--log"),
                            (("swept", "--dpi", "0"), "--dpi"),
                            (("swept", "--x", "steps", "--out", "no/folder/x.png"), "no/folder"),
                            (("swept/results.csv",), "folder"),
                            (("nowhere", "--x", "system"), "nowhere")):
            result = self.plot(*words)
            self.assertEqual(result.returncode, 2, (words, result.stderr))
            self.assertRegex(result.stderr, r"\Akvreplay: [^\n]*\n\Z", words)
            self.assertIn(says, result.stderr)


if __name__ == "__main__":
    unittest.main()
