"""The pages of docs/systems are what the program says of the configs: `tools/update-docs`. Commands
that the documentation shows exist, with the options that it gives them; so do the links, paths and
tests that it names. Lines fit into 120 columns, and the table of targets is that of the build."""

import functools
import re
import unittest

from program import SOURCE, ProgramTest

PAGES = SOURCE / "docs/systems"
AGAIN = "not what the program prints: run tools/update-docs"

COLUMNS = 120
# Text that a program writes may be wider: whole pages, or the tables of a page.
WRITTEN_PAGES = {*PAGES.glob("*.md"), SOURCE / "docs/results/papers-claims.md"}
PRINTED_TABLES = {SOURCE / "docs/results" / page
                  for page in ("device-accuracy.md", "validation.md")}
ROOMS = "base|traces|devices|policies|sim|tools|configs|docs|tests|notebooks|cmake"


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

    def test_the_page_on_models_lists_each_preset(self):
        listed = re.findall(r"^\| `([\w.-]+)` \| \d+ \|", (SOURCE / "docs/models.md").read_text(),
                            re.MULTILINE)
        presets = {path.stem for path in (SOURCE / "configs/models").glob("*.json")}
        self.assertEqual((len(listed), set(listed)), (len(presets), presets))

    def test_markdown_is_for_systems_alone(self):
        self.refuses(["explain", "ufs40", "--markdown"], ["system", "ufs40"])
        self.refuses(["list", "devices", "--markdown"], ["--markdown", "systems"])

    def test_commands_that_pages_show_exist(self):
        shown = 0
        for page in pages():
            for line in commands(page.read_text()):
                with self.subTest(page=page.name, line=line):
                    self.check_command(line.split())
                    shown += 1
        self.assertGreater(shown, 60, "the pages' commands were not found")

    def test_lines_fit(self):
        for page in pages():
            if page in WRITTEN_PAGES:
                continue
            for number, line in prose_and_code(page.read_text()):
                if page in PRINTED_TABLES and line.startswith("|"):
                    continue
                with self.subTest(page=page.name, line=number):
                    self.assertLessEqual(len(line), COLUMNS, line)

    def test_links_lead_somewhere(self):
        followed = 0
        for page in pages():
            for link in re.findall(r"\]\(([^()\s]+)\)", page.read_text()):
                if re.match(r"[a-z]+:", link):
                    continue
                file, _, heading = link.partition("#")
                target = page.parent / file if file else page
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(target.exists(), f"no {target}")
                    if heading:
                        self.assertIn(heading, anchors(target.read_text()))
                    followed += 1
        self.assertGreater(followed, 100, "the pages' links were not found")

    def test_paths_that_pages_name_exist(self):
        named = 0
        for page in pages():
            if page.parent == PAGES:  # sources of other repositories
                continue
            for path in re.findall(rf"(?<![\w./-])(?:{ROOMS})/[\w*./-]*[\w*]", page.read_text()):
                with self.subTest(page=page.name, path=path):
                    self.assertTrue(exists(path), f"no {path}")
                    named += 1
        self.assertGreater(named, 100, "the pages' paths were not found")

    def test_the_architecture_has_the_targets_of_the_build(self):
        page = (SOURCE / "docs/architecture.md").read_text()
        shown = {target: set(re.findall(r"[\w/]+", needs))
                 for target, needs in re.findall(r"(?m)^\| `([\w/]+)` \| ([\w/, ]*) ?\|", page)}
        build = (SOURCE / "CMakeLists.txt").read_text()
        folders = re.search(r"set\(KVREPLAY_LIBRARIES([^)]*)\)", build)[1].split()
        targets = {}
        for call in re.findall(r"(?m)^kvreplay_library\(([^)]*)\)", build):
            name, _, needs = call.partition(" ")
            targets[name] = {word for word in needs.partition("DEPENDS")[2].split()
                             if word in folders}  # the others are not ours
        self.assertEqual(sorted(targets), sorted(folders))
        self.assertEqual({name: shown.get(name) for name in folders}, targets)

    def test_tests_that_the_architecture_names_exist(self):
        named, file = 0, None
        for word in re.findall(r"`([^`\s]+)`", (SOURCE / "docs/architecture.md").read_text()):
            if word.startswith("tests/"):
                file = SOURCE / word
                continue
            suite, _, test = word.partition(".")
            if re.fullmatch(r"[A-Z]\w+\.[A-Z]\w+", word):
                pattern = rf"TEST(_[FP])?\({suite},\s+{test}\)"
            elif re.fullmatch(r"test_\w+", word):
                pattern = rf"def {word}\(self"
            else:
                continue
            with self.subTest(word):
                self.assertRegex(file.read_text(), pattern)
                named += 1
        self.assertGreater(named, 40, "the page's tests were not found")

    def check_command(self, words):
        program = words[0]
        if program.startswith("tools/"):
            self.assertTrue((SOURCE / program).is_file(), f"no {program}")
            return
        *group, names = words[1:3] if words[1] in ("device", "cache", "platform",
                                                                 "model") else words[1:2]
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        for name in names.split("|"):
            help_ = self.help(*group, name)
            self.assertRegex(help_, rf"[Uu]sage: {' '.join(['kvreplay', *group, name])} ")
            for option in options:
                self.assertRegex(help_, rf"(?m)(^ *|,){option}\b(?!-)", f"{name} has no {option}")

    @functools.cache
    def help(self, *names):
        return self.succeed(*names, "--help")


def pages():
    return [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md"))]


def prose_and_code(page):
    """The page's lines with their numbers, without ```text blocks, which show a program's output."""
    printed = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            printed = not printed and line == "```text"
        elif not printed:
            yield number, line


def anchors(page):
    """The anchors of the page's headings, as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.+)$", page)}


def exists(path):
    """Whether the path exists. A word in capitals stands for any name; as a folder, for any folders."""
    if (SOURCE / path).exists():
        return True
    parts = ["**" if re.fullmatch("[A-Z]+", part) else re.sub("[A-Z]{2,}", "*", part)
             for part in path.split("/")]
    return any(SOURCE.glob("/".join(parts)))


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
