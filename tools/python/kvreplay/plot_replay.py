"""Draws a `kvreplay device replay`: the latency of each step and of the requests, modelled against
measured.

Reads steps.csv, latencies.csv and replay.json of its folder; of several folders, a row each. Writes
STEM.pdf and STEM.png.
"""

import json

from kvreplay import plot_style
from kvreplay.errors import UserError
from kvreplay.plot_input import csv_rows
from kvreplay.plot_style import plt

MODELLED = {"color": plot_style.COLOURS[0], "marker": plot_style.MARKERS[0]}
MEASURED = {"color": plot_style.COLOURS[1], "marker": plot_style.MARKERS[1]}
ALLOWED = "the folder of a `kvreplay device replay`"


def read_columns(file, names):
    try:
        rows = csv_rows(file)
        return {name: [float(row[name]) for row in rows] for name in names}
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; allowed: {ALLOWED}") from None
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{file}: has not the columns {', '.join(names)}; allowed: "
                        f"{ALLOWED}") from None


def read_result(folder):
    try:
        about = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
        title = (f"{about['workload'].get('system') or folder.name}: "
                 f"{about['model_device']['name']} against {about['target']['path']}")
        partial = not about["complete"]
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; allowed: {ALLOWED}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{folder / 'replay.json'}: is of something else; allowed: "
                        f"{ALLOWED}") from None
    steps = read_columns(folder / "steps.csv", ("step", "modelled_latency_ms", "measured_latency_ms"))
    latencies = read_columns(folder / "latencies.csv", ("percent", "modelled_us", "measured_us"))
    return {"title": title + (" (partial)" if partial else ""), "steps": steps,
            "latencies": latencies}


def draw(results):
    figure, axes = plt.subplots(len(results), 2, figsize=(7, 2.5 * len(results)), squeeze=False)
    for (by_step, of_requests), result in zip(axes, results):
        steps = result["steps"]
        for name, style in (("modelled", MODELLED), ("measured", MEASURED)):
            by_step.plot(steps["step"], steps[f"{name}_latency_ms"], linewidth=0.8, markersize=3,
                         label=name, **style)
            of_requests.plot(result["latencies"][f"{name}_us"], result["latencies"]["percent"],
                             linewidth=1.2, color=style["color"], label=name)
        by_step.set_ylim(0, 1.08 * by_step.dataLim.ymax)
        by_step.set_xlabel("Step")
        by_step.set_ylabel("Latency per step (ms)")
        by_step.set_title(result["title"], fontsize=8, loc="left")
        if result["latencies"]["percent"]:
            of_requests.set_xscale("log")
        of_requests.set_xlabel("Latency per request (us)")
        of_requests.set_ylabel("Requests (%)")
        by_step.legend(loc="best")
    return figure


def figures(*folders):
    """(name, figure) of the one figure of the folders."""
    return [("replay", draw([read_result(folder) for folder in folders]))]
