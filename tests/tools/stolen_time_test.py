"""Processor time that a virtual machine's host takes: read, and what validate does about it."""

import argparse
import json
import pathlib
import tempfile
import unittest
from unittest import mock

import program  # noqa: F401  (makes kvreplay's modules known)

from kvreplay import stolen_time, validate
from kvreplay.stolen_time import Ticks

STAT = "cpu  100 1 20 3000 40 5 6 28 50 0\ncpu0 50 1 10 1500 20 3 3 14 25 0\n"


class StolenTime(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

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


if __name__ == "__main__":
    unittest.main()
