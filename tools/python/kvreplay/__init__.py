"""kvreplay from Python: results, access logs and traces as pandas frames and numpy arrays.

    import sys; sys.path.insert(0, "tools/python")  # of the source tree; or PYTHONPATH=tools/python
    import kvreplay

    folder = kvreplay.run("first", {"device": "ufs40"})
    kvreplay.pareto_front(kvreplay.results(folder), maximise=["tokens_per_s", "attention_mass"])

It calls the built program and reads its files, and decides nothing itself. docs/python.md shows
more; docs/metrics.md, docs/trace-format.md and docs/access-log.md define what is read.
"""

import importlib
import warnings

# A name is imported when it is first used, so programs that need no pandas or h5py start without
# them, even where they are not installed.
_MODULES = {
    "access_logs": ("AccessLog", "BUFFERED", "EVENTS", "Stream", "access_log"),
    "calls": ("call", "program", "run", "settings_words", "sweep"),
    "errors": ("UserError",),
    "result_tables": ("closed_loop", "evaluated", "front", "manifest", "pareto_front", "quality",
                      "results"),
    "traces": ("Trace", "Vectors", "trace", "write_trace"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name == "Error":
        warnings.warn("kvreplay.Error is kvreplay.UserError", DeprecationWarning, stacklevel=2)
        return __getattr__("UserError")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted({*globals(), *__all__})
