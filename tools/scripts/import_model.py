"""Turns a GGUF file or a Hugging Face folder into one model file for `kvreplay record`.

    tools/scripts/python-env tools/scripts/import_model.py SOURCE OUT [--name NAME] [--dtype TYPE]

SOURCE is a .gguf file, or a folder with config.json, *.safetensors and tokenizer.json. Models of
the llama family are taken: Llama, SmolLM2, Mistral, Qwen2 and Qwen3 (dense). What this cannot
represent is refused, never left out. The result is described in docs/recording.md.
"""

import hashlib
import json
import math
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import Parser, exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402
from kvreplay.progress import Progress  # noqa: E402

FORMAT_VERSION = "1"
PANEL = 16  # outputs of a matrix that lie side by side

LAYER_MATRICES = ["query", "key", "value", "attention_output", "gate", "up", "down"]
LAYER_VECTORS = ["attention_norm", "ffn_norm"]
OPTIONAL_VECTORS = ["query_bias", "key_bias", "value_bias", "query_norm", "key_norm"]

GGUF_NAMES = {
    "query": "attn_q.weight", "key": "attn_k.weight", "value": "attn_v.weight",
    "attention_output": "attn_output.weight", "gate": "ffn_gate.weight", "up": "ffn_up.weight",
    "down": "ffn_down.weight", "attention_norm": "attn_norm.weight", "ffn_norm": "ffn_norm.weight",
    "query_bias": "attn_q.bias", "key_bias": "attn_k.bias", "value_bias": "attn_v.bias",
    "query_norm": "attn_q_norm.weight", "key_norm": "attn_k_norm.weight"}
HF_NAMES = {
    "query": "self_attn.q_proj.weight", "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight", "attention_output": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
    "attention_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight",
    "query_bias": "self_attn.q_proj.bias", "key_bias": "self_attn.k_proj.bias",
    "value_bias": "self_attn.v_proj.bias", "query_norm": "self_attn.q_norm.weight",
    "key_norm": "self_attn.k_norm.weight"}

# Pairs that RoPE turns together: llama's GGUF files have their rows permuted, the others have not.
GGUF_PAIRS = {"llama": "interleaved", "qwen2": "half", "qwen3": "half"}
LLAMA3_KEYS = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
HF_ARCHITECTURES = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                    "Qwen3ForCausalLM"]

LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def split_then_bytes(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {**BYTE_LEVEL, "use_regex": False}]}


# By GGUF's name (tokenizer.ggml.pre), in the form of a tokenizer.json.
PRE_TOKENISERS = {
    "gpt-2": {**BYTE_LEVEL, "use_regex": True},
    "smollm": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}]},
    "llama-bpe": split_then_bytes(LLAMA3_SPLIT),
    "qwen2": split_then_bytes(LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}"))}


def sha256_of(paths):
    digest = hashlib.sha256()
    with Progress("hashing", sum(os.path.getsize(path) for path in paths)) as progress:
        for path in paths:
            with open(path, "rb") as file:
                while piece := file.read(1 << 22):
                    digest.update(piece)
                    progress.update(len(piece))
    return digest.hexdigest()


def bfloat16_to_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float_to_bfloat16(values):
    """Rounds to nearest, ties to even; values are finite."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def llama3_factors(head_dim, theta, factor, low, high, length):
    """What each pair's frequency is divided by. (Llama 3.1's published apply_scaling; `low` and
    `high` frequency factors, `length` positions before scaling)"""
    factors = []
    for i in range(head_dim // 2):
        wave = 2 * math.pi * theta ** (2 * i / head_dim)
        if wave < length / high:
            factors.append(1.0)
        elif wave > length / low:
            factors.append(factor)
        else:
            smooth = (length / wave - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def within_window(context, window):
    """The positions up to which attention in a sliding window is full attention."""
    if window == 0 or window >= context:
        return context
    print(f"import_model: note: attention reaches {window} positions back: the model is taken up to "
          f"{window} of its {context} positions, where that is full attention", file=sys.stderr)
    return window


class GgufSource:
    def __init__(self, path):
        import gguf  # only this source needs it
        self.gguf = gguf
        self.path = path
        try:
            self.reader = gguf.GGUFReader(path)
        except (ValueError, IndexError, OverflowError, TypeError) as error:
            raise UserError(f"{path}: not a readable GGUF file: {error}") from None
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.names = set(self.tensors)
        self.files = [path]
        self.kind = self.field("general.architecture")
        if self.kind not in GGUF_PAIRS:
            raise UserError(f"{path}: general.architecture is {self.kind}; "
                            f"allowed: {', '.join(GGUF_PAIRS)}")

    def field(self, name, default=None):
        field = self.reader.fields.get(name)
        if field is not None:
            return field.contents()
        if default is None:
            raise UserError(f"{self.path}: there is no {name}")
        return default

    def own(self, name, default=None):
        return self.field(f"{self.kind}.{name}", default)

    def name(self):
        return str(self.field("general.name", pathlib.Path(self.path).stem))

    def tied(self):
        return "output.weight" not in self.names

    def is_redundant(self, name):
        return name == "rope_freqs.weight"  # rope_factors reads it

    def layer_name(self, layer, name):
        return f"blk.{layer}.{GGUF_NAMES[name]}"

    def special_name(self, name):
        return {"embedding": "token_embd.weight", "output": "output.weight",
                "output_norm": "output_norm.weight"}[name]

    def is_bfloat16(self, name):
        return self.tensors[name].tensor_type == self.gguf.GGMLQuantizationType.BF16

    def load(self, name):
        tensor = self.tensors[name]
        try:
            values = self.gguf.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise UserError(f"{self.path}: tensor {name} is {tensor.tensor_type.name}, which "
                            "the gguf package cannot dequantise") from None
        return np.asarray(values, np.float32)

    def architecture(self):
        heads = int(self.own("attention.head_count"))
        hidden = int(self.own("embedding_length"))
        head_dim = int(self.own("attention.key_length", hidden // heads))
        for what in ["rope.dimension_count", "attention.value_length"]:
            if int(self.own(what, head_dim)) != head_dim:
                raise UserError(f"{self.path}: {self.kind}.{what} is {self.own(what)}; "
                                f"allowed: {head_dim}, the length of a key")
        return {"layers": int(self.own("block_count")), "hidden_size": hidden,
                "ffn_size": int(self.own("feed_forward_length")), "query_heads": heads,
                "kv_heads": int(self.own("attention.head_count_kv", heads)), "head_dim": head_dim,
                "vocabulary": len(self.field("tokenizer.ggml.tokens")),
                "context_tokens": within_window(int(self.own("context_length")),
                                                int(self.own("attention.sliding_window", 0))),
                "norm_epsilon": float(self.own("attention.layer_norm_rms_epsilon")),
                "rope_theta": float(self.own("rope.freq_base", 10000.0)),
                "rope_pairs": GGUF_PAIRS[self.kind], "rope_scaling": "none"}

    def rope_factors(self, architecture):
        kind = self.own("rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            raise UserError(f"{self.path}: rope.scaling.type is {kind}; "
                            "allowed: none, linear, or factors in rope_freqs.weight")
        scaling = [f"linear {self.own('rope.scaling.factor'):g}"] if kind == "linear" else []
        scaling += ["factors of the file"] if "rope_freqs.weight" in self.names else []
        if not scaling:
            return None
        architecture["rope_scaling"] = ", ".join(scaling)
        factors = np.full(architecture["head_dim"] // 2, 1, np.float32)
        if kind == "linear":
            factors *= np.float32(self.own("rope.scaling.factor"))
        return factors * self.load("rope_freqs.weight") if "rope_freqs.weight" in self.names else factors

    def tokenizer(self):
        """A tokenizer.json, or None where its pieces are not of a kind that is known here."""
        model = self.field("tokenizer.ggml.model")
        pre = self.field("tokenizer.ggml.pre", "not stated")
        if model != "gpt2" or pre not in PRE_TOKENISERS:
            print(f"import_model: warning: tokenizer {model}/{pre} is not known: record this model "
                  "with --token-ids", file=sys.stderr)
            return None, f"{model}/{pre}"
        tokens = self.field("tokenizer.ggml.tokens")
        kinds = self.field("tokenizer.ggml.token_type")
        # Kinds 3 and 4: control and user-defined tokens, taken whole before any splitting.
        added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": kind == 3}
                 for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind in (3, 4)]
        first = None
        # llama.cpp's default is that of the pre-tokeniser's family.
        if self.field("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):
            bos = int(self.field("tokenizer.ggml.bos_token_id"))
            name = tokens[bos]
            first = {"type": "TemplateProcessing",
                     "single": [{"SpecialToken": {"id": name, "type_id": 0}},
                                {"Sequence": {"id": "A", "type_id": 0}}],
                     "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                              {"Sequence": {"id": "B", "type_id": 1}}],
                     "special_tokens": {name: {"id": name, "ids": [bos], "tokens": [name]}}}
        merges = [merge.split(" ") for merge in self.field("tokenizer.ggml.merges")]
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                 "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
                 "pre_tokenizer": PRE_TOKENISERS[pre], "post_processor": first,
                 "decoder": {**BYTE_LEVEL, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None,
                           "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False,
                           "ignore_merges": pre == "llama-bpe",
                           "vocab": {token: i for i, token in enumerate(tokens)},
                           "merges": merges}}
        return json.dumps(whole, ensure_ascii=False), f"{model}/{pre}"


class HuggingFaceSource:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = self.read_json("config.json")
        self.kind = (self.config.get("architectures") or ["unknown"])[0]
        if self.kind not in HF_ARCHITECTURES:
            raise UserError(f"{folder}/config.json: architectures is {self.kind}; "
                            f"allowed: {', '.join(HF_ARCHITECTURES)}")
        if self.config.get("hidden_act", "silu") != "silu":
            raise UserError(f"{folder}/config.json: hidden_act is "
                            f"{self.config['hidden_act']}; allowed: silu")
        self.rope = self.rope_parameters()
        self.files = self.find_files()
        self.where = {}
        for file in self.files:
            self.read_header(file)
        self.names = set(self.where)

    def read_json(self, name):
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder / name}: {error}") from None

    def find_files(self):
        """The index says which files are the model's: others may hold the same in another form."""
        index = "model.safetensors.index.json"
        if (self.folder / index).exists():
            shards = self.read_json(index).get("weight_map", {}).values()
            files = sorted({self.folder / shard for shard in shards})
        elif (self.folder / "model.safetensors").exists():
            files = [self.folder / "model.safetensors"]
        else:
            files = sorted(self.folder.glob("*.safetensors"))
        if not files:
            raise UserError(f"{self.folder}: holds no *.safetensors")
        for file in files:
            if not file.exists():
                raise UserError(f"{file}: is missing, but {index} names it")
        return files

    def rope_parameters(self):
        """Base and scaling; transformers 5 writes both in one place, earlier versions in two."""
        parameters = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        if any(isinstance(value, dict) for value in parameters.values()):
            raise UserError(f"{self.folder}/config.json: rope_parameters differ by kind of "
                            "layer; allowed: the same for all layers")
        theta = parameters.get("rope_theta", self.config.get("rope_theta", 10000.0))
        share = parameters.get("partial_rotary_factor",
                               self.config.get("partial_rotary_factor", 1))
        if share != 1:
            raise UserError(f"{self.folder}/config.json: partial_rotary_factor is {share}; "
                            "allowed: 1")
        return {**parameters, "rope_theta": float(theta)}

    def sliding_window(self):
        """Positions that attention reaches back, 0 = all; what transformers takes where the
        configuration is silent."""
        config = self.config
        used = {"LlamaForCausalLM": False, "MistralForCausalLM": True}.get(
            self.kind, config.get("use_sliding_window", False))
        return int(config.get("sliding_window", 4096) or 0) if used else 0

    def read_header(self, file):
        size = file.stat().st_size
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise UserError(f"{file}: not a safetensors file, or cut short")
            try:
                header = json.loads(stream.read(length))
            except ValueError as error:
                raise UserError(f"{file}: header: {error}") from None
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if end > size - 8 - length:
                raise UserError(f"{file}: tensor {name} lies beyond the file's end")
            self.where[name] = (file, 8 + length + begin, entry["dtype"], entry["shape"])

    def name(self):
        return self.folder.resolve().name

    def tied(self):
        return self.config.get("tie_word_embeddings", "lm_head.weight" not in self.names)

    def is_redundant(self, name):
        """Computed from the configuration, or a copy."""
        return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and self.tied())

    def layer_name(self, layer, name):
        return f"model.layers.{layer}.{HF_NAMES[name]}"

    def special_name(self, name):
        return {"embedding": "model.embed_tokens.weight", "output": "lm_head.weight",
                "output_norm": "model.norm.weight"}[name]

    def is_bfloat16(self, name):
        return self.where[name][2] == "BF16"

    def load(self, name):
        file, offset, dtype, shape = self.where[name]
        types = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
        if dtype not in types:
            raise UserError(f"{file}: tensor {name} is {dtype}; allowed: {', '.join(types)}")
        values = np.memmap(file, types[dtype], "r", offset, tuple(shape))
        return bfloat16_to_float(values) if dtype == "BF16" else np.asarray(values, np.float32)

    def architecture(self):
        config = self.config
        try:
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            return {"layers": int(config["num_hidden_layers"]), "hidden_size": hidden,
                    "ffn_size": int(config["intermediate_size"]), "query_heads": heads,
                    "kv_heads": int(config.get("num_key_value_heads") or heads),
                    "head_dim": int(config.get("head_dim") or hidden // heads),
                    "vocabulary": int(config["vocab_size"]),
                    "context_tokens": within_window(int(config["max_position_embeddings"]),
                                                    self.sliding_window()),
                    "norm_epsilon": float(config["rms_norm_eps"]),
                    "rope_theta": self.rope["rope_theta"],
                    "rope_pairs": "half", "rope_scaling": "none"}
        except KeyError as error:
            raise UserError(f"{self.folder}/config.json: there is no {error}") from None
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.folder}/config.json: {error}") from None

    def rope_factors(self, architecture):
        scaling = self.rope
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        try:
            if kind == "llama3":
                numbers = [float(scaling[key]) for key in LLAMA3_KEYS]
                architecture["rope_scaling"] = "llama3 " + json.dumps(
                    dict(zip(LLAMA3_KEYS, numbers)))
                return llama3_factors(architecture["head_dim"], scaling["rope_theta"], *numbers)
            if kind == "linear":
                architecture["rope_scaling"] = f"linear {float(scaling['factor']):g}"
                return np.full(architecture["head_dim"] // 2, float(scaling["factor"]), np.float32)
        except KeyError as error:
            raise UserError(f"{self.folder}/config.json: {kind} RoPE: there is no "
                            f"{error}") from None
        if kind == "default":
            return None
        raise UserError(f"{self.folder}/config.json: RoPE's scaling is {kind}; "
                        "allowed: llama3, linear, default")

    def tokenizer(self):
        file = self.folder / "tokenizer.json"
        if not file.exists():
            print("import_model: warning: there is no tokenizer.json: record this model with "
                  "--token-ids", file=sys.stderr)
            return None, "none"
        return file.read_text(encoding="utf-8"), "tokenizer.json"


def to_panels(matrix, dtype):
    """[outputs, inputs] to [outputs / 16, inputs, 16]; rows of zeros fill the last panel."""
    rows, columns = matrix.shape
    padded = np.zeros((-(-rows // PANEL) * PANEL, columns), np.float32)
    padded[:rows] = matrix
    panels = np.ascontiguousarray(padded.reshape(-1, PANEL, columns).transpose(0, 2, 1))
    return float_to_bfloat16(panels) if dtype == "BF16" else panels


def plan_tensors(source, architecture):
    """(name here, name there, shape there) of every tensor, by the architecture."""
    hidden, ffn = architecture["hidden_size"], architecture["ffn_size"]
    head_dim, vocabulary = architecture["head_dim"], architecture["vocabulary"]
    queries, keys = architecture["query_heads"] * head_dim, architecture["kv_heads"] * head_dim
    shapes = {"query": (queries, hidden), "key": (keys, hidden), "value": (keys, hidden),
              "attention_output": (hidden, queries), "gate": (ffn, hidden), "up": (ffn, hidden),
              "down": (hidden, ffn), "attention_norm": (hidden,), "ffn_norm": (hidden,),
              "query_bias": (queries,), "key_bias": (keys,), "value_bias": (keys,),
              "query_norm": (head_dim,), "key_norm": (head_dim,), "embedding": (vocabulary, hidden),
              "output": (vocabulary, hidden), "output_norm": (hidden,)}
    plan = [(name, source.special_name(name), shapes[name])
            for name in ["embedding", "output", "output_norm"]
            if name != "output" or not source.tied()]
    for layer in range(architecture["layers"]):
        for name in LAYER_VECTORS + OPTIONAL_VECTORS + LAYER_MATRICES:
            theirs = source.layer_name(layer, name)
            if name not in OPTIONAL_VECTORS or theirs in source.names:
                plan.append((f"layer.{layer:02d}.{name}", theirs, shapes[name]))
    planned = {theirs for _, theirs, _ in plan}
    for name in sorted(planned - source.names):
        raise UserError(f"{source.files[0]}: tensor {name} is missing")
    for name in sorted(source.names - planned):
        if not source.is_redundant(name):
            raise UserError(f"{source.files[0]}: tensor {name} has no place in a model file; "
                            f"allowed: {', '.join(shapes)}")
    return plan


def import_model(source, out, name, dtype):
    architecture = source.architecture()
    for key in ["hidden_size", "ffn_size", "head_dim"]:
        if architecture[key] % PANEL:
            raise UserError(f"{key} is {architecture[key]}; allowed: a multiple of {PANEL}")
    factors = source.rope_factors(architecture)
    plan = plan_tensors(source, architecture)
    tokenizer, tokenizer_name = source.tokenizer()

    def stored_type(theirs, shape):
        if len(shape) == 1 or dtype == "f32":
            return "F32"
        return "BF16" if dtype == "bf16" or source.is_bfloat16(theirs) else "F32"

    header = {"__metadata__": {
        "format": "kvmodel", "format_version": FORMAT_VERSION, "name": name or source.name(),
        "architecture": json.dumps(architecture), "tokenizer_name": tokenizer_name,
        "source": ", ".join(os.path.basename(path) for path in source.files),
        "source_sha256": sha256_of(source.files)}}
    offset = 0

    def place(tensor, stored, shape, item_bytes):
        nonlocal offset
        end = offset + math.prod(shape) * item_bytes
        header[tensor] = {"dtype": stored, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end

    for ours, theirs, shape in plan:
        stored = stored_type(theirs, shape)
        panels = shape if len(shape) == 1 else (-(-shape[0] // PANEL), shape[1], PANEL)
        place(ours, stored, panels, 2 if stored == "BF16" else 4)
    if factors is not None:
        place("rope_factors", "F32", factors.shape, 4)
    encoded = tokenizer.encode() if tokenizer else b""
    if encoded:
        place("tokenizer", "U8", [len(encoded)], 1)

    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    temporary = f"{out}.partial-{os.getpid()}"
    try:
        with open(temporary, "wb") as file, Progress("importing", offset) as progress:
            file.write(len(text).to_bytes(8, "little") + text)
            for ours, theirs, shape in plan:
                values = source.load(theirs)
                if values.shape != shape:
                    raise UserError(f"{source.files[0]}: tensor {theirs} is {values.shape}; "
                                    f"allowed: {shape}")
                if not np.isfinite(values).all():
                    raise UserError(f"{source.files[0]}: tensor {theirs} holds "
                                    "NaN or infinity")
                stored = stored_type(theirs, shape)
                values = values if len(shape) == 1 else to_panels(values, stored)
                values.tofile(file)
                progress.update(values.nbytes)
            if factors is not None:
                factors.tofile(file)
            file.write(encoded)
        os.replace(temporary, out)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise
    return architecture


def main():
    parser = Parser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("source", help="a .gguf file, or a folder of Hugging Face's form")
    parser.add_argument("out", help="the model file to write: NAME.kvmodel")
    parser.add_argument("--name", help="the model's name in traces (default: the source's own)")
    parser.add_argument("--dtype", choices=["auto", "f32", "bf16"], default="auto",
                        help="of matrices; auto: bf16 where the source is, f32 elsewhere, so that "
                             "nothing is lost (default: auto)")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.source):
        raise UserError(f"{arguments.source}: there is no such file or folder")
    if not os.path.isdir(arguments.source) and not os.path.isfile(arguments.source):
        raise UserError(f"{arguments.source}: is not a regular file; allowed: a GGUF file, or the "
                        "folder of a Hugging Face model")
    make = HuggingFaceSource if os.path.isdir(arguments.source) else GgufSource
    made = import_model(make(arguments.source), arguments.out, arguments.name, arguments.dtype)
    print(f"import_model: wrote {arguments.out}: {made['layers']} layers, "
          f"{made['query_heads']} query heads on {made['kv_heads']} KV heads", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code("import_model", main, mistakes=(OSError,)))
