"""`python3 -m kvreplay MODULE ...` runs a module of the package as a program: report, plot_trace ...

Without tools/python on Python's path, the folder itself can be run, as the kvreplay command does:
`python3 tools/python/kvreplay MODULE ...`."""

import pathlib
import runpy
import sys

if not __package__:  # the folder was run: Python looks for modules in it, and not beside it
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

if len(sys.argv) < 2:
    sys.exit(__doc__)
del sys.argv[0]
runpy.run_module(f"kvreplay.{sys.argv[0]}", run_name="__main__", alter_sys=True)
