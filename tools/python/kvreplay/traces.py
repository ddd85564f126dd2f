"""Traces: docs/trace-format.md."""

from __future__ import annotations

import datetime
import os
import pathlib

import h5py
import numpy
import pandas

from kvreplay.errors import UserError, reason, unknown
from kvreplay.hdf5_files import File, PathLike, check_index
from kvreplay.partial_names import partial_path
from kvreplay.source_tree import TOP


class Vectors:
    """Keys, values or queries of a layer, [heads, positions, head_dim]. Indexing reads that range
    from the file, as float32; numpy.asarray(vectors) reads all."""

    def __init__(self, data: h5py.Dataset, brain_float: bool) -> None:
        self._data, self._brain_float = data, brain_float
        self.shape: tuple[int, int, int] = data.shape
        #: Position of index 0 in the text: above 0 for queries, of which only the latest are kept.
        self.first_position = int(data.attrs.get("query_start", 0))

    def __getitem__(self, where) -> numpy.ndarray:
        try:
            stored = numpy.asarray(self._data[where])
        except OSError as error:
            raise UserError(f"{self._data.file.filename}: {self._data.name}: {reason(error)}; "
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


class Trace(File):
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
        with self._reading():
            #: (role, position of its first token, whether it was generated) of each stretch of a
            #: conversation; empty for a prompt and its decode steps.
            self.segments = [(role, int(begin), bool(generated)) for role, begin, generated in zip(
                about.get("segment_roles", "").split(),
                numpy.atleast_1d(about.get("segment_begin", ())),
                numpy.atleast_1d(about.get("segment_generated", ())))]

    def vectors(self, layer: int, name: str) -> Vectors:
        """A data set of the layer: key, value, query or query_ahead."""
        folder = self._layer(layer, self.layers)
        if name not in folder:
            raise unknown(f"{self.path}: {folder.name}", "data set", name, folder)
        with self._reading():
            return Vectors(folder[name], self.attributes["dtype"] == "bf16")

    def keys(self, layer: int) -> Vectors:
        """[kv_heads, tokens, head_dim]; rotated by position where `key_state` is post_rope."""
        return self.vectors(layer, "key")

    def values(self, layer: int) -> Vectors:
        """[kv_heads, tokens, head_dim]"""
        return self.vectors(layer, "value")

    def queries(self, layer: int) -> Vectors:
        """[query_heads, tokens - first_position, head_dim]: the prompt's end and every step."""
        return self.vectors(layer, "query")

    def queries_ahead(self, layer: int) -> Vectors:
        """Like queries(), but predicted one layer earlier; not every trace has them."""
        return self.vectors(layer, "query_ahead")

    def window(self, layer: int) -> int:
        """How many of the latest positions, including its own, a token sees; 0 = all."""
        self._layer(layer, self.layers)
        windows = numpy.atleast_1d(self.attributes["sliding_window"])
        if len(windows) != len(self.layers):
            raise UserError(f"{self.path}: sliding_window has {len(windows)} values; allowed: "
                            f"{len(self.layers)}, one per recorded layer")
        return int(windows[self.layers.index(layer)])

    def kv_head(self, query_head: int) -> int:
        """The KV head that a query head reads."""
        check_index(self.path, "query head", query_head, self.query_heads)
        return query_head // (self.query_heads // self.kv_heads)

    def positions(self) -> pandas.DataFrame:
        """By position: the token's `id`; `entropy` (nats) and `top_probability` of the distribution
        over the next token, natural `log_probability` of the actual one; whether `decoded`
        (or, in a conversation, prefilled)."""
        names = ("id", "entropy", "top_probability", "log_probability")
        with self._reading():
            frame = pandas.DataFrame({name: self.file[f"tokens/{name}"][:] for name in names})
        frame["decoded"] = frame.index >= self.prompt_tokens
        for (_, begin, generated) in self.segments:
            frame.loc[begin:, "decoded"] = generated
        return frame.rename_axis("position")

    def attention(self, layer: int, query_head: int, position: int) -> numpy.ndarray:
        """Weights of full attention, float64 [position + 1]; they sum to 1."""
        if self.attributes["key_state"] != "post_rope":
            raise UserError(f"{self.path}: key_state is {self.attributes['key_state']}; allowed: "
                            "post_rope, by `kvreplay convert TRACE OUT --key-state post_rope`")
        queries, head = self.queries(layer), self.kv_head(query_head)
        if not queries.first_position <= position < self.tokens:
            raise UserError(f"{self.path}: no query of position {position}; allowed: "
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
    """Opens a .kvtrace.h5 file, or one that ships by its name (`kvreplay list traces`)."""
    if os.path.exists(path):
        return Trace(path)
    ending = ".kvtrace.h5"
    files = {file.name.removesuffix(ending): file
             for file in sorted((TOP / "traces/data").glob(f"*{ending}"))}
    words = [word for stem in files for word in stem.split("-")]
    for stem, file in files.items():
        # Its short name: the first word that no other file shares.
        own = next((word for word in stem.split("-") if words.count(word) == 1), stem)
        if str(path) in (stem, own):
            return Trace(file)
    return Trace(path)


def write_trace(path: PathLike, layers: dict[int, tuple], *, prompt_tokens: int, source: str,
                synthetic: bool, **attributes) -> None:
    """Writes a trace of arrays that came from anywhere: a model of one's own, or a generator.

    `layers`: by the model's layer number, keys and values [kv_heads, tokens, head_dim], rotated by
    position, and queries [query_heads, queries, head_dim] of the last positions, from the prompt's
    end or before; stored as f16. `source`: which text, from where. `synthetic`: whether the vectors
    were generated rather than recorded from a model. `attributes`: further root attributes
    (docs/trace-format.md) in place of those that say that it is not known, such as `model`, and
    `token_ids`, one per position. UserError for shapes that do not fit together.
    """
    path = pathlib.Path(path)
    place = f"{path}: layers"
    if not layers:
        raise UserError(f"{place}: found none; allowed: at least one")
    numbers = sorted(layers)
    arrays = {number: [numpy.asarray(array, numpy.float16) for array in layers[number]]
              for number in numbers}
    wanted = [array.shape for array in arrays[numbers[0]]]
    for number, of in arrays.items():
        shapes = [array.shape for array in of]
        if shapes != wanted or len(shapes) != 3 or any(len(shape) != 3 for shape in shapes):
            raise UserError(f"{place}: layer {number} has the shapes {shapes}; allowed: keys, values "
                            "and queries of three dimensions, alike in every layer")
    (kv_heads, tokens, head_dim), value_shape, (query_heads, queries, query_dim) = wanted
    if value_shape != wanted[0] or query_dim != head_dim or query_heads % kv_heads:
        raise UserError(f"{place}: keys, values and queries have the shapes {wanted}; allowed: keys "
                        "and values alike, queries of as many dimensions and a multiple of the heads")
    if not tokens - queries <= prompt_tokens < tokens or queries > tokens:
        raise UserError(f"{path}: prompt_tokens: found {prompt_tokens}; allowed: from "
                        f"{max(1, tokens - queries)}, the first position with a query, to {tokens - 1}")
    ids = numpy.asarray(attributes.pop("token_ids", numpy.zeros(tokens)), numpy.int32)
    if ids.shape != (tokens,):
        raise UserError(f"{path}: token_ids: found {ids.size}; allowed: {tokens}, one per position")
    now = datetime.datetime.now(datetime.timezone.utc)
    about = {
        "format": "kvtrace", "format_version": 1, "model": "not known", "model_revision": "",
        "weights_sha256": "", "layers": numbers[-1] + 1, "query_heads": query_heads,
        "kv_heads": kv_heads, "head_dim": head_dim, "hidden_size": query_heads * head_dim,
        "recorded_layers": numbers, "tokens": tokens, "prompt_tokens": prompt_tokens, "dtype": "f16",
        "key_state": "post_rope", "rope_theta": 10000.0, "rope_pairs": "half",
        "rope_scaling": "not known", "softmax_scale": head_dim ** -0.5,
        "sliding_window": [0] * len(numbers), "tokenizer": "not known", "text_source": source,
        "text_sha256": "", "tool": "kvreplay.write_trace", "tool_version": "1", "seed": 0,
        "created_utc": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "synthetic": int(synthetic)}
    for name in attributes:
        if name not in about:
            raise unknown(str(path), "attribute", name, about)
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no such folder; allowed: a file that can be written")
    partial = partial_path(path)
    try:
        with h5py.File(partial, "w") as file:
            for name, value in {**about, **attributes}.items():
                file.attrs[name] = value
            file["tokens/id"] = ids
            for name in ("entropy", "top_probability", "log_probability"):
                file[f"tokens/{name}"] = numpy.zeros(tokens, numpy.float32)
            for number, of in arrays.items():
                folder = f"layer/{number:02d}"
                for name, array in zip(("key", "value", "query"), of):
                    file[f"{folder}/{name}"] = array
                file[f"{folder}/query"].attrs["query_start"] = tokens - queries
            file.attrs["complete"] = 1
        partial.rename(path)
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}; allowed: a file that can be written") from None
    finally:
        partial.unlink(missing_ok=True)
