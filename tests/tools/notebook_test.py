"""The notebooks are committed without outputs, and every cell of them runs. They run in a copy of
their folder, so that results do not land in the source tree."""

import os
import shutil
import sys
import unittest
from unittest import mock

import nbclient
import nbformat

from program import PROGRAM, SLOWER, SOURCE, ProgramTest

sys.path.insert(0, str(SOURCE / "tools/scripts"))
from strip_notebooks import stripped  # noqa: E402  (where it lies comes first)

NOTEBOOKS = sorted((SOURCE / "notebooks").glob("*.ipynb"))


class Notebooks(ProgramTest):
    def run_notebook(self, name):
        """The notebook with its outputs; a cell that fails raises, with what it said."""
        copy = self.folder / "tree/notebooks"
        if not copy.exists():
            shutil.copytree(SOURCE / "notebooks", copy)
            for folder in ("tools", "traces", "docs", "README.md"):
                (copy.parent / folder).symlink_to(SOURCE / folder)
        book = nbformat.read(copy / name, as_version=4)
        environment = {"KVREPLAY": PROGRAM, "TMPDIR": str(self.folder),
                       "PYTHONDONTWRITEBYTECODE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                       "IPYTHONDIR": str(self.folder / "ipython"),
                       "JUPYTER_RUNTIME_DIR": str(self.folder / "jupyter")}
        with mock.patch.dict(os.environ, environment):
            # The kernel of this Python, whatever others the user has registered.
            client = nbclient.NotebookClient(book, timeout=300 * SLOWER, kernel_name="python3",
                                             resources={"metadata": {"path": str(copy)}})
            client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
            return client.execute()

    def outputs(self, book):
        return [output for cell in book.cells for output in cell.get("outputs", [])]

    def check_figures(self, book, count):
        images = [output for output in self.outputs(book) if "image/png" in output.get("data", {})]
        self.assertEqual(len(images), count)

    def said(self, book):
        return "".join(output.get("text", "") for output in self.outputs(book))

    def test_first_comparison(self):
        book = self.run_notebook("1-first-comparison.ipynb")
        self.check_figures(book, 3)
        self.assertRegex(self.said(book), r"\d+ of 4069 tokens have 0\.\d+ of the weight")

    def test_sweep_and_pareto(self):
        book = self.run_notebook("2-sweep-and-pareto.ipynb")
        self.check_figures(book, 3)
        self.assertIn("30 cells", self.said(book))

    @unittest.skipUnless(os.environ.get("LONG_TESTS"), "takes LONG_TESTS=1")
    def test_record_and_reproduce(self):
        """Runs with weights where there are any, else on the shipped recording, and says so."""
        book = self.run_notebook("3-record-and-reproduce.ipynb")
        self.check_figures(book, 2)
        said = self.said(book)
        if "NOT RECORDED" in said:
            self.assertRegex(said, "could not be (downloaded|installed)")
            self.assertIn("The recording that ships is used instead", said)
        else:
            self.assertRegex(said, r"\brecorded .*documentation\.kvtrace\.h5")

    def test_they_are_committed_without_outputs(self):
        self.assertTrue(NOTEBOOKS)
        for path in NOTEBOOKS:
            with self.subTest(path.name):
                text = path.read_text(encoding="utf-8")
                self.assertEqual(text, stripped(text), "run tools/scripts/strip_notebooks.py")
                nbformat.validate(nbformat.reads(text, as_version=4))

    def test_each_has_a_test(self):
        self.assertEqual(len(NOTEBOOKS), 3)


if __name__ == "__main__":
    unittest.main()
