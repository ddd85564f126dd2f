"""The pages of docs/systems are what the program says of the configs: `tools/update-docs`. Commands
that the documentation shows exist, with the options that it gives them."""

import functools
import re
import unittest

from program import SOURCE, ProgramTest

PAGES = SOURCE / "docs/systems"
AGAIN = "not what the program prints: run tools/update-docs"


class Docs(ProgramTest):
    def test_a_page_for_each_system_and_no_other(self):
        systems = {path.stem for path in (SOURCE / "configs/systems").glob("*.json")}
        self.assertEqual({path.stem for path in PAGES.glob("*.md")}, systems | {"README"}, AGAIN)

    def test_pages_are_what_the_program_prints(self):
        for page in sorted(PAGES.glob("*.md")):
            with self.subTest(page.name):
                arguments = (["list", "systems", "--markdown"] if page.stem == "README" else
                             ["explain", page.stem, "--markdown"])
                self.assertEqual(page.read_text(), self.succeed(*arguments), AGAIN)

    def test_markdown_is_for_systems_alone(self):
        self.refuses(["explain", "ufs40", "--markdown"], ["system", "ufs40"])
        self.refuses(["list", "devices", "--markdown"], ["--markdown", "systems"])

    def test_commands_that_pages_show_exist(self):
        shown = 0
        for page in [SOURCE / "README.md", *(SOURCE / "docs").glob("*.md")]:
            for line in commands(page.read_text()):
                with self.subTest(page=page.name, line=line):
                    self.check_command(line.split())
                    shown += 1
        self.assertGreater(shown, 60, "the pages' commands were not found")

    def check_command(self, words):
        program = words[0]
        if program.startswith("tools/"):
            self.assertTrue((SOURCE / program).is_file(), f"no {program}")
            return
        *group, names = words[1:3] if words[1] in ("device", "cache") else words[1:2]
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        for name in names.split("|"):
            help_ = self.help(*group, name)
            self.assertRegex(help_, rf"[Uu]sage: {' '.join(['kvreplay', *group, name])} ")
            for option in options:
                self.assertRegex(help_, rf"(?m)(^ *|,){option}\b(?!-)", f"{name} has no {option}")

    @functools.cache
    def help(self, *names):
        return self.succeed(*names, "--help")


def commands(page):
    """Indented lines that run kvreplay or a script of tools/: continued lines joined, comments and
    what follows a pipe or a second command cut off."""
    for line in re.sub(r"\\\n +", "", page).splitlines():
        # `kvreplay schedule 1` begins a file.
        if re.match(r" {4}(\S*/)?(kvreplay (?!schedule 1$)\S|tools/\S)", line):
            line = re.split(r" # | \| | > | -- |;", line)[0].strip()
            yield re.sub(r"^\S*/kvreplay", "kvreplay", line)


if __name__ == "__main__":
    unittest.main()
