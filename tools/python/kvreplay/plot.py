"""Draws the figures of what kvreplay wrote.

    kvreplay plot DIR...                   `kvreplay run`, `sweep`, `tune`, `recommend`, `evaluate`,
                                           `live`, `validate`, `device replay`, `reproduce`: its
                                           own figure
    kvreplay plot DIR... --x KEY --y METRIC[,METRIC] --by KEY --panel KEY
                                           any columns of them, of several folders in one figure
    kvreplay plot device CSV               `kvreplay device describe --csv`, with --probe also `probe`
    kvreplay plot device PROBE.json        `kvreplay device probe` alone
    kvreplay plot layers FOLDER            quality by layer, of `kvreplay run` or `kvreplay evaluate`
    kvreplay plot overlay CSV --out FILE   `kvreplay device compare --csv`
    kvreplay plot synthesis FILE.json      `kvreplay synth --report`
    kvreplay plot trace TRACE FOLDER       a trace

Every figure takes --size 3.3x2.2, --font serif, --label kvswap=Ours, --title, --out, --dpi and
--style paper|screen. `kvreplay plot KIND --help` has the options of a kind. A folder that is named
like a kind is given as ./FOLDER. In the source tree, tools/plot is the same.
"""

import importlib
import sys

from kvreplay.command_line import exit_code

FILES = ("device", "layers", "overlay", "synthesis", "trace")  # kinds of what is no folder of results
FOLDERS = ("closed-loop", "replay", "results", "tuning")  # told apart by themselves, too


def main(program="kvreplay plot"):
    if sys.argv[1:] in (["-h"], ["--help"], []):
        print(f"Usage: {program} [KIND] FILE_OR_FOLDER... [OPTIONS]\n")
        print(__doc__.replace("kvreplay plot", program))
        from kvreplay import plot_any  # matplotlib takes a second

        options = plot_any.parser_of(program).format_help().partition("\n\n")[2]
        print(f"Of folders:\n{options}", end="")
        return 0
    kind = sys.argv.pop(1) if sys.argv[1] in (*FILES, *FOLDERS) else None
    sys.argv[0] = program if kind is None else f"{program} {kind}"
    if kind in FILES:
        return importlib.import_module(f"kvreplay.plot_{kind}").main()
    return importlib.import_module("kvreplay.plot_any").main(sys.argv[0], kind)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
