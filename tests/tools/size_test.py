"""Sizes mean the same in every option, and are refused in the same words."""

import json
import unittest

from program import ProgramTest

PROBE = ("device", "probe", "new.bin", "--depth", "1", "--seconds", "0.01", "--out")


class Sizes(ProgramTest):
    def created_bytes(self, size):
        """What --create SIZE makes."""
        self.succeed(*PROBE, f"{size}.json", "--create", size, "--size", "4KiB")
        result = json.loads((self.folder / f"{size}.json").read_text())
        return result["target"]["size_bytes"]

    def is_kept(self, size, file_bytes):
        """Whether --cache-limit SIZE leaves an entry of so many bytes."""
        key = "ab" * 32
        entry = self.folder / f"cache {size} {file_bytes}" / "decide/ab" / key
        entry.parent.mkdir(parents=True)
        entry.write_bytes(bytes(file_bytes))
        self.succeed("cache", "prune", "--cache", entry.parents[2], "--cache-limit", size)
        return entry.exists()

    def test_options_agree(self):
        # Whole blocks of 4096 bytes, so that direct I/O has them all.
        for size, expected in (("2048KB", 2_048_000), ("2048kB", 2_048_000),
                               ("2048KiB", 2_097_152), ("2048K", 2_097_152), ("2m", 2_097_152),
                               ("2MiB", 2_097_152), ("1.5MiB", 1_572_864), ("2097152", 2_097_152),
                               ("2097152B", 2_097_152)):
            with self.subTest(size=size):
                self.assertEqual(self.created_bytes(size), expected)
                self.assertTrue(self.is_kept(size, expected))
                self.assertFalse(self.is_kept(size, expected + 1))

    def test_refusals_are_alike(self):
        for option, command in (
                ("--create", (*PROBE, "x.json")),
                ("--size", (*PROBE, "x.json", "--create", "1M")),
                ("--size", ("device", "describe", "ufs40")),
                ("--range", ("device", "describe", "ufs40")),
                ("--create", ("device", "replay", "first", "--model-device", "ufs40", "--target",
                              "new.bin", "--out", "x")),
                ("--cache-limit", ("cache", "info")),
                ("--memory", ("sweep", "first", "--plan")),
                ("--max-dram", ("tune", "--system", "quest", "--out", "x"))):
            for size in ("4Q", "much", "-4K", "1.5K", "0.3B", "4kib", "16777216T"):
                with self.subTest(command=command, option=option, size=size):
                    self.refuses([*command, f"{option}={size}"],
                                 [f"{option}: found '{size}'; allowed: a whole number such as "
                                  "4096 or a size such as "])


if __name__ == "__main__":
    unittest.main()
