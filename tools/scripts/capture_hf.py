#!/usr/bin/env python3
"""Records a trace (docs/trace-format.md) of a Hugging Face model while it reads or writes a text.

Works with every model that takes its attention function from transformers' attention interface.
Keys and values are recorded before KV heads are repeated, queries of the prompt's last window and
of every decode step; and `query_ahead`, what the layer's own norm and attention make of the residual
stream that entered the layer before. Needs torch, transformers, h5py and tqdm (pip install torch
transformers h5py tqdm).
"""

import argparse
import datetime
import hashlib
import math
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import Parser, exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402

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

    from kvreplay.progress import Progress
except ImportError as error:
    print(f"{PROGRAM}: {error}; allowed: Python with torch, transformers (4.53 or later), h5py and "
          "tqdm", file=sys.stderr)
    sys.exit(2)

NAME = "kvtrace"  # of the attention function
STORED = {"f16": torch.float16, "bf16": torch.bfloat16}


def text_config(config):
    """Of a model with pictures or sound, the part that writes text."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def rope_of(config):
    """Base and scaling; a scaling that is not 'none' keeps readers from turning keys back."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    theta = parameters.get("rope_theta") or getattr(config, "rope_theta", None)
    if not theta:
        return 10000.0, "no rotary embedding, or one of each layer's own"
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    partial = getattr(config, "partial_rotary_factor", None) or parameters.get(
        "partial_rotary_factor", 1)
    if partial != 1:
        kind = f"partial {partial}"
    return float(theta), "none" if kind == "default" else str(kind)


class Recorder:
    """The HDF5 file, written row by row under a temporary name."""

    def __init__(self, path, attributes, layers, shape, window_begin, dtype, ahead):
        self.path, self.temporary = path, path.with_name(path.name + f".partial-{os.getpid()}")
        self.dtype, self.begin, self.row = dtype, window_begin, 0
        self.scales, self.windows, self.layers = {}, {}, layers
        self.place_of_query = "query"  # "query_ahead" while a layer looks ahead
        self.shape = shape
        self.file = h5py.File(self.temporary, "w")
        self.file.attrs.update(attributes)
        query_heads, kv_heads, tokens, dim = shape
        kind = numpy.float16 if dtype == "f16" else numpy.uint16
        for layer in layers:
            group = self.file.create_group(f"layer/{layer:02}")
            for name in ("key", "value"):
                group.create_dataset(name, (kv_heads, tokens, dim), kind)
            for name in ("query", "query_ahead") if ahead else ("query",):
                query = group.create_dataset(name, (query_heads, tokens - window_begin, dim), kind)
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
        if self.place_of_query == "query_ahead":
            self.keep_query(layer, query)
            return torch.zeros_like(query.transpose(1, 2)), None
        if layer in self.layers:
            self.keep(layer, query, key, value, scaling,
                      options.get("sliding_window") or getattr(module, "sliding_window", None))
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling,
                                      **options)

    def keep(self, layer, query, key, value, scaling, window):
        query_heads, kv_heads, _, dim = self.shape
        count = query.shape[2]
        found = query.shape[1], key.shape[1], key.shape[3], value.shape[3]
        if found != (query_heads, kv_heads, dim, dim):
            raise UserError(f"layer {layer}: query heads, KV heads, key and value size are "
                            f"{found}; allowed: {(query_heads, kv_heads, dim, dim)}, as the "
                            "configuration says")
        self.scales[layer] = scaling or 1 / math.sqrt(dim)
        self.windows[layer] = int(window or 0)
        begin, end = self.row, self.row + count
        for name, rows in (("key", key), ("value", value)):
            place = f"/layer/{layer:02}/{name}"
            self.file[place][:, begin:end] = self.bits(rows[0, :, -count:], place)
        self.keep_query(layer, query)

    def keep_query(self, layer, query):
        begin, end = self.row, self.row + query.shape[2]
        if end > self.begin:
            skip = max(0, self.begin - begin)
            place = f"/layer/{layer:02}/{self.place_of_query}"
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
            self.place_of_query = "query_ahead"
            # Without the cache, which would take the keys in.
            block.self_attn(hidden_states=block.input_layernorm(before),
                            **{name: value for name, value in options.items()
                               if name != "hidden_states" and
                               not isinstance(value, transformers.Cache)})
            self.place_of_query = "query"

        for block in blocks:
            block.register_forward_pre_hook(look, with_kwargs=True)

    def finish(self, tokens):
        missing = set(self.layers) - set(self.scales)
        if missing:
            raise UserError(f"layers {sorted(missing)} never asked for attention: the model does "
                            "not use transformers' attention interface there; allowed: other "
                            "--layers")
        if len(set(self.scales.values())) != 1:
            raise UserError(f"layers differ in their softmax scale: {self.scales}; allowed: one "
                            "scale")
        for name, values in tokens.items():
            kind = numpy.int32 if name == "id" else numpy.float32
            self.file[f"tokens/{name}"] = numpy.asarray(values, kind)
        self.file.attrs["softmax_scale"] = next(iter(self.scales.values()))
        self.file.attrs["sliding_window"] = [self.windows[layer] for layer in self.layers]
        self.file.attrs["complete"] = 1
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
    with Progress("record", total) as progress:
        while recorder.row < total:
            here = recorder.row
            end = min(here + chunk, prompt if here < prompt else total)
            if sampled and here >= prompt:
                end = here + 1
            batch = torch.tensor([tokens["id"][here:end]], device=model.device)
            result = model(batch, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
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
    """Token ids, how they were made, and the SHA-256 of what was read."""
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
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    layers = chosen_layers(arguments, config.num_hidden_layers)
    begin = max(0, arguments.prompt - arguments.query_window)

    blocks = [] if arguments.no_query_ahead else decoder_blocks(model, config.num_hidden_layers)
    if not blocks and not arguments.no_query_ahead:
        print(f"{PROGRAM}: note: query_ahead is left out: this model's layers are not made of "
              "input_layernorm and self_attn", file=sys.stderr)
    queries = (2 if blocks else 1) * heads * (total - begin)
    size = len(layers) * dim * 2 * (2 * kv_heads * total + queries) + 16 * total
    free = shutil.disk_usage(arguments.out.absolute().parent).free
    print(f"{arguments.out}: {len(layers)} layers, {total} tokens: {size / 1e6:.1f} MB of "
          f"{free / 1e6:.0f} MB free", file=sys.stderr)
    if size > free:
        raise UserError(f"{arguments.out}: would take {size} bytes; allowed: the {free} that "
                        "are free")

    theta, scaling = rope_of(config)
    attributes = {
        "format": "kvtrace", "format_version": 1, "model": arguments.model,
        "model_revision": getattr(model.config, "_commit_hash", None) or "", "weights_sha256": "",
        "layers": config.num_hidden_layers, "query_heads": heads, "kv_heads": kv_heads,
        "head_dim": dim, "hidden_size": config.hidden_size, "recorded_layers": layers,
        "prompt_tokens": arguments.prompt, "tokens": total, "dtype": arguments.dtype,
        "key_state": "post_rope", "rope_theta": theta, "rope_pairs": "half", "rope_scaling": scaling,
        "tokenizer": tokenizer, "text_source": (arguments.ids or arguments.text).name,
        "text_sha256": hashlib.sha256(content).hexdigest(),
        "text_mode": "greedy" if arguments.generate else "teacher_forced", "tool": "capture_hf",
        "tool_version": f"1 (transformers {transformers.__version__}, torch {torch.__version__})",
        "seed": arguments.seed,
        "created_utc": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    recorder = Recorder(arguments.out, attributes, layers, (heads, kv_heads, total, dim), begin,
                        arguments.dtype, bool(blocks))
    try:
        ALL_ATTENTION_FUNCTIONS.register(NAME, recorder.attention)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)
        recorder.watch(blocks)
        recorder.finish(run(model, recorder, ids, arguments.prompt, total, arguments.generate,
                            arguments.chunk))
    except BaseException:
        recorder.discard()
        raise


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
                        help="without --layers: each N-th layer (default: %(default)s)")
    parser.add_argument("--query-window", type=int, default=64, metavar="N",
                        help="prompt positions before the first step with queries (default: "
                        "%(default)s)")
    parser.add_argument("--no-query-ahead", action="store_true",
                        help="leave out the look-ahead queries, which cost a projection a layer")
    parser.add_argument("--dtype", choices=STORED, default="f16",
                        help="how vectors are stored (default: %(default)s)")
    parser.add_argument("--compute", default="auto", choices=("auto", "float32", "bfloat16", "float16"),
                        help="what the model computes in (default: as its weights are stored)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                        help="where the model runs (default here: %(default)s)")
    parser.add_argument("--chunk", type=positive, default=512, metavar="N",
                        help="tokens read at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default: %(default)s)")
    capture(parser.parse_args())


if __name__ == "__main__":
    sys.exit(exit_code(PROGRAM, main, mistakes=(OSError, ValueError)))
