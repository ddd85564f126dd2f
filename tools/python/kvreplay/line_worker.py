"""A program that answers every line with one line: our side of a comparison."""

from __future__ import annotations

import subprocess
import sys


class LineWorker:
    def __init__(self, *command):
        self.process = subprocess.Popen([str(word) for word in command], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended early")
        return line.strip()

    def ask(self, *words) -> str:
        print(*words, file=self.process.stdin, flush=True)
        return self.answer()

    def prepare(self, *work) -> None:
        if self.ask(*work) != "ready":
            sys.exit(f"{self.process.args[0]} cannot prepare {work}")
