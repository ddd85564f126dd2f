"""Sets simulated tokens beside real ones on this machine: measures the target and the processor, fits
the device, runs each system live and simulated, and writes a report with every error.

    kvreplay validate --model smollm2-135m --text story.txt --target /data/live.bin --create 1GiB \\
        --out results/validation

Each step keeps its result in the folder, and a step whose result is there is not repeated: an
interrupted validation goes on. An error is modelled / measured - 1. Latency is set apart in
computation and I/O (time with a request under way), so that errors cannot cancel unseen.

A round measures the disk and the processor and then runs every system live, so that what slows the
machine for a while slows all of them. A live run makes the same decisions in each round: what is
measured is, for each step, the median of the rounds, and the mean of all steps. What is modelled is the
median of the rounds. The report also has the least and greatest error of a round.

No model knows what the host of a virtual machine gives to others. A probe or a live run from which it
took more than --stolen percent of the processors' time is made again after a pause, up to --attempts in
all; the least disturbed counts, and the report says how much was taken from it.
"""

import argparse
import contextlib
import csv
import fcntl
import hashlib
import json
import math
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time

from kvreplay import calls, result_tables, stolen_time
from kvreplay.command_line import Parser, exit_code, number
from kvreplay.config_json import read_json
from kvreplay.errors import UserError, reason, unknown
from kvreplay.source_tree import TOP

SYSTEMS = ("in_memory", "flexgen", "quest", "clusterkv", "kvswap", "dynakv", "infinigen_star_ru",
           "shadowkv")
COLUMNS = {"latency_ms": "latency_us", "compute_ms": "compute_us", "io_ms": "busy_io_us",
           "exposed_io_ms": "exposed_io_us"}  # and those of a live run's steps.csv
TABLE_COLUMNS = ("latency_ms", "compute_ms", "io_ms")
BLOCK, DEPTH = 4096, 32  # what live takes by default: the unit of its requests, and how many
GOAL_MEDIAN = 0.10
GOAL_GREATEST = 0.25
GOAL_FIRST_TOKEN = 0.20
PAUSE_S = 10  # between attempts: what takes the time often lasts for seconds
STOLEN = "stolen.json"  # in a round's folder: shares by result


def tell(text):
    print(f"kvreplay: {text}", file=sys.stderr, flush=True)


def call(*words):
    calls.execute([calls.program(), *words], quiet=True)


def has_budget(system):
    return "budget_tokens" in system.get("selection", {})


def needs_matrices(system):
    return system["scoring"]["part"] in ("low_rank", "pca")


def in_memory(system):
    return system["cache"]["part"] == "resident"


def config_file(option, given):
    """The file of a device or platform, which is given by name or as a file."""
    kind = f"{option}s"
    if pathlib.Path(given).is_file():
        return pathlib.Path(given)
    named = TOP / "configs" / kind / f"{given}.json"
    if "/" not in given and named.exists():
        return named
    if "/" in given or given.endswith(".json"):
        raise UserError(f"--{option}: there is no file {given}; allowed: a name of `kvreplay list {kind}`, "
                        f"or a JSON file such as configs/{kind} holds")
    raise unknown(f"--{option}", option, given,
                  sorted(file.stem for file in (TOP / "configs" / kind).glob("*.json")))


def shape_of(options):
    name = options.model_config or options.model
    if name.endswith(".json"):
        return str(pathlib.Path(name).resolve())
    if not (TOP / "configs" / "models" / f"{name}.json").exists():
        raise UserError(f"--model-config: no model {name}; allowed: a name of `kvreplay list models`, "
                        "or a file of that kind")
    return name


def weight_bits(platform):
    """Of the model file that was probed: a config has those of the published weights."""
    kernels = read_json(platform).get("kernels", {})
    return [f"model.weight_bits={kernels['weight_bits']:g}"] if "weight_bits" in kernels else []


def text_words(options, file):
    return ["--token-ids" if options.token_ids else "--text", file]


def target_words(options):
    return ["--allow-destructive"] if options.allow_destructive else ["--create", options.create]


def scratch_words(options):
    if options.allow_destructive:
        return ["--scratch", options.target, "--allow-destructive"]
    return ["--scratch", f"{options.target}.scratch"]


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def measure_result(options, folder, result, what, run):
    """Makes `result`, a file or folder in the round's folder, by run(path), unless it is there."""
    if result.exists():
        return
    tell(what)
    result.parent.mkdir(parents=True, exist_ok=True)
    trial, best = result.with_name(f"trial-{result.name}"), result.with_name(f"best-{result.name}")
    remove(best)
    least = math.inf
    for attempt in range(1, options.attempts + 1):
        remove(trial)
        before = stolen_time.ticks()
        run(trial)
        share = stolen_time.share(before, stolen_time.ticks())
        if share < least:
            least = share
            remove(best)
            trial.rename(best)
        if share <= options.stolen / 100:
            break
        again = attempt < options.attempts
        tell(f"the host took {share * 100:.0f} % of the processors' time" +
             ("; it is made again" if again else ""))
        if again:
            time.sleep(PAUSE_S)
    remove(trial)
    shares = stolen_shares(folder)
    shares[str(result.relative_to(folder))] = least
    (folder / STOLEN).write_text(json.dumps(shares, indent=2) + "\n", encoding="utf-8")
    best.rename(result)


def stolen_shares(folder):
    return read_json(folder / STOLEN) if (folder / STOLEN).exists() else {}


def measure_disk(options, out):
    if options.device:
        return config_file("device", options.device)
    device = out / "device.json"
    if not device.exists():
        probe = out / "probe.json"
        measure_result(options, out, probe, "measuring the target", lambda path: call(
            "device", "probe", options.target, *target_words(options), "--size", "4K,16K,64K,256K,512K",
            "--depth", "1,2,4,8,16,32", "--mix", "0,100", "--rounds", 3, "--scattered-pages", "--seconds",
            options.probe_seconds, "--out", path))
        tell("fitting the device")
        call("device", "calibrate", probe, "--part", "best", "--out", device)
    return device


def measure_processor(options, cells, folder):
    if options.platform:
        return config_file("platform", options.platform)
    platform = folder / "platform.json"
    names = list(dict.fromkeys(name for name, _, system in cells if not in_memory(system)))
    measure_result(options, folder, platform, "measuring the processor", lambda path: call(
        "platform", "probe", "--model", options.model, "--threads", options.threads, "--seconds",
        options.probe_seconds, *scratch_words(options), *(["--systems", ",".join(names)] if names else []),
        "--out", path))
    return platform


def record_text(options, out):
    trace = out / "text.kvtrace.h5"
    if trace.exists():
        return trace
    tell("recording the text")
    plain = out / "plain.kvtrace.h5"
    if not plain.exists():
        call("record", "--model", options.model, *text_words(options, options.text), "--prompt",
             options.prompt, "--steps", options.steps, "--threads", options.threads, "--out", plain)
    if options.adapter_text:
        other = out / "other.kvtrace.h5"
        if not other.exists():
            call("record", "--model", options.model, *text_words(options, options.adapter_text),
                 "--prompt", options.prompt, "--steps", 1, "--threads", options.threads, "--out",
                 other)
        call("adapt", other, plain, trace)
    else:
        plain.rename(trace)
    return trace


def label_of(cell):
    name, budget, _ = cell
    return name if budget is None else f"{name}-{budget}"


def live_words(options, cell, trace):
    name, budget, system = cell
    words = ["live", "--model", options.model, *text_words(options, options.text), "--system", name,
             "--prompt", options.prompt, "--steps", options.steps, "--threads", options.threads, "--quiet"]
    if budget is not None:
        words += ["--budget", budget]
    if needs_matrices(system) and trace is not None:
        words += ["--adapters", trace]
    if not in_memory(system):
        words += ["--target", options.target, *target_words(options)]
    return words


def own_trace(options, out, cell, trace):
    """What the system's own queries were live. The run that records them is not the one that counts."""
    own = out / "own" / f"{label_of(cell)}.kvtrace.h5"
    if own.exists():
        return own
    tell(f"recording: {label_of(cell)}")
    own.parent.mkdir(exist_ok=True)
    matrices = needs_matrices(cell[2])
    recorded = own.with_name("recorded.kvtrace.h5") if matrices else own
    recorded.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        call(*live_words(options, cell, trace), "--record", recorded, "--out",
             pathlib.Path(folder) / "live")
    if matrices:
        call("adapt", out / "other.kvtrace.h5", recorded, own)
        recorded.unlink()
    return own


def run_both(options, out, cell, device, platform, trace):
    """The live steps' numbers, the simulated means, and both times until the first token."""
    name, budget, system = cell
    label = label_of(cell)
    live, simulated = out / "live" / label, out / "simulated" / label
    simulated.parent.mkdir(parents=True, exist_ok=True)
    measure_result(options, out, live, f"live: {label}",
                   lambda path: call(*live_words(options, cell, trace), "--out", path))
    if not simulated.exists():
        if options.same_decisions and not in_memory(system):
            trace = own_trace(options, pathlib.Path(options.out), cell, trace)
        tell(f"simulated: {label}")
        sets = [f"trace={trace}", f"system={name}", f"model={shape_of(options)}",
                f"platform={platform.resolve()}", f"device={device.resolve()}", "batch=1",
                "timed_steps=0", "warm_up_steps=0", f"device.logical_block_bytes={BLOCK}",
                f"device.queue_depth={DEPTH}", *weight_bits(platform)]
        if budget is not None:
            sets.append(f"system.selection.budget_tokens={budget}")
            if "budget_share" in system["selection"]:
                sets.append("system.selection.budget_share=0")
        if not in_memory(system):
            sets.append("system.stream.index=stored")
        experiment = out / "experiment.json"
        experiment.write_text(json.dumps({
            "title": "One system, as it ran live", "trace": str(trace.resolve()), "system": name,
            "model": shape_of(options), "platform": str(platform.resolve()),
            "device": str(device.resolve())}), encoding="utf-8")
        call("run", experiment, *[word for value in sets for word in ("--set", value)], "--format",
             "none", "--out", simulated)
    row = row_of(simulated)
    first_token = (read_json(live / "manifest.json").get("prompt_s", math.nan) * 1e3,
                   float(row.get("ttft_ms", math.nan)))
    return steps_of(live, options.steps), numbers_of(row), first_token


def row_of(folder):
    frame = result_tables.results(folder)
    missing = {"latency_ms", "compute_ms", "exposed_io_ms", "hidden_io_ms"} - set(frame)
    if len(frame) != 1 or missing:
        raise UserError(f"{folder}/results.csv: is not one whole row; allowed: remove {folder}, and it is "
                        "run again")
    return frame.iloc[0]


def numbers_of(row):
    exposed, hidden = float(row["exposed_io_ms"]), float(row["hidden_io_ms"])
    return {"latency_ms": float(row["latency_ms"]), "compute_ms": float(row["compute_ms"]),
            "io_ms": exposed + hidden, "exposed_io_ms": exposed}


def error(modelled, measured):
    return modelled / measured - 1 if measured > 0 else math.nan


def steps_of(live, count):
    """The numbers of each of `count` steps."""
    steps = []
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError), \
            open(live / "steps.csv", encoding="utf-8", newline="") as stream:
        steps = [{column: float(row[name]) / 1e3 for column, name in COLUMNS.items()}
                 for row in csv.DictReader(stream)]  # TypeError: a line that ends early
    if len(steps) != count:
        raise UserError(f"{live}/steps.csv: does not hold {counted(count, 'step')} of a live run; allowed: "
                        f"remove {live}, and it is run again")
    return steps


def combine(cell, rounds):
    """One row of (live steps, simulated means) of each round. A stall is in a step of one round, so
    that the median of the rounds does not have it."""
    def mean(column, steps):
        return statistics.fmean(step[column] for step in steps)

    same_steps = list(zip(*(steps for steps, _ in rounds)))
    measured = {c: statistics.fmean(statistics.median(step[c] for step in same) for same in same_steps)
                for c in COLUMNS}
    modelled = {c: statistics.median(numbers[c] for _, numbers in rounds) for c in COLUMNS}
    errors = {c: [error(numbers[c], mean(c, steps)) for steps, numbers in rounds] for c in COLUMNS}
    return {"system": cell[0], "budget": cell[1], "measured": measured, "modelled": modelled,
            "error": {c: error(modelled[c], measured[c]) for c in COLUMNS},
            "least": {c: min(errors[c]) for c in COLUMNS},
            "greatest": {c: max(errors[c]) for c in COLUMNS}}


def counted(number, what):
    return f"{number} {what}" + ("" if number == 1 else "s")


def error_text(row, column):
    if math.isnan(row["error"][column]):
        return "-"
    text = f"{row['error'][column] * 100:+.1f} %"
    if row["least"][column] == row["greatest"][column]:  # of one round
        return text
    return f"{text} ({row['least'][column] * 100:+.0f} to {row['greatest'][column] * 100:+.0f})"


def table(rows):
    lines = ["| system | budget | " +
             " | ".join(f"{c.removesuffix('_ms')} measured, ms | modelled, ms | error" for c in
                        TABLE_COLUMNS) + " |", "|---|---:|" + "---:|" * 9]
    for row in rows:
        cells = [row["system"], "-" if row["budget"] is None else str(row["budget"])]
        for column in TABLE_COLUMNS:
            cells += [f"{row['measured'][column]:.2f}", f"{row['modelled'][column]:.2f}",
                      error_text(row, column)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def first_token_table(found):
    """Until the prompt is computed and written; found: by (system, budget), (measured, modelled) in
    milliseconds of each round."""
    rows, errors = [], {}
    for (system, budget), rounds in found.items():
        each = [error(modelled, measured) for measured, modelled in rounds]
        if any(map(math.isnan, each)):
            continue
        label = f"{system} {budget or ''}".strip()
        errors[label] = statistics.median(each)
        measured, modelled = (statistics.median(pair[side] for pair in rounds) for side in (0, 1))
        rows.append(f"| {label} | {measured:.0f} | {modelled:.0f} | {errors[label] * 100:+.1f} % |")
    if not rows:
        return ""
    median = statistics.median(abs(value) for value in errors.values())
    beyond = [f"{key} {value * 100:+.0f} %" for key, value in errors.items()
              if abs(value) > GOAL_FIRST_TOKEN]
    return "\n".join(["| system | first token measured, ms | modelled, ms | error |",
                      "|---|---:|---:|---:|", *rows, "",
                      f"- first token: median error {median * 100:.1f} %; beyond "
                      f"{GOAL_FIRST_TOKEN * 100:.0f} %: {', '.join(beyond) if beyond else 'none'}"])


def verdicts(rows):
    lines = []
    for column in TABLE_COLUMNS:
        errors = {f"{row['system']} {row['budget'] or ''}".strip(): row["error"][column]
                  for row in rows if not math.isnan(row["error"][column])}
        if not errors:
            continue
        median = statistics.median(abs(e) for e in errors.values())
        worst = max(errors, key=lambda key: abs(errors[key]))
        beyond = [f"{key} {value * 100:+.0f} %" for key, value in errors.items()
                  if abs(value) > GOAL_GREATEST]
        lines.append(f"- {column.removesuffix('_ms')}: median error {median * 100:.1f} % (goal "
                     f"{GOAL_MEDIAN * 100:.0f} %), greatest {errors[worst] * 100:+.1f} % ({worst}); beyond "
                     f"{GOAL_GREATEST * 100:.0f} %: {', '.join(beyond) if beyond else 'none'}")
    return "\n".join(lines)


def drift_text(rows, cells):
    """What changed between the probe and the runs, by a system that does little but what it probed."""
    for row, cell in zip(rows, cells):
        if in_memory(cell[2]):
            return (f"- {row['system']} reads nothing and computes hardly more than what the probe timed: of "
                    f"the errors, {row['error']['compute_ms'] * 100:+.1f} % of computation is that the "
                    "machine's speed changed in between, or the probe is off")
    return ""


def stolen_text(options, folders):
    """What the host took from the results that count; nothing where it took nothing."""
    shares = {f"{folder.name}/{name}": share for folder in folders
              for name, share in stolen_shares(folder).items()}
    if not any(shares.values()):
        return ""
    most = max(shares, key=shares.get)
    above = [f"{name} {share * 100:.0f} %" for name, share in shares.items()
             if share > options.stolen / 100]
    return (f"- processors' time that the host gave to others: median "
            f"{statistics.median(shares.values()) * 100:.1f} %, most {shares[most] * 100:.1f} % ({most}); "
            f"above {options.stolen:g} % after {counted(options.attempts, 'attempt')}: "
            f"{', '.join(above) if above else 'none'}")


def parse_arguments():
    parser = Parser(prog="kvreplay validate", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model of fetch-model by name")
    parser.add_argument("--model-config", metavar="NAME",
                        help="its shape in configs/models (default: of the same name)")
    parser.add_argument("--text", required=True, metavar="FILE", help="the text that all runs follow")
    parser.add_argument("--token-ids", action="store_true",
                        help="texts are token ids, separated by white space")
    parser.add_argument("--adapter-text", metavar="FILE",
                        help="another text, for the matrices that some systems need; without it they "
                             "are left out")
    parser.add_argument("--target", required=True, metavar="FILE",
                        help="a new file on the disk that is meant; it is made for each measurement")
    parser.add_argument("--create", default="1GiB", metavar="SIZE", help="its size (default: 1GiB)")
    parser.add_argument("--allow-destructive", action="store_true",
                        help="the target is there, a file or block device of 256 MiB or more, and what "
                             "it holds may be lost")
    parser.add_argument("--systems", default=",".join(SYSTEMS), metavar="NAME,NAME",
                        help="(default: %(default)s)")
    parser.add_argument("--budgets", default="128,256", metavar="N,N",
                        help="token budgets of the systems that have one (default: 128,256)")
    parser.add_argument("--prompt", type=number(int), default=1024, help="(default: 1024)")
    parser.add_argument("--steps", type=number(int), default=64, help="(default: 64)")
    parser.add_argument("--threads", type=number(int), default=1,
                        help="threads of the products (default: 1)")
    parser.add_argument("--probe-seconds", type=number(float), default=0.5,
                        help="time of each measured point (default: 0.5)")
    parser.add_argument("--same-decisions", action="store_true",
                        help="simulate each system on the queries of a further live run of it, so that "
                             "both read the same; without it, all follow the text under full attention")
    parser.add_argument("--rounds", type=number(int), default=1,
                        help="how often disk and processor are measured and every system run (default: 1)")
    parser.add_argument("--stolen", type=number(float), default=5, metavar="PERCENT",
                        help="of the processors' time: a measurement from which the host of this virtual "
                             "machine took more is made again (default: 5)")
    parser.add_argument("--attempts", type=number(int), default=3, metavar="N",
                        help="how often it is made at most; the least disturbed counts (default: 3)")
    parser.add_argument("--device", metavar="NAME|FILE",
                        help="a fitted device, in place of a measured one")
    parser.add_argument("--platform", metavar="NAME|FILE",
                        help="a platform, in place of a measured one")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the results")
    return parser.parse_args()


def sha256(file):
    try:
        return hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{file}: {reason(error)}; allowed: a file that can be read") from None


def check_numbers(options):
    """Before anything is measured."""
    for name, least, most in (("prompt", 1, 1 << 30), ("steps", 1, 1 << 30), ("threads", 1, 1024),
                              ("rounds", 1, 1000), ("attempts", 1, 1000), ("probe_seconds", 0.01, 3600),
                              ("stolen", 0, 100)):
        if not least <= getattr(options, name) <= most:
            raise UserError(f"--{name.replace('_', '-')}: found {getattr(options, name)}; allowed: a "
                            f"number from {least} to {most}")
    for name in ("device", "platform"):
        if getattr(options, name):
            config_file(name, getattr(options, name))


def check_target(options):
    """New files must be new; what may be overwritten must be there."""
    target = pathlib.Path(options.target)
    if options.allow_destructive:
        if not target.exists():
            raise UserError(f"--target: there is no {target}; allowed with --allow-destructive: a file or "
                            "block device that is there")
        return
    for file in (target, pathlib.Path(f"{target}.scratch")):
        if file.exists():
            raise UserError(f"--target: {file} is there already; allowed: a new file, or "
                            "--allow-destructive")
    if not target.absolute().parent.is_dir():
        raise UserError(f"--target: there is no folder {target.absolute().parent}; allowed: a file in a "
                        "folder that is there")


def check_runs(options, cells):
    """Whether live can run each system at these lengths, with this model, its config and this target:
    it says so without a run, as it would after minutes of measuring."""
    for name in dict.fromkeys(name for name, _, _ in cells):
        cell = next(cell for cell in cells if cell[0] == name)
        call(*live_words(options, cell, None), "--model-config", shape_of(options), "--dry-run")
    if options.adapter_text:
        call("live", "--model", options.model, *text_words(options, options.adapter_text), "--system",
             "in_memory", "--prompt", options.prompt, "--steps", 1, "--dry-run")


def check_kinds(options):
    """A file of another kind is refused before anything is measured."""
    for option, member in (("device", "queue_depth"), ("platform", "compute_gflop_s")):
        given = getattr(options, option)
        if not given:
            continue
        file = config_file(option, given)
        if not {member, "base"} & set(read_json(file)):
            raise UserError(f"{file}: found no {option}; allowed: a file with the member {member}, or with a "
                            "base that has it")


def check_platform(options):
    """A platform that was not measured as the runs are is told, and taken."""
    if not options.platform:
        return
    source = str(read_json(config_file("platform", options.platform)).get("source", ""))
    measured = re.search(r"platform probe --model (\S+) --threads (\d+)", source)
    if not measured:
        tell(f"warning: {options.platform} is no measurement of `kvreplay platform probe`")
        return
    model, threads = measured[1], int(measured[2])
    if threads != options.threads:
        tell(f"warning: {options.platform} was measured with {counted(threads, 'thread')}, and the runs have "
             f"{options.threads}")
    if model != pathlib.Path(options.model).stem:
        tell(f"warning: {options.platform} was measured with {model}, and the runs are of {options.model}")


def open_folder(options):
    """The folder of the results. What it holds is taken up again where it was measured with the same
    settings; --systems, --budgets and --rounds may grow."""
    out = pathlib.Path(options.out)
    file = out / "settings.json"
    settings = {name: getattr(options, name) for name in
                ("model", "token_ids", "create", "prompt", "steps", "threads", "probe_seconds",
                 "same_decisions")}
    settings["model_config"] = shape_of(options)
    settings["target"] = str(pathlib.Path(options.target).absolute())
    for name in ("text", "adapter_text", "device", "platform"):
        given = getattr(options, name)
        if given and name in ("device", "platform"):
            given = config_file(name, given)
        settings[f"{name}_sha256"] = sha256(given) if given else None
    try:
        if not file.exists():
            if out.exists() and any(out.iterdir()):
                raise UserError(f"{out}: is not empty, and no folder of `kvreplay validate`; allowed: a "
                                "new folder, or one of an earlier validate")
            out.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), open(file, "x", encoding="utf-8") as stream:
                try:
                    stream.write(json.dumps(settings, indent=2) + "\n")  # whoever was faster has the folder
                    stream.flush()
                except OSError:
                    file.unlink()
                    raise
    except OSError as error:
        raise UserError(f"{out}: {reason(error)}; allowed: a folder that can be made") from None
    before = read_json(file)
    if not isinstance(before, dict):
        raise UserError(f"{file}: found no settings; allowed: those of `kvreplay validate`, or a new folder")
    for name, value in settings.items():
        if before.get(name) != value:
            raise UserError(f"{out}: measured with {name} = {before.get(name)}, now {value}; allowed: the "
                            "same settings, or a new folder")
    return out


def main():
    options = parse_arguments()
    shape_of(options)
    check_numbers(options)
    try:
        budgets = [int(word) for word in options.budgets.split(",")]
    except ValueError:
        budgets = [0]
    if min(budgets) < 1:
        raise UserError(f"--budgets: found {options.budgets}; allowed: whole numbers above 0, N,N")
    cells, left_out = [], []
    for name in dict.fromkeys(options.systems.split(",")):
        file = TOP / "configs" / "systems" / f"{name}.json"
        if not file.exists():
            raise UserError(f"--systems: no system {name}; allowed: a name of `kvreplay list systems`")
        system = read_json(file)
        if needs_matrices(system) and not options.adapter_text:
            left_out.append(name)
            continue
        for budget in dict.fromkeys(budgets) if has_budget(system) else [None]:
            cells.append((name, budget, system))
    if not cells:
        raise UserError(f"--systems: {', '.join(left_out)} need matrices; allowed: --adapter-text, or other "
                        "systems")
    check_target(options)
    check_runs(options, cells)
    check_kinds(options)
    check_platform(options)
    out = open_folder(options)
    with open(out / "settings.json", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{out}: another validate writes there; allowed: a new folder, or when it has "
                            "ended") from None
        return measure(options, out, cells, left_out)


def measure(options, out, cells, left_out):
    trace = record_text(options, out)
    found, first_tokens, folders = {}, {}, []
    for number_of_round in range(1, options.rounds + 1):
        folder = out / f"round-{number_of_round}"
        folder.mkdir(exist_ok=True)
        folders.append(folder)
        device = measure_disk(options, folder)
        platform = measure_processor(options, cells, folder)
        for cell in cells:
            *both, first_token = run_both(options, folder, cell, device, platform, trace)
            found.setdefault(cell[:2], []).append(both)
            first_tokens.setdefault(cell[:2], []).append(first_token)
    rows = [combine(cell, found[cell[:2]]) for cell in cells]
    with open(out / "errors.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["system", "budget",
                         *[f"{side}_{c}" for c in COLUMNS for side in ("measured", "modelled")],
                         *[f"{c.removesuffix('_ms')}_{what}" for c in COLUMNS
                           for what in ("error", "least_error", "greatest_error")]])
        for row in rows:
            writer.writerow([row["system"], "" if row["budget"] is None else row["budget"],
                             *[row[side][c] for c in COLUMNS for side in ("measured", "modelled")],
                             *[row[what][c] for c in COLUMNS
                               for what in ("error", "least", "greatest")]])
    device = f", device {pathlib.Path(options.device).name}" if options.device else ""
    heading = (f"# {options.model}: modelled against measured\n\n{options.prompt} tokens of prompt, "
               f"{counted(options.steps, 'step')}, {counted(options.rounds, 'round')}, "
               f"{counted(options.threads, 'thread')}, target {options.target}{device}.")
    findings = (verdicts(rows), drift_text(rows, cells), stolen_text(options, folders))
    parts = [heading, table(rows), "\n".join(filter(None, findings)), first_token_table(first_tokens)]
    if left_out:
        parts.append("Left out, because they need --adapter-text: " + ", ".join(left_out))
    report = "\n\n".join(filter(None, parts)) + "\n"
    (out / "report.md").write_text(report, encoding="utf-8")
    from kvreplay import plot_style, plot_validation  # their backend takes half a second
    plot_style.save(plot_validation.draw(rows), out / "validation")
    print(report, end="")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code("kvreplay", main))
