"""Every way in which a trace can be wrong: one line that names the file and what is wrong, exit code
2, and nothing written."""

import shutil
import unittest

import h5py
import numpy

from program import ProgramTest

PROMPT, DECODE = 96, 8


def attribute(name, value):
    def damage(trace):
        trace.attrs[name] = value
    return damage


def without_attribute(name):
    def damage(trace):
        del trace.attrs[name]
    return damage


def without(path):
    def damage(trace):
        del trace[path]
    return damage


def filled(path, value):
    def damage(trace):
        trace[path][0, ...] = value
    return damage


def replaced(path, shape, dtype="f2"):
    def damage(trace):
        attributes = dict(trace[path].attrs)
        del trace[path]
        trace.create_dataset(path, data=numpy.zeros(shape, dtype)).attrs.update(attributes)
    return damage


# What is done to a valid trace, and what the error must contain in addition to the file's name.
DAMAGE = {
    "missing attribute": (without_attribute("kv_heads"), ["kv_heads"]),
    "never finished": (attribute("complete", 0), ["complete"]),
    "another format": (attribute("format", "something"), ["format", "kvtrace"]),
    "a later version": (attribute("format_version", 99), ["format_version", "99"]),
    "attribute of the wrong type": (attribute("head_dim", "wide"), ["head_dim"]),
    "query heads not a multiple of KV heads": (attribute("query_heads", 7), ["query_heads", "7"]),
    "no KV heads": (attribute("kv_heads", 0), ["kv_heads", "0"]),
    "negative size": (attribute("tokens", -5), ["tokens", "-5"]),
    "a scale of the wrong unit": (attribute("softmax_scale", 1e9), ["softmax_scale", "1e+09"]),
    "neither synthetic nor not": (attribute("synthetic", 2), ["synthetic", "2"]),
    "nothing to decode": (attribute("prompt_tokens", PROMPT + DECODE), ["prompt_tokens"]),
    "a layer that the model lacks": (attribute("recorded_layers", [12, 99]),
                                     ["recorded_layers", "99"]),
    "a layer that the file lacks": (without("layer/24"), ["/layer/24"]),
    "a data set that the file lacks": (without("layer/12/value"), ["/layer/12/value"]),
    "shapes that disagree": (replaced("layer/12/key", (3, 10, 64)), ["/layer/12/key"]),
    "vectors of another type": (replaced("layer/12/key", (3, PROMPT + DECODE, 64), "f8"),
                                ["/layer/12/key"]),
    "NaN": (filled("layer/12/key", numpy.nan), ["/layer/12/key", "not a number"]),
    "infinity": (filled("layer/24/query", numpy.inf), ["/layer/24/query", "inf"]),
}


class BadTrace(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sound = cls.cut_trace("sound.kvtrace.h5", PROMPT, DECODE)

    def test_the_undamaged_trace_is_sound(self):
        self.succeed("verify", self.sound)

    def test_damaged_content(self):
        trace = self.folder / "damaged.kvtrace.h5"
        for name, (damage, says) in DAMAGE.items():
            shutil.copy(self.sound, trace)
            with h5py.File(trace, "r+") as file:
                damage(file)
            for command in (["verify", trace], ["inspect", trace], ["cut", trace, "out.h5"]):
                with self.subTest(name, command=command[0]):
                    self.refuses(command, ["damaged.kvtrace.h5", *says])

    def test_a_single_nan_is_found_by_verify(self):
        trace = self.folder / "one-nan.kvtrace.h5"
        shutil.copy(self.sound, trace)
        with h5py.File(trace, "r+") as file:
            file["layer/24/value"][2, 71, 33] = numpy.nan
        self.refuses(["verify", trace], ["one-nan.kvtrace.h5", "/layer/24/value", "[2, 71, 33]"])

    def test_control_characters_are_shown_escaped(self):
        trace = self.folder / "steering.kvtrace.h5"
        shutil.copy(self.sound, trace)
        with h5py.File(trace, "r+") as file:
            file.attrs["model"] = "red \x1b[31m\n"
            del file.attrs["content_sha256"]
        shown = self.succeed("inspect", trace)
        self.assertIn("red \\x1b[31m\\n", shown)
        self.assertNotIn("\x1b", shown)
        trace.unlink()

    def test_a_replay_refuses_keys_before_rope(self):
        trace = self.folder / "pre.kvtrace.h5"
        shutil.copy(self.sound, trace)
        with h5py.File(trace, "r+") as file:
            file.attrs["key_state"] = "pre_rope"
            del file.attrs["content_sha256"]
        self.refuses(["run", "first", "--set", f"trace={trace}", "--out", "results"],
                     ["pre.kvtrace.h5", "key_state", "kvreplay convert"])
        trace.unlink()

    def test_truncated(self):
        trace = self.folder / "truncated.kvtrace.h5"
        whole = self.sound.read_bytes()
        for size in (0, 7, 500, len(whole) // 2, len(whole) - 1):
            trace.write_bytes(whole[:size])
            with self.subTest(size=size):
                self.refuses(["verify", trace], ["truncated.kvtrace.h5"])

    def test_a_flipped_bit_never_crashes(self):
        """Bits of the headers and of the heap of the texts, one at a time: sound or refused."""
        trace = self.folder / "flipped.kvtrace.h5"
        sound = self.sound.read_bytes()
        heap = sound.index(b"GCOL")
        self.assertNotEqual(heap, -1)
        places = [*range(0, 4096, 61), *range(heap, heap + 64), *range(heap + 64, heap + 4096, 97)]
        codes = set()
        for number, place in enumerate(places):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << number % 8
            trace.write_bytes(damaged)
            result = self.kvreplay("inspect", trace)
            with self.subTest(place=place, bit=number % 8):
                self.assertIn(result.returncode, (0, 2), result.stderr)
            codes.add(result.returncode)
        self.assertEqual(codes, {0, 2})

    def test_not_a_trace(self):
        text = self.folder / "notes.txt"
        text.write_text("not HDF5\n" * 1000)
        other = self.folder / "other.h5"
        with h5py.File(other, "w") as file:
            file["numbers"] = [1, 2, 3]
        for trace in (text, other, self.folder, self.folder / "absent.h5", text / "below.h5"):
            with self.subTest(trace=trace):
                self.refuses(["inspect", trace], [trace.name])

    def test_cut_out_of_range(self):
        for options, says in {("--layers", "12,13"): ["13", "12, 24"],
                              ("--prompt", "0"): ["prompt"],
                              ("--decode", "9"): ["decode", "8"],
                              ("--decode", "-1"): ["decode", "-1"],
                              ("--start", "5000"): ["5000"],
                              ("--layers", "twelve"): ["--layers", "twelve"]}.items():
            with self.subTest(options):
                self.refuses(["cut", self.sound, "out.h5", *options], says)

    def test_cut_to_where_nothing_can_be_written(self):
        self.refuses(["cut", self.sound, self.sound / "out.h5"], ["sound.kvtrace.h5"])
        self.refuses(["cut", self.sound, "/proc/out.kvtrace.h5"], ["/proc"])
        self.refuses(["cut", self.sound, "out.kvtrace.h5"], ["out.kvtrace.h5"], file_bytes=20000)

    def test_full_standard_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = self.kvreplay("inspect", self.sound, stdout=full)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, "kvreplay: standard output: cannot be written\n")


if __name__ == "__main__":
    unittest.main()
