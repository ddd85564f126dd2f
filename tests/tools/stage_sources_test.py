"""The hashes of the stages' sources: which edit discards which outputs that a store has kept."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from program import PROGRAM, SOURCE

ROOMS = ("base", "traces", "devices", "policies", "sim")
LIBRARIES = pathlib.Path(PROGRAM).resolve().parent / "stage_libraries.cmake"


class StageSources(unittest.TestCase):
    """Runs the build's own script, with the build's own list of libraries, on a copy of the sources."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="kvreplay test ")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        for room in ROOMS:
            for file in (SOURCE / room).rglob("*.?pp"):
                copy = cls.folder / file.relative_to(SOURCE)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)
        cls.before = cls.hashes()

    @classmethod
    def hashes(cls):
        """The hash of each stage."""
        out = cls.folder / "hashes.txt"
        subprocess.run(["cmake", f"-DSOURCE={cls.folder}", f"-DLIBRARIES={LIBRARIES}", f"-DOUT={out}",
                        "-P", SOURCE / "cmake/StageSources.cmake"], check=True)
        return dict(re.findall(r'k(\w+)Sources = "([0-9a-f]{64})"', out.read_text()))

    def changed_by(self, name, add="// more\n"):
        """The stages whose hash changes when `add` is appended to a file; restores the file."""
        file = self.folder / name
        text = file.read_text() if file.exists() else None
        file.write_text((text or "") + add)
        after = self.hashes()
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        return {stage.lower() for stage in after if after[stage] != self.before[stage]}

    def test_the_program_has_the_hashes(self):
        self.assertEqual(set(self.before), {"Decide", "Place", "Time"})
        self.assertEqual(len(set(self.before.values())), 3)
        program = pathlib.Path(PROGRAM).read_bytes()
        made = (LIBRARIES.parent / "stage_sources.cpp").read_text()
        for _, value in re.findall(r'k(\w+)Sources = "([0-9a-f]{64})"', made):
            self.assertIn(value.encode(), program)

    def test_a_field_of_the_timing_discards_no_log_and_no_plan(self):
        file = self.folder / "sim/time/time_plan.hpp"
        text = file.read_text()
        self.assertIn("struct Timing {\n", text)
        file.write_text(text.replace("struct Timing {\n", "struct Timing {\n  int more = 0;\n"))
        after = self.hashes()
        file.write_text(text)
        self.assertNotEqual(after["Time"], self.before["Time"])
        self.assertEqual(after["Decide"], self.before["Decide"])
        self.assertEqual(after["Place"], self.before["Place"])

    def test_an_edit_changes_the_stages_that_depend_on_it(self):
        # A later stage's keys contain those of earlier stages, so its hash need not change.
        for name, stages in {
            "base/random.hpp": {"decide"},
            "base/hdf5/hdf5_file.cpp": {"decide"},
            "base/engine/simulation.cpp": {"time"},
            "traces/trace_reader.cpp": {"decide"},
            "policies/kernels/top_k.cpp": {"decide"},
            "policies/decide/decide.cpp": {"decide"},
            "policies/decide/layer_means.cpp": {"decide"},
            "policies/decide/log/access_log.hpp": {"decide"},
            "policies/decide/scoring/min_max.cpp": {"decide"},
            "policies/place/cache/lru.cpp": {"place"},
            "policies/place/io_plan_bytes.cpp": {"place"},
            "policies/place/layout/support/space.cpp": {"place"},
            "sim/time/timing_bytes.cpp": {"time"},
            "sim/time/pipeline/serial.cpp": {"time"},
            "devices/commands.cpp": {"time"},
            "devices/flash/flash_device.cpp": {"time"},
            "devices/schedule/schedule.hpp": {"time"},
        }.items():
            with self.subTest(name):
                self.assertTrue((self.folder / name).exists())
                self.assertEqual(self.changed_by(name), stages)

    def test_an_edit_of_what_no_output_depends_on_changes_none(self):
        for name in ("traces/operations/inspect.cpp", "traces/synthesis/synthesise.cpp",
                     "policies/adapters/adapt.cpp", "devices/real/host.cpp",
                     "devices/remote/frame.cpp", "devices/served/real_time_device.cpp",
                     "devices/calibration/calibrate.cpp", "devices/logs/blktrace.cpp",
                     "sim/models/transformer.cpp", "sim/replay/replay.cpp",
                     "sim/replay/results.cpp", "sim/tuning/search.cpp"):
            with self.subTest(name):
                self.assertTrue((self.folder / name).exists())
                self.assertEqual(self.changed_by(name), set())

    def test_a_new_file_counts(self):
        self.assertEqual(self.changed_by("policies/decide/scoring/first_key.cpp"), {"decide"})
        self.assertEqual(self.changed_by("policies/place/cache/support/more.hpp"), {"place"})
        self.assertEqual(self.changed_by("traces/operations/more.cpp"), set())


if __name__ == "__main__":
    unittest.main()
