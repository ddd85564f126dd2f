"""What the Python tools behind commands of kvreplay have in common."""

import sys


class Mistake(Exception):
    """A user's: one line that says where, what was found and what is allowed."""


def run(work, words):
    """Does `work(words)`; the exit code."""
    try:
        work(words)
    except Mistake as mistake:
        print(f"kvreplay: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
