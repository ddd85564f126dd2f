#!/usr/bin/env python3
"""Inputs that once went wrong in silence or by a signal, each with the right outcome: files that fail
under a mapping, files of ours that lie, settings that are not used, models that wrap or saturate."""

import csv
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import unittest

import h5py
import numpy

from program import PROGRAM, SLOWER, SOURCE, ProgramTest, processor_seconds

SMALL = ["--set", "model=smollm2-135m", "--set", "platform=oneplus12", "--set", "device=ufs40",
         "--set", "warm_up_steps=4"]


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Cases(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trace = cls.cut_trace("small.kvtrace.h5", 400, 12)

    def run_first(self, out, *settings, small=SMALL):
        """Rows of results, and what was said."""
        result = self.kvreplay("run", "first", "--set", f"trace={self.trace}", *small, *settings,
                               "--format", "none", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        return rows_of(self.folder / out / "results.csv"), result.stderr


class MappedFiles(Cases):
    def test_a_trace_that_becomes_shorter(self):
        """Its bytes are asked for by the file system below only when they are touched."""
        for command in (["verify"], ["run"]):
            path = self.folder / "cut.kvtrace.h5"
            shutil.copy(SOURCE / "traces/data/smollm2-135m-story-3k.kvtrace.h5", path)
            arguments = (["verify", path] if command == ["verify"] else
                         ["run", "all_systems", "--set", f"trace={path}", "--format", "none",
                          "--out", "cut"])
            with subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, stderr=subprocess.PIPE,
                                  stdout=subprocess.DEVNULL, text=True) as process:
                time.sleep(0.01 if command == ["verify"] else 1.5)
                os.truncate(path, 200_000)
                _, said = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 2, said)
            self.assertIn(str(path), said.splitlines()[-1])
            self.assertFalse([name for name in os.listdir(self.folder) if "cut." in name
                              and "partial" in name])

    @unittest.skipUnless(shutil.which("nbdkit") and shutil.which("nbdfuse")
                         and os.access("/dev/fuse", os.R_OK | os.W_OK), "needs nbdkit and FUSE")
    def test_a_disk_that_cannot_be_read(self):
        with h5py.File(self.trace) as file:
            value = file["layer/12/value"].id
            begin, end = value.get_offset(), value.get_offset() + value.get_storage_size()
        plugin = self.folder / "plugin.sh"
        plugin.write_text(f"""case "$1" in
get_size) stat -L -c %s '{self.trace}';;
pread) if [ "$4" -ge {begin // 4096 * 4096 + 4096} ] && [ "$4" -lt {end - 4096} ]; then
  echo "EIO bad sector" >&2; exit 1; fi
  dd if='{self.trace}' iflag=skip_bytes,count_bytes skip="$4" count="$3" status=none;;
*) exit 2;;
esac
""")
        plugin.chmod(0o755)
        mount = self.folder / "mount"
        mount.mkdir()
        path = mount / "bad.kvtrace.h5"
        with subprocess.Popen(["nbdfuse", "-r", path, "--command", "nbdkit", "-s", "sh", plugin],
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                for _ in range(200):
                    if path.exists() and path.stat().st_size > 0:
                        break
                    time.sleep(0.05)
                result = self.kvreplay("verify", path)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertRegex(result.stderr, r"\Akvreplay: .*bad.kvtrace.h5: /layer/12/value: "
                                 r"cannot be read \(Input/output error\)[^\n]*\n\Z")
                result = self.kvreplay("run", "first", "--set", f"trace={path}", *SMALL, "--out",
                                       "bad")
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(f"{path}: /layer/12/value: cannot be read (Input/output error)",
                              result.stderr)
            finally:
                server.terminate()
                server.wait()
                subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)


class FilesOfOurs(Cases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.succeed("run", "first", "--set", f"trace={cls.trace}", "--set", "system=clusterkv",
                    *SMALL, "--access-log", "--format", "none", "--out", "logged")
        cls.log = cls.folder / "logged/small.clusterkv.access.h5"

    def test_an_access_log_that_lies(self):
        sound = self.log.read_bytes()
        self.addCleanup(self.log.write_bytes, sound)
        for checksum in (True, False):
            for name, tenths, value in (("asked", 0, 1_000_000), ("asked", 0, 5000),
                                        ("asked", 0, -2), ("event_tokens", 5, 1_000_000),
                                        ("event_tokens", 5, 5000), ("event_tokens", 5, -2),
                                        ("event_group", 5, 77777), ("last_tokens", 3, 999),
                                        ("attended_count", 1, -1), ("picked", 2, 4000)):
                self.log.write_bytes(sound)
                with h5py.File(self.log, "r+") as file:
                    if not checksum:
                        del file.attrs["content_sha256"]
                    data = file[f"layer/12/stream/0/{name}"]
                    data[len(data) * tenths // 10] = value
                for command in (["export-accesses", self.log, "x.og", "--layer", "12"],
                                ["statistics", "logged", "--trace", self.trace]):
                    with self.subTest(checksum=checksum, name=name, value=value,
                                      command=command[0]):
                        self.refuses(command, [self.log.name, "/layer/12/stream/0"])

    def test_an_access_log_whose_quality_was_changed(self):
        sound = self.log.read_bytes()
        self.addCleanup(self.log.write_bytes, sound)
        with h5py.File(self.log, "r+") as file:
            file["layer/12/quality/recall"][0, 0] = 0.123
        self.refuses(["statistics", "logged"], [self.log.name, "content_sha256"])

    def test_a_log_without_a_checksum_is_read(self):
        sound = self.log.read_bytes()
        self.addCleanup(self.log.write_bytes, sound)
        before = self.succeed("statistics", "logged")
        with h5py.File(self.log, "r+") as file:
            del file.attrs["content_sha256"]
        self.assertEqual(self.succeed("statistics", "logged"), before)

    def test_what_verify_finds(self):
        def change(path, edit):
            with h5py.File(path, "r+") as file:
                edit(file)

        def rename_adapters(file):
            file.move("adapter", "adaptes")

        self.succeed("adapt", self.trace, self.trace, "adapted.kvtrace.h5")
        self.succeed("convert", self.trace, "bf16.kvtrace.h5", "--dtype", "bf16")

        def set_value(name, index, value):
            def edit(file):
                file[name][index] = value
            return edit

        cases = {
            "token id": ("small.kvtrace.h5", set_value("tokens/id", 3, 2**31 - 1), "/tokens/id"),
            "probability": ("small.kvtrace.h5", set_value("tokens/top_probability", 3, 7),
                            "/tokens/top_probability"),
            "entropy": ("small.kvtrace.h5", set_value("tokens/entropy", 3, -3), "/tokens/entropy"),
            "logarithm": ("small.kvtrace.h5", set_value("tokens/log_probability", 3, 1),
                          "/tokens/log_probability"),
            "adapters": ("adapted.kvtrace.h5", rename_adapters, "/adaptes"),
            "bf16": ("bf16.kvtrace.h5", set_value("layer/12/key", (0, 5, 5), 0x4F00),
                     "/layer/12/key"),
        }
        for checksums in (True, False):
            for name, (source, edit, says) in cases.items():
                path = self.folder / "changed.kvtrace.h5"
                shutil.copy(self.folder / source, path)

                def without(file):
                    del file.attrs["content_sha256"]
                    for layer in file["layer"].values():
                        for data in layer.values():
                            del data.attrs["sha256"]
                if not checksums:
                    change(path, without)
                change(path, edit)
                with self.subTest(name=name, checksums=checksums):
                    says = ["content_sha256"] if checksums and name != "bf16" else [says]
                    self.refuses(["verify", path], [str(path), *says])

    def test_a_changed_vector_is_found(self):
        path = self.folder / "vector.kvtrace.h5"
        shutil.copy(self.trace, path)
        with h5py.File(path, "r+") as file:
            data = file["layer/12/query"]
            data[0, 3, 1] = data[0, 3, 1] + numpy.float16(0.5)
        self.refuses(["verify", path], ["/layer/12/query", "sha256"])

    def test_python_computes_the_same_checksums(self):
        checksums = importlib.import_module("kvreplay.checksums")
        with h5py.File(self.trace) as file:
            self.assertEqual(file.attrs["content_sha256"].decode(), checksums.content_sha256(file))
            for name in ("key", "query"):
                data = file["layer/12"][name]
                self.assertEqual(data.attrs["sha256"].decode(), checksums.vectors_sha256(data))

    def test_a_heap_object_larger_than_the_file(self):
        path = self.folder / "heap.kvtrace.h5"
        data = bytearray(self.trace.read_bytes())
        with h5py.File(self.trace) as file:
            text = file.attrs["model"].encode()
        at = data.find(b"GCOL")
        place = data.find(text, at)
        self.assertGreater(place, at)
        # An object of a global heap: index, references, 4 zeros, then its size in 8 bytes.
        data[place - 8:place] = (1 << 30).to_bytes(8, "little")
        path.write_bytes(data)
        result = subprocess.run(
            ["/usr/bin/time", "-f", "%M", PROGRAM, "verify", path] if
            os.path.exists("/usr/bin/time") else [PROGRAM, "verify", path], cwd=self.folder,
            capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(str(path), result.stderr)

    def test_a_heap_that_has_no_end(self):
        """An object without number and size: HDF5 1.10 looks for the next one there for ever."""
        path = self.folder / "endless.kvtrace.h5"
        data = bytearray(self.trace.read_bytes())
        with h5py.File(self.trace) as file:
            text = file.attrs["model"].encode()
        place = data.index(text, data.index(b"GCOL"))
        at = place + -(-len(text) // 8) * 8  # the next object: index, references, 4 zeros, size
        data[at:at + 16] = bytes(16)
        path.write_bytes(data)
        before = processor_seconds()
        self.refuses(["verify", path], [str(path), "cannot be read by HDF5"])
        self.assertLess(processor_seconds() - before, 10 * SLOWER)

    def test_groups_within_each_other(self):
        path = self.folder / "cycle.kvtrace.h5"
        shutil.copy(self.trace, path)
        with h5py.File(path, "a") as file:
            for number in range(8):
                file[f"again{number}"] = file["/"]
        before = processor_seconds()
        self.refuses(["verify", path], [str(path), "cannot be read by HDF5"])
        self.assertLess(processor_seconds() - before, 10 * SLOWER)

    def test_a_schedule_and_a_shard_that_lie(self):
        self.succeed("device", "schedule", "first", "--set", f"trace={self.trace}", "--set",
                     "system=quest", *SMALL[:4], "--set", "warm_up_steps=4", "--model-device",
                     "ufs40", "--out", "plan.schedule")
        path = self.folder / "plan.schedule"
        text = path.read_text()
        number = text.index("\nr ") + 3
        end = text.index(" ", number)
        path.write_text(text[:number] + str(int(text[number:end]) + 4096) + text[end:])
        self.refuses(["device", "time", path, "--model-device", "ufs40"], [str(path), "SHA-256"])


class SettingsInSilence(Cases):
    def test_a_renamed_system_says_what_it_lost(self):
        shutil.copy(SOURCE / "configs/systems/kvswap.json", self.folder / "my_kvswap.json")
        _, said = self.run_first("named", "--set", "system=kvswap")
        self.assertNotIn("is not used", said)
        _, said = self.run_first("renamed", "--set", "system=./my_kvswap.json")
        self.assertIn("system.kvswap.cache.capacity_groups is not used", said)
        notes = json.loads((self.folder / "renamed/manifest.json").read_text())["notes"]
        self.assertTrue(any("capacity_groups" in note for note in notes), notes)

    def test_a_tuned_file_says_what_replaced_it(self):
        system = json.loads((SOURCE / "configs/systems/kvswap.json").read_text())
        system["cache"]["capacity_groups"] = 77
        folder = self.folder / "tuned"
        folder.mkdir()
        (folder / "kvswap.json").write_text(json.dumps(system))
        _, said = self.run_first("overridden", "--set", "system=tuned/kvswap.json")
        self.assertRegex(said, r"system.kvswap.cache.capacity_groups = \d+ replaces 77 of "
                         "tuned/kvswap.json")

    def test_a_member_that_stands_twice(self):
        text = (SOURCE / "configs/systems/quest.json").read_text()
        before = '"precision": {"part": "fp16"},'
        self.assertIn(before, text)
        (self.folder / "quest2.json").write_text(
            text.replace(before, before + ' "precision": {"part": "fp8"},'))
        self.refuses(["run", "first", "--set", "system=./quest2.json", "--out", "twice"],
                     ["quest2.json: /precision", "twice"])
        self.refuses(["run", "first", "--set", 'seed={"from": 1, "to": 2, "step": 1, "to": 5}'],
                     ["/to", "twice"])

    def test_a_path_with_a_comma(self):
        folder = self.folder / "a,b"
        folder.mkdir()
        shutil.copy(self.trace, folder / "c,d.kvtrace.h5")
        result = self.kvreplay("run", "first", "--set", "trace=a,b/c,d.kvtrace.h5", "--set",
                               "system=quest", *SMALL, "--format", "none", "--out", "comma")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(rows_of(self.folder / "comma/results.csv")[0]["trace"], "c,d")

    def test_a_setting_that_is_no_text(self):
        for setting in (b"title=\x9cx", b"trace=t\x9c.kvtrace.h5", b"system=\xff", b"\xff=1"):
            self.refuses(["run", "first", "--set", os.fsdecode(setting), "--out", "bytes"],
                         ["--set", "UTF-8"])

    def test_a_warm_up_beyond_the_recording(self):
        for command in (["run"], ["sweep", "--no-cache"], ["sweep", "--no-cache", "--plan"]):
            started = time.monotonic()
            self.refuses([*command, "first", "--set", f"trace={self.trace}", "--set",
                          "warm_up_steps=12"], ["warm_up_steps", "found 12", "12 steps"])
            self.assertLess(time.monotonic() - started, 30)

    def test_a_precision_that_changes_nothing_is_marked(self):
        system = json.loads((SOURCE / "configs/systems/quest.json").read_text())
        system["precision"] = {"part": "rule"}
        (self.folder / "idle.json").write_text(json.dumps(system))
        rows, _ = self.run_first("stored", "--set", "system=quest,kivi_2")
        bits = {row["system"]: float(row["stored_bits"]) for row in rows}
        self.assertEqual(bits["quest"], 16)
        self.assertLess(bits["kivi_2"], 16)
        self.assertEqual({row["marks"] for row in rows}, {""})

    def test_a_budget_of_all_that_is_exceeded(self):
        settings = ["--set", "system=quest,clusterkv,shadowkv,pqcache", "--set",
                    "system.selection.budget_tokens=64", "--set",
                    "system.selection.budget_covers=all"]
        result = self.kvreplay("run", "first", "--set", f"trace={self.trace}", *SMALL, *settings,
                               "--out", "all")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("attended_tokens", result.stdout)
        for row in rows_of(self.folder / "all/results.csv"):
            over = float(row["attended_tokens"]) > 64
            self.assertEqual(row["marks"], "over_budget" if over else "", row["system"])
            if over:
                self.assertRegex(result.stderr, rf"warning: over_budget \([^)]*{row['system']}")


    def test_a_cache_that_holds_less_than_a_step_selects(self):
        result = self.kvreplay("run", "first", "--set", f"trace={self.trace}", *SMALL, "--set",
                               "system=kvswap", "--set", "device=ufs40", "--set",
                               "system.kvswap.cache.capacity_groups=16", "--set",
                               "system.selection.budget_tokens=32,128", "--out", "small-cache",
                               "--check")
        self.assertEqual(result.returncode, 0, result.stderr)
        few, many = rows_of(self.folder / "small-cache/results.csv")
        self.assertEqual((few["marks"], many["marks"]), ("", "cache_below_step"))
        self.assertLess(float(many["hit_rate"]), 0.05)
        lines = [line for line in result.stderr.splitlines() if "cache_below_step" in line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn("warning: cache_below_step (kvswap): ", lines[0])
        self.assertRegex(lines[0], r"kvswap selects (29|3[0-2]) groups per layer and step, and its "
                         r"cache holds 16: set system\.kvswap\.cache\.capacity_groups to ")
        self.assertIn("cache_below_step", (self.folder / "small-cache/table.txt").read_text())
        self.assertIn("checked every step of 2 cells", result.stderr)

    def test_more_steps_than_the_recording_has(self):
        _, said = self.run_first("long", "--set", "system=quest", "--set", "steps=1000")
        self.assertRegex(said, r"warning: [^\n]*: steps is 1000, and the recording has \d+, which")

    def test_the_manifest_repeats_the_run(self):
        (self.folder / "own").mkdir()
        path = self.folder / "own/mine here.json"
        first = json.loads(re.sub("//.*", "", (SOURCE / "configs/experiments/first.json").read_text()))
        path.write_text(json.dumps({**first, "trace": str(self.trace), "system": "quest", "set": {}}))
        words = ("own/mine here.json", *SMALL, "--set", "device=ufs40")
        self.succeed("run", *words, "--check", "--out", "once")
        command = json.loads((self.folder / "once/manifest.json").read_text())["command"]
        given = shlex.split(command)
        self.assertEqual(given[:3], ["kvreplay", "run", "own/mine here.json"])
        self.assertIn("--check", given)
        self.succeed(*given[1:], "--out", "twice")
        for name in ("results.csv", "manifest.json"):
            self.assertEqual((self.folder / "once" / name).read_bytes(),
                             (self.folder / "twice" / name).read_bytes(), name)


class ModelsInSilence(Cases):
    def test_garbage_collection_that_wraps_is_marked(self):
        rows = {}
        for name, capacity in (("wraps", 16 << 20), ("fits", 8 << 30)):
            (rows[name],), said = self.run_first(
                name, "--set", "system=dynakv_global", "--set",
                f"device.gc_capacity_bytes={capacity}", "--set", "device.gc_block_stripes=2",
                "--set", "device.gc_spare_percent=300")
            self.assertEqual("warning: gc_wraps (dynakv_global)" in said, name == "wraps")
        self.assertEqual(rows["wraps"]["marks"], "gc_wraps")
        self.assertEqual(rows["fits"]["marks"], "")
        self.assertGreater(float(rows["fits"]["write_amplification"]), 0)
        self.assertIn("gc_wraps", (self.folder / "wraps/table.txt").read_text())

    def test_a_platform_that_does_not_fit_is_marked(self):
        (row,), said = self.run_first("tight", "--set", "system=in_memory", "--set",
                                      "platform.dram_bytes=64MiB")
        self.assertGreater(float(row["dram_share"]), 1)
        self.assertEqual(row["marks"], "exceeds_dram")
        self.assertIn("warning: exceeds_dram (in_memory)", said)

    def test_a_platform_that_holds_all_but_the_prefill_is_marked(self):
        (row,), _ = self.run_first("measured", "--set", "system=streaming_llm")
        decoding = int(row["dram_kv_bytes"]) + int(row["dram_weights_bytes"])
        prefill = int(row["prefill_dram_bytes"]) + int(row["dram_weights_bytes"])
        self.assertGreater(prefill, decoding)
        (row,), said = self.run_first("between", "--set", "system=streaming_llm", "--set",
                                      f"platform.dram_bytes={(decoding + prefill) // 2}")
        self.assertEqual(row["marks"], "prefill_exceeds_dram")
        self.assertIn("warning: prefill_exceeds_dram (streaming_llm)", said)

    def test_fp8_without_scale_on_large_keys_is_marked(self):
        path = self.folder / "large.kvtrace.h5"
        shutil.copy(self.trace, path)
        with h5py.File(path, "r+") as file:
            del file.attrs["content_sha256"]
            file["layer/12/key"][0, 3, 5] = 355
        for scale, marks in (("none", "out_of_range"), ("token", "")):
            result = self.kvreplay("run", "first", "--set", f"trace={path}", "--set",
                                   "system=quest", "--set", "system.precision.part=fp8", "--set",
                                   f"system.precision.scale={scale}", *SMALL, "--format", "none",
                                   "--out", f"fp8 {scale}")
            self.assertEqual(result.returncode, 0, result.stderr)
            (row,) = rows_of(self.folder / f"fp8 {scale}/results.csv")
            self.assertEqual(row["marks"], marks)

    def test_the_manifest_names_the_build(self):
        self.run_first("built", "--set", "system=quest")
        manifest = json.loads((self.folder / "built/manifest.json").read_text())
        self.assertEqual(set(manifest["sources_sha256"]), {"decide", "place", "time"})
        for value in manifest["sources_sha256"].values():
            self.assertRegex(value, "^[0-9a-f]{64}$")
        self.assertTrue(manifest["compiler"])


class LayersOfOtherKinds(Cases):
    ENTRY = 2 * 3 * 64 * 2  # bytes of a token at one layer of SmolLM2-135M, which has 30 layers

    def windows(self, *tokens):
        """A trace whose two recorded layers have these sliding windows."""
        path = self.folder / f"windows {tokens}.kvtrace.h5"
        shutil.copy(self.trace, path)
        with h5py.File(path, "r+") as file:
            del file.attrs["content_sha256"]
            layers = len(file.attrs["recorded_layers"])
            file.attrs.modify("sliding_window", numpy.resize(numpy.array(tokens), layers))
        rows, _ = self.run_first(f"windows {tokens}", "--set", f"trace={path}", "--set",
                                 "system=in_memory,flexgen,quest")
        return {row["system"]: row for row in rows}

    def test_sliding_windows_bound_what_is_held_and_read(self):
        rows = self.windows(128)
        most = 128 * self.ENTRY * 30
        self.assertEqual(float(rows["in_memory"]["dram_kv_bytes"]), most)
        self.assertEqual(float(rows["flexgen"]["layer_attended_tokens"]), 128)
        self.assertLessEqual(float(rows["flexgen"]["least_read_bytes_per_step"]), most)
        # A window seldom begins with a device block (docs/models.md).
        blocks = 30 * 2 * 4096
        self.assertLess(float(rows["flexgen"]["read_bytes_per_step"]), most + blocks)
        self.assertGreater(float(rows["flexgen"]["read_bytes_per_step"]), most - 30 * self.ENTRY)
        self.assertLessEqual(float(rows["quest"]["layer_attended_tokens"]), 128)

    def test_a_window_in_every_second_layer(self):
        all_tokens = float(self.windows(0)["in_memory"]["dram_kv_bytes"])
        self.assertGreater(all_tokens, 400 * self.ENTRY * 30)
        half = float(self.windows(128, 0)["in_memory"]["dram_kv_bytes"])
        self.assertAlmostEqual(half, (128 * self.ENTRY * 30 + all_tokens) / 2, delta=1)

    def test_layers_without_attention_hold_nothing(self):
        model = json.loads((SOURCE / "configs/models/smollm2-135m.json").read_text())
        rows = {}
        for name, layers in (("all", list(range(30))), ("some", [2, 9, 16, 23, 29])):
            model["attention_layers"] = layers
            (self.folder / f"{name}.json").write_text(json.dumps(model))
            found, _ = self.run_first(f"layers {name}", "--set", "system=in_memory,flexgen",
                                      "--set", f"model=./{name}.json")
            rows[name] = {row["system"]: row for row in found}
        for system, column in (("in_memory", "dram_kv_bytes"), ("flexgen", "read_bytes_per_step")):
            self.assertAlmostEqual(float(rows["some"][system][column]) * 6,
                                   float(rows["all"][system][column]), delta=1)


class Leftovers(Cases):
    def test_what_a_killed_writer_left_is_removed(self):
        process = subprocess.Popen([PROGRAM, "run", "all_systems", "--set", f"trace={self.trace}",
                                    "--set", "warm_up_steps=4", "--out", "killed"],
                                   cwd=self.folder, stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
        for _ in range(1000):
            if list(self.folder.glob("killed.partial-*")):
                break
            time.sleep(0.005)
        process.kill()
        process.wait()
        left = list(self.folder.glob("killed.partial-*"))
        self.assertTrue(left)
        foreign = self.folder / "killed.partial-00000000-1"
        foreign.mkdir()
        self.run_first("killed", "--set", "system=quest")
        self.assertEqual(list(self.folder.glob("killed.partial-*")), [foreign])

    def test_a_probe_replaces_nothing(self):
        target = self.folder / "target.bin"
        target.write_bytes(bytes(1 << 20))
        (self.folder / "there.json").write_text("{}")
        self.refuses(["device", "probe", target, "--out", "there.json"], ["there.json", "already"])

    def test_requests_of_a_terabyte(self):
        (self.folder / "huge.fio").write_text(
            "fio version 3 iolog\n0 /d add\n1 /d read 0 1099511627776\n2 /d close\n")
        self.refuses(["device", "time", "huge.fio", "--model-device", "ufs40"],
                     ["huge.fio", "line 3", "1 GiB"])

    def test_an_empty_log_names_its_format(self):
        (self.folder / "empty.fio").write_text("fio version 3 iolog\n0 /d add\n")
        self.refuses(["device", "time", "empty.fio", "--model-device", "ufs40"],
                     ["empty.fio", "MICROSECONDS FILE read OFFSET LENGTH"])
        (self.folder / "nothing").write_text("")
        self.refuses(["device", "time", "nothing", "--model-device", "ufs40"],
                     ["fio (version 2 or 3)", "blkparse", "blktrace"])

    def test_convert_names_the_place_of_a_value_that_does_not_fit(self):
        with h5py.File(self.folder / "wide.kvtrace.h5", "w") as made:
            with h5py.File(self.trace) as source:
                for name, value in source.attrs.items():
                    if name != "content_sha256":
                        made.attrs[name] = value
                for name in source:
                    source.copy(name, made)
            for layer in made["layer"].values():
                for data in layer.values():
                    del data.attrs["sha256"]
            made["layer/12/key"][1, 7, 3] = numpy.inf
        self.refuses(["convert", "wide.kvtrace.h5", "out.kvtrace.h5"],
                     ["/layer/12/key", "[1, 7, 3]"])


if __name__ == "__main__":
    unittest.main()
