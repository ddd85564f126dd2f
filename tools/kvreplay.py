"""kvreplay from Python: results, access logs and traces as pandas frames and numpy arrays.

    import sys; sys.path.insert(0, "tools")  # of the source tree; or PYTHONPATH=tools
    import kvreplay

    folder = kvreplay.run("first", {"device": "ufs40"})
    kvreplay.pareto_front(kvreplay.results(folder), maximise=["tokens_per_s", "attention_mass"])

It calls the built program and reads its files, and decides nothing itself. docs/python.md shows
more; docs/metrics.md, docs/trace-format.md and docs/access-log.md define what is read.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping

import h5py
import numpy
import pandas

TOP = pathlib.Path(__file__).resolve().parents[1]
PathLike = str | os.PathLike

# By number, in access logs.
EVENTS = ("created", "appended", "split", "buffered", "sealed", "evicted", "dissolved", "loaded",
          "re-encoded")
BUFFERED = -1  # in the place of a group: in memory, outside groups
LOG = "a log of `kvreplay run --access-log`"


class Error(Exception):
    """A user's mistake in one line: where, what was found, what is allowed."""


def _unknown(where: object, kind: str, name: object, allowed: Iterable[object]) -> Error:
    names = [str(one) for one in allowed]
    near = difflib.get_close_matches(str(name), names, n=1)
    return Error(f"{where}: no {kind} {name}; allowed: "
                 + (f"{near[0]}, or another of " if near else "") + (", ".join(names) or "none"))


def _reason(error: Exception) -> str:
    """What an error of Python or of a library says, in one line."""
    said = getattr(error, "strerror", None) or str(error.args[0] if error.args else error)
    return (said.strip().splitlines() or [type(error).__name__])[0]


def _names(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


# --- The program ---------------------------------------------------------------------------------

def program() -> pathlib.Path:
    """The built kvreplay: $KVREPLAY, $KVREPLAY_PROGRAM (as tests name it), the source tree's build,
    or the one on PATH."""
    for name in ("KVREPLAY", "KVREPLAY_PROGRAM"):
        if os.environ.get(name):
            found = shutil.which(os.environ[name])
            if found is None:
                raise Error(f"${name}: {os.environ[name]} cannot be run; allowed: a built kvreplay")
            return pathlib.Path(found)
    built = [TOP / "build" / preset / "kvreplay" for preset in ("release", "dev")]
    for file in [*built, shutil.which("kvreplay")]:
        if file and os.access(file, os.X_OK):
            return pathlib.Path(file)
    raise Error(f"{built[0]}: not built; allowed: build it (`cmake --preset release && cmake "
                "--build --preset release`), or name one in $KVREPLAY")


def _execute(arguments: Iterable[object]) -> tuple[str, str]:
    """Standard output and error of the program; what it says on the way is shown at once."""
    words = [str(word) for word in (program(), *arguments)]
    said = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            process = subprocess.Popen(words, stdout=output, stderr=subprocess.PIPE, text=True,
                                       errors="replace")
        except (OSError, ValueError) as error:  # no program; a NUL in an argument
            raise Error(f"{words[0]}: cannot be run ({_reason(error)}); allowed: a built kvreplay "
                        "and words of its command line") from None
        with process:
            for line in process.stderr:
                said.append(line)
                sys.stderr.write(line)
        if process.returncode != 0:
            last = said[-1].strip() if said else f"failed ({process.returncode})"
            raise Error(last.removeprefix("kvreplay: "))
        output.seek(0)
        return output.read(), "".join(said)


def call(*arguments: object) -> str:
    """What `kvreplay ARGUMENTS` prints. Progress goes to standard error; a failure is an Error with
    the program's message."""
    return _execute(arguments)[0]


def settings_words(settings: Mapping[str, object]) -> list[str]:
    """`--set KEY=VALUE` for each: a text as it is, a list as its values, a range as an object."""
    def text(value: object) -> str:
        if isinstance(value, (list, tuple)):
            return ",".join(text(item) for item in value)
        if isinstance(value, (str, os.PathLike)):
            return str(value)
        try:
            return json.dumps(value, default=_plain)
        except (TypeError, ValueError):
            raise Error(f"settings: found {type(value).__name__} {value}; allowed: a text, a "
                        'number, a list of them, or a range such as {"from": 1, "to": 8}') from None

    return [word for key, value in settings.items() for word in ("--set", f"{key}={text(value)}")]


def _replay(command: str, experiment: PathLike, settings: Mapping[str, object] | None,
            options: Iterable[object], out: PathLike | None) -> pathlib.Path:
    where = [] if out is None else ["--out", out]
    _, said = _execute([command, experiment, "--format", "none", *settings_words(settings or {}),
                        *options, *where])
    folders = re.findall(r"^kvreplay: results in (.*) \(.*\)$", said, re.MULTILINE)
    if not folders:
        raise Error(f"{command}: made no folder of results; allowed: options with which it does; "
                    f"call(\"{command}\", ...) takes all")
    return pathlib.Path(folders[-1])


def run(experiment: PathLike, settings: Mapping[str, object] | None = None, *options: object,
        out: PathLike | None = None) -> pathlib.Path:
    """`kvreplay run`: replays an experiment (a name of configs/experiments, or a file) with some of
    its settings replaced. `options` are further words of the command line, such as "--access-log".

    Returns the folder of results: `out`, which must be new, or results/EXPERIMENT, numbered when
    taken."""
    return _replay("run", experiment, settings, options, out)


def sweep(experiment: PathLike, settings: Mapping[str, object] | None = None, *options: object,
          out: PathLike | None = None) -> pathlib.Path:
    """`kvreplay sweep`: as run(), and keeps every finished piece in a cache for the next time."""
    return _replay("sweep", experiment, settings, options, out)


# --- Results -------------------------------------------------------------------------------------

def _table(folder: PathLike, name: str, commands: str) -> pandas.DataFrame:
    file = pathlib.Path(folder) / name
    try:
        # Only an empty field is none: "none" and "null" are names like any other.
        frame = pandas.read_csv(file, keep_default_na=False, na_values=[""],
                                float_precision="round_trip")
    except (OSError, ValueError) as error:
        raise Error(f"{file}: {_reason(error)}; allowed: the folder of {commands}") from None
    if "system" not in frame:
        raise Error(f"{file}: no column system; allowed: the folder of {commands}")
    return frame


def results(folder: PathLike) -> pandas.DataFrame:
    """results.csv of a `kvreplay run` or `sweep`: one row a cell. docs/metrics.md defines the
    columns. Names end in the unit (_ms, _bytes, _per_s); shares are 0 to 1; empty fields NaN."""
    return _table(folder, "results.csv", "`kvreplay run` or `kvreplay sweep`")


def quality(folder: PathLike) -> pandas.DataFrame:
    """quality.csv of a `kvreplay run` or `sweep`: one row a trace, system and recorded layer, means
    over steps and query heads."""
    return _table(folder, "quality.csv", "`kvreplay run` or `kvreplay sweep`")


def closed_loop(folder: PathLike) -> pandas.DataFrame:
    """closed_loop.csv of a `kvreplay evaluate`: one row a system and budget."""
    return _table(folder, "closed_loop.csv", "`kvreplay evaluate`")


def front(folder: PathLike) -> pandas.DataFrame:
    """front.csv of a `kvreplay tune`: one row a composition that meets the limits and that no other
    beats, with the columns of results(); by role the part it has (`grouping` ... `pipeline`), and
    `composition`, the JSON of its system."""
    return _table(folder, "front.csv", "`kvreplay tune`")


def evaluated(folder: PathLike) -> pandas.DataFrame:
    """evaluated.csv of a `kvreplay tune`: as front(), every composition that was replayed;
    `feasible` and `front` are 1 or 0."""
    return _table(folder, "evaluated.csv", "`kvreplay tune`")


def manifest(folder: PathLike) -> dict:
    """How a folder's results were made: configuration, hashes, versions, host."""
    file = pathlib.Path(folder) / "manifest.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Error(f"{file}: {_reason(error)}; allowed: the folder of a `kvreplay` "
                    "command") from None


def pareto_front(frame: pandas.DataFrame, maximise: str | Iterable[str] = (),
                 minimise: str | Iterable[str] = (),
                 within: str | Iterable[str] = ()) -> pandas.DataFrame:
    """The rows that no other row beats, in their order, with their index.

    A row beats another where it is at least as good in every column of `maximise` and `minimise`
    and better in one; equal rows stay together. Only rows alike in every column of `within` (such
    as "device") are compared. Rows without a number in one of the objectives are left out."""
    maximise, minimise, within = _names(maximise), _names(minimise), _names(within)
    if not maximise and not minimise:
        raise Error("pareto_front: no objective; allowed: columns to maximise or minimise")
    for column in (*maximise, *minimise, *within):
        if column not in frame:
            raise _unknown("pareto_front", "column", column, frame.columns)
    for column in (*maximise, *minimise):
        if not pandas.api.types.is_numeric_dtype(frame[column]):
            raise Error(f"pareto_front: column {column} holds {frame[column].dtype}; allowed: "
                        "numbers")
    rated = frame.dropna(subset=[*maximise, *minimise])
    costs = numpy.column_stack([-rated[maximise].to_numpy(float), rated[minimise].to_numpy(float)])
    kinds = list(zip(*(rated[column].astype(str) for column in within))) or [()] * len(rated)
    kept = numpy.zeros(len(rated), bool)
    for kind in set(kinds):
        places = numpy.array([place for place, other in enumerate(kinds) if other == kind])
        peers = costs[places]
        for place in places:
            beaten = (peers <= costs[place]).all(1) & (peers < costs[place]).any(1)
            kept[place] = not beaten.any()
    return rated[kept]


# --- HDF5 files ----------------------------------------------------------------------------------

@contextlib.contextmanager
def _reading(where: object, allowed: str):
    """What h5py raises of a missing, cut or foreign member becomes an Error."""
    try:
        yield
    except Error:
        raise
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise Error(f"{where}: {_reason(error)}; allowed: {allowed}") from None


class _File:
    """An HDF5 file of kvreplay's, open for reading; `with` closes it."""

    def __init__(self, path: PathLike, form: str, needed: Iterable[str], what: str) -> None:
        self.path, self._what = pathlib.Path(path), what
        if not self.path.exists():
            raise Error(f"{self.path}: no such file; allowed: {what}")
        with self._reading():
            self.file = h5py.File(self.path, "r")
            #: Attributes of the root, as Python's own types and numpy arrays.
            self.attributes = {name: _plain(value) for name, value in self.file.attrs.items()}
        found = self.attributes.get("format", "none")
        missing = [name for name in needed if name not in self.attributes]
        if found != form or missing:
            self.close()
            wrong = f"format is {found}" if found != form else f"no attribute {missing[0]}"
            raise Error(f"{self.path}: {wrong}; allowed: {what}")

    def _reading(self):
        return _reading(self.path, self._what)

    def close(self) -> None:
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _layer(self, layer: int, layers: list[int]) -> h5py.Group:
        if layer not in layers:
            raise _unknown(self.path, "layer", layer, layers)
        with self._reading():
            return self.file[f"layer/{layer:02}"]


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, numpy.generic) else value


def _at(where: object, kind: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise Error(f"{where}: no {kind} {number}; allowed: 0 to {count - 1}")


# --- Traces --------------------------------------------------------------------------------------

class Vectors:
    """Keys, values or queries of a layer, [heads, positions, head_dim]. Indexing reads that range
    from the file, as float32; numpy.asarray(vectors) reads all."""

    def __init__(self, data: h5py.Dataset, brain_float: bool) -> None:
        self._data, self._brain_float = data, brain_float
        self.shape: tuple[int, int, int] = data.shape
        #: The position in the text of index 0: above 0 for queries, of which the latest are kept.
        self.first_position = int(data.attrs.get("query_start", 0))

    def __getitem__(self, where) -> numpy.ndarray:
        try:
            stored = numpy.asarray(self._data[where])
        except OSError as error:
            raise Error(f"{self._data.file.filename}: {self._data.name}: {_reason(error)}; "
                        "allowed: a trace that `kvreplay verify` accepts") from None
        if self._brain_float:  # the upper half of a float32
            return (stored.astype(numpy.uint32) << numpy.uint32(16)).view(numpy.float32)
        return stored.astype(numpy.float32)

    def __array__(self, dtype=None) -> numpy.ndarray:
        return self[...] if dtype is None else self[...].astype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return (f"Vectors({self._data.name}, shape={self.shape}, "
                f"first_position={self.first_position})")


class Trace(_File):
    """A recording (docs/trace-format.md). Vectors stay in the file until they are indexed."""

    def __init__(self, path: PathLike) -> None:
        needed = ("complete", "model", "recorded_layers", "tokens", "prompt_tokens", "query_heads",
                  "kv_heads", "head_dim", "softmax_scale", "sliding_window", "dtype", "key_state")
        super().__init__(path, "kvtrace", needed, "a trace that `kvreplay verify` accepts")
        about = self.attributes
        self.name = self.path.name.removesuffix(".kvtrace.h5")
        self.model: str = about["model"]
        with self._reading():
            #: Those in the file, by the model's numbers.
            self.layers = [int(layer) for layer in about["recorded_layers"]]
        self.tokens: int = about["tokens"]
        self.prompt_tokens: int = about["prompt_tokens"]
        #: Step s decodes position prompt_tokens + s.
        self.steps: int = self.tokens - self.prompt_tokens
        self.query_heads: int = about["query_heads"]
        self.kv_heads: int = about["kv_heads"]
        self.head_dim: int = about["head_dim"]
        self.softmax_scale: float = about["softmax_scale"]
        self.synthetic = bool(about.get("synthetic", 0))

    def vectors(self, layer: int, name: str) -> Vectors:
        """A data set of the layer: key, value, query or query_ahead."""
        folder = self._layer(layer, self.layers)
        if name not in folder:
            raise _unknown(f"{self.path}: {folder.name}", "data set", name, folder)
        with self._reading():
            return Vectors(folder[name], self.attributes["dtype"] == "bf16")

    def keys(self, layer: int) -> Vectors:
        """[kv_heads, tokens, head_dim]; rotated by position where `key_state` is post_rope."""
        return self.vectors(layer, "key")

    def values(self, layer: int) -> Vectors:
        """[kv_heads, tokens, head_dim]"""
        return self.vectors(layer, "value")

    def queries(self, layer: int) -> Vectors:
        """[query_heads, tokens - first_position, head_dim]: of the prompt's end and every step."""
        return self.vectors(layer, "query")

    def queries_ahead(self, layer: int) -> Vectors:
        """As queries(), as predicted a layer before; not every trace has them."""
        return self.vectors(layer, "query_ahead")

    def window(self, layer: int) -> int:
        """Of how many latest positions, its own included, a token sees: 0 = all."""
        self._layer(layer, self.layers)
        windows = numpy.atleast_1d(self.attributes["sliding_window"])
        if len(windows) != len(self.layers):
            raise Error(f"{self.path}: sliding_window has {len(windows)} values; allowed: "
                        f"{len(self.layers)}, one a recorded layer")
        return int(windows[self.layers.index(layer)])

    def kv_head(self, query_head: int) -> int:
        """The KV head that a query head reads."""
        _at(self.path, "query head", query_head, self.query_heads)
        return query_head // (self.query_heads // self.kv_heads)

    def positions(self) -> pandas.DataFrame:
        """By position: token `id`; `entropy` (nats) and `top_probability` of the distribution over
        the next token, natural `log_probability` of the one that came; whether it was `decoded`."""
        names = ("id", "entropy", "top_probability", "log_probability")
        with self._reading():
            frame = pandas.DataFrame({name: self.file[f"tokens/{name}"][:] for name in names})
        frame["decoded"] = frame.index >= self.prompt_tokens
        return frame.rename_axis("position")

    def attention(self, layer: int, query_head: int, position: int) -> numpy.ndarray:
        """Weights of full attention, float64 [position + 1]; they sum to 1."""
        if self.attributes["key_state"] != "post_rope":
            raise Error(f"{self.path}: key_state is {self.attributes['key_state']}; allowed: "
                        "post_rope, by `kvreplay convert TRACE OUT --key-state post_rope`")
        queries, head = self.queries(layer), self.kv_head(query_head)
        if not queries.first_position <= position < self.tokens:
            raise Error(f"{self.path}: no query of position {position}; allowed: "
                        f"{queries.first_position} to {self.tokens - 1}")
        query = queries[query_head, position - queries.first_position].astype(float)
        begin = max(0, position + 1 - (self.window(layer) or position + 1))
        scores = self.keys(layer)[head, begin:position + 1].astype(float) @ query
        scores *= self.softmax_scale
        weights = numpy.zeros(position + 1)
        weights[begin:] = numpy.exp(scores - scores.max())
        return weights / weights.sum()

    def __repr__(self) -> str:
        mark = ", SYNTHETIC" if self.synthetic else ""
        heads = f"{self.query_heads}/{self.kv_heads} heads of {self.head_dim}"
        return (f"Trace({self.name}: {self.model}, layers {self.layers}, {self.prompt_tokens} + "
                f"{self.steps} tokens, {heads}{mark})")


def trace(path: PathLike) -> Trace:
    """Opens a .kvtrace.h5 file."""
    return Trace(path)


# --- Access logs ---------------------------------------------------------------------------------

def _ragged(values: numpy.ndarray, begins: numpy.ndarray) -> list[numpy.ndarray]:
    return [values[begin:end] for begin, end in zip(begins[:-1], begins[1:])]


class Stream:
    """What one index did in one layer: the data sets of docs/access-log.md, cut by step and row.
    Query heads are counted from the stream's first, groups in the order of their creation."""

    def __init__(self, folder: h5py.Group, log: AccessLog) -> None:
        self._folder, self._steps = folder, log.steps
        self._where = f"{log.path}: {folder.name}"
        self._read: dict[str, numpy.ndarray] = {}
        with self._reading():
            self.first_kv_head, self.kv_heads, self.query_heads, self.rows = (
                int(folder.attrs[name])
                for name in ("first_kv_head", "kv_heads", "query_heads", "rows"))
        #: The layer's number of the stream's first query head.
        self.first_query_head = self.first_kv_head * (log.query_heads // log.kv_heads)

    def _reading(self):
        return _reading(self._where, LOG)

    def data(self, name: str) -> numpy.ndarray:
        """A data set, read once."""
        if name not in self._read:
            if name not in self._folder:
                raise _unknown(self._where, "data set", name, self._folder)
            with self._reading():
                self._read[name] = self._folder[name][:]
        return self._read[name]

    def _part(self, values: str, begins: str, item: int) -> numpy.ndarray:
        begin, end = self.data(begins)[item:item + 2]
        return self.data(values)[begin:end]

    def asked(self, step: int) -> numpy.ndarray:
        """The groups that the step reads, ascending."""
        _at(self._where, "step", step, self._steps)
        return self._part("asked", "asked_begin", step)

    def picked(self, step: int, row: int = 0) -> numpy.ndarray:
        """The groups that a row picked, best first. A row is a query head, or all heads of the
        stream where `rows` is 1."""
        _at(self._where, "step", step, self._steps)
        _at(self._where, "row", row, self.rows)
        return self._part("picked", "pick_begin", step * self.rows + row)

    def attended(self, step: int, query_head: int) -> numpy.ndarray:
        """The positions that a query head attended to, ascending; the last is the step's own."""
        _at(self._where, "step", step, self._steps)
        _at(self._where, "query head", query_head, self.query_heads)
        if len(self.data("attended_begin")) == 0:
            raise Error(f"{self._where}/attended: tokens were not recorded; allowed: {LOG}")
        return self._part("attended", "attended_begin", step * self.query_heads + query_head)

    def events(self) -> pandas.DataFrame:
        """What happened to the groups, in order: `segment` (0 = the prompt, s + 1 = after the
        attention of step s), `kind` (of EVENTS), `group`, `other`, `tokens` (positions)."""
        counts = numpy.diff(self.data("event_begin"))
        return pandas.DataFrame({
            "segment": numpy.repeat(numpy.arange(self._steps + 1), counts),
            "kind": [EVENTS[kind] for kind in self.data("event_kind")],
            "group": self.data("event_group"),
            "other": self.data("event_other"),
            "tokens": _ragged(self.data("event_tokens"), self.data("event_token_begin"))})

    def placement(self, step: int) -> dict[int, numpy.ndarray]:
        """Where every token is when the step attends: positions by group, in the order in which
        they joined; under BUFFERED those in memory outside groups, ascending. Evicted ones are
        nowhere."""
        _at(self._where, "step", step, self._steps)
        events = self.events()
        groups: dict[int, dict[int, None]] = {BUFFERED: {}}  # a dict keeps the order of joining
        home: dict[int, int] = {}
        for event in events[events["segment"] <= step].itertuples():
            goals = {"created": event.group, "appended": event.group, "split": event.other,
                     "buffered": BUFFERED, "dissolved": BUFFERED, "evicted": None}
            if event.kind not in goals:
                continue
            goal, ends = goals[event.kind], event.kind == "dissolved"
            for token in list(groups[event.group]) if ends else event.tokens.tolist():
                if token in home:
                    del groups[home.pop(token)][token]
                if goal is not None:
                    groups.setdefault(goal, {})[token] = None
                    home[token] = goal
            if ends:
                del groups[event.group]
        placed = {group: numpy.array(list(held), numpy.int32) for group, held in groups.items()}
        placed[BUFFERED].sort()
        return placed


class AccessLog(_File):
    """What stage 1 decided for one system on one trace (docs/access-log.md)."""

    def __init__(self, path: PathLike) -> None:
        needed = ("system", "layers", "steps", "prompt_tokens", "query_heads", "kv_heads",
                  "trace_sha256", "decide_config")
        super().__init__(path, "kvaccess", needed, LOG)
        about = self.attributes
        self.system: str = about["system"]
        self.steps: int = about["steps"]
        self.prompt_tokens: int = about["prompt_tokens"]
        self.query_heads: int = about["query_heads"]
        self.kv_heads: int = about["kv_heads"]
        self.trace_sha256: str = about["trace_sha256"]
        with self._reading():
            self.layers = [int(layer) for layer in about["layers"]]
            #: Stage 1's parts, with every argument.
            self.config: dict = json.loads(about["decide_config"])

    def is_dense(self, layer: int) -> bool:
        """Whether the system attends to the whole layer, without groups."""
        folder = self._layer(layer, self.layers)
        with self._reading():
            return bool(folder.attrs["dense"])

    def streams(self, layer: int) -> list[Stream]:
        """One a KV head, or one for all KV heads of the layer."""
        folder = self._layer(layer, self.layers)
        with self._reading():
            return [Stream(folder[f"stream/{number}"], self)
                    for number in range(folder.attrs["streams"])]

    def attended(self, layer: int, query_head: int, step: int) -> numpy.ndarray:
        """The positions that a query head of the layer attended to, ascending."""
        _at(self.path, "query head", query_head, self.query_heads)
        for stream in self.streams(layer):
            own = query_head - stream.first_query_head
            if 0 <= own < stream.query_heads:
                return stream.attended(step, own)
        raise Error(f"{self.path}: /layer/{layer:02}: no stream has query head {query_head}; "
                    f"allowed: {LOG}")

    def selections(self, layer: int) -> pandas.DataFrame:
        """One row a step and query head of the layer: `groups` (those that its row picked, best
        first) and `attended_tokens` (how many, its own included)."""
        rows = []
        for stream in self.streams(layer):
            picked = _ragged(stream.data("picked"), stream.data("pick_begin"))
            counts = stream.data("attended_count").reshape(self.steps, stream.query_heads)
            for step, head in numpy.ndindex(counts.shape):
                row = step * stream.rows + (head if stream.rows > 1 else 0)
                rows.append((step, stream.first_query_head + head, picked[row], counts[step, head]))
        frame = pandas.DataFrame(rows, columns=["step", "query_head", "groups", "attended_tokens"])
        return frame.sort_values(["step", "query_head"], ignore_index=True)

    def quality(self, layer: int) -> pandas.DataFrame:
        """One row a step and query head: recall, attention_mass and best_attention_mass from 0 to
        1, output_error from 0 (docs/metrics.md)."""
        folder = self._layer(layer, self.layers)
        step, head = numpy.indices((self.steps, self.query_heads))
        names = ("recall", "attention_mass", "best_attention_mass", "output_error")
        with self._reading():
            measured = {name: folder["quality"][name][:].ravel() for name in names}
        return pandas.DataFrame({"step": step.ravel(), "query_head": head.ravel(), **measured})

    def __repr__(self) -> str:
        return (f"AccessLog({self.path.name}: {self.system}, layers {self.layers}, {self.steps} "
                f"steps, {self.query_heads}/{self.kv_heads} heads)")


def access_log(path: PathLike) -> AccessLog:
    """Opens an .access.h5 file."""
    return AccessLog(path)
