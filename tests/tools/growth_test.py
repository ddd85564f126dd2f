"""tools/scripts/growth: tables of small synthetic traces, and mistakes in the options."""

import math
import runpy
import subprocess
import unittest

from program import PROGRAM, SOURCE, ProgramTest, tree

SCRIPT = SOURCE / "tools/scripts/growth"


class Growth(ProgramTest):
    def growth(self, *options, code=0):
        result = subprocess.run([SCRIPT, "--program", PROGRAM, *map(str, options)], cwd=self.folder,
                                check=False, capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_tables_have_every_row_and_nothing_is_left(self):
        (self.folder / "traces").mkdir()
        result = self.growth("--tokens", "256,512", "--layers", "1,3", "--at-layers", 1,
                             "--at-tokens", 256, "--corner", "512x2", "--corner-systems", "flexgen",
                             "--systems", "flexgen,quest", "--threads", "1,2", "--steps", 4,
                             "--synth", "--head-dim 16 --like-layers 12", "--folder", "traces",
                             "--markdown", "tables.md")
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in result.stdout.splitlines() if line.startswith("|")]
        measured = [tuple(row[:3]) for row in rows if row[0] in ("flexgen", "quest")
                    and len(row) == 8]
        self.assertEqual(measured, [
            ("flexgen", "256", "1"), ("quest", "256", "1"), ("flexgen", "512", "1"),
            ("quest", "512", "1"), ("flexgen", "256", "3"), ("quest", "256", "3"),
            ("flexgen", "512", "2")])
        fitted = [tuple(row[:2]) for row in rows if len(row) == 6 and row[0] != "system"]
        self.assertEqual(fitted[1:], [
            ("flexgen", "1,024 tokens"), ("flexgen", "layer"), ("quest", "1,024 tokens"),
            ("quest", "layer")])
        for line in ("growth-256-1.synthetic.kvtrace.h5", "growth-512-2.synthetic.kvtrace.h5"):
            self.assertIn(line, result.stderr)
        self.assertEqual((self.folder / "tables.md").read_text(), result.stdout)
        self.assertEqual(tree(self.folder / "traces"), {})

    def test_fits(self):
        script = runpy.run_path(str(SCRIPT))
        self.assertEqual(script["linear_fit"]([(1, 5), (2, 8), (3, 11)]), (2, 3))
        squares = [(x, 7 * x ** 2) for x in (1, 2, 4, 8)]
        self.assertAlmostEqual(script["exponent"](squares), 2)
        self.assertTrue(math.isnan(script["exponent"]([(1, 0), (2, 3)])))

    def test_mistakes(self):
        for options, says in ((("--tokens", "4k"), "such as 4K,8K"),
                              (("--tokens", "0"), "such as 4K,8K"),
                              (("--corner", "128K"), "TOKENSxLAYERS"),
                              (("--program", "nothing"), "is no program")):
            with self.subTest(options):
                self.assertIn(says, self.growth(*options, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
