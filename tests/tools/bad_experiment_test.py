"""Every way in which an experiment, a config or the command line can be wrong: one line that names
the place, what was found and what is allowed, exit code 2, and nothing written."""

import json
import shutil
import unittest

from program import SOURCE, ProgramTest

EXPERIMENT = {
    "title": "A test", "trace": "small.kvtrace.h5", "system": ["flexgen", "kvswap"],
    "model": "smollm2-135m", "platform": "orin_agx", "device": "ufs40", "batch": 1,
    "warm_up_steps": 0,
}

# Members that replace the experiment's (None removes one), and what the error must say.
BAD_EXPERIMENTS = {
    "misspelt member": ({"sytem": "quest"}, ["sytem", "did you mean 'system'"]),
    "missing member": ({"platform": None}, ["platform", "missing"]),
    "no system": ({"system": []}, ["/system", "at least one"]),
    "the same system twice": ({"system": ["quest", "quest"]}, ["/system/1", "quest", "twice"]),
    "unknown system": ({"system": ["quest", "kvswop"]},
                       ["/system/1", "kvswop", "did you mean 'kvswap'", "clusterkv"]),
    "unknown device": ({"device": "ufs41"}, ["/device", "ufs41", "did you mean 'ufs40'", "emmc51"]),
    "unknown model": ({"model": "llama3-8b"}, ["/model", "did you mean 'llama3.1-8b'"]),
    "unknown platform": ({"platform": "orin"}, ["/platform", "orin_agx"]),
    "absent trace": ({"trace": "nowhere.kvtrace.h5"}, ["nowhere.kvtrace.h5"]),
    "a folder for a trace": ({"trace": "configs"}, ["configs", "not a regular file"]),
    "a text for a number": ({"seed": "seven"}, ["/seed", "text seven", "integer"]),
    "a number for a text": ({"title": 7}, ["/title", "found number 7", "text"]),
    "a fraction for a count": ({"batch": 1.5}, ["batch", "1.5", "integer"]),
    "no batch": ({"batch": 0}, ["batch", "0", "from 1"]),
    "a negative count": ({"steps": -1}, ["/steps", "-1", "from 0"]),
    "nothing to time": ({"warm_up_steps": 1000}, ["warm_up_steps", "1000"]),
}

# (file below configs/, path within it, value or None to remove it), and what the error must say.
BAD_CONFIGS = {
    "misspelt parameter": ("systems/kvswap", "cache.capacity_grops", 9,
                           ["kvswap.json", "/cache", "did you mean 'capacity_groups'"]),
    "wrong unit": ("devices/ufs40", "page_kib", 16, ["ufs40.json", "did you mean 'page_bytes'"]),
    "wrong type": ("systems/kvswap", "grouping.group_tokens", "four",
                   ["kvswap.json", "/grouping/group_tokens", "text four", "integer"]),
    "negative size": ("systems/kvswap", "cache.capacity_groups", -3,
                      ["kvswap.json", "/cache/capacity_groups", "-3"]),
    "zero budget": ("systems/kvswap", "selection.budget_tokens", 0,
                    ["kvswap.json", "/selection/budget_tokens", "found 0", "above 0"]),
    "unknown part": ("systems/kvswap", "cache.part", "lro",
                     ["kvswap.json", "/cache/part", "lro", "did you mean 'lru'"]),
    "no part": ("systems/kvswap", "scoring.part", None, ["kvswap.json", "/scoring", "part"]),
    "missing role": ("systems/kvswap", "layout", None, ["kvswap.json", "layout", "missing"]),
    "unknown role": ("systems/kvswap", "cash", {"part": "lru"}, ["cash", "did you mean 'cache'"]),
    "missing parameter": ("models/smollm2-135m", "head_dim", None,
                          ["smollm2-135m.json", "head_dim", "missing"]),
    "heads that do not divide": ("models/smollm2-135m", "query_heads", 8,
                                 ["smollm2-135m.json", "query_heads"]),
    "no bandwidth": ("platforms/orin_agx", "dram_bandwidth_gb_s", 0,
                     ["orin_agx.json", "/dram_bandwidth_gb_s"]),
}

BAD_SETS = {
    "device": ["device", "key=value"],
    "=1": ["key=value"],
    "divice=ufs40": ["divice", "did you mean 'device'"],
    "device=ufs": ["ufs", "ufs40"],
    "system.cache.capacity_grops=9": ["capacity_grops", "did you mean 'cache.capacity_groups'"],
    "system.cache.capacity_groups=many": ["capacity_groups", "many", "integer"],
    "system.kvswap.cache.part=lro": ["lro", "did you mean 'lru'"],
    "device.page_kib=16": ["page_kib", "did you mean 'page_bytes'"],
    "steps=two": ["steps", "two", "integer"],
}

BAD_COMMAND_LINES = {
    (): ["run", "explain"],
    ("rum", ): ["rum", "did you mean 'run'"],
    ("run", ): ["EXPERIMENT is required\n"],
    ("device", ): ["allowed: describe, "],
    ("run", "experiment.json", "--sett", "a=b"): ["--sett", "did you mean '--set'"],
    ("run", "experiment.json", "--format", "cvs"): ["--format: unknown value 'cvs' (did you mean "
                                                    "'csv'?); allowed: table, md, latex, csv, json, "
                                                    "none\n"],
    ("run", "experiment.json", "--threads", "1025"): ["--threads: found '1025'; allowed: an integer "
                                                      "from 0 to 1024\n"],
    ("run", "experiment.json", "--steps", "0"): ["--steps: found '0'; allowed: an integer from 1 to "
                                                 "1073741824\n"],
    ("run", "experiment.json", "--out"): ["--out"],
    ("run", "experiment.json", "another.json"): ["another.json"],
    ("run", "frist"): ["frist", "did you mean 'first'"],
    ("run", "absent.json"): ["absent.json"],
    ("list", ): ["KIND"],
    ("list", "gadgets"): ["gadgets", "systems", "parts"],
    ("list", "systms"): ["did you mean 'systems'"],
    ("list", "parts", "cash"): ["did you mean 'cache'"],
    ("list", "systems", "cache"): ["cache"],
    ("list", "systems", "--configs", "nowhere"): ["nowhere/systems"],
    ("explain", "kvswop"): ["kvswop", "did you mean 'kvswap'"],
}


def edit(document, path, value):
    """Sets or, for None, removes the member at a dotted path."""
    *above, last = path.split(".")
    for name in above:
        document = document[name]
    if value is None:
        del document[last]
    else:
        document[last] = value


class BadExperiment(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cut_trace("small.kvtrace.h5", 96, 4)
        shutil.copytree(SOURCE / "configs", cls.folder / "configs")
        cls.write_experiment({})

    @classmethod
    def write_experiment(cls, changes):
        members = {**EXPERIMENT, **changes}
        members = {name: value for name, value in members.items() if value is not None}
        (cls.folder / "experiment.json").write_text(json.dumps(members))

    def refuses_run(self, says, *options, **limits):
        self.refuses(["run", "experiment.json", "--configs", "configs", *options], says, **limits)

    def test_the_experiment_itself_is_sound(self):
        self.succeed("run", "experiment.json", "--configs", "configs")
        shutil.rmtree(self.folder / "results")

    def test_experiments(self):
        self.addCleanup(self.write_experiment, {})
        for name, (changes, says) in BAD_EXPERIMENTS.items():
            with self.subTest(name):
                self.write_experiment(changes)
                self.refuses_run(says)

    def test_configs(self):
        for name, (file, path, value, says) in BAD_CONFIGS.items():
            with self.subTest(name):
                config = self.folder / "configs" / (file + ".json")
                text = config.read_text()
                document = json.loads(text)
                edit(document, path, value)
                config.write_text(json.dumps(document))
                try:
                    self.refuses_run(says)
                finally:
                    config.write_text(text)

    def test_syntax(self):
        self.addCleanup(self.write_experiment, {})
        for text in ('{"title": "A test", }}', "", "[1, 2]", '{"title": "\x00"}', "\xff\xfe"):
            with self.subTest(text):
                (self.folder / "experiment.json").write_text(text, encoding="latin-1")
                self.refuses_run(["experiment.json"])

    def test_settings(self):
        for setting, says in BAD_SETS.items():
            with self.subTest(setting):
                self.refuses_run(says, "--set", setting)

    def test_command_lines(self):
        for arguments, says in BAD_COMMAND_LINES.items():
            with self.subTest(arguments):
                self.refuses(arguments, says)

    def test_nowhere_to_write(self):
        (self.folder / "taken").mkdir(exist_ok=True)
        (self.folder / "taken" / "notes.txt").write_text("mine")
        self.refuses_run(["taken", "new or empty"], "--out", "taken")
        self.refuses_run(["experiment.json"], "--out", "experiment.json")
        self.refuses_run(["experiment.json"], "--out", "experiment.json/below")
        self.refuses_run(["/proc/results"], "--out", "/proc/results")

    def test_full_disk(self):
        self.refuses_run(["cannot be written"], file_bytes=200)
        self.refuses_run(["cannot be written"], "--access-log", file_bytes=4000)


if __name__ == "__main__":
    unittest.main()
