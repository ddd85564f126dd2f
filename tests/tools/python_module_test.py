"""tools/python/kvreplay, the Python package: what it reads against h5py and csv by hand, its Pareto
front against every pair of rows, and a user's mistakes."""

import contextlib
import csv
import json
import os
import pty
import subprocess
import sys
import termios
import textwrap
import unittest
from unittest import mock

import h5py
import numpy as np
import pandas

from program import PROGRAM, SHIPPED_TRACE, SOURCE, ProgramTest

import kvreplay

DIALOGUE_TRACE = SOURCE / "traces/data/smollm2-135m-dialogue-6k.kvtrace.h5"
PACKAGE = SOURCE / "tools/python"
STEPS = 24
EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5", "system": ["quest", "clusterkv", "dynakv"],
    "model": "smollm2-135m", "platform": "orin_agx", "device": ["ufs40", "emmc51"], "batch": 1,
    "warm_up_steps": 2, "timed_steps": 8, "set": {"system.selection.budget_tokens": 64}}


class WithProgram(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        named = mock.patch.dict(os.environ, {"KVREPLAY": PROGRAM})
        named.start()
        cls.addClassCleanup(named.stop)

    @contextlib.contextmanager
    def refused(self, says):
        """A UserError in one line that has every text of `says`."""
        with self.assertRaises(kvreplay.UserError) as caught:
            yield
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        for text in says:
            self.assertIn(text, message)


class Package(unittest.TestCase):
    def python(self, *words, **options):
        return subprocess.run([sys.executable, "-B", *map(str, words)], text=True, check=False,
                              capture_output=True, **options)

    def test_every_public_name_is_there(self):
        for name in kvreplay.__all__:
            found = getattr(kvreplay, name)
            self.assertTrue(callable(found) or name in ("BUFFERED", "EVENTS"), name)
        self.assertLessEqual(set(kvreplay.__all__), set(dir(kvreplay)))
        with self.assertRaises(AttributeError):
            kvreplay.nothing  # pylint: disable=pointless-statement

    def test_the_old_name_of_its_error(self):
        with self.assertWarnsRegex(DeprecationWarning, "UserError"):
            self.assertIs(kvreplay.Error, kvreplay.UserError)

    def test_each_module_can_come_first(self):
        """Modules import one another as a package, without cycles."""
        names = sorted(path.stem for path in (PACKAGE / "kvreplay").glob("[!_]*.py"))
        code = ("import importlib, sys\n"
                "for name in sys.argv[1:]:\n"
                "    for module in [one for one in sys.modules if one.startswith('kvreplay')]:\n"
                "        del sys.modules[module]\n"
                "    importlib.import_module(f'kvreplay.{name}')\n"
                "    print(name)\n")
        result = self.python("-c", code, *names, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.stdout.split(), names)

    def test_the_package_itself_needs_no_other(self):
        code = ("import sys, kvreplay, kvreplay.command_line, kvreplay.sizes\n"
                "print('numpy' in sys.modules)")
        result = self.python("-c", code, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        self.assertEqual(result.stdout, "False\n", result.stderr)

    def test_modules_run_as_programs(self):
        by_name = self.python("-m", "kvreplay.report", "--help",
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        by_folder = self.python(PACKAGE / "kvreplay", "report", "--help")
        self.assertIn("usage: kvreplay report", by_name.stdout)
        self.assertEqual(by_folder.stdout, by_name.stdout, by_folder.stderr)


class Bars(unittest.TestCase):
    CODE = ("import time\nfrom kvreplay.progress import Progress\n"
            "with Progress('work', 4) as progress:\n"
            "    for step in range(4):\n"
            "        progress.begin(f'step {step}')\n"
            "        time.sleep(SECONDS)\n"
            "        progress.update()\n")

    def said_on(self, seconds, terminal):
        """What the bar of a piece of work wrote on standard error."""
        ours, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            termios.tcsetwinsize(ours, (25, 80))
        with subprocess.Popen([sys.executable, "-B", "-c",
                               self.CODE.replace("SECONDS", str(seconds))], stderr=theirs,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)}) as process:
            os.close(theirs)
            said = b""
            with contextlib.suppress(OSError):  # a terminal whose last writer is gone
                while piece := os.read(ours, 4096):
                    said += piece
            os.close(ours)
        self.assertEqual(process.returncode, 0, said)
        return said.decode()

    def test_a_bar_shows_itself_after_two_seconds_on_a_terminal_alone(self):
        self.assertEqual(self.said_on(0.7, terminal=False), "")
        self.assertEqual(self.said_on(0.1, terminal=True), "")
        said = self.said_on(0.7, terminal=True)
        self.assertRegex(said, r"work \[#{22}\.{8}\]  75%  00:0\d left, step 3")
        self.assertNotIn("step 1", said)
        self.assertRegex(said, r"\r *\r\Z")


class Traces(WithProgram):
    def test_what_it_says_is_what_h5py_finds(self):
        for path in (SHIPPED_TRACE, DIALOGUE_TRACE):
            with h5py.File(path) as file, kvreplay.trace(path) as trace:
                attributes = file.attrs
                self.assertEqual(trace.layers, attributes["recorded_layers"].tolist())
                self.assertEqual(trace.prompt_tokens, attributes["prompt_tokens"])
                self.assertEqual(trace.steps, attributes["tokens"] - attributes["prompt_tokens"])
                self.assertEqual(trace.model, attributes["model"])
                self.assertFalse(trace.synthetic)
                frame = trace.positions()
                np.testing.assert_array_equal(frame["id"], file["tokens/id"][:])
                np.testing.assert_array_equal(frame["entropy"], file["tokens/entropy"][:])
                self.assertEqual(frame["decoded"].sum(), trace.steps)
                for layer in trace.layers:
                    for name, vectors in (("key", trace.keys(layer)),
                                          ("value", trace.values(layer)),
                                          ("query", trace.queries(layer)),
                                          ("query_ahead", trace.queries_ahead(layer))):
                        data = file[f"layer/{layer}/{name}"]
                        self.assertEqual(vectors.shape, data.shape)
                        whole = np.asarray(vectors)
                        self.assertEqual(whole.dtype, np.float32)
                        np.testing.assert_array_equal(whole, data[:].astype(np.float32))
                        np.testing.assert_array_equal(vectors[1, 7:19], data[1, 7:19])
                    start = file[f"layer/{layer}/query"].attrs["query_start"]
                    self.assertEqual(trace.queries(layer).first_position, start)

    def test_attention_by_hand(self):
        with h5py.File(SHIPPED_TRACE) as file, kvreplay.trace(SHIPPED_TRACE) as trace:
            layer, head, position = 24, 7, 3100
            query = file[f"layer/{layer}/query"][head, position - 3008].astype(float)
            keys = file[f"layer/{layer}/key"][head // 3, :position + 1].astype(float)
            weights = np.exp(keys @ query / 8)
            np.testing.assert_allclose(trace.attention(layer, head, position),
                                       weights / weights.sum(), rtol=1e-9)

    def test_bf16_and_its_figures(self):
        self.cut_trace("small.kvtrace.h5", 64, 4)
        self.succeed("convert", "small.kvtrace.h5", "brain.kvtrace.h5", "--dtype", "bf16")
        with kvreplay.trace(self.folder / "small.kvtrace.h5") as half, \
                kvreplay.trace(self.folder / "brain.kvtrace.h5") as brain:
            exact, rounded = np.asarray(half.keys(12)), np.asarray(brain.keys(12))
            self.assertEqual(rounded.dtype, np.float32)
            np.testing.assert_array_equal(rounded.view(np.uint32) & 0xffff, 0)
            np.testing.assert_allclose(rounded, exact, rtol=2**-8)
            self.assertEqual(float(brain.keys(12)[2, 5, 3]), rounded[2, 5, 3])
        self.succeed("inspect", "brain.kvtrace.h5", "--plot", "figures")
        self.assertEqual({path.name for path in (self.folder / "figures").glob("*.png")},
                         {"values.png", "mass.png", "keys.png"})

    def test_every_shipped_trace_has_the_short_name_of_the_program(self):
        names = [line.split()[0] for line in self.succeed("list", "traces").splitlines()]
        self.assertIn("chat", names)
        for name in names:
            with kvreplay.trace(name) as trace:
                self.assertIn(name, trace.name.split("-"))

    def test_a_trace_of_arrays_is_verified_and_replayed(self):
        page = (SOURCE / "docs/trace-format.md").read_text()
        code = page.split("## Writing one of arrays")[1].split("\n\n")[2]
        with contextlib.chdir(self.folder):
            exec(textwrap.dedent(code), {})  # the page's own example
        self.assertIn("complete and sound", self.succeed("verify", "mine.kvtrace.h5"))
        with kvreplay.trace(self.folder / "mine.kvtrace.h5") as trace:
            self.assertTrue(trace.synthetic)
            self.assertEqual((trace.layers, trace.steps, trace.query_heads), ([0, 5], 32, 8))
            self.assertEqual(trace.queries(5).first_position, 1024 - 96)
            self.assertAlmostEqual(trace.attention(5, 7, 1000).sum(), 1)
        said = self.succeed("run", "first", "--set", "trace=./mine.kvtrace.h5", "--set",
                            "system=quest,clusterkv", "--set", "timed_steps=4", "--set",
                            "warm_up_steps=2", "--out", "of-arrays")
        self.assertIn("SYNTHETIC", said)
        layers = {0: [np.zeros((2, 8, 4)), np.zeros((2, 8, 4)), np.zeros((4, 3, 4))]}
        right = {"prompt_tokens": 5, "source": "zeros", "synthetic": True}
        for wrong, says in ((({0: layers[0][:2]}, right), "three dimensions"),
                            (({**layers, 1: [np.zeros((1, 8, 4))] * 3}, right), "layer 1"),
                            (({0: [*layers[0][:2], np.zeros((3, 3, 4))]}, right), "a multiple"),
                            (({}, right), "found none"),
                            ((layers, {**right, "prompt_tokens": 4}), "from 5"),
                            ((layers, {**right, "prompt_tokens": 8}), "to 7"),
                            ((layers, {**right, "token_ids": [1]}), "one per position"),
                            ((layers, {**right, "rope_teta": 1}), "rope_theta")):
            with self.refused(["wrong.kvtrace.h5", says]):
                kvreplay.write_trace(self.folder / "wrong.kvtrace.h5", wrong[0], **wrong[1])
        with self.refused(["none/a.kvtrace.h5", "no such folder"]):
            kvreplay.write_trace(self.folder / "none/a.kvtrace.h5", layers, **right)
        self.assertEqual(list(self.folder.glob("wrong*")), [])

    def test_mistakes(self):
        with self.refused(["nowhere.kvtrace.h5", "no such file", "kvreplay verify"]):
            kvreplay.trace("nowhere.kvtrace.h5")
        with self.refused(["README.md", "kvreplay verify"]):
            kvreplay.trace(SOURCE / "README.md")
        with h5py.File(self.folder / "other.h5", "w"):
            pass
        with self.refused(["other.h5", "format is none"]):
            kvreplay.trace(self.folder / "other.h5")
        for name in ("smollm2-135m-story-3k", "story"):
            with kvreplay.trace(name) as trace:
                self.assertTrue(trace.path.samefile(
                    SOURCE / "traces/data/smollm2-135m-story-3k.kvtrace.h5"))
        with kvreplay.trace(SHIPPED_TRACE) as trace:
            with self.refused([SHIPPED_TRACE.name, "layer 13", "12", "24"]):
                trace.keys(13)
            with self.refused(["/layer/12", "querry", "allowed: query"]):
                trace.vectors(12, "querry")
            with self.refused(["query head 9", "0 to 8"]):
                trace.attention(12, 9, 3100)
            with self.refused(["position 3000", "3008 to 3327"]):
                trace.attention(12, 0, 3000)

    def test_what_a_file_lacks(self):
        self.cut_trace("whole.kvtrace.h5", 64, 4)
        def spoil(change):
            spoilt = self.folder / "spoilt.kvtrace.h5"
            spoilt.write_bytes((self.folder / "whole.kvtrace.h5").read_bytes())
            with h5py.File(spoilt, "r+") as file:
                change(file)
            return kvreplay.trace(spoilt)

        def remove(path):
            return lambda file: file.__delitem__(path)

        with spoil(remove("layer/12")) as trace, self.refused(["spoilt.kvtrace.h5", "'12'"]):
            trace.keys(12)
        with spoil(remove("tokens/entropy")) as trace, self.refused(["spoilt", "'entropy'"]):
            trace.positions()
        with self.refused(["spoilt", "allowed: a trace that `kvreplay verify`"]):
            spoil(lambda file: file.attrs.__setitem__("recorded_layers", "twelve"))
        with spoil(lambda file: file.attrs.__setitem__("sliding_window", [0])) as trace, \
                self.refused(["sliding_window has 1", "allowed: 2"]):
            trace.window(24)


class Results(WithProgram):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 256, STEPS)
        cls.experiment = cls.folder / "experiment.json"
        cls.experiment.write_text(json.dumps(EXPERIMENT))
        cls.out = kvreplay.run(cls.experiment, {}, "--access-log", out=cls.folder / "first run (1)")

    def test_the_folder_that_was_made(self):
        self.assertEqual(self.out, self.folder / "first run (1)")
        self.assertEqual(kvreplay.manifest(self.out)["title"], "A test")

    def test_columns_are_those_of_the_files(self):
        for name, frame in (("results.csv", kvreplay.results(self.out)),
                            ("quality.csv", kvreplay.quality(self.out))):
            with open(self.out / name, newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual(list(frame.columns), list(rows[0]))
            self.assertEqual(len(frame), len(rows))
            for column in frame:
                for value, row in zip(frame[column], rows):
                    if row[column] == "":
                        self.assertTrue(pandas.isna(value))
                    elif isinstance(value, str):
                        self.assertEqual(value, row[column])
                    else:
                        self.assertEqual(float(value), float(row[column]))

    def test_settings_become_cells(self):
        budget = "system.selection.budget_tokens"
        out = kvreplay.run(self.experiment, {"system": "quest", "device": ["ufs40", "emmc51"],
                                             budget: {"from": 16, "to": 64, "factor": 2}},
                           "--steps", 8, out=self.folder / "settings")
        frame = kvreplay.results(out)
        self.assertEqual(len(frame), 6)
        self.assertEqual(sorted(set(frame[budget])), [16, 32, 64])
        again = kvreplay.sweep(self.experiment, {"system": "quest"}, "--no-cache", "--quiet",
                               out=self.folder / "sweep")
        self.assertEqual(len(kvreplay.results(again)), 2)

    def test_what_each_head_attended_to(self):
        """Picked groups, with what waits in memory and the step's own token, are what a query head
        attends to; and their exact weights are the mass that the program found."""
        step = STEPS - 3
        with kvreplay.trace(self.folder / "small.kvtrace.h5") as trace:
            for path in sorted(self.out.glob("*.access.h5")):
                with kvreplay.access_log(path) as log:
                    self.assertEqual((log.layers, log.steps), (trace.layers, STEPS))
                    for layer in log.layers:
                        self.check_layer(log, trace, layer, step)

    def check_layer(self, log, trace, layer, step):
        own = log.prompt_tokens + step
        rows = log.selections(layer)
        quality = log.quality(layer)
        self.assertEqual(len(rows), STEPS * log.query_heads)
        for stream in log.streams(layer):
            place = stream.placement(step)
            held = np.concatenate(list(place.values()))
            self.assertEqual(sorted(held), list(range(own)), "each token is in one place")
            with self.assertWarnsRegex(DeprecationWarning, "requested"):
                np.testing.assert_array_equal(stream.asked(step), stream.requested(step))
            for head in range(stream.query_heads):
                of_layer = stream.first_query_head + head
                row = head if stream.rows > 1 else 0
                picked = stream.picked(step, row)
                self.assertTrue(set(picked) <= set(stream.requested(step)))
                last = stream.data("last_picked")[step * stream.rows + row]
                kept = stream.data("last_tokens")[step * stream.rows + row]
                self.assertEqual(last in picked, len(picked) > 0)
                members = [place[group][:kept] if group == last else place[group]
                           for group in picked.tolist()]
                attended = log.attended(layer, of_layer, step)
                expected = np.concatenate([place[kvreplay.BUFFERED], *members, [own]])
                np.testing.assert_array_equal(attended, np.sort(expected))

                where = (rows["step"] == step) & (rows["query_head"] == of_layer)
                self.assertEqual(rows["attended_tokens"][where].item(), len(attended))
                np.testing.assert_array_equal(rows["groups"][where].item(), picked)
                mass = quality["attention_mass"][where].item()
                weights = trace.attention(layer, of_layer, own)
                self.assertAlmostEqual(weights[attended].sum(), mass, delta=1e-5)

    def test_events_are_those_of_the_file(self):
        path = next(self.out.glob("*.dynakv.access.h5"))
        with h5py.File(path) as file, kvreplay.access_log(path) as log:
            layer = log.layers[0]
            data = file[f"layer/{layer}/stream/0"]
            events = log.streams(layer)[0].events()
            self.assertEqual(len(events), len(data["event_kind"]))
            begins = data["event_token_begin"][:]
            for number in (0, len(events) // 2, len(events) - 1):
                event = events.iloc[number]
                self.assertEqual(event["kind"], kvreplay.EVENTS[data["event_kind"][number]])
                np.testing.assert_array_equal(
                    event["tokens"], data["event_tokens"][begins[number]:begins[number + 1]])
            self.assertEqual(events["segment"].iloc[0], 0)
            self.assertTrue(events["segment"].is_monotonic_increasing)

    def test_mistakes(self):
        with self.refused(["nowhere", "results.csv", "kvreplay run"]):
            kvreplay.results("nowhere")
        (self.folder / "closed_loop.csv").write_text("one,two\n1,2\n")
        with self.refused(["closed_loop.csv", "system", "kvreplay evaluate"]):
            kvreplay.closed_loop(self.folder)
        with self.refused(["qest", "quest"]):
            kvreplay.run(self.experiment, {"system": "qest"}, out=self.folder / "bad")
        self.assertFalse((self.folder / "bad").exists())
        with mock.patch.dict(os.environ, {"KVREPLAY": "/nowhere/kvreplay"}):
            with self.refused(["$KVREPLAY", "/nowhere/kvreplay"]):
                kvreplay.call("list", "systems")
        with kvreplay.access_log(next(self.out.glob("*.quest.access.h5"))) as log:
            with self.refused([f"step {STEPS}", f"0 to {STEPS - 1}"]):
                log.attended(log.layers[0], 0, STEPS)
            with self.refused(["layer 5"]):
                log.quality(5)
        with self.refused(["sweep", "made no folder", "call("]):
            kvreplay.sweep(self.experiment, {}, "--plan", "--no-cache")
        with self.refused(["settings", "complex"]):
            kvreplay.run(self.experiment, {"seed": 1j})
        with mock.patch.dict(os.environ, {"KVREPLAY": str(self.no_program())}):
            with self.refused(["no-program", "cannot be run"]):
                kvreplay.call("list", "systems")

    def no_program(self):
        file = self.folder / "no-program"
        file.write_bytes(b"\x7fELF, but not really")
        file.chmod(0o755)
        return file

    def test_what_a_log_lacks(self):
        spoilt = self.folder / "spoilt.access.h5"
        spoilt.write_bytes(next(self.out.glob("*.quest.access.h5")).read_bytes())
        with h5py.File(spoilt, "r+") as file:
            layer = int(file.attrs["layers"][0])
            del file[f"layer/{layer:02}/quality/recall"]
            del file[f"layer/{layer:02}/stream/0"].attrs["rows"]
            del file[f"layer/{layer:02}"].attrs["dense"]
        with kvreplay.access_log(spoilt) as log:
            for ask, says in ((log.quality, "'recall'"), (log.streams, "'rows'"),
                              (log.is_dense, "'dense'")):
                with self.refused(["spoilt.access.h5", says, "--access-log"]):
                    ask(layer)
        with h5py.File(spoilt, "r+") as file:
            file.attrs["decide_config"] = "{"
        with self.refused(["spoilt.access.h5", "--access-log"]):
            kvreplay.access_log(spoilt)

    def test_numbers_of_numpy_are_settings(self):
        self.assertEqual(kvreplay.settings_words({"seed": np.int64(3), "set": [np.float64(0.5)]}),
                         ["--set", "seed=3", "--set", "set=0.5"])

    def test_what_tune_found(self):
        out = self.folder / "tuned"
        kvreplay.call("tune", self.experiment, "--system", "quest", "--set", "device=ufs40",
                      "--evaluations", 8, "--population", 4, "--no-cache", "--no-validation",
                      "--out", out)
        front, evaluated = kvreplay.front(out), kvreplay.evaluated(out)
        chosen = evaluated[evaluated["front"] == 1]
        self.assertEqual(list(front["system"]), list(chosen["system"]))
        self.assertEqual(len(evaluated), 8 + 3)  # beside the experiment's systems as they ship
        others = evaluated[["system", "variant_of"]].isin(["clusterkv", "dynakv"]).any(axis=1)
        searched = evaluated[(evaluated["feasible"] == 1) & ~others]
        objectives = ["output_error", "latency_ms", "dram_kv_bytes"]
        best = kvreplay.pareto_front(searched, minimise=objectives)
        self.assertLessEqual(set(front["system"]), set(best["system"]))
        # Of equal rows the front has one.
        self.assertEqual(set(map(tuple, best[objectives].values.tolist())),
                         set(map(tuple, front[objectives].values.tolist())))
        for row in front.itertuples():
            self.assertEqual(json.loads(row.composition)["cache"]["part"], row.cache)
        with self.refused(["front.csv", "kvreplay tune"]):
            kvreplay.front(self.out)


class ParetoFront(WithProgram):
    def test_against_every_pair(self):
        random = np.random.default_rng(3)
        frame = pandas.DataFrame({"speed": random.integers(0, 6, 80),
                                  "mass": random.integers(0, 6, 80),
                                  "bytes": random.integers(0, 6, 80),
                                  "device": random.choice(["a", "b"], 80)}).astype({"mass": float})
        frame.loc[::9, "mass"] = np.nan

        def beats(one, other):
            better = (one["speed"] - other["speed"], one["mass"] - other["mass"],
                      other["bytes"] - one["bytes"])
            return (one["device"] == other["device"] and min(better) >= 0 and max(better) > 0)

        rated = frame.dropna()
        expected = [index for index, row in rated.iterrows()
                    if not any(beats(other, row) for _, other in rated.iterrows())]
        front = kvreplay.pareto_front(frame, maximise=["speed", "mass"], minimise="bytes",
                                      within="device")
        self.assertEqual(list(front.index), expected)
        self.assertLess(len(front), len(rated))

    def test_mistakes(self):
        frame = pandas.DataFrame({"speed": [1, 2]})
        with self.refused(["column sped", "speed"]):
            kvreplay.pareto_front(frame, maximise="sped")
        with self.refused(["no objective"]):
            kvreplay.pareto_front(frame)
        with self.refused(["column name", "numbers"]):
            kvreplay.pareto_front(pandas.DataFrame({"name": ["a"]}), maximise="name")


if __name__ == "__main__":
    unittest.main()
