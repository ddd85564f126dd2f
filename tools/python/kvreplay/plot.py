"""Draws the figures of what kvreplay wrote.

    kvreplay plot FOLDER                   `kvreplay run` and `sweep`
    kvreplay plot closed-loop FOLDER       `kvreplay evaluate`
    kvreplay plot device CSV               `kvreplay device describe --csv`, with --probe also `probe`
    kvreplay plot overlay CSV --out FILE   `kvreplay device compare --csv`
    kvreplay plot replay FOLDER...         `kvreplay device replay`
    kvreplay plot synthesis FILE.json      `kvreplay synth --report`
    kvreplay plot trace TRACE FOLDER       a trace
    kvreplay plot tuning FOLDER            `kvreplay tune`

`kvreplay plot KIND --help` has the options of a kind; that of the first is `results`. A folder that is
named like a kind is given as ./FOLDER. In the source tree, tools/plot is the same.
"""

import importlib
import sys

from kvreplay.command_line import exit_code

KINDS = ("closed-loop", "device", "overlay", "replay", "results", "synthesis", "trace", "tuning")


def main(program="kvreplay plot"):
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(f"Usage: {program} [KIND] FILE_OR_FOLDER... [OPTIONS]\n")
        print(__doc__.replace("kvreplay plot", program), end="")
        return 0
    kind = "results"
    if sys.argv[1:2] and sys.argv[1] in KINDS:
        kind = sys.argv.pop(1)
        sys.argv[0] = f"{program} {kind}"
    else:
        sys.argv[0] = program
    return importlib.import_module(f"kvreplay.plot_{kind.replace('-', '_')}").main()


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
