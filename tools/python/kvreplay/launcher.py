"""`kvreplay` of an installed package: becomes the program, which then runs this package's modules
by this Python."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_program/bin/kvreplay")
    os.environ["KVREPLAY_PYTHON"] = sys.executable
    os.execv(program, [sys.argv[0], *sys.argv[1:]])
