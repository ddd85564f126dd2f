"""Access logs: docs/access-log.md."""

from __future__ import annotations

import json
import warnings

import h5py
import numpy
import pandas

from kvreplay.errors import UserError, unknown
from kvreplay.hdf5_files import File, PathLike, check_index, reading

# By number, in access logs.
EVENTS = ("created", "appended", "split", "buffered", "sealed", "evicted", "dissolved", "loaded",
          "re-encoded")
BUFFERED = -1  # in place of a group: in memory, outside groups
VERSION = 2
LOG = "a log of `kvreplay run --access-log`"


def _ragged(values: numpy.ndarray, begins: numpy.ndarray) -> list[numpy.ndarray]:
    return [values[begin:end] for begin, end in zip(begins[:-1], begins[1:])]


def _numbers(runs: numpy.ndarray) -> numpy.ndarray:
    """A set of numbers from its bytes: variable-length integers, a gap and a length per run."""
    if len(runs) == 0:
        return numpy.empty(0, numpy.int32)
    starts = numpy.concatenate([[0], numpy.flatnonzero(runs < 128)[:-1] + 1])
    place = numpy.arange(len(runs)) - numpy.repeat(starts, numpy.diff([*starts, len(runs)]))
    parts = (runs & 127).astype(numpy.int64) << (7 * place)
    gaps, lengths = numpy.add.reduceat(parts, starts).reshape(-1, 2).T
    begins = numpy.cumsum(gaps + lengths) - lengths
    offset = numpy.arange(lengths.sum()) - numpy.repeat(numpy.cumsum(lengths) - lengths, lengths)
    return (numpy.repeat(begins, lengths) + offset).astype(numpy.int32)


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
        return reading(self._where, LOG)

    def data(self, name: str) -> numpy.ndarray:
        """A data set, read once."""
        if name not in self._read:
            if name not in self._folder:
                raise unknown(self._where, "data set", name, self._folder)
            with self._reading():
                self._read[name] = self._folder[name][:]
        return self._read[name]

    def _set(self, name: str, item: int) -> numpy.ndarray:
        begin, end = self.data(f"{name}_begin")[item:item + 2]
        return _numbers(self.data(name)[begin:end])

    def requested(self, step: int) -> numpy.ndarray:
        """The groups that the step requests, ascending."""
        check_index(self._where, "step", step, self._steps)
        return self._set("asked", step)

    def asked(self, step: int) -> numpy.ndarray:
        """The former name of requested()."""
        warnings.warn("Stream.asked is Stream.requested", DeprecationWarning, stacklevel=2)
        return self.requested(step)

    def picked(self, step: int, row: int = 0) -> numpy.ndarray:
        """The groups that a row picked, ascending. A row is a query head, or all heads of the
        stream where `rows` is 1. The one picked last, which may be trimmed, is in
        data("last_picked"), how many of its members are attended to in data("last_tokens"): an
        element per step and row."""
        check_index(self._where, "step", step, self._steps)
        check_index(self._where, "row", row, self.rows)
        return self._set("picked", step * self.rows + row)

    def attended(self, step: int, query_head: int) -> numpy.ndarray:
        """The positions that a query head attended to, ascending; the last is the step's own."""
        check_index(self._where, "step", step, self._steps)
        check_index(self._where, "query head", query_head, self.query_heads)
        if len(self.data("attended_begin")) <= 1:
            raise UserError(f"{self._where}/attended: tokens were not recorded; allowed: {LOG}")
        return self._set("attended", step * self.query_heads + query_head)

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
        check_index(self._where, "step", step, self._steps)
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


class AccessLog(File):
    """What stage 1 decided for one system on one trace (docs/access-log.md)."""

    def __init__(self, path: PathLike) -> None:
        needed = ("format_version", "system", "layers", "steps", "prompt_tokens", "query_heads",
                  "kv_heads", "trace_sha256", "decide_config")
        super().__init__(path, "kvaccess", needed, LOG)
        about = self.attributes
        if about["format_version"] != VERSION:
            self.close()
            raise UserError(f"{self.path}: format_version is {about['format_version']}; allowed: "
                            f"{VERSION}, as this kvreplay writes it")
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
        """One per KV head, or one for all KV heads of the layer."""
        folder = self._layer(layer, self.layers)
        with self._reading():
            return [Stream(folder[f"stream/{number}"], self)
                    for number in range(folder.attrs["streams"])]

    def attended(self, layer: int, query_head: int, step: int) -> numpy.ndarray:
        """The positions that a query head of the layer attended to, ascending."""
        check_index(self.path, "query head", query_head, self.query_heads)
        for stream in self.streams(layer):
            own = query_head - stream.first_query_head
            if 0 <= own < stream.query_heads:
                return stream.attended(step, own)
        raise UserError(f"{self.path}: /layer/{layer:02}: no stream has query head {query_head}; "
                        f"allowed: {LOG}")

    def selections(self, layer: int) -> pandas.DataFrame:
        """One row per step and query head of the layer: `groups` (those that its row picked,
        ascending) and `attended_tokens` (how many, including its own)."""
        rows = []
        for stream in self.streams(layer):
            picked = [stream._set("picked", row) for row in range(self.steps * stream.rows)]
            counts = stream.data("attended_count").reshape(self.steps, stream.query_heads)
            for step, head in numpy.ndindex(counts.shape):
                row = step * stream.rows + (head if stream.rows > 1 else 0)
                rows.append((step, stream.first_query_head + head, picked[row], counts[step, head]))
        frame = pandas.DataFrame(rows, columns=["step", "query_head", "groups", "attended_tokens"])
        return frame.sort_values(["step", "query_head"], ignore_index=True)

    def quality(self, layer: int) -> pandas.DataFrame:
        """One row per step and query head: recall, attention_mass and best_attention_mass from 0 to
        1, output_error from 0 (docs/metrics.md)."""
        folder = self._layer(layer, self.layers)
        step, head = numpy.indices((self.steps, self.query_heads))
        names = ("recall", "attention_mass", "best_attention_mass", "output_error")
        with self._reading():
            measured = {name: folder["quality"][name][:].ravel() for name in names}
        return pandas.DataFrame({"step": step.ravel(), "query_head": head.ravel(), **measured})

    def residual_error(self, layer: int) -> numpy.ndarray:
        """Of each step (docs/metrics.md); empty where the trace lacks what it is computed from."""
        folder = self._layer(layer, self.layers)
        with self._reading():
            quality = folder["quality"]
            return (quality["residual_error"][:] if "residual_error" in quality
                    else numpy.empty(0, numpy.float32))

    def __repr__(self) -> str:
        return (f"AccessLog({self.path.name}: {self.system}, layers {self.layers}, {self.steps} "
                f"steps, {self.query_heads}/{self.kv_heads} heads)")


def access_log(path: PathLike) -> AccessLog:
    """Opens an .access.h5 file."""
    return AccessLog(path)
