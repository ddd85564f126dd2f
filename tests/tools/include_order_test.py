"""An include against the order of the rooms does not compile, also between the stages."""

import json
import pathlib
import shlex
import subprocess
import tempfile
import unittest

from program import PROGRAM, SOURCE

BUILD = pathlib.Path(PROGRAM).parent


def compiles(file, source):
    """Whether `file` is `source`, or the file by which a folder's sources compile as one."""
    if "/Unity/" in file:
        return f'"{source}"' in pathlib.Path(file).read_text(encoding="utf-8")
    return file == str(source)


def compile_with(source, include):
    """Compiles one line, `include`, as if it were in `source`; returns exit code and messages."""
    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    entry = next(entry for entry in commands  # not the agent's, which sees the whole tree
                 if compiles(entry["file"], SOURCE / source) and "agent" not in entry["directory"]
                 and "kvreplay-agent" not in entry["command"])
    words = [word for word in shlex.split(entry["command"]) if not word.endswith("ccache")]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "probe.cpp"
        file.write_text(f'#include "{include}"\n', encoding="utf-8")
        place = words.index("-c")
        words = words[:place] + ["-E", str(file)]
        for option in ("-o", "-MF", "-MT"):
            if option in words:
                del words[words.index(option):words.index(option) + 2]
        if "-MD" in words:
            words.remove("-MD")
        done = subprocess.run(words, cwd=entry["directory"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


class IncludeOrder(unittest.TestCase):
    # (a source file, what it may include, what it may not)
    ARROWS = [
        ("base/error.cpp", "base/size.hpp", "traces/trace.hpp"),
        ("devices/device_config.cpp", "base/engine/simulation.hpp", "policies/place/place.hpp"),
        ("policies/kernels/kernels.cpp", "base/half.hpp", "policies/decide/log/groups.hpp"),
        ("policies/decide/decide.cpp", "policies/kernels/kernels.hpp",
         "policies/place/cache/cache.hpp"),
        ("policies/place/place.cpp", "policies/decide/log/access_log.hpp",
         "policies/decide/scoring/scoring.hpp"),
        ("devices/schedule/schedule.cpp", "devices/device.hpp", "devices/real/io_engine.hpp"),
        ("sim/time/platform.cpp", "devices/schedule/schedule.hpp", "sim/replay/replay.hpp"),
    ]

    def test_includes_down_compile(self):
        for source, down, _ in self.ARROWS:
            with self.subTest(source=source, include=down):
                code, words = compile_with(source, down)
                self.assertEqual(code, 0, words)

    def test_includes_up_do_not(self):
        for source, _, up in self.ARROWS:
            with self.subTest(source=source, include=up):
                self.assertTrue((SOURCE / up).is_file(), f"{up} has moved")
                code, words = compile_with(source, up)
                self.assertNotEqual(code, 0)
                self.assertIn(f"{up}: No such file", words)


if __name__ == "__main__":
    unittest.main()
