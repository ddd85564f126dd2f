"""`python3 -m kvreplay MODULE ...` runs a module of the package as a program: report, plot_trace ...

Without tools/python on Python's path, the folder itself can be run, as the kvreplay command does:
`python3 tools/python/kvreplay MODULE ...`."""

import os
import runpy
import signal
import sys

if not __package__:  # the folder was run: Python looks for modules in it, and not beside it
    from interpreter import hand_over
    hand_over()
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Until command_line.py takes it over, Ctrl-C ends the program without a traceback of its imports. One
# that was started with SIGINT ignored goes on ignoring it.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

if len(sys.argv) < 2:
    sys.exit(__doc__)
del sys.argv[0]
try:
    runpy.run_module("kvreplay." + sys.argv[0], run_name="__main__", alter_sys=True)
except ModuleNotFoundError as error:
    if (error.name or "kvreplay").partition(".")[0] == "kvreplay":
        raise
    print("kvreplay: {}: {} has no package {}; allowed: a Python that has it, on PATH or in "
          "$KVREPLAY_PYTHON".format(sys.argv[0], sys.executable, error.name), file=sys.stderr)
    sys.exit(2)
