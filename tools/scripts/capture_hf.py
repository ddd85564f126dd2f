#!/usr/bin/env python3
"""Records a trace (docs/trace-format.md) of a Hugging Face model while it reads or writes a text.

Works with every model that takes its attention function from transformers' attention interface and
whose attention a trace can say: before it records, the model's own attention on the first tokens is
compared with what follows from the trace, layer by layer. Keys and values are recorded before KV
heads are repeated; queries of the prompt's last window and of every decode step; `query_ahead`,
what the layer's own norm and attention make of the residual stream that entered the layer before;
and how attention's output enters the residual stream, where a layer adds its projection to it.
Needs torch, transformers, h5py and tqdm (pip install torch transformers h5py tqdm).
"""

import argparse
import collections.abc
import copy
import datetime
import hashlib
import inspect
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import Parser, exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402
from kvreplay.partial_names import partial_path  # noqa: E402
from kvreplay.source_tree import find_built  # noqa: E402

PROGRAM = "tools/scripts/capture_hf.py"
try:
    import h5py
    import numpy
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from kvreplay.checksums import write_checksums
    from kvreplay.progress import Progress
except ImportError as error:
    print(f"{PROGRAM}: {error}; allowed: Python with torch, transformers (4.53 or later), h5py and "
          "tqdm", file=sys.stderr)
    sys.exit(2)

NAME = "kvtrace"  # name of the attention function
STORED = {"f16": torch.float16, "bf16": torch.bfloat16}


# Tokens on which a model's own attention is compared with what a trace can say.
COMPARED_TOKENS = 64
# Largest error of attention's output in single precision, relative to its norm.
TOLERANCE = 1e-3
# Rows of `output_sketch`: a norm is then off by 9 %.
SKETCH_ROWS = 64
# What attention may be given that a trace has no place for.
UNSAID = {"s_aux": "learned sinks", "softcap": "a soft cap on its scores",
          "position_bias": "a bias by position"}
# Other arguments, which change nothing here or show in the mask.
USUAL = {"dropout", "sliding_window", "position_ids", "cache_position", "is_causal", "use_cache",
         "output_attentions", "output_hidden_states", "return_dict"}


def text_config(config):
    """For a model with images or sound, the part that writes text."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def numbers(layers):
    return ",".join(map(str, layers))


# --- What attention is, in a trace and in the model ---------------------------------------------


def visible(rows, keys, end, window, device):
    """[rows, keys]: what a query sees by a trace's `sliding_window`; the last row and the last key
    are those of position `end` - 1."""
    query = torch.arange(end - rows, end, device=device)[:, None]
    key = torch.arange(end - keys, end, device=device)[None]
    seen = key <= query
    return seen & (key > query - window) if window else seen


def seen_by_mask(mask, rows, keys, device):
    """[1 or heads, rows, keys], by the mask that the model gives for scaled dot-product attention."""
    if mask is None:
        return visible(rows, keys, keys, 0, device)[None]
    mask = mask[0, :, :, :keys]
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def trace_attention(query, key, value, scale, seen):
    """What a reader of the trace computes, [batch, tokens, heads, dim]."""
    shared = query.shape[1] // key.shape[1]
    key, value = (rows.repeat_interleave(shared, dim=1) for rows in (key, value))
    scores = (query @ key.transpose(2, 3) * scale).masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


def own_attention(module):
    """The plain implementation that stands beside the module's class; None where there is none."""
    for kind in type(module).__mro__:
        found = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if found is not None:
            return found
    return None


def relative(error, reference):
    return float(error.norm() / reference.norm().clamp_min(1e-30))


def without_cache(options):
    """Arguments of an attention module for a call on trial: nothing that it would store into."""
    return {name: copy.copy(value) if isinstance(value, collections.abc.MutableMapping) else value
            for name, value in options.items() if not isinstance(value, transformers.Cache)}


def look_ahead(block, entered, options):
    """The block's attention on the residual stream `entered`."""
    options = {name: value for name, value in options.items() if name != "hidden_states"}
    block.self_attn(hidden_states=block.input_layernorm(entered), **without_cache(options))


class ResidualStream:
    """How a decoder block adds attention's output to the residual stream: the output projection, or
    its root mean square norm, ahead of the norm of the next part."""

    def __init__(self, block):
        self.block = block
        self.projection = next((getattr(block.self_attn, name) for name in
                                ("o_proj", "out_proj", "dense") if hasattr(block.self_attn, name)), None)
        after = getattr(block, "post_attention_layernorm", None)
        before = getattr(block, "pre_feedforward_layernorm", None)
        # Gemma normalises what it adds. Elsewhere that name is of the next part's norm.
        self.norm, self.next = (after, before) if before is not None else (None, after)
        self.entered = self.projected = self.divisor = None

    def weights(self):
        """Of the norm, [hidden]: what it makes of ones; 1 where there is none."""
        ones = torch.ones(self.projection.out_features, device=self.projection.weight.device,
                          dtype=self.projection.weight.dtype)
        return ones.float() if self.norm is None else self.norm(ones[None])[0].float()

    @torch.no_grad()
    def sketch(self):
        """[SKETCH_ROWS, query_heads * head_dim], with the same signs for every layer."""
        matrix = self.projection.weight.float() * self.weights()[:, None]
        signs = numpy.random.default_rng(1).choice((-1, 1), (SKETCH_ROWS, matrix.shape[0]))
        signs = torch.tensor(signs, dtype=torch.float32, device=matrix.device)
        return (signs @ matrix / math.sqrt(SKETCH_ROWS)).cpu().numpy()

    def compare(self, attended, hooks, differs):
        """From now on calls differs(reason) where a pass adds something else. `attended()` is what
        attention gave in it, None where it was asked alone. Appends its hooks to `hooks`."""
        linear = isinstance(self.projection, torch.nn.Linear)
        if not linear or not self.projection.weight.is_floating_point() or self.next is None:
            differs("a layer's output projection and the norm that follows are not where they are "
                    "looked for")
            return

        def enter(_, arguments, options):
            self.entered = arguments[0] if arguments else options["hidden_states"]

        def project(_, arguments, output):
            given = attended()
            if given is None:
                return
            self.projected = output
            if given.numel() != arguments[0].numel() or relative(
                    (arguments[0].reshape(given.shape) - given).float(), given.float()) > TOLERANCE:
                differs("a layer changes attention's output before it projects it")

        def add(_, arguments):
            added, exact = self.projected, TOLERANCE
            if self.norm is not None:
                added = self.norm(added)
                exact = max(exact, 4 * torch.finfo(added.dtype).eps)
                rows = self.projected.float()
                plain = rows / rows.square().mean(-1, keepdim=True).sqrt() * self.weights()
                if relative(plain - added.float(), plain) > exact:
                    differs("a layer's norm of what attention adds is no root mean square norm")
            if not arguments or relative((arguments[0] - self.entered - added).float(),
                                         arguments[0].float()) > exact:
                differs("a layer adds more than attention's projection ahead of its next norm")

        hooks += [self.block.register_forward_pre_hook(enter, with_kwargs=True),
                  self.projection.register_forward_hook(project),
                  self.next.register_forward_pre_hook(add)]

    def watch(self, take):
        """From now on calls take(norms) in each pass: `residual_norm` of its tokens."""
        def divide(_, arguments):
            self.divisor = arguments[0][0].float().square().mean(-1).sqrt()

        def stream(_, arguments):
            norms = arguments[0][0].float().norm(dim=-1)
            take(norms if self.norm is None else norms * self.divisor)

        if self.norm is not None:
            self.norm.register_forward_pre_hook(divide)
        self.next.register_forward_pre_hook(stream)


class Layer(typing.NamedTuple):
    """The arguments of a layer's attention."""

    module: torch.nn.Module
    query_heads: int
    kv_heads: int
    key_size: int
    value_size: int
    scale: float
    windows: list  # values of `sliding_window` that fit so far

    def sizes(self):
        return (f"{self.query_heads} query heads on {self.kv_heads} KV heads of size "
                f"{self.key_size}")


class Comparison:
    """Compares the model's own attention with what a trace can express, on its first tokens."""

    def __init__(self, model, recorded, blocks):
        self.model, self.recorded, self.blocks = model, recorded, blocks
        self.layers = {}  # by number, a Layer
        self.not_compared = []
        self.attended = None  # latest output of attention, [1, tokens, heads, dim]
        self.ahead = None  # the query that look_ahead() gave; True while it runs
        self.no_ahead = "" if blocks else "layers are not made of input_layernorm and self_attn"
        self.no_stream = self.no_ahead
        self.streams = [ResidualStream(blocks[layer]) for layer in recorded] if blocks else []

    @torch.no_grad()
    def run(self, ids):
        """The layers that call attention, by number. UserError where a trace cannot express it."""
        ALL_ATTENTION_FUNCTIONS.register(NAME, self.attention)
        hooks = [block.register_forward_pre_hook(self.look, with_kwargs=True)
                 for block in self.blocks]
        for stream in self.streams:
            stream.compare(lambda: self.attended if self.ahead is None else None, hooks,
                           self.adds_otherwise)
        self.model(torch.tensor([ids], device=self.model.device), use_cache=False)
        for hook in hooks:
            hook.remove()
        self.check_recorded()
        if self.not_compared:
            print(f"{PROGRAM}: note: the model has no plain attention to compare layers "
                  f"{numbers(self.not_compared)} with", file=sys.stderr)
        return self.layers

    def adds_otherwise(self, reason):
        self.no_stream = self.no_stream or reason

    def look(self, block, arguments, options):
        """Whether look_ahead() gives the layer's query when it is given the layer's own input."""
        try:
            self.ahead = True
            look_ahead(block, arguments[0] if arguments else options["hidden_states"], options)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            self.ahead, self.no_ahead = None, f"its layers cannot be asked alone ({error})"

    def attention(self, module, query, key, value, attention_mask, scaling=None, **options):
        if self.ahead is True:
            self.ahead = query
            return torch.zeros_like(query.transpose(1, 2)), None
        kind = query.dtype
        query, key, value = query.float(), key.float(), value.float()
        if self.ahead is not None and not self.no_ahead and (
                self.ahead.shape != query.shape or
                relative(self.ahead.float() - query, query) > TOLERANCE):
            self.no_ahead = "a layer's queries do not follow from its input_layernorm and self_attn"
        self.ahead = None
        layer = getattr(module, "layer_idx", None)
        scale = scaling or 1 / math.sqrt(query.shape[3])
        window = int(options.get("sliding_window") or getattr(module, "sliding_window", None) or 0)
        asked = Layer(module, query.shape[1], key.shape[1], key.shape[3], value.shape[3], scale,
                      [window, 0] if window else [0])
        self.check_said(layer, asked, key, value, options)
        self.layers[layer] = asked

        rows, keys = query.shape[2], key.shape[2]
        seen = seen_by_mask(attention_mask, rows, keys, query.device)
        added = attention_mask
        if added is None or added.dtype == torch.bool:
            added = torch.zeros(seen.shape, device=query.device).masked_fill(
                ~seen, torch.finfo(torch.float32).min)[None]
        options = {name: value.float() if isinstance(value, torch.Tensor) and
                   value.is_floating_point() else value for name, value in options.items()}
        own = own_attention(module)
        if own is None:
            self.not_compared.append(layer)
            output, _ = sdpa_attention_forward(module, query, key, value, attention_mask,
                                               scaling=scaling, **options)
            self.attended = output.to(kind)
            return self.attended, None
        output, _ = own(module, query, key, value, added.float(), scaling=scale, **options)
        ran, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling,
                                        **options)
        self.check_equal(layer, asked, output, ran, options)
        if layer in self.recorded:
            check_windows(layer, asked.windows, seen, keys)
            said = trace_attention(query, key, value, scale,
                                   visible(rows, keys, keys, asked.windows[0], query.device))
            self.check_equal(layer, asked, output, said, options)
        self.attended = output.to(kind)
        return self.attended, None

    def check_said(self, layer, asked, key, value, options):
        """Raises UserError for features that are recognised by name."""
        allowed = "; allowed: a model without"
        for name, what in UNSAID.items():
            given = options.get(name)
            if given is not None and (isinstance(given, torch.Tensor) or given):
                raise UserError(f"layer {layer}: its attention is given {name} ({what}), which a trace "
                              f"cannot say{allowed}")
        if hasattr(asked.module, "kv_lora_rank") or hasattr(asked.module, "kv_b_proj"):
            raise UserError(f"layer {layer}: multi-head latent attention (MLA): it stores a latent "
                          "vector per token, not the keys and values that it attends to, which a "
                          f"trace cannot say{allowed}")
        if layer in self.layers:
            raise UserError(f"layer {layer}: asks for attention more than once per token, which a "
                          f"trace cannot say{allowed}")
        if (layer in self.recorded and asked.kv_heads > 1 and
                torch.equal(key[:, 0], key[:, 1]) and torch.equal(value[:, 0], value[:, 1])):
            raise UserError(f"layer {layer}: its KV heads are repeated before attention is asked for; "
                          "allowed: a model that gives each once")

    @staticmethod
    def check_equal(layer, asked, own, other, options):
        error = relative(own - other, own)
        if error <= TOLERANCE:
            return
        given = sorted(name for name, value in options.items()
                       if name not in USUAL and value is not None and value is not False)
        raise UserError(f"layer {layer}: its own attention differs by {error:.2g} of its norm from the "
                      f"softmax of its scores times {asked.scale:g} over its keys and values, which "
                      "is what a trace can say" + (f"; it is given {', '.join(given)}" if given else "")
                      + "; allowed: a model that attends so in every layer")

    def check_recorded(self):
        missing = [layer for layer in self.recorded if layer not in self.layers]
        if missing:
            held = [layer for layer in self.layers if layer is not None]
            raise UserError(f"layers {missing} never asked for attention: the model does not use "
                          "transformers' attention interface there; allowed: "
                          + (f"--layers {numbers(sorted(held))}" if held else "another model"))
        shapes = {}
        for number in self.recorded:
            layer = self.layers[number]
            if layer.key_size != layer.value_size:
                raise UserError(f"layer {number}: keys of size {layer.key_size}, values of size "
                              f"{layer.value_size}; allowed: layers where they are equal")
            shapes.setdefault((layer.sizes(), layer.scale), []).append(number)
        if len(shapes) == 1:
            return
        (_, first), (_, other) = list(shapes.items())[:2]
        one, two = self.layers[first[0]], self.layers[other[0]]
        same = one.sizes() == two.sizes()
        raise UserError(
            f"layer {other[0]}: " + (f"softmax scale {two.scale:g}" if same else two.sizes())
            + f", where layer {first[0]} has " + (f"{one.scale:g}" if same else one.sizes())
            + "; allowed: layers of one kind: "
            + " or ".join(f"--layers {numbers(layers)}" for layers in shapes.values()))


def check_windows(layer, windows, seen, end):
    """Removes from `windows` those that do not give the mask `seen`, [1 or heads, rows, keys], whose
    last row is of position `end` - 1. UserError: none does."""
    left = []
    for window in windows:
        expected = visible(seen.shape[1], seen.shape[2], end, window, seen.device)
        differs = (seen != expected).nonzero()
        if not len(differs):
            left.append(window)
        elif window == windows[0]:
            _, row, key = differs[0].tolist()
    if not left:
        query, key = end - seen.shape[1] + row, end - seen.shape[2] + key
        hides = "sees" if seen[:, row, key - end].any() else "does not see"
        raise UserError(f"layer {layer}: position {query} {hides} position {key}, with a sliding window "
                      f"of {windows[0]} (0 = none); allowed: layers whose mask is a sliding window")
    windows[:] = left


# --- Rotary embedding ---------------------------------------------------------------------------


def rope_of(config):
    """Every base that the configuration names, and how it says that frequencies are scaled."""
    thetas, kinds = [], []

    def walk(values, within_rope):
        for name, value in values.items():
            if isinstance(value, dict):
                walk(value, within_rope or "rope" in name)
            elif name in ("rope_type", "type") and within_rope and value not in (None, "default"):
                kinds.append(str(value))
            elif not isinstance(value, (int, float)) or isinstance(value, bool):
                continue
            elif name.endswith(("theta", "base_freq", "_base")) and value > 1:
                thetas.append(float(value))
            elif name in ("partial_rotary_factor", "rotary_pct") and value != 1:
                kinds.append(f"partial {value:g}")

    walk(config.to_dict(), False)
    return list(dict.fromkeys(thetas)) or [10000.0], ", ".join(dict.fromkeys(kinds))


def turned(rows, positions, theta, pairs):
    """`rows` [heads, tokens, dim] at `positions`, as `kvreplay convert` turns them."""
    half = rows.shape[2] // 2
    angles = positions[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    cosine, sine = angles.cos(), angles.sin()
    first, second = ((slice(0, half), slice(half, None)) if pairs == "half" else
                     (slice(0, None, 2), slice(1, None, 2)))
    result = torch.empty_like(rows)
    result[..., first] = rows[..., first] * cosine - rows[..., second] * sine
    result[..., second] = rows[..., first] * sine + rows[..., second] * cosine
    return result


class RopeOfLayer:
    """Which rotary embedding turns a layer's keys: each candidate is compared with what the layer
    itself makes of the same input with and without its positions."""

    def __init__(self, thetas):
        self.errors = {(0.0, "half"): 0.0}  # maximum so far, by base (0 = none) and pairs
        self.errors.update({(theta, pairs): 0.0 for theta in thetas
                            for pairs in ("half", "interleaved")})
        self.allowed = 0.0
        self.compared = False

    def compare(self, plain, recorded, begin):
        """Takes keys, [heads, tokens, dim] each, from position `begin` on."""
        end = begin + plain.shape[1]
        # Models compute angles in single precision, and rotate in their own precision.
        self.allowed = max(self.allowed, 1e-3 + 2e-7 * end, torch.finfo(recorded.dtype).eps)
        self.compared = True
        plain, recorded = plain.double().cpu(), recorded.double().cpu()
        positions = torch.arange(begin, end, dtype=torch.float64)
        for theta, pairs in self.errors if plain.shape[2] % 2 == 0 else [(0.0, "half")]:
            expected = turned(plain, positions, theta, pairs) if theta else plain
            self.errors[theta, pairs] = max(self.errors[theta, pairs],
                                            relative(expected - recorded, recorded))

    def found(self):
        """Base and pairs; None where no candidate gives the recorded keys."""
        best = min(self.errors, key=self.errors.get)
        return best if self.compared and self.errors[best] <= self.allowed else None


def without_positions(embeddings):
    """Position embeddings that rotate nothing; None where they have an unknown form."""
    if isinstance(embeddings, torch.Tensor) and embeddings.is_complex():
        return torch.ones_like(embeddings)
    if (isinstance(embeddings, (tuple, list)) and len(embeddings) == 2 and
            all(isinstance(part, torch.Tensor) for part in embeddings)):
        return torch.ones_like(embeddings[0]), torch.zeros_like(embeddings[1])
    return None


def rope_attributes(config, ropes):
    """Attributes of the trace; `ropes` of its layers, by number. A reader turns keys back only where
    `rope_scaling` is 'none' or 'by layer'."""
    thetas, kind = rope_of(config)
    found = {layer: rope.found() for layer, rope in ropes.items()}
    unknown = [layer for layer, rope in found.items() if rope is None]
    by_layer = {layer: rope[0] for layer, rope in found.items() if rope}
    bases = [theta for theta in by_layer.values() if theta]
    pairs = {rope[1] for rope in found.values() if rope and rope[0]}
    result = {"rope_theta": bases[0] if bases else thetas[0],
              "rope_pairs": min(pairs, default="half"), "rope_scaling": "none"}
    if unknown or len(pairs) > 1:
        result["rope_scaling"] = (
            "pairs that differ by layer" if not unknown else kind or
            ("not a plain rotation of half or interleaved pairs"
             if all(ropes[layer].compared for layer in unknown) else "not known"))
        if unknown and bases:
            result["rope_scaling"] += f" in layers {numbers(unknown)}"
    elif set(by_layer.values()) != {result["rope_theta"]}:
        result["rope_scaling"] = "by layer"
        result["layer_rope_theta"] = [by_layer[layer] for layer in sorted(by_layer)]
    return result


# --- The recording ------------------------------------------------------------------------------


class Recorder:
    """The HDF5 file, written row by row under a temporary name."""

    def __init__(self, path, attributes, layers, kinds, tokens, window_begin, dtype, ahead, thetas):
        """`kinds`: of each layer that asks for attention, by number."""
        self.path, self.temporary = path, partial_path(path)
        self.dtype, self.begin, self.row = dtype, window_begin, 0
        self.layers, self.kinds, self.asked = layers, kinds, set()
        self.ropes = {layer: RopeOfLayer(thetas) for layer in layers}
        self.compares_rope = False  # in this chunk
        self.shared = set()  # layers whose keys are an earlier layer's
        self.purpose = "record"  # "query_ahead" or "unturned" while a layer is asked besides
        self.rows = None  # query and key, new rows, as last given
        self.last_mask = None, None
        self.file = h5py.File(self.temporary, "w")
        self.file.attrs.update(attributes)
        kind = kinds[layers[0]]
        dim = kind.key_size
        stored = numpy.float16 if dtype == "f16" else numpy.uint16
        for layer in layers:
            group = self.file.create_group(f"layer/{layer:02}")
            for name in ("key", "value"):
                group.create_dataset(name, (kind.kv_heads, tokens, dim), stored)
            for name in ("query", "query_ahead") if ahead else ("query",):
                query = group.create_dataset(name, (kind.query_heads, tokens - window_begin, dim),
                                             stored)
                query.attrs["query_start"] = window_begin

    def bits(self, rows, where):
        stored = rows.detach().to(STORED[self.dtype]).cpu()
        if not torch.isfinite(stored).all():
            raise UserError(f"{where}: a value does not fit in {self.dtype}; allowed: --dtype bf16")
        if self.dtype == "f16":
            return stored.numpy()
        return stored.view(torch.int16).numpy().view(numpy.uint16)

    def attention(self, module, query, key, value, attention_mask, scaling=None, **options):
        """What transformers calls in place of its own. [batch, heads, tokens, dim] each; with a
        cache, key and value reach back: the new rows are the last."""
        layer = getattr(module, "layer_idx", None)
        self.rows = query, key[:, :, -query.shape[2]:]
        if self.purpose != "record":
            if self.purpose == "query_ahead":
                self.keep_query(layer, query)
            return torch.zeros_like(query.transpose(1, 2)), None
        if layer in self.layers:
            self.check_mask(layer, attention_mask, query.shape[2], key.shape[2])
            self.keep(layer, query, key, value)
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling,
                                      **options)

    def check_mask(self, layer, mask, rows, keys):
        windows = self.kinds[layer].windows
        # Layers of one kind share one mask.
        if self.last_mask[0] is mask and self.last_mask[1] == (self.row, keys, windows):
            return
        device = None if mask is None else mask.device
        check_windows(layer, windows, seen_by_mask(mask, rows, keys, device), self.row + rows)
        self.last_mask = mask, (self.row, keys, list(windows))

    def keep(self, layer, query, key, value):
        kind = self.kinds[layer]
        count = query.shape[2]
        found = query.shape[1], key.shape[1], key.shape[3], value.shape[3]
        if found != (kind.query_heads, kind.kv_heads, kind.key_size, kind.value_size):
            raise UserError(f"layer {layer}: query heads, KV heads, key and value size are {found}; "
                          f"allowed: as on the first tokens, {kind.sizes()}")
        self.asked.add(layer)
        begin, end = self.row, self.row + count
        for name, rows in (("key", key), ("value", value)):
            place = f"/layer/{layer:02}/{name}"
            self.file[place][:, begin:end] = self.bits(rows[0, :, -count:], place)
        self.keep_query(layer, query)

    def keep_query(self, layer, query):
        begin, end = self.row, self.row + query.shape[2]
        if end > self.begin:
            skip = max(0, self.begin - begin)
            name = "query" if self.purpose == "record" else self.purpose
            place = f"/layer/{layer:02}/{name}"
            self.file[place][:, begin + skip - self.begin:end - self.begin] = self.bits(
                query[0, :, skip:], place)

    def watch(self, blocks):
        """From now on each of the decoder's `blocks`, before it runs, looks ahead: its attention is
        asked what it would do with the residual stream that entered the block before."""
        def look(block, arguments, options):
            index = block.self_attn.layer_idx
            entered = arguments[0] if arguments else options["hidden_states"]
            before = entered if index == 0 else self.entered
            self.entered = entered
            if index not in self.layers or self.row + entered.shape[1] <= self.begin:
                return
            self.purpose = "query_ahead"
            look_ahead(block, before, options)
            self.purpose = "record"

        for block in blocks:
            block.register_forward_pre_hook(look, with_kwargs=True)

    def watch_streams(self, streams):
        """From now on `residual_norm` of each recorded layer is kept; `streams` in their order."""
        for layer, stream in zip(self.layers, streams, strict=True):
            group = self.file[f"layer/{layer:02}"]
            group["output_sketch"] = stream.sketch()
            norms = group.create_dataset("residual_norm", group["query"].shape[1:2], numpy.float32)
            stream.watch(lambda row, to=norms: self.keep_norms(to, row))

    def keep_norms(self, to, norms):
        begin, end = self.row, self.row + len(norms)
        if end > self.begin:
            to[max(begin - self.begin, 0):end - self.begin] = norms[
                max(0, self.begin - begin):].cpu().numpy()

    def watch_rope(self):
        """From now on each recorded layer, in chunks where `compares_rope` is set, is asked a second
        time, with position embeddings that turn nothing."""
        def ask(module, arguments, options, _):
            embeddings = without_positions(options.get("position_embeddings"))
            if self.purpose != "record" or not self.compares_rope or embeddings is None:
                return
            query, key = (rows[0] for rows in self.rows)
            self.purpose = "unturned"
            module(*arguments, **{**without_cache(options), "position_embeddings": embeddings})
            self.purpose = "record"
            plain_query, plain_key = (rows[0] for rows in self.rows)
            if torch.equal(plain_key, key) and not torch.equal(plain_query, query):
                plain_key, key = plain_query, query
                self.shared.add(module.layer_idx)
            self.ropes[module.layer_idx].compare(plain_key, key, self.row)

        for layer in self.layers:
            self.kinds[layer].module.register_forward_hook(ask, with_kwargs=True)

    def finish(self, tokens, config):
        missing = set(self.layers) - self.asked
        if missing:
            raise UserError(f"layers {sorted(missing)} never asked for attention with a cache; "
                          "allowed: other --layers")
        for name, values in tokens.items():
            kind = numpy.int32 if name == "id" else numpy.float32
            self.file[f"tokens/{name}"] = numpy.asarray(values, kind)
        rope = rope_attributes(config, self.ropes)
        scaling = rope["rope_scaling"]
        if scaling not in ("none", "by layer"):
            print(f"{PROGRAM}: note: rope_scaling is '{scaling}': keys cannot be turned back",
                  file=sys.stderr)
        if self.shared:
            print(f"{PROGRAM}: note: layers {numbers(sorted(self.shared))} use an earlier "
                  "layer's keys and values: the trace holds them as their own", file=sys.stderr)
        self.file.attrs.update(rope)
        self.file.attrs["sliding_window"] = [self.kinds[layer].windows[0] for layer in self.layers]
        self.file.attrs["complete"] = 1
        write_checksums(self.file)
        self.file.close()
        os.replace(self.temporary, self.path)

    def discard(self):
        self.file.close()
        self.temporary.unlink(missing_ok=True)


@torch.no_grad()
def run(model, recorder, ids, prompt, total, sampled, chunk):
    """Reads the prompt, and either the rest of the text or what the model itself writes."""
    tokens = {"id": list(ids[:prompt] if sampled else ids[:total]), "entropy": [],
              "top_probability": [], "log_probability": []}
    cache = None
    parameters = inspect.signature(model.forward).parameters
    its_name = "cache" if "cache" in parameters else "past_key_values"
    with Progress("record", total) as progress:
        while recorder.row < total:
            here = recorder.row
            end = min(here + chunk, prompt if here < prompt else total)
            if sampled and here >= prompt:
                end = here + 1
            recorder.compares_rope = here == 0 or end in (prompt, total)
            batch = torch.tensor([tokens["id"][here:end]], device=model.device)
            result = model(batch, use_cache=True, **{its_name: cache})
            cache = result[its_name]
            logs = torch.log_softmax(result.logits[0].float(), dim=-1)
            if sampled and prompt <= end < total:
                tokens["id"].append(int(logs[-1].argmax()))
            # The last position's next token is not in the trace: its likeliest stands there.
            nexts = [tokens["id"][at + 1] if at + 1 < len(tokens["id"])
                     else int(logs[at - here].argmax()) for at in range(here, end)]
            probabilities = logs.exp()
            entropies = -torch.special.xlogy(probabilities, probabilities).sum(-1)
            tokens["entropy"] += entropies.tolist()
            tokens["top_probability"] += probabilities.max(-1).values.tolist()
            tokens["log_probability"] += logs[range(end - here), nexts].tolist()
            recorder.row = end
            progress.update(end - here)
    return tokens


def decoder_blocks(model, count):
    """The layers in order; none where they are not built of `input_layernorm` and `self_attn`."""
    blocks = {module.self_attn.layer_idx: module for module in model.modules()
              if hasattr(module, "input_layernorm") and
              hasattr(getattr(module, "self_attn", None), "layer_idx")}
    return [blocks[layer] for layer in range(count)] if sorted(blocks) == [*range(count)] else []


def chosen_layers(arguments, count):
    if arguments.layers is None:
        return list(range(0, count, arguments.every))
    try:
        layers = sorted({int(layer) for layer in arguments.layers.split(",")})
    except ValueError:
        layers = [-1]
    if layers[0] < 0 or layers[-1] >= count:
        raise UserError(f"--layers {arguments.layers}; allowed: numbers from 0 to {count - 1}, by "
                        "commas")
    return layers


def read_ids(arguments):
    """Token ids, their origin, and the SHA-256 of what was read."""
    if arguments.ids is not None:
        content = arguments.ids.read_bytes()
        return [int(word) for word in content.split()], "none: token ids were given", content
    content = arguments.text.read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    return tokenizer(content.decode())["input_ids"], type(tokenizer).__name__, content


def capture(arguments):
    if arguments.out.exists():
        raise UserError(f"{arguments.out}: exists; allowed: a new name")
    ids, tokenizer, content = read_ids(arguments)
    total = arguments.prompt + arguments.steps
    wanted = arguments.prompt if arguments.generate else total
    if len(ids) < wanted:
        raise UserError(f"the text has {len(ids)} tokens; allowed: at least {wanted}, for --prompt"
                        + ("" if arguments.generate else " and --steps"))
    torch.manual_seed(arguments.seed)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=arguments.compute)
    model = model.to(arguments.device).eval()
    config = text_config(model.config)
    if max(ids[:wanted]) >= config.vocab_size or min(ids[:wanted]) < 0:
        raise UserError(f"a token id is out of range; allowed: 0 to {config.vocab_size - 1}")
    layers = chosen_layers(arguments, config.num_hidden_layers)
    begin = max(0, arguments.prompt - arguments.query_window)

    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    ALL_ATTENTION_FUNCTIONS.register(NAME, sdpa_attention_forward)
    model.set_attn_implementation(NAME)
    blocks = decoder_blocks(model, config.num_hidden_layers)
    comparison = Comparison(model, layers, blocks)
    kinds = comparison.run((ids[:wanted] * COMPARED_TOKENS)[:COMPARED_TOKENS])
    if comparison.no_ahead and not arguments.no_query_ahead:
        print(f"{PROGRAM}: note: query_ahead is left out: {comparison.no_ahead}",
              file=sys.stderr)
    if comparison.no_ahead or arguments.no_query_ahead:
        blocks = []
    streams = [] if comparison.no_stream else comparison.streams
    if comparison.no_stream:
        print(f"{PROGRAM}: note: output_sketch and residual_norm are left out: "
              f"{comparison.no_stream}", file=sys.stderr)
    heads, kv_heads, dim = kinds[layers[0]][1:4]
    queries = (2 if blocks else 1) * heads * (total - begin)
    size = len(layers) * dim * 2 * (2 * kv_heads * total + queries) + 16 * total
    size += len(streams) * 4 * (SKETCH_ROWS * heads * dim + total - begin)
    free = shutil.disk_usage(arguments.out.absolute().parent).free
    print(f"{arguments.out}: {len(layers)} layers, {total} tokens: {size / 1e6:.1f} MB of "
          f"{free / 1e6:.0f} MB free", file=sys.stderr)
    if size > free:
        raise UserError(f"{arguments.out}: would take {size} bytes; allowed: the {free} that "
                        "are free")

    attributes = {
        "format": "kvtrace", "format_version": 1, "model": arguments.model,
        "model_revision": getattr(model.config, "_commit_hash", None) or "", "weights_sha256": "",
        "layers": config.num_hidden_layers, "query_heads": heads, "kv_heads": kv_heads,
        "head_dim": dim, "hidden_size": config.hidden_size, "recorded_layers": layers,
        "prompt_tokens": arguments.prompt, "tokens": total, "dtype": arguments.dtype,
        "key_state": "post_rope", "softmax_scale": kinds[layers[0]].scale,
        "tokenizer": tokenizer, "text_source": (arguments.ids or arguments.text).name,
        "text_sha256": hashlib.sha256(content).hexdigest(),
        "text_mode": "greedy" if arguments.generate else "teacher_forced", "tool": "capture_hf",
        "tool_version": f"1 (transformers {transformers.__version__}, torch {torch.__version__})",
        "seed": arguments.seed,
        "created_utc": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    recorder = Recorder(arguments.out, attributes, layers, kinds, total, begin, arguments.dtype,
                        bool(blocks), rope_of(config)[0])
    try:
        ALL_ATTENTION_FUNCTIONS.register(NAME, recorder.attention)
        recorder.watch(blocks)
        if streams:
            recorder.watch_streams(streams)
        recorder.watch_rope()
        recorder.finish(run(model, recorder, ids, arguments.prompt, total, arguments.generate,
                            arguments.chunk), config)
    except BaseException:
        recorder.discard()
        raise


def capture_adapted(arguments):
    """Records both texts, and stores with the trace what `kvreplay adapt` makes from the other."""
    if arguments.out.exists():
        raise UserError(f"{arguments.out}: exists; allowed: a new name")
    program = os.environ.get("KVREPLAY_PROGRAM") or find_built(
        "kvreplay", None, "a build folder: `kvreplay adapt` makes the matrices")
    other, plain = copy.copy(arguments), copy.copy(arguments)
    other.text, other.ids = arguments.adapt_text, arguments.adapt_ids
    tokens = min(len(read_ids(other)[0]), arguments.adapt_tokens)
    other.prompt, other.steps, other.query_window = tokens - 1, 1, tokens - 1
    other.generate, other.no_query_ahead = False, True
    with tempfile.TemporaryDirectory(dir=arguments.out.absolute().parent) as name:
        folder = pathlib.Path(name)
        plain.out, other.out = folder / "plain.kvtrace.h5", folder / "other.kvtrace.h5"
        capture(plain)
        capture(other)
        spread = ["--spread"] if arguments.adapt_spread else []
        run = subprocess.run([program, "adapt", *spread, other.out, plain.out, arguments.out],
                             check=False)
    if run.returncode != 0:
        raise UserError(f"{arguments.out}: `kvreplay adapt` failed; allowed: see what it says above")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}; allowed: an integer from 1")
    return value


def main():
    parser = Parser(description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a name on the hub, or a folder of save_pretrained")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT.kvtrace.h5")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=pathlib.Path, metavar="FILE", help="UTF-8 text to read")
    source.add_argument("--ids", type=pathlib.Path, metavar="FILE",
                        help="token ids to read, by blanks, in place of a text")
    parser.add_argument("--prompt", type=positive, default=3072, metavar="N",
                        help="prompt tokens (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=256, metavar="N",
                        help="decode steps (default: %(default)s)")
    parser.add_argument("--generate", action="store_true",
                        help="decode what the model itself writes, greedily, also beyond its end of "
                        "text (default: teacher-forced, the text goes on)")
    parser.add_argument("--layers", metavar="N,N", help="layers to record (default: all)")
    parser.add_argument("--every", type=positive, default=1, metavar="N",
                        help="without --layers, record every N-th layer (default: %(default)s)")
    parser.add_argument("--query-window", type=int, default=64, metavar="N",
                        help="prompt positions before the first step with queries (default: "
                        "%(default)s)")
    parser.add_argument("--no-query-ahead", action="store_true",
                        help="leave out the look-ahead queries (one projection per layer)")
    parser.add_argument("--dtype", choices=STORED, default="f16",
                        help="data type of stored vectors (default: %(default)s)")
    parser.add_argument("--compute", default="auto", choices=("auto", "float32", "bfloat16", "float16"),
                        help="data type of the computation (default: that of the stored weights)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                        help="where the model runs (default here: %(default)s)")
    parser.add_argument("--chunk", type=positive, default=512, metavar="N",
                        help="tokens read at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default: %(default)s)")
    adapters = parser.add_mutually_exclusive_group()
    adapters.add_argument("--adapt-text", type=pathlib.Path, metavar="FILE",
                          help="another text: low-rank, PCA and skew matrices are made from it and "
                          "stored with the trace, as by `kvreplay adapt`, which must be built")
    adapters.add_argument("--adapt-ids", type=pathlib.Path, metavar="FILE",
                          help="the same, from token ids")
    parser.add_argument("--adapt-tokens", type=positive, metavar="N",
                        help="first tokens of that text that are read (default: %(default)s)")
    parser.add_argument("--adapt-spread", action="store_true",
                        help="turn that text's keys and queries to positions spread evenly over "
                        "the recording's length, as if the text were as long")
    arguments = parser.parse_args()
    adapted = arguments.adapt_text is not None or arguments.adapt_ids is not None
    for option, given in (("--adapt-tokens", arguments.adapt_tokens is not None),
                          ("--adapt-spread", arguments.adapt_spread)):
        if given and not adapted:
            raise UserError(f"{option}: given without a text to make adapters of; allowed: "
                            "--adapt-text FILE or --adapt-ids FILE beside it")
    arguments.adapt_tokens = arguments.adapt_tokens or 4096
    (capture_adapted if adapted else capture)(arguments)


if __name__ == "__main__":
    sys.exit(exit_code(PROGRAM, main, mistakes=(OSError, ValueError)))
