"""Sliding windows and layers of several kinds: what is read, held and attended to."""

import csv
import json
import shutil
import unittest

import h5py
import numpy

from program import SHIPPED_PROMPT, SHIPPED_TRACE, ProgramTest

FIRST = ["run", "first", "--set", "platform=oneplus12", "--set", "device=ufs40", "--format", "none"]
WINDOW = 512
ENTRY = 2 * 2 * 3 * 64  # key and value of three heads of 64, two bytes each
LAYERS = 30


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def numbers(code):
    """A set of the access log: runs of (numbers left out, numbers there), seven bits per byte."""
    values, value, shift = [], 0, 0
    for byte in code.tolist():
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value, shift = 0, 0
    found, end = [], 0
    for left_out, there in zip(values[::2], values[1::2]):
        found += range(end + left_out, end + left_out + there)
        end = found[-1] + 1
    return found


class Windows(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = {}
        for name, windows in (("full", [0, 0]), ("sliding", [WINDOW, WINDOW]),
                              ("both", [WINDOW, 0])):
            cls.rows[name] = cls.run_with(name, windows)

    @classmethod
    def trace_with(cls, name, windows):
        trace = cls.folder / f"{name}.kvtrace.h5"
        shutil.copy(SHIPPED_TRACE, trace)
        trace.chmod(0o644)
        with h5py.File(trace, "r+") as file:
            file.attrs.modify("sliding_window", numpy.array(windows, numpy.int64))
        return trace

    @classmethod
    def run_with(cls, name, windows):
        trace = cls.trace_with(name, windows)
        cls.succeed(*FIRST, "--set", f"trace={trace}", "--set", "model=smollm2-135m", "--set",
                    "system=in_memory,flexgen,quest,kvswap", "--access-log", "--out",
                    f"out-{name}")
        return {row["system"]: row for row in rows_of(cls.folder / f"out-{name}/results.csv")}

    def number(self, name, system, column):
        return float(self.rows[name][system][column])

    def test_flexgen_reads_the_window(self):
        read = {name: self.number(name, "flexgen", "read_bytes_per_step") for name in self.rows}
        self.assertLessEqual(read["sliding"], read["full"] / 6)
        self.assertAlmostEqual(read["both"], (read["full"] + read["sliding"]) / 2, delta=4096)
        # Of entries; what crosses the link above it are the ends of blocks.
        entries = {name: self.number(name, "flexgen", "least_read_bytes_per_step")
                   for name in self.rows}
        self.assertEqual(entries["sliding"], (WINDOW - 1) * ENTRY * LAYERS)
        self.assertEqual(entries["both"], (entries["full"] + entries["sliding"]) / 2)
        self.assertLess(read["sliding"] - entries["sliding"], 0.02 * entries["sliding"])

    def test_in_memory_holds_the_window(self):
        held = {name: self.number(name, "in_memory", "dram_kv_bytes") for name in self.rows}
        self.assertEqual(held["sliding"], WINDOW * ENTRY * LAYERS)
        with h5py.File(SHIPPED_TRACE) as file:
            tokens = int(file.attrs["tokens"])
        self.assertEqual(held["full"], (tokens + 1) * ENTRY * LAYERS)  # and the next one's own
        self.assertEqual(held["both"], (held["full"] + held["sliding"]) / 2)

    def test_full_attention_stays_exact(self):
        for name in self.rows:
            for system in ("in_memory", "flexgen"):
                self.assertEqual(self.number(name, system, "output_error"), 0)
                self.assertEqual(self.number(name, system, "recall"), 1)

    def test_no_system_requests_or_attends_to_what_no_query_sees(self):
        for system in ("quest", "kvswap", "flexgen"):
            log = self.folder / f"out-sliding/sliding.{system}.access.h5"
            with h5py.File(log) as file:
                for layer in file["layer"].values():
                    self.assertEqual(layer.attrs["sliding_window"], WINDOW)
                    for stream in layer["stream"].values():
                        self.check_stream(stream)

    def check_stream(self, stream):
        """Follows the events; before each step nothing is placed that its query cannot see."""
        begin = stream["event_begin"][:]
        kind, token_begin = stream["event_kind"][:], stream["event_token_begin"][:]
        tokens, group = stream["event_tokens"][:], stream["event_group"][:]
        asked_begin, asked = stream["asked_begin"][:], stream["asked"][:]
        self.assertEqual(asked.dtype, numpy.uint8)
        members = {}
        for step in range(len(asked_begin) - 1):
            for event in range(begin[step], begin[step + 1]):
                of = set(tokens[token_begin[event]:token_begin[event + 1]].tolist())
                if kind[event] in (0, 1):  # created, appended
                    members.setdefault(int(group[event]), set()).update(of)
                elif kind[event] == 5 and group[event] >= 0:  # evicted
                    members[int(group[event])] -= of
            first = SHIPPED_PROMPT + step + 1 - WINDOW
            for one in numbers(asked[asked_begin[step]:asked_begin[step + 1]]):
                self.assertTrue(members[int(one)])
                self.assertGreaterEqual(min(members[int(one)]), first)
        attended = stream["attended_count"][:]
        self.assertLessEqual(attended.max(), WINDOW)

    def test_a_log_without_windows_says_nothing_of_them(self):
        with h5py.File(self.folder / "out-full/full.quest.access.h5") as file:
            for layer in file["layer"].values():
                self.assertNotIn("sliding_window", layer.attrs)


class Kinds(ProgramTest):
    """A model file whose layers differ, on a recording of one layer."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trace = cls.cut_trace("small.kvtrace.h5", 80, 16)
        cls.base = {"title": "t", "source": "s", "layers": 4, "hidden_size": 64, "query_heads": 4,
                    "kv_heads": 2, "head_dim": 16, "ffn_size": 96, "vocabulary": 256,
                    "weight_bits": 16, "tied_embeddings": True}

    def model(self, name, **members):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(self.base | members), encoding="utf-8")
        return path

    def results(self, name, **members):
        self.succeed(*FIRST, "--set", f"trace={self.trace}", "--set",
                     f"model={self.model(name, **members)}", "--set", "system=in_memory,flexgen",
                     "--set", "warm_up_steps=4", "--out", f"out {name}")
        rows = rows_of(self.folder / f"out {name}/results.csv")
        return {row["system"]: row for row in rows}

    def test_layers_without_keys_and_values(self):
        plain, hybrid = self.results("plain"), self.results("hybrid", attention_layers=[3])
        for system, column in (("in_memory", "dram_kv_bytes"), ("flexgen", "read_bytes_per_step")):
            self.assertEqual(float(plain[system][column]), 4 * float(hybrid[system][column]))
        self.assertIn("3 without attention", hybrid["flexgen"]["projection"])

    def test_a_model_gives_its_layers_windows(self):
        entry = 2 * 2 * 2 * 16
        rows = self.results("windows", sliding_window=[32, 32, 32, 0])
        self.assertEqual(int(rows["in_memory"]["dram_kv_bytes"]), (3 * 32 + 97) * entry)
        self.assertIn("3 see 32 tokens", rows["in_memory"]["projection"])
        quality = rows_of(self.folder / "out windows/quality.csv")
        self.assertEqual({row["sliding_window"] for row in quality}, {"0", "32"})
        self.assertEqual({row["model"] for row in quality}, {"windows"})

    def test_refusals_name_file_and_path(self):
        for members, says in (({"sliding_window": [32, 32]}, ["sliding_window", "a list of 4"]),
                              ({"attention_layers": [4]}, ["attention_layers", "from 0 to 3"]),
                              ({"experts": 2}, ["active_experts", "1 to 2"])):
            self.model("bad", **members)
            self.refuses([*FIRST, "--set", f"trace={self.trace}", "--set",
                          f"model={self.folder / 'bad.json'}", "--set", "system=in_memory",
                          "--out", "bad"], ["bad.json", *says])

    def test_a_window_that_nothing_recorded_can_stand_for(self):
        with h5py.File(self.trace) as file:
            layers = len(file.attrs["recorded_layers"])
        narrow = self.folder / "narrow.kvtrace.h5"
        shutil.copy(self.trace, narrow)
        with h5py.File(narrow, "r+") as file:
            file.attrs.modify("sliding_window", numpy.array([16] * layers, numpy.int64))
            del file.attrs["content_sha256"]
        model = self.model("wide", sliding_window=[0, 16, 16, 16])
        self.refuses([*FIRST, "--set", f"trace={narrow}", "--set", f"model={model}", "--set",
                      "system=in_memory", "--out", "wide"],
                     ["wide.json", "sliding_window", "narrow.kvtrace.h5", "all tokens"])


if __name__ == "__main__":
    unittest.main()
