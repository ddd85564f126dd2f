"""Runs the built kvreplay in a folder of its own; for the tests beside this file, which also find
the Python package by it."""

import contextlib
import importlib
import os
import pathlib
import resource
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("KVREPLAY_PROGRAM", str(SOURCE / "build/dev/kvreplay"))
# A sanitizer has its own malloc, and memory that no limit is meant for.
SANITIZED = bool(os.environ.get("KVREPLAY_SANITIZE"))
SLOWER = 20 if SANITIZED else 1  # limits of processor time grow with it
SHIPPED_TRACE = SOURCE / "traces/data/smollm2-135m-story-3k.kvtrace.h5"
SHIPPED_PROMPT = 3072

sys.path[1:1] = [str(SOURCE / "tools/python")]
# The program then starts its Python commands with this Python, and looks for no other.
os.environ.setdefault("KVREPLAY_PYTHON", sys.executable)


def python_tool(folder, name, *words):
    """What `kvreplay NAME WORDS` does, in a copy of this process: there matplotlib, which takes half
    a second, has been imported already."""
    importlib.import_module("kvreplay.plot_style")
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                sys.stdout = open(1, "w", closefd=False)
                sys.stderr = open(2, "w", closefd=False)
                os.chdir(folder)
                os.environ["KVREPLAY_PROGRAM"] = PROGRAM
                sys.argv = [name, *map(str, words)]
                sys.modules.pop(f"kvreplay.{name}", None)  # a test may have imported it
                runpy.run_module(f"kvreplay.{name}", run_name="__main__", alter_sys=True)
                code = 0
            except SystemExit as end:
                code = end.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess([name, *words], code, output.read(), errors.read())


def tree(folder):
    """Every file and folder below `folder`, with the sizes of the files."""
    return {str(path.relative_to(folder)): path.stat().st_size if path.is_file() else None
            for path in pathlib.Path(folder).rglob("*")}


def processor_seconds():
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def what_threads_do(pid):
    """State, place in the kernel and system call of each thread: what a process that hangs waits for."""
    found = []
    for thread in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        def read(name, thread=thread):
            try:
                return (thread / name).read_text().strip()
            except OSError as error:
                return str(error.strerror)
        found.append(f"{read('stat').rpartition(')')[2][:2]} {read('wchan')} {read('syscall')}")
    return "; ".join(found)


def open_files(pid):
    """Their paths; the process may close a file, or end, while they are read."""
    files = []
    with contextlib.suppress(FileNotFoundError):
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                files.append(os.readlink(link))
    return files


def wait_until_open(process, name, seconds=60):
    """Until the process has a file open whose path ends with `name`."""
    end = time.monotonic() + seconds
    while not any(file.endswith(name) for file in open_files(process.pid)):
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"{name} was not opened")
        time.sleep(0.01)


def run_with_patience(seconds, command, **options):
    """The result of a command that ends, or an AssertionError that says what it waits for. The time
    has two halves: when someone stops both processes for long, the first ends as they go on."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", **options) as process:
        for half in range(2):
            try:
                out, said = process.communicate(timeout=seconds / 2)
                return subprocess.CompletedProcess(command, process.returncode, out, said)
            except subprocess.TimeoutExpired:
                if half == 1:
                    waits = what_threads_do(process.pid)
                    process.kill()
                    raise AssertionError(
                        f"hangs: {waits}: {process.communicate()[1]}") from None


class ProgramTest(unittest.TestCase):
    """Has a folder that lives as long as the class, with a space in its name."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="kvreplay test ")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)

    # Python commands that run in a copy of the test's process, and not by the program.
    PYTHON_TOOLS = ()

    @classmethod
    def kvreplay(cls, *arguments, file_bytes=None, stdout=subprocess.PIPE):
        """The result of `kvreplay ARGUMENTS` in the folder; no file may grow beyond `file_bytes`."""
        if arguments and arguments[0] in cls.PYTHON_TOOLS:
            return python_tool(cls.folder, *arguments)

        def limit():
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=cls.folder, stdout=stdout,
                              stderr=subprocess.PIPE, text=True, errors="replace",
                              preexec_fn=limit, check=False)

    @classmethod
    def succeed(cls, *arguments):
        """Standard output; a failure is shown with the program's messages."""
        result = cls.kvreplay(*arguments)
        if result.returncode != 0:
            raise AssertionError(f"kvreplay {arguments}: {result.returncode}\n{result.stderr}")
        return result.stdout

    @classmethod
    def cut_trace(cls, name, prompt, decode):
        """A small valid trace in the folder: the end of the shipped one's prompt, and some steps."""
        cls.succeed("cut", SHIPPED_TRACE, name, "--start", SHIPPED_PROMPT - prompt, "--prompt",
                    prompt, "--decode", decode)
        return cls.folder / name

    def refuses(self, arguments, says, **options):
        """A user's mistake: one line that has every text of `says`, exit code 2, nothing written."""
        before = tree(self.folder)
        result = self.kvreplay(*arguments, **options)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"\Akvreplay: [^\n]*\n\Z")
        for text in says:
            self.assertIn(text.lower(), result.stderr.lower())
        self.assertFalse(result.stdout)
        self.assertEqual(tree(self.folder), before, "something was left behind")
