"""Sizes as the Python programs take them: one grammar, wherever one is given."""

import subprocess
import unittest

from program import SOURCE

from kvreplay import UserError
from kvreplay.measuring import request_sizes
from kvreplay.sizes import parse_size, size_text

PROGRAMS = (("tools/round-trip", "ufs40"), ("tools/serve-device", "ufs40"),
            ("tools/scripts/probe-against-fio", "file"))


class Sizes(unittest.TestCase):
    def test_units(self):
        for text, size in (("0", 0), ("4096", 4096), ("512B", 512), ("4kB", 4000), ("4KB", 4000),
                           ("2MB", 2 * 10**6), ("2GB", 2 * 10**9), ("1TB", 10**12),
                           ("4KiB", 4096), ("1 MiB", 2**20), ("2GiB", 2**31), ("1TiB", 2**40)):
            self.assertEqual(parse_size(text, "--size"), size, text)

    def test_a_fraction_makes_whole_bytes(self):
        for text, size in (("1.5 MiB", 3 << 19), ("0.1KB", 100), (".5KiB", 512), ("1.0", 1)):
            self.assertEqual(parse_size(text, "--size"), size, text)
        for text in ("0.5", "1.0001KB", "0.3KiB"):
            self.refuses(text, "no whole number of bytes")

    def refuses(self, text, *says):
        with self.assertRaises(UserError) as caught:
            parse_size(text, "--size")
        for part in (f"--size: found '{text}'", "; allowed: ", *says):
            self.assertIn(part, str(caught.exception))

    def test_a_bare_letter_is_a_power_of_1024(self):
        for text, size in (("4K", 4096), ("2g", 2**31), ("3 M", 3 * 2**20)):
            self.assertEqual(parse_size(text, "--size"), size, text)
        self.refuses("1.5M", "MiB")

    def test_what_is_no_size(self):
        for text in ("", "GB", "-1", "1e3", "4Kb", "4KIB", "much", "4  KB", "nan", "9" * 30):
            self.refuses(text)

    def test_what_is_written_is_read(self):
        for size in (0, 1, 1000, 1024, 1536, 3 << 19, 2 * 10**9, 1 << 31, 1 << 40):
            self.assertEqual(parse_size(size_text(size), ""), size)
        self.assertEqual((size_text(4096), size_text(1000)), ("4 KiB", "1000 B"))

    def test_lists_of_request_sizes(self):
        self.assertEqual(request_sizes("512,4KiB,64 KiB,1024KB"), [512, 4096, 65536, 1024000])
        for text, says in (("4KB", "multiples of 512 bytes up to 64 MiB"), ("65MiB", "64 MiB"),
                           ("4KiB,4KK", "'4KK'"), ("0", "multiples")):
            with self.assertRaisesRegex(UserError, f"--size: .*{says}"):
                request_sizes(text)

    def test_programs_refuse_what_is_no_size(self):
        for program, device in PROGRAMS:
            with self.subTest(program):
                result = subprocess.run([SOURCE / program, device, "--size", "2Gi"], text=True,
                                        capture_output=True, check=False)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, r"\A[a-z-]+: --size: found '2Gi'; allowed: .*KiB.*\n\Z")


if __name__ == "__main__":
    unittest.main()
