"""What `cmake --install` leaves is whole: the program finds its data wherever the prefix is moved, and
the Python package runs with the Python that has its packages, which need not be the first on PATH."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from program import PROGRAM, SOURCE, ProgramTest

BUILD = pathlib.Path(PROGRAM).parent
SMALL = ("--set", "device=ufs40", "--set", "system=quest", "--set", "warm_up_steps=2", "--steps",
         "4", "--format", "none")


class Installed(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.folder / "first place"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.prefix = (cls.folder / "first place").rename(cls.folder / "second place")
        cls.data = cls.prefix / "share/kvreplay"
        # A Python without packages, before the one that has them.
        cls.bare = cls.script("bare/python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        cls.full = cls.script("full/python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        cls.work = cls.folder / "work"
        cls.work.mkdir()
        cls.installed("run", "first", *SMALL, "--out", "small", "--access-log")

    @classmethod
    def script(cls, name, text):
        """The folder of a new program."""
        file = cls.folder / name
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
        return file.parent

    @classmethod
    def run_by(cls, words, *pythons):
        """With `pythons`, folders, before what else is on PATH; none is named by a variable."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith("KVREPLAY")}
        path = os.pathsep.join(map(str, [*pythons, "/nowhere"]))
        return subprocess.run([str(word) for word in words], cwd=cls.work, capture_output=True,
                              text=True, check=False, env={**keep, "PATH": path})

    @classmethod
    def installed(cls, *arguments, pythons=None):
        """Standard output of the installed program."""
        result = cls.run_by([cls.prefix / "bin/kvreplay", *arguments],
                            *(pythons or [cls.bare, cls.full]))
        if result.returncode != 0:
            raise AssertionError(f"{arguments}: {result.returncode}\n{result.stderr}")
        return result.stdout

    def test_names_are_looked_up_in_the_prefix(self):
        self.assertIn("story", self.installed("list", "traces"))
        systems = self.data / "configs/systems"
        shutil.copy(systems / "quest.json", systems / "of_the_prefix.json")
        self.assertIn("of_the_prefix", self.installed("list", "systems"))

    def test_results_are_those_of_the_build_folder(self):
        self.succeed("run", "first", *SMALL, "--out", "built")
        self.assertEqual((self.work / "small/results.csv").read_bytes(),
                         (self.folder / "built/results.csv").read_bytes())

    def test_python_commands_find_the_python_with_the_packages(self):
        self.installed("plot", "small")
        self.assertTrue((self.work / "small/figure.png").exists())
        self.assertIn("Usage: kvreplay plot ", self.installed("plot", "--help"))
        shutil.copytree(self.work / "small", self.work / "tool")
        done = self.run_by([self.bare / "python3", self.data / "tools/plot", "tool"], self.full)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_package_that_no_python_has_is_named(self):
        result = self.run_by([self.prefix / "bin/kvreplay", "plot", "small"], self.bare)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"\Akvreplay: [^\n]*has no package \w+; allowed: [^\n]*\n\Z")
        result = self.run_by([self.prefix / "bin/kvreplay", "plot", "small"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"\Akvreplay: python3: cannot be run [^\n]*\n\Z")

    def test_the_package_finds_its_program(self):
        code = ("import kvreplay; print(kvreplay.program()); "
                "print(len(kvreplay.results('small')))")
        result = subprocess.run([sys.executable, "-B", "-c", code], cwd=self.work, text=True,
                                capture_output=True, check=True,
                                env={"PYTHONPATH": str(self.data / "tools/python")})
        self.assertEqual(result.stdout, f"{self.prefix / 'bin/kvreplay'}\n1\n")

    def test_the_package_is_written_for_the_python_that_pip_is_told(self):
        """What later versions of Python brought is not used. Annotations are not evaluated."""
        told = (SOURCE / "pyproject.toml").read_text()
        self.assertIn('requires-python = ">=3.9"', told)
        later = r"\bstrict=True|itertools\.pairwise|^\w+ = \w+ \| |slots=True|\bStrEnum\b|\btomllib\b"
        for file in sorted((SOURCE / "tools/python/kvreplay").glob("*.py")):
            with self.subTest(file.name):
                text = file.read_text(encoding="utf-8")
                tree = ast.parse(text, feature_version=(3, 9))
                found = re.findall(f"(?m){later}", text)
                self.assertEqual(found, [], "Python 3.9 does not have it")
                if re.search(r"(:|->) [\w.\[\]]+ \| ", text):
                    self.assertIn("from __future__ import annotations", text)
                self.assertFalse([node for node in ast.walk(tree)
                                  if type(node).__name__ in ("Match", "TryStar")])

    def test_agents_are_where_the_program_looks(self):
        built = sorted(path.name for path in BUILD.glob("kvreplay-agent-*") if path.is_file())
        kept = sorted(path.name for path in self.prefix.glob("libexec/kvreplay/kvreplay-agent-*"))
        self.assertEqual(kept, built)
        ssh = self.script("ssh/ssh", "#!/bin/sh\necho no-such-machine\n")
        result = self.run_by([self.prefix / "bin/kvreplay", "device", "probe", "ssh:host:/x",
                              "--out", "x.json"], ssh, "/usr/bin")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("second place/libexec/kvreplay/kvreplay-agent-no-such-machine", result.stderr)


if __name__ == "__main__":
    unittest.main()
