"""What validate makes of its measurements: those that the host disturbed, and those of several rounds."""

import argparse
import json
import pathlib
import tempfile
import unittest
from unittest import mock

import program  # noqa: F401  (makes kvreplay's modules known)

from kvreplay import UserError, stolen_time, validate
from kvreplay.stolen_time import Ticks

STAT = "cpu  100 1 20 3000 40 5 6 28 50 0\ncpu0 50 1 10 1500 20 3 3 14 25 0\n"


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class StolenTime(InFolder):
    def ticks_of(self, text):
        file = self.folder / "stat"
        file.write_text(text, encoding="ascii")
        return stolen_time.ticks(file)

    def test_reads_the_line_of_all_processors(self):
        self.assertEqual(self.ticks_of(STAT), Ticks(passed=3200, stolen=28))

    def test_a_system_that_does_not_tell(self):
        self.assertEqual(stolen_time.ticks(self.folder / "missing"), Ticks(0, 0))
        for text in ("", "cpu  1 2 3 4\n", "cpu  a b c d e f g h\n"):
            self.assertEqual(self.ticks_of(text), Ticks(0, 0), text)

    def test_share(self):
        self.assertEqual(stolen_time.share(Ticks(1000, 10), Ticks(1200, 30)), 0.1)
        self.assertEqual(stolen_time.share(Ticks(0, 0), Ticks(0, 0)), 0)


class Attempts(InFolder):
    def measure(self, taken):
        """Measures a result in attempts from which the given ticks of a hundred are taken."""
        steps, begun = [Ticks(0, 0)], []
        for ticks in taken:
            steps += [Ticks(steps[-1].passed + 100, steps[-1].stolen + ticks)] * 2

        def run(path):
            begun.append(path)
            path.write_text(str(len(begun)), encoding="ascii")

        result = self.folder / "live" / "quest-64"
        options = argparse.Namespace(stolen=5, attempts=3)
        with mock.patch.object(validate.stolen_time, "ticks", side_effect=steps), \
                mock.patch.object(validate, "tell"), mock.patch.object(validate.time, "sleep"):
            for _ in range(2):  # what is there is not measured again
                validate.measure_result(options, self.folder, result, "quest", run)
        shares = json.loads((self.folder / validate.STOLEN).read_text(encoding="utf-8"))
        self.assertEqual(list(shares), ["live/quest-64"])
        self.assertEqual(sorted(path.name for path in result.parent.iterdir()), ["quest-64"])
        return len(begun), int(result.read_text(encoding="ascii")), shares["live/quest-64"]

    def test_what_is_little_disturbed_is_measured_once(self):
        self.assertEqual(self.measure([5]), (1, 1, 0.05))

    def test_a_disturbed_measurement_is_made_again(self):
        self.assertEqual(self.measure([40, 3]), (2, 2, 0.03))

    def test_of_three_disturbed_ones_the_least_counts(self):
        self.assertEqual(self.measure([40, 20, 30]), (3, 2, 0.2))


class Rounds(InFolder):
    @staticmethod
    def of(*columns):
        return dict(zip(validate.COLUMNS, columns))

    def test_a_stall_of_one_round_does_not_count(self):
        rounds = [([self.of(10, 8, 4, 2), self.of(20, 16, 8, 4)], self.of(12, 10, 5, 2)),
                  ([self.of(11, 8, 5, 3), self.of(90, 16, 70, 74)], self.of(15, 12, 6, 3)),
                  ([self.of(50, 8, 45, 42), self.of(22, 18, 9, 4)], self.of(18, 13, 9, 5))]
        row = validate.combine(("quest", 64), rounds)
        # Of the first step 10, 11, 50; of the second one 20, 90, 22.
        self.assertEqual(row["measured"], self.of((11 + 22) / 2, (8 + 16) / 2, (5 + 9) / 2, (3 + 4) / 2))
        self.assertEqual(row["modelled"], self.of(15, 12, 6, 3))
        self.assertAlmostEqual(row["error"]["latency_ms"], 15 / 16.5 - 1)
        self.assertAlmostEqual(row["least"]["latency_ms"], 15 / 50.5 - 1)
        self.assertAlmostEqual(row["greatest"]["latency_ms"], 12 / 15 - 1)

    def test_steps_of_a_live_run(self):
        file = self.folder / "steps.csv"
        file.write_text("step,latency_us,compute_us,exposed_io_us,busy_io_us\n0,1500,1000,500,750\n",
                        encoding="utf-8")
        self.assertEqual(validate.steps_of(self.folder, 1), [self.of(1.5, 1, 0.75, 0.5)])
        for line in ("", "1500", "1500,a,500,750", "1500,1000,500,750\n1,1500,1000,500,750"):
            file.write_text(f"step,latency_us,compute_us,exposed_io_us,busy_io_us\n0,{line}\n",
                            encoding="utf-8")
            with self.assertRaisesRegex(UserError, "steps.csv: does not hold 1 step"):
                validate.steps_of(self.folder, 1)


if __name__ == "__main__":
    unittest.main()
