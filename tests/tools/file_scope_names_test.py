"""Sources of one folder, and tests of a folder such as tests/policies/decide and of those below,
compile as one file, so no two of them may have a function of one name.

They would be overloads of each other, and a call might silently take the other file's. (Of types,
constants and equal signatures the compiler says so.) A test that has a part of its own compiles by
itself.
"""

import collections
import pathlib
import re
import unittest

from program import SOURCE

ROOMS = ("base", "traces", "devices", "policies", "sim", "tools/kvreplay", "tests")
DEFINED = re.compile(r"^(?:template .*> )?(?:\[\[\w+\]\] )?(?:constexpr |inline )?"
                     r"[\w:<>,&*]+(?: [\w:<>,&*]+)* [&*]*(\w+)\(")
BLOCK = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.DOTALL | re.MULTILINE)


def functions(source):
    """The names of the functions that the anonymous namespaces of a source's text define."""
    return {match.group(1) for block in BLOCK.findall(source) for line in block.splitlines()
            if (match := DEFINED.match(line))}


class FileScopeNames(unittest.TestCase):
    def test_no_two_sources_of_a_folder_share_one(self):
        shared = []
        for room in ROOMS:
            by_folder = collections.defaultdict(lambda: collections.defaultdict(list))
            for file in sorted((SOURCE / room).rglob("*.cpp")):
                text = file.read_text(encoding="utf-8")
                folder = file.parent.relative_to(SOURCE)
                if room == "tests":
                    if re.search(r"^const Registered<", text, re.MULTILINE):
                        continue
                    folder = pathlib.Path(*folder.parts[:3])
                for name in functions(text):
                    by_folder[folder][name].append(file.name)
            shared += [f"{folder}: {name} in {', '.join(files)}"
                       for folder, found in by_folder.items()
                       for name, files in sorted(found.items()) if len(files) > 1]
        self.assertFalse(shared, "\n" + "\n".join(shared))

    def test_finds_what_it_looks_for(self):
        text = ("namespace {\n\nconstexpr int kSteps = 6;\nconst std::string kConfigs = f();\n"
                "struct Row {\n  int inner(int a) { return a; }\n};\n"
                "std::vector<Parameter> parameters() {\n  return call(1);\n}\n"
                "const char* text_of(Kind kind) {\n}\nUserError taken(const std::string& path) {\n}\n"
                "}  // namespace\nint outside() {\n}\n")
        self.assertEqual(functions(text), {"parameters", "text_of", "taken"})


if __name__ == "__main__":
    unittest.main()
