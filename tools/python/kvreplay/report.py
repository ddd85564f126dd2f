"""Writes one HTML page of a folder that `kvreplay run`, `sweep` or `merge` made: its tables, figures,
configuration, provenance and timeline. The page holds all that it shows and loads nothing.
"""

import argparse
import base64
import csv
import gzip
import html
import io
import json
import math
import os
import pathlib
import subprocess
import sys

from kvreplay import plot_input, plot_results, plot_style
from kvreplay.command_line import Parser, exit_code
from kvreplay.errors import UserError
from kvreplay.partial_names import partial_path
from kvreplay.progress import Progress

FOLDER = "a folder of `kvreplay run`, `sweep` or `merge`"
MAX_FIGURES = 12
MAX_SPANS = 4000  # in the picture of the timeline
PREFILL_THREADS = 1000  # and above: threads of a timeline that show the prefill

# What the first table shows; the second one has every column.
MAIN = ("trace", "synthetic", "model", "platform", "batch", "device", "system", "tokens_per_s",
        "latency_ms", "compute_ms", "exposed_io_ms", "read_bytes_per_step", "hit_rate",
        "dram_kv_bytes", "energy_mj_per_token", "attention_mass", "output_error")
# What a table of its own shows: the prompt, the life of the flash, single commands.
PHASES = ("system", "device", "ttft_ms", "prefill_compute_ms", "index_ms",
          "prompt_write_hidden_ms", "prompt_write_exposed_ms", "prefill_dram_bytes",
          "prefill_energy_mj", "nand_written_bytes_per_prompt", "nand_written_bytes_per_token",
          "endurance_share_per_1000", "years_of_life", "read_command_p50_us",
          "read_command_p99_us", "read_command_p999_us", "write_command_p50_us",
          "write_command_p99_us", "write_command_p999_us")
HIT_RATES = ("hit_rate", "best_hit_rate")
NAMES = {"trace", "model", "platform", "device", "system", "projection"}

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
.defs td { white-space: normal; }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; padding: .4rem;
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

def rounded(field):
    """A table's number for display; texts and whole numbers as they are."""
    try:
        number = float(field)
    except ValueError:
        return field if field else "-"
    if not math.isfinite(number) or field.lstrip("-").isdigit():
        return field
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def shown(row, name):
    """A field for the eye; hit rates of a recording that stands for a longer context are marked."""
    marked = name in HIT_RATES and row[name] and plot_style.is_stretched(row)
    return rounded(row[name]) + ("*" if marked else "")


def table(rows, columns, definitions):
    def kind(name):
        numbers = [row[name] for row in rows if row[name]]
        return "" if name not in NAMES and all(map(is_number, numbers)) else ' class="text"'

    kinds = {name: kind(name) for name in columns}
    head = "".join(f'<th{kinds[name]} title="{text(definitions.get(name, ""))}">{text(name)}</th>'
                   for name in columns)
    body = "".join("<tr>" + "".join(f'<td{kinds[name]} title="{text(row[name])}">'
                                    f"{text(shown(row, name))}</td>" for name in columns)
                   + "</tr>\n" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'


def is_number(field):
    try:
        float(field)
    except ValueError:
        return False
    return True


def csv_link(rows, name):
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return download(stream.getvalue().encode(), "text/csv", name)


def download(content, media_type, name):
    data = base64.b64encode(content).decode()
    return f'<a download="{text(name)}" href="data:{media_type};base64,{data}">{text(name)}</a>'


def figure_html(case, rows, quality):
    figure = plot_results.draw(case, rows, quality)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, metadata={"Software": None})
    plot_style.plt.close(figure)
    caption = ", ".join(f"{name} {value}" for name, value in zip(plot_results.CASE, case))
    data = base64.b64encode(stream.getvalue()).decode()
    return (f'<figure><img alt="quality against speed, and time per token: {text(caption)}" '
            f'src="data:image/png;base64,{data}"><figcaption class="dim">{text(caption)}'
            "</figcaption></figure>")


def figures_html(rows, quality, progress):
    cases = plot_results.cases_of(rows)
    parts = []
    for case, here in cases[:MAX_FIGURES]:
        progress.begin("figure of " + " ".join(case))
        parts.append(figure_html(case, here, quality))
        progress.update()
    if len(cases) > MAX_FIGURES:
        parts.append(f'<p class="dim">The first {MAX_FIGURES} of {len(cases)} cases; '
                     "tools/plot draws all.</p>")
    return "\n".join(parts)


def picture(name, spans):
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
    return (f'<figure><svg viewBox="0 0 {width} {total}" role="img" aria-label="timeline of '
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
    parts += [picture(*process) for process in processes[:1]]
    if len(processes) > 1:
        more = "\n".join(picture(*process) for process in processes[1:])
        parts.append(f"<details><summary>{len(processes) - 1} more cells</summary>{more}</details>")
    return "\n".join(parts)


def provenance_html(manifest, rows):
    config = manifest["config"]
    host = manifest.get("host", {})
    pairs = [("experiment", manifest["experiment"]), ("command", manifest.get("command", "not kept")),
             ("cells", len(rows)), ("seed", json.dumps(config.get("seed"))),
             ("configuration, SHA-256", manifest["config_sha256"])]
    for trace in manifest["traces"]:
        mark = ", SYNTHETIC" if trace.get("synthetic") else ""
        pairs.append((f"trace {trace['trace']}{mark}, SHA-256", trace["sha256"]))
    pairs += [("kvreplay", manifest["kvreplay_version"]), ("HDF5", manifest.get("hdf5_version", "")),
              ("compiler", manifest.get("compiler", "")),
              ("host", " ".join(str(host.get(key, "")) for key in ("name", "system", "machine")))]
    body = "".join(f'<tr><td class="text">{text(name)}</td><td class="text"><code>{text(value)}'
                   "</code></td></tr>\n" for name, value in pairs)
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


def phase_sections(rows, swept, definitions):
    """Nothing for results without a prefill."""
    if not any(row.get("ttft_ms") for row in rows):
        return []
    columns = [name for name in rows[0] if name in PHASES or name in swept]
    return [("Before the first token, single commands, wear", table(rows, columns, definitions))]


def page(folder, rows, layers, manifest, timeline, quality, progress):
    definitions = metric_help()
    swept = plot_results.swept_columns(rows)
    main = [name for name in rows[0] if name in MAIN or name in swept]
    # Names that are the same everywhere are shown once.
    constant = [name for name in main if name in (*plot_results.CASE, "synthetic", "device")
                and len({row[name] for row in rows}) == 1 and len(rows) > 1]
    main = [name for name in main if name not in constant]
    said = ", ".join(f"{name} {rows[0][name]}" for name in constant if name != "synthetic")
    projections = plot_results.unique(row["projection"] for row in rows)
    if projections != ["none"]:
        said += "; projected: " + "; ".join(projections)
    if any(map(plot_style.is_stretched, rows)):
        said += ". * of the recording's own length, not of the context that it stands for"
    synthetic = plot_results.unique(row["trace"] for row in rows if row.get("synthetic") == "1")
    mark = ""
    if synthetic:
        mark = (f'<p class="mark"><b>SYNTHETIC</b>: {text(", ".join(synthetic))} was generated, not '
                "recorded from a model.</p>")
    title = f"{manifest['experiment']}: {manifest['title']}"
    figures = figures_html(rows, quality, progress)
    per_layer = table(layers, list(layers[0]), definitions)
    sections = [
        ("Results", f'<p class="dim">{text(said)}</p>' + table(rows, main, definitions)
         + f"<details><summary>Every column</summary>{table(rows, list(rows[0]), definitions)}"
         + f"</details><p>{csv_link(rows, 'results.csv')}</p>"),
        *phase_sections(rows, swept, definitions),
        ("Figures", figures),
        ("Timeline", timeline_html(timeline, folder.name)),
        ("Quality by layer", f"<details><summary>{len(layers)} rows</summary>{per_layer}</details>"),
        ("Differences from the papers", differences_html(manifest)),
        ("Provenance", provenance_html(manifest, rows)),
        ("Configuration", "<details><summary>Every name, part and number, as resolved</summary><pre>"
         + text(json.dumps(manifest["config"], indent=2)) + "</pre></details>"),
        ("Metrics", definitions_html(plot_results.unique([*rows[0], *layers[0]]),
                                     definitions)),
    ]
    body = "\n".join(f"<h2>{name}</h2>\n{content}" for name, content in sections)
    shown_title = text(title + (" (SYNTHETIC)" if synthetic else ""))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{shown_title}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{shown_title}</h1>
{mark}
{body}
<p class="dim">Written by kvreplay report.</p>
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


def main():
    arguments = parse_arguments()
    folder = arguments.run
    if not folder.is_dir():
        raise UserError(f"{folder}: is no folder; allowed: {FOLDER}")
    manifest = read_json(folder / "manifest.json",
                         ("experiment", "title", "config", "config_sha256", "traces",
                          "kvreplay_version"), FOLDER)
    rows = plot_results.read_rows(folder / "results.csv", arguments.quality)
    layers = plot_input.table(folder / "quality.csv", ("trace", "system", "layer"), FOLDER)
    file = arguments.timeline or folder / "timeline.json"
    timeline = read_timeline(file) if arguments.timeline or file.exists() else None
    out = arguments.out or folder / "report.html"
    check_out(out)
    with Progress("report", min(MAX_FIGURES, len(plot_results.cases_of(rows)))) as progress:
        content = page(folder.resolve(), rows, layers, manifest, timeline, arguments.quality,
                       progress)
    write_whole(out, content)
    print(f"kvreplay: report in {out}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
