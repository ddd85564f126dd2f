"""Progress of the tools beside this file, on standard error."""

import sys
import time

WIDTH = 30


class Progress:
    """A bar with the time left, as the program's own (base/progress.hpp): it shows itself once the
    work has taken two seconds; where there is no terminal it is a line every ten seconds."""

    def __init__(self, label, total):
        self.label, self.note, self.total, self.done = label, "", max(total, 1), 0
        self.start = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.next = self.start + 2
        self.shown = False

    def begin(self, note):
        """Says what comes next."""
        self.note = f"  {note}"
        self.refresh()

    def advance(self, amount=1):
        self.done += amount
        self.refresh()

    def refresh(self):
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.2 if self.terminal else 10)
        self.shown = True
        share = min(self.done / self.total, 1)
        left = f"{(now - self.start) * (1 - share) / share:.0f} s left" if share else ""
        line = f"{self.label} [{'#' * int(WIDTH * share):.<{WIDTH}}] {share:4.0%}  {left}{self.note}"
        print(f"\r\033[K{line}" if self.terminal else line, end="" if self.terminal else "\n",
              file=sys.stderr, flush=True)

    def end(self):
        """Takes the bar off a terminal."""
        if self.shown and self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
