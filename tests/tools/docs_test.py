"""The pages of docs/systems are what the program says of the configs: `tools/update-docs`."""

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


if __name__ == "__main__":
    unittest.main()
