"""Writes one HTML page of a folder that `kvreplay run`, `sweep`, `merge`, `live`, `tune`, `evaluate`
or `reproduce` made: a table to sort and filter, a chart of any two columns, figures, configuration,
provenance and timeline. The page holds all that it shows and loads nothing.
"""

import argparse
import base64
import csv
import gzip
import hashlib
import html
import io
import json
import os
import pathlib
import subprocess
import sys

from kvreplay import plot_any, plot_chart, plot_input, plot_results, plot_style
from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.partial_names import partial_path
from kvreplay.plot_metrics import HIGHER_IS_BETTER, is_number, shown_value
from kvreplay.progress import Progress
from kvreplay.report_script import SCRIPT

FOLDER = "a folder of `kvreplay run`, `sweep`, `merge`, `live`, `tune`, `evaluate` or `reproduce`"
MAX_FIGURES = 12
MAX_SPANS = 4000  # in the picture of the timeline
PREFILL_THREADS = 1000  # and above: threads of a timeline that show the prefill

# What the table shows at first, by kind of folder, with what was swept.
RESULTS = ("trace", "synthetic", "model", "platform", "batch", "device", "system", "tokens_per_s",
           "latency_ms", "exposed_io_ms", "attention_mass", "output_error", "read_bytes_per_step",
           "hit_rate", "dram_kv_bytes", "energy_mj_per_token", "marks")
MAIN = {
    "results": RESULTS,
    "live": RESULTS,
    "tuning": ("system", "reference", "feasible", "front", "latency_ms", "dram_kv_bytes",
               "attention_mass", "output_error", "tokens_per_s", "read_bytes_per_step", "hit_rate",
               "marks"),
    "closed-loop": ("system", "budget", "budget_unit", "stored_bits", "perplexity", "full_perplexity",
                    "kl_nats", "agreement", "attention_mass", "output_error", "recall"),
    "claims": ("paper", "claim", "case", "verdict", "ratio", "reported", "simulated", "unit"),
}
AXES = {"results": ("tokens_per_s", "attention_mass"), "live": ("tokens_per_s", "attention_mass"),
        "tuning": ("latency_ms", "output_error"), "closed-loop": ("output_error", "kl_nats"),
        "claims": ("reported", "simulated")}
# What a table of its own shows: the prompt, the life of the flash, single commands.
PHASES = ("system", "device", "ttft_ms", "prefill_compute_ms", "index_ms",
          "prompt_write_hidden_ms", "prompt_write_exposed_ms", "prefill_dram_bytes",
          "prefill_energy_mj", "nand_written_bytes_per_prompt", "nand_written_bytes_per_token",
          "endurance_share_per_1000", "years_of_life", "read_command_p50_us",
          "read_command_p99_us", "read_command_p999_us", "write_command_p50_us",
          "write_command_p99_us", "write_command_p999_us")
HIT_RATES = ("hit_rate", "best_hit_rate")
NAMES = {"trace", "model", "platform", "device", "system", "projection"}
MAX_IMAGES = 24  # of a reproduction

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --dim: #666; --line: #d5d5d5; --back: #fff;
  --head: #f0f2f5; --compute: #7F8FA6; --reads: #E69F00; --writes: #009E73; --waits: #e3e3e3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e4; --dim: #a0a0a0; --line: #444;
  --back: #17181a; --head: #26282c; --waits: #35373c; } }
body { color: var(--ink); background: var(--back); font: 15px/1.45 system-ui, sans-serif;
  max-width: 78rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem;
  border-bottom: 1px solid var(--line); }
.dim { color: var(--dim); } .mark { border: 2px solid #D55E00; padding: .5rem .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .55rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { background: var(--head); } th.text, td.text { text-align: left; }
pre.prose { white-space: pre-wrap; } th { position: sticky; top: 0; }
#rows th { white-space: normal; vertical-align: bottom; cursor: pointer; } #rows th:hover { text-decoration: underline; } #rows tbody tr { cursor: pointer; }
#rows tbody tr:hover, #rows tr.chosen { background: var(--head); } tr.nofit td:first-child::before {
  content: "\\26a0\\00a0"; color: #D55E00; }
#rows td.text { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
.wide.tall { max-height: 32rem; overflow: auto; }
.tools { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .6rem 0; }
.tools input[type=search] { font: inherit; padding: .15rem .4rem; width: 20rem; max-width: 100%; }
select, button { font: inherit; max-width: 100%; } #columns { columns: 14rem; font-size: .85rem;
  margin: .4rem 0; } #columns label { display: block; overflow-wrap: anywhere; }
#legend { display: flex; flex-wrap: wrap; gap: .3rem; } #legend button { border: 1px solid var(--line);
  background: none; color: inherit; border-radius: .8rem; font-size: .8rem; padding: .05rem .6rem;
  cursor: pointer; } #legend button[aria-pressed=false] { opacity: .4; } #legend i { display:
  inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .4em; }
#tip { position: fixed; z-index: 2; background: var(--back); border: 1px solid var(--line);
  border-radius: .3rem; padding: .3rem .5rem; font-size: .85rem; pointer-events: none;
  max-width: 20rem; box-shadow: 0 1px 5px #0004; }
#cell { border: 1px solid var(--line); border-radius: .4rem; padding: .2rem .9rem .6rem;
  margin: 1rem 0; } #cell h3 { margin: .5rem 0; overflow-wrap: anywhere; } .close { float: right;
  margin-top: .5rem; } dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%,
  24rem), 1fr)); gap: .1rem 1.5rem; margin: .3rem 0; font-size: .85rem; } dl div { display: flex;
  gap: .6rem; } dt { color: var(--dim); flex: 0 0 auto; } dd { margin: 0; overflow-wrap: anywhere; }
svg circle { cursor: pointer; } svg circle:focus-visible, svg circle:hover { stroke: var(--ink);
  outline: none; } svg .grid { stroke: var(--line); stroke-width: .6; } svg text.axis { font-size:
  12px; font-weight: 600; } figure.chosen { outline: 2px solid #0072B2; outline-offset: 4px; }
[hidden] { display: none !important; } @media (max-width: 600px) { svg#chart text { font-size: 22px; }
  body { padding: 0 .6rem; } h1 { font-size: 1.2rem; } }
h1 { overflow-wrap: anywhere; } .defs td { white-space: normal; }
figure { margin: 1rem 0; } img { max-width: 100%; box-sizing: border-box; background: #fff; padding: .4rem;
  border-radius: .3rem; }
pre { background: var(--head); padding: .7rem; overflow-x: auto; font-size: .8rem; }
code { overflow-wrap: anywhere; } summary { cursor: pointer; margin: .6rem 0; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 11px; }
svg .compute { fill: var(--compute); } svg .reads { fill: var(--reads); }
svg .writes { fill: var(--writes); } svg .step { fill: var(--waits); }
"""


def text(value):
    return html.escape(str(value), quote=True)


# --- What the page is made of --------------------------------------------------------------------

def read_json(file, keys, what):
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; allowed: {what}") from None
    except ValueError:
        raise UserError(f"{file}: is no JSON; allowed: {what}") from None
    missing = [key for key in keys if not isinstance(document, dict) or key not in document]
    if missing:
        raise UserError(f"{file}: has no {', '.join(missing)}; allowed: {what}")
    return document


def read_timeline(file):
    """The document, and its events by process: (name, spans)."""
    what = "what `kvreplay run --timeline FILE` wrote"
    document = read_json(file, ["traceEvents"], what)
    names, spans = {}, {}
    try:
        for event in document["traceEvents"]:
            process = int(event["pid"])
            if event["ph"] == "M" and event["name"] == "process_name":
                names[process] = str(event["args"]["name"])
            elif event["ph"] == "X":
                span = (int(event["tid"]), float(event["ts"]), float(event["dur"]),
                        str(event["name"]), dict(event["args"]))
                spans.setdefault(process, []).append(span)
    except (TypeError, KeyError, ValueError):
        raise UserError(f"{file}: an event is not as the format has it; allowed: {what}") from None
    return document, [(names.get(process, str(process)), of_one)
                      for process, of_one in sorted(spans.items())]


def metric_help():
    """(name, definition) of every column, from the program; none where the program is not known."""
    program = os.environ.get("KVREPLAY_PROGRAM")
    if program is None:
        return {}
    said = subprocess.run([program, "list", "metrics"], capture_output=True, text=True, check=False)
    pairs = (line.split(maxsplit=1) for line in said.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


# --- Pieces of HTML ------------------------------------------------------------------------------

def shown(row, name):
    """A field for the eye; hit rates of a recording that stands for a longer context are marked."""
    marked = name in HIT_RATES and row[name] and plot_style.is_stretched(row)
    return shown_value(name, row[name]) + ("*" if marked else "")


def table(rows, columns, definitions, name=""):
    def kind(name):
        numbers = [row[name] for row in rows if row[name]]
        return "" if name not in NAMES and all(map(is_number, numbers)) else ' class="text"'

    kinds = {name: kind(name) for name in columns}
    head = "".join(f'<th{kinds[name]} title="{text(definitions.get(name, ""))}">{text(name)}</th>'
                   for name in columns)
    body = "".join("<tr>" + "".join(f'<td{kinds[name]} title="{text(row[name])}">'
                                    f"{text(shown(row, name))}</td>" for name in columns)
                   + "</tr>\n" for row in rows)
    place = f' id="{name}"' if name else ""
    return f"<table{place}><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def csv_link(rows, name):
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return download(stream.getvalue().encode(), "text/csv", name)


def download(content, media_type, name):
    data = base64.b64encode(content).decode()
    return f'<a download="{text(name)}" href="data:{media_type};base64,{data}">{text(name)}</a>'


def image_html(content, caption):
    data = base64.b64encode(content).decode()
    return (f'<figure><img alt="{text(caption)}" src="data:image/png;base64,{data}">'
            f'<figcaption class="dim">{text(caption)}</figcaption></figure>')


def figure_html(figure, caption):
    plot_style.finish(figure)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, metadata={"Software": None})
    plot_style.plt.close(figure)
    return image_html(stream.getvalue(), caption)


def results_figures(folder, rows, quality, progress):
    if plot_any.is_wide_sweep(folder):
        drawn = plot_chart.Chart(rows, y=["latency_ms", quality])
        return figure_html(plot_chart.draw(drawn, plot_any.title_of(rows, [folder])),
                           "time per token and quality over what was swept")
    cases = plot_results.cases_of(rows)
    parts = []
    for case, here in cases[:MAX_FIGURES]:
        progress.begin("figure of " + " ".join(case))
        caption = ", ".join(f"{name} {value}" for name, value in zip(plot_results.CASE, case))
        parts.append(figure_html(plot_results.draw(case, here, quality),
                                 f"quality against speed, and time per token: {caption}"))
        progress.update()
    if len(cases) > MAX_FIGURES:
        parts.append(f'<p class="dim">The first {MAX_FIGURES} of {len(cases)} cases; '
                     "kvreplay plot draws all.</p>")
    return "\n".join(parts)


def figures_html(kind, folder, rows, quality, progress):
    if kind == "results":
        return results_figures(folder, rows, quality, progress)
    parts = [figure_html(figure, f"{name} of {folder.name}")
             for name, figure in plot_any.own_figures(kind, folder, quality)]
    if kind == "claims":  # the papers' own figures lie in the folder
        files = [file for file in sorted(folder.glob("*.png")) if file.stem != "claims"]
        parts += [image_html(file.read_bytes(), file.stem) for file in files[:MAX_IMAGES]]
        if len(files) > MAX_IMAGES:
            parts.append(f'<p class="dim">The first {MAX_IMAGES} of {len(files)} figures.</p>')
    return "\n".join(parts)


def picture(name, spans, cell):
    """The first step of a process as bars; where it computes nothing, the background shows."""
    width, left, height = 1000, 70, 16
    spans = [span for span in spans if span[0] < PREFILL_THREADS]
    steps = [begin + duration for _, begin, duration, what, _ in spans if what.startswith("step ")]
    end = min(steps, default=0) or 1
    spans = [span for span in spans if span[1] < end][:MAX_SPANS]
    threads = sorted({span[0] for span in spans})
    scale = (width - left) / end
    parts = []
    for row, thread in enumerate(threads):
        lane = "compute" if thread < 100 else "reads" if thread < 200 else "writes"
        number = f" {thread % 100 + 1}" if thread >= 100 and thread % 100 else ""
        y = 4 + row * (height + 4)
        parts.append(f'<text x="0" y="{y + 12}">{lane}{number}</text>')
        for at, begin, duration, what, values in spans:
            if at != thread:
                continue
            kind = "step" if what.startswith("step ") else lane
            says = f"{what}: {duration / 1000:.3f} ms"
            if "bytes" in values:
                says += f", {values['bytes']:,.0f} bytes, {values['commands']:,.0f} commands"
            shown = min(duration, end - begin) * scale
            parts.append(f'<rect class="{kind}" x="{left + begin * scale:.2f}" y="{y}" '
                         f'width="{max(shown, 0.3):.2f}" height="{height}">'
                         f"<title>{text(says)}</title></rect>")
    total = 4 + len(threads) * (height + 4) + 14
    parts.append(f'<text x="{left}" y="{total - 2}">0</text><text x="{width}" y="{total - 2}" '
                 f'text-anchor="end">{end / 1000:,.1f} ms</text>')
    return (f'<figure data-cell="{cell}"><svg viewBox="0 0 {width} {total}" role="img" aria-label="timeline of '
            f'{text(name)}">' + "\n".join(parts) + f"</svg><figcaption class=\"dim\">{text(name)}"
            "</figcaption></figure>")


def timeline_html(timeline, run):
    if timeline is None:
        return (f"<p>This run has no timeline. <code>kvreplay run EXPERIMENT --out DIR "
                f"--timeline DIR/timeline.json</code> writes one, which a report shows.</p>")
    document, processes = timeline
    content = gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 9, mtime=0)
    link = download(content, "application/gzip", f"{run}-timeline.json.gz")
    parts = [f"<p>Save {link}, then open it at ui.perfetto.dev with <em>Open trace file</em>, "
             f"or with chrome://tracing. It has {len(processes)} cells, one process per cell. The "
             "picture shows the first step.</p>"]
    pictures = [picture(*process, cell) for cell, process in enumerate(processes)]
    parts.append('<div id="timelines">' + "\n".join(pictures[:1]))
    if len(processes) > 1:
        more = "\n".join(pictures[1:])
        parts.append(f"<details><summary>{len(processes) - 1} more cells</summary>{more}</details>")
    return "\n".join(parts) + "</div>"


def provenance_html(manifest, rows):
    config = manifest.get("config", {})
    host = manifest.get("host", {})
    pairs = [("experiment", manifest.get("experiment")), ("its title", manifest.get("title")),
             ("command", manifest.get("command", "not kept")), ("rows", len(rows)),
             ("seed", json.dumps(config["seed"]) if "seed" in config else None),
             ("configuration, SHA-256", manifest.get("config_sha256"))]
    for trace in manifest.get("traces", []):
        mark = ", SYNTHETIC" if trace.get("synthetic") else ""
        pairs.append((f"trace {trace['trace']}{mark}, SHA-256", trace["sha256"]))
    pairs += [("kvreplay", manifest.get("kvreplay_version")), ("HDF5", manifest.get("hdf5_version")),
              ("compiler", manifest.get("compiler")),
              ("host", " ".join(str(host.get(key, "")) for key in ("name", "system", "machine"))
               if isinstance(host, dict) else host)]
    told = {"experiment", "title", "command", "traces", "differs", "notes"}
    pairs += [(name, value) for name, value in manifest.items()
              if name not in told and "config_sha256" not in manifest
              and isinstance(value, (str, int, float)) and name != "kvreplay_version"]
    body = "".join(f'<tr><td class="text">{text(name)}</td><td class="text"><code>{text(value)}'
                   "</code></td></tr>\n" for name, value in pairs if value not in (None, ""))
    return f'<div class="wide"><table class="defs">{body}</table></div>'


def differences_html(manifest):
    items = "".join(f"<li><b>{text(system)}</b>: {text('; '.join(differs))}</li>\n"
                    for system, differs in manifest.get("differs", {}).items() if differs)
    return f"<ul>{items}</ul>" if items else '<p class="dim">None are declared.</p>'


def definitions_html(columns, definitions):
    body = "".join(f'<tr><td class="text"><code>{text(name)}</code></td><td class="text">'
                   f"{text(definitions[name])}</td></tr>\n" for name in columns
                   if name in definitions)
    return (f'<div class="wide"><table class="defs">{body}</table></div>'
            '<p class="dim">In symbols: docs/metrics.md.</p>')


def phase_sections(rows, definitions):
    """Nothing for results without a prefill."""
    if not any(row.get("ttft_ms") for row in rows):
        return []
    swept = plot_chart.settings_of(list(rows[0]))
    columns = [name for name in rows[0] if name in PHASES or name in swept]
    return [("Before the first token, single commands, wear",
             '<div class="wide">' + table(rows, columns, definitions) + "</div>")]


def spread(name, values):
    """A swept key and its values, in few words."""
    short = name.rsplit(".", 1)[-1]
    if len(values) > 2 and all(map(is_number, values)):
        ordered = sorted(values, key=float)
        return f"{short} {ordered[0]} to {ordered[-1]} ({len(values)} values)"
    return f"{short} " + (", ".join(values) if len(values) <= 4 else f"({len(values)} values)")


def few(names, most=5):
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most - 1])} and " \
        f"{len(names) - most + 1} more"


def title_of(kind, rows, manifest, folder):
    """What was run, in a line: it may have little to do with the experiment it began from."""
    if kind == "tuning":
        return f"Search: {manifest['tune'].get('about', folder.name)}"
    if kind == "claims":
        return f"Claims of papers: {few(plot_results.unique(row['paper'] for row in rows))}"
    unique = plot_results.unique
    title = few(unique(row["system"] for row in rows))
    if "device" in rows[0]:
        title += " on " + few(unique(row["device"] for row in rows), 4)
    swept = [spread(name, unique(row[name] for row in rows if row[name]))
             for name in plot_chart.settings_of(list(rows[0]))
             if len({row[name] for row in rows if row[name]}) > 1]
    if swept:
        title += "; " + ", ".join(swept)
    if kind in ("closed-loop", "needles"):
        model = manifest.get("model", "")
        title = ("Closed loop: " if kind == "closed-loop" else "Needles: ") + title
        return title + (f", inside {model}" if isinstance(model, str) and model else "")
    for name in ("model", "platform", "trace", "batch"):
        values = unique(row[name] for row in rows if row.get(name))
        if len(values) > 1:
            title += f"; {name} {few(values, 4)}"
    return ("Live: " if kind == "live" else "") + title


def script_data(kind, rows, manifest, main, definitions):
    """What the page's program works on, as JSON that cannot end its element."""
    names = list(rows[0])

    def is_text(name):
        filled = [is_number(row[name]) for row in rows if row[name]]
        # Some claims are bounds or orders, so a few fields are texts.
        enough = 0.6 if kind == "claims" else 1
        return name in NAMES or sum(filled) < enough * len(filled)

    texts = [name for name in names if is_text(name)]
    varied, settings = plot_chart.keys_of(rows)
    keys = [name for name in names if name in varied or name in settings
            or (name in NAMES and name != "projection")]
    numbers = [name for name in names if name not in texts and any(row[name] for row in rows)]
    swept = plot_chart.swept_number(rows, [key for key in varied if key in settings])
    axes = AXES.get(kind, ("", ""))
    x = axes[0] if axes[0] in numbers else numbers[0] if numbers else ""
    y = axes[1] if axes[1] in numbers else numbers[-1] if numbers else ""
    if swept:
        x, y = swept, y if y != swept else x
    by = next((name for name in ("system", "verdict", "paper") if name in keys), "")
    if kind == "tuning":  # every row has a name of its own
        keys += [name for name in ("front", "reference", "feasible") if name in names]
        by = "front" if "front" in names else by

    def logarithmic(name):
        values = [float(row[name]) for row in rows if is_number(row.get(name))]
        return plot_chart.wants_log(values, name == swept)

    config = manifest.get("config", {})
    document = {
        "columns": names, "texts": texts, "keys": keys, "main": main, "x": x, "y": y, "by": by,
        "logx": logarithmic(x), "logy": logarithmic(y),
        "higher": [name for name in names if name in HIGHER_IS_BETTER],
        "help": {name: definitions[name] for name in names if name in definitions},
        "rows": [[row[name] for name in names] for row in rows],
        "config": {kind: config[kind] for kind in ("system", "device", "platform", "model")
                   if isinstance(config.get(kind), dict)},
    }
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


WORKBENCH = """<div class="script" hidden>
<div class="tools"><input type="search" id="filter" placeholder="filter: quest latency_ms&lt;100"
 aria-label="filter" title="words of a row's names, or COLUMN=VALUE, &lt;, &gt;, &lt;=, &gt;=">
<span id="count" class="dim"></span>
<span class="dim">A heading sorts; a row or point shows its settings.</span></div>
<details><summary>Columns</summary><div class="tools"><button type="button" id="usual">usual</button>
<button type="button" id="all">all</button></div><div id="columns"></div></details></div>"""

CHART = """<div class="script chart" hidden><div class="tools"><label>y <select id="y"></select></label>
<label>against x <select id="x"></select></label><label>colour <select id="by"></select></label>
<label><input type="checkbox" id="logx"> log x</label>
<label><input type="checkbox" id="logy"> log y</label></div>
<svg id="chart" viewBox="0 0 820 400" role="group" aria-label="chart"></svg>
<div id="legend"></div></div>
<div id="cell" hidden></div><div id="tip" hidden></div>"""


def remarks_html(rows, main, differ):
    """Names that are the same everywhere, once; and what a reader must know of the numbers."""
    constant = [name for name in main if name in (*plot_results.CASE, "synthetic", "device",
                                                  "budget_unit", "full_perplexity")
                and name not in differ and len(rows) > 1]
    said = ", ".join(f"{name} {shown(rows[0], name)}" for name in constant if name != "synthetic")
    if "projection" in rows[0]:
        projections = plot_results.unique(row["projection"] for row in rows)
        if projections != ["none"]:
            said += ("; " if said else "") + "projected: " + "; ".join(projections)
    if any(map(plot_style.is_stretched, rows)):
        said += ". * of the recording's own length, not of the context that it stands for"
    marks = ""
    synthetic = plot_results.unique(row["trace"] for row in rows if row.get("synthetic") == "1")
    if synthetic:
        marks += (f'<p class="mark"><b>SYNTHETIC</b>: {text(", ".join(synthetic))} was generated, '
                  "not recorded from a model.</p>")
    large = {}
    for row in rows:
        if plot_style.does_not_fit(row):
            large[row["system"]] = max(large.get(row["system"], 0), float(row["dram_share"]))
    if large:
        shares = few([f"{system} ({share:.3g})" for system, share in large.items()], 12)
        marks += ('<p class="mark"><b>Does not fit</b> in the platform\'s DRAM (dram_share above 1), '
                  f"so no such machine could run it: {text(shares)}.</p>")
    return [name for name in main if name not in constant], said, marks


def page(kind, folder, rows, layers, manifest, timeline, quality, progress):
    definitions = metric_help()
    varied, settings = plot_chart.keys_of(rows)
    wanted = MAIN.get(kind, tuple(rows[0]))
    main = [name for name in rows[0] if (name in wanted or name in settings)
            and any(row[name] for row in rows)]
    main.sort(key=lambda name: wanted.index(name) if name in wanted
              else wanted.index("system") + 0.5 if "system" in wanted else 0)
    main, said, marks = remarks_html(rows, main, varied)
    title = title_of(kind, rows, manifest, folder)
    synthetic = any(row.get("synthetic") == "1" for row in rows)
    tables = {"results": "results.csv", "live": "results.csv"}
    name = tables.get(kind, plot_any.KINDS.get(kind, "results.csv"))
    sections = [
        ("Results", f'<p class="dim">{text(said)}</p>{WORKBENCH}<div class="wide tall">'
         + table(rows, main, definitions, "rows") + f"</div>{CHART}<p>{csv_link(rows, name)}</p>"),
        ("Figures", figures_html(kind, folder, rows, quality, progress)),
        *phase_sections(rows, definitions),
    ]
    answer = folder / "answer.txt"
    if answer.exists():
        said_there = text(answer.read_text(encoding="utf-8"))
        sections.insert(0, ("Answer", f'<pre class="prose">{said_there}</pre>'))
    if kind == "results":
        sections.append(("Timeline", timeline_html(timeline, folder.name)))
    if layers:
        per_layer = ('<div class="wide">' + table(layers, list(layers[0]), definitions) + "</div>")
        sections.append(("Quality by layer",
                         f"<details><summary>{len(layers)} rows</summary>{per_layer}</details>"))
    if kind == "results":
        sections.append(("Differences from the papers", differences_html(manifest)))
    sections.append(("Provenance", provenance_html(manifest, rows)))
    if "config" in manifest:
        sections.append((
            "Configuration", "<details><summary>Every name, part and number, as resolved</summary>"
            f"<pre>{text(json.dumps(manifest['config'], indent=2))}</pre></details>"))
    defined = plot_results.unique([*rows[0], *(layers[0] if layers else ())])
    if any(column in definitions for column in defined):
        sections.append(("Metrics", definitions_html(defined, definitions)))
    body = "\n".join(f"<h2>{heading}</h2>\n{content}" for heading, content in sections)
    shown_title = text(title + (" (SYNTHETIC)" if synthetic else ""))
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = ("default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
              f"script-src 'sha256-{digest}'")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{shown_title}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{shown_title}</h1>
{marks}
{body}
<p class="dim">Written by kvreplay report.</p>
<script type="application/json" id="data">{script_data(kind, rows, manifest, main, definitions)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


# --- The command ---------------------------------------------------------------------------------

def check_out(file):
    """Checked before the work. Only a regular file is replaced."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise UserError(f"{file}: is no regular file; allowed: a new file, or one to replace")
    if not file.parent.is_dir():
        raise UserError(f"{file}: there is no folder {file.parent}; allowed: a file in one that is "
                        "there")


def write_whole(file, content):
    """The file appears whole or not at all."""
    partial = partial_path(file)
    try:
        partial.write_text(content, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror}); allowed: a file in a "
                        "writable folder with free space") from None
    finally:
        partial.unlink(missing_ok=True)


def parse_arguments():
    parser = Parser(prog="kvreplay report", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, metavar="RUN", help=FOLDER)
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="the page (default: RUN/report.html); an older one is replaced")
    parser.add_argument("--timeline", type=pathlib.Path, metavar="FILE",
                        help="what `kvreplay run --timeline FILE` wrote (default: RUN/timeline.json, "
                             "where it is)")
    parser.add_argument("--quality", choices=plot_results.QUALITIES, default="attention_mass",
                        help="the vertical axis of the figures (default: %(default)s)")
    return parser.parse_args()


def read_folder(kind, folder, quality):
    """The rows, those by layer, and the manifest: what the kind of folder has to have."""
    needed = {"results": ("experiment", "title", "config", "config_sha256", "traces",
                          "kvreplay_version"), "tuning": ("tune",)}
    if kind == "replay":
        raise UserError(f"{folder}: is of `kvreplay device replay`, which has no report; allowed: "
                        f"{FOLDER}, or kvreplay plot {folder}")
    if kind == "validation":
        raise UserError(f"{folder}: is of `kvreplay validate`, which wrote {folder / 'report.md'} and "
                        f"{folder / 'validation.png'}; allowed: {FOLDER}")
    if kind == "recommendation":
        raise UserError(f"{folder}: is of `kvreplay recommend`, which wrote {folder / 'answer.txt'} and "
                        f"{folder / 'ranked.csv'}; allowed: {FOLDER}, or kvreplay plot {folder}")
    manifest = {}
    if kind != "claims":  # it keeps those of its runs
        manifest = read_json(folder / "manifest.json", needed.get(kind, ()), FOLDER)
    if kind == "results":
        rows = plot_results.read_rows(folder / "results.csv", quality)
        return rows, plot_input.table(folder / "quality.csv", ("trace", "system", "layer"),
                                      FOLDER), manifest
    needs = ("paper",) if kind == "claims" else ("system",)
    return plot_input.table(folder / plot_any.KINDS.get(kind, "results.csv"), needs,
                            FOLDER), [], manifest


def main():
    arguments = parse_arguments()
    folder = arguments.run
    if not folder.is_dir():
        raise UserError(f"{folder}: is no folder; allowed: {FOLDER}")
    kind = plot_any.kind_of(folder)
    rows, layers, manifest = read_folder(kind, folder, arguments.quality)
    file = arguments.timeline or folder / "timeline.json"
    timeline = (read_timeline(file) if arguments.timeline or (kind == "results" and file.exists())
                else None)
    out = arguments.out or folder / "report.html"
    check_out(out)
    figures = min(MAX_FIGURES, len(plot_results.cases_of(rows))) if kind == "results" else 1
    with Progress("report", figures) as progress:
        content = page(kind, folder.resolve(), rows, layers, manifest, timeline, arguments.quality,
                       progress)
    write_whole(out, content)
    print(f"kvreplay: report in {out}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
