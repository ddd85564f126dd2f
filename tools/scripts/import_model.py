"""Turns a GGUF file or a Hugging Face folder into one model file for `kvreplay record`.

    tools/scripts/python-env tools/scripts/import_model.py SOURCE OUT [--name NAME] [--dtype TYPE]

SOURCE is a .gguf file, a folder with config.json, *.safetensors and tokenizer.json, or a .kvmodel
of f32 or bf16 matrices, to store them in another type. Models of the llama family are taken: Llama,
SmolLM2, Mistral, Qwen2, Qwen3 (dense) and Gemma 3 (text). What this cannot represent is refused,
never left out. docs/recording.md describes the result.
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
from kvreplay.partial_names import partial_path  # noqa: E402
from kvreplay.progress import Progress  # noqa: E402

FORMAT_VERSION = "1"
PANEL = 16  # outputs of a matrix that are stored side by side
GROUP = 32  # inputs of an output that share a scale, where weights are integers
ALIGNMENT = 64  # bytes, of the data and of matrices of integers
INTEGER_BITS = {"I8": 8, "U8": 4}  # by the type of a matrix in the file

LAYER_MATRICES = ["query", "key", "value", "attention_output", "gate", "up", "down"]
LAYER_VECTORS = ["attention_norm", "ffn_norm"]
OPTIONAL_VECTORS = ["query_bias", "key_bias", "value_bias", "query_norm", "key_norm"]
# Properties of every model of the Gemma 3 family.
GEMMA_NORMS = ["post_attention_norm", "post_ffn_norm"]
GEMMA_HEAD_NORMS = ["query_norm", "key_norm"]

GGUF_NAMES = {
    "query": "attn_q.weight", "key": "attn_k.weight", "value": "attn_v.weight",
    "attention_output": "attn_output.weight", "gate": "ffn_gate.weight", "up": "ffn_up.weight",
    "down": "ffn_down.weight", "attention_norm": "attn_norm.weight", "ffn_norm": "ffn_norm.weight",
    "query_bias": "attn_q.bias", "key_bias": "attn_k.bias", "value_bias": "attn_v.bias",
    "query_norm": "attn_q_norm.weight", "key_norm": "attn_k_norm.weight",
    "post_attention_norm": "post_attention_norm.weight", "post_ffn_norm": "post_ffw_norm.weight"}
HF_NAMES = {
    "query": "self_attn.q_proj.weight", "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight", "attention_output": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
    "attention_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight",
    "query_bias": "self_attn.q_proj.bias", "key_bias": "self_attn.k_proj.bias",
    "value_bias": "self_attn.v_proj.bias", "query_norm": "self_attn.q_norm.weight",
    "key_norm": "self_attn.k_norm.weight"}
HF_GEMMA_NAMES = {
    **HF_NAMES, "post_attention_norm": "post_attention_layernorm.weight",
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "post_ffn_norm": "post_feedforward_layernorm.weight"}

# Pairs that RoPE rotates together. Only llama's GGUF files have their rows permuted.
GGUF_PAIRS = {"llama": "interleaved", "qwen2": "half", "qwen3": "half", "gemma3": "half"}
LLAMA3_KEYS = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
HF_ARCHITECTURES = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                    "Qwen3ForCausalLM", "Gemma3ForCausalLM"]
GEMMA_PERIOD = 6  # every sixth layer attends to all tokens, the others within the window

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


def space_marks(prefix):
    """SentencePiece's: a space is a character of a word; `prefix`: a text begins with one."""
    mark = "\u2581"
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": mark}
    back = [{"type": "Replace", "pattern": {"String": mark}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]
    if not prefix:
        return {"normalizer": replace, "decoder": {"type": "Sequence", "decoders": back}}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {"normalizer": {"type": "Sequence",
                           "normalizers": [{"type": "Prepend", "prepend": mark}, replace]},
            "decoder": {"type": "Sequence", "decoders": [*back, strip]}}


def merges_by_score(tokens, kinds, scores):
    """SentencePiece's BPE joins the two neighbours whose union is the token of the highest score:
    as merges, in their order."""
    normal = {token: score for token, kind, score in zip(tokens, kinds, scores) if kind == 1}
    found = []
    for token, score in normal.items():
        for cut in range(1, len(token)):
            if token[:cut] in normal and token[cut:] in normal:
                found.append((-score, token[:cut], token[cut:]))
    found.sort(key=lambda merge: merge[0])  # stable: the same on every machine
    return [[left, right] for _, left, right in found]


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


def full_every(period, layers):
    """Whether each layer attends to all tokens."""
    return [(layer + 1) % period == 0 for layer in range(layers)]


def gemma_parts(architecture, full, window, theta, local_theta, scale):
    """What the Gemma 3 family has in addition to the llama family. `scale`: factor on q . k."""
    return {"sliding_window": [0 if every else window for every in full],
            "rope_theta": [theta if every else local_theta for every in full],
            "activation": "gelu_tanh", "embedding_scale": math.sqrt(architecture["hidden_size"]),
            "softmax_scale": scale}


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

    def is_gemma(self):
        return self.kind == "gemma3"

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
        window = int(self.own("attention.sliding_window", 0))
        architecture = {
            "layers": int(self.own("block_count")), "hidden_size": hidden,
            "ffn_size": int(self.own("feed_forward_length")), "query_heads": heads,
            "kv_heads": int(self.own("attention.head_count_kv", heads)), "head_dim": head_dim,
            "vocabulary": len(self.field("tokenizer.ggml.tokens")),
            "context_tokens": int(self.own("context_length")), "sliding_window": window,
            "norm_epsilon": float(self.own("attention.layer_norm_rms_epsilon")),
            "rope_theta": float(self.own("rope.freq_base", 10000.0)),
            "rope_pairs": GGUF_PAIRS[self.kind], "rope_scaling": "none"}
        if self.is_gemma():
            architecture |= self.gemma(architecture, window)
        return architecture

    def gemma(self, architecture, window):
        for what in ["final_logit_softcapping", "attn_logit_softcapping"]:
            if self.own(what, 0):
                raise UserError(f"{self.path}: {self.kind}.{what} is {self.own(what)}; "
                                     "allowed: none")
        period = self.own("attention.sliding_window_pattern", GEMMA_PERIOD)
        full = ([not sliding for sliding in period] if isinstance(period, list)
                else full_every(int(period), architecture["layers"]))
        # GGUF does not hold query_pre_attn_scalar. It is the head's size but in the 27B model, which
        # has 62 layers. (llama.cpp: src/models/gemma3)
        scalar = (architecture["hidden_size"] / architecture["query_heads"]
                  if architecture["layers"] == 62 else architecture["head_dim"])
        return gemma_parts(architecture, full, window, architecture["rope_theta"],
                           float(self.own("rope.freq_base_swa", 10000.0)), scalar ** -0.5)

    def rope_factors(self, architecture):
        kind = self.own("rope.scaling.type", "none")
        if self.is_gemma() and kind != "none":
            raise UserError(f"{self.path}: rope.scaling.type is {kind}, of some layers only; "
                                 "allowed for gemma3: none")
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
        sentence_piece = model == "llama" and "tokenizer.ggml.scores" in self.reader.fields
        if not sentence_piece and (model != "gpt2" or pre not in PRE_TOKENISERS):
            print(f"import_model: warning: tokenizer {model}/{pre} is not known: record this model "
                  "with --token-ids", file=sys.stderr)
            return None, f"{model}/{pre}"
        tokens = self.field("tokenizer.ggml.tokens")
        kinds = self.field("tokenizer.ggml.token_type")
        # Kinds 3 and 4: control and user-defined tokens, matched whole before any splitting.
        added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": kind == 3}
                 for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind in (3, 4)]
        first = None
        # llama.cpp's default is that of the pre-tokeniser's family.
        if self.field("tokenizer.ggml.add_bos_token", sentence_piece or pre == "llama-bpe"):
            bos = int(self.field("tokenizer.ggml.bos_token_id"))
            name = tokens[bos]
            first = {"type": "TemplateProcessing",
                     "single": [{"SpecialToken": {"id": name, "type_id": 0}},
                                {"Sequence": {"id": "A", "type_id": 0}}],
                     "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                              {"Sequence": {"id": "B", "type_id": 1}}],
                     "special_tokens": {name: {"id": name, "ids": [bos], "tokens": [name]}}}
        vocabulary = {token: i for i, token in enumerate(tokens)}
        bpe = {"type": "BPE", "dropout": None, "unk_token": None,
               "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
               "byte_fallback": False, "ignore_merges": pre == "llama-bpe", "vocab": vocabulary}
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
        if sentence_piece:
            prefix = self.field("tokenizer.ggml.add_space_prefix", True)
            whole |= {**space_marks(prefix), "pre_tokenizer": None, "post_processor": first}
            unknown = int(self.field("tokenizer.ggml.unknown_token_id", 0))
            bpe |= {"unk_token": tokens[unknown], "fuse_unk": True, "byte_fallback": True,
                    "merges": merges_by_score(tokens, kinds,
                                              self.field("tokenizer.ggml.scores"))}
        else:
            whole |= {"normalizer": {"type": "NFC"} if pre == "qwen2" else None,
                      "decoder": {**BYTE_LEVEL, "use_regex": True},
                      "pre_tokenizer": PRE_TOKENISERS[pre], "post_processor": first}
            bpe |= {"merges": [merge.split(" ") for merge in self.field("tokenizer.ggml.merges")]}
        return json.dumps({**whole, "model": bpe}, ensure_ascii=False), f"{model}/{pre}"


class HuggingFaceSource:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = self.read_json("config.json")
        self.kind = (self.config.get("architectures") or ["unknown"])[0]
        if self.kind not in HF_ARCHITECTURES:
            raise UserError(f"{folder}/config.json: architectures is {self.kind}; "
                                 f"allowed: {', '.join(HF_ARCHITECTURES)}")
        act = "hidden_activation" if self.is_gemma() else "hidden_act"
        allowed = "gelu_pytorch_tanh" if self.is_gemma() else "silu"
        if self.config.get(act, allowed) != allowed:
            raise UserError(f"{folder}/config.json: {act} is {self.config[act]}; "
                                 f"allowed: {allowed}")
        for key in ["final_logit_softcapping", "attn_logit_softcapping",
                    "use_bidirectional_attention"]:
            if self.config.get(key):
                raise UserError(f"{folder}/config.json: {key} is {self.config[key]}; "
                                     "allowed: none")
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

    def is_gemma(self):
        return self.kind == "Gemma3ForCausalLM"

    def rope_parameters(self):
        """Base and scaling; transformers 5 writes both in one place, earlier versions in two."""
        parameters = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        if self.is_gemma():
            return self.gemma_rope(parameters)
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

    def gemma_rope(self, parameters):
        """RoPE of the layers that attend to all tokens, with the base of the others."""
        every = parameters.get("full_attention", parameters)
        local = parameters.get("sliding_attention", {})
        for scaling in (every, local):
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            if kind != "default":
                raise UserError(f"{self.folder}/config.json: RoPE's scaling is {kind}, of some "
                                     f"layers only; allowed for {self.kind}: default")
        return {"rope_theta": float(every.get("rope_theta",
                                              self.config.get("rope_theta", 1e6))),
                "local_theta": float(local.get("rope_theta",
                                               self.config.get("rope_local_base_freq", 1e4)))}

    def full_layers(self, layers):
        """Whether each layer attends to all tokens; what transformers takes where the
        configuration is silent."""
        config = self.config
        if self.kind == "LlamaForCausalLM":
            return [True] * layers
        if kinds := config.get("layer_types"):
            allowed = ["full_attention", "sliding_attention"]
            for kind in kinds:
                if kind not in allowed:
                    raise UserError(f"{self.folder}/config.json: layer_types has {kind}; "
                                         f"allowed: {', '.join(allowed)}")
            return [kind == "full_attention" for kind in kinds]
        if self.is_gemma():
            return full_every(int(config.get("sliding_window_pattern", GEMMA_PERIOD)), layers)
        if self.kind == "MistralForCausalLM":
            return [False] * layers
        first = int(config.get("max_window_layers", 28))
        used = config.get("use_sliding_window", False)
        return [not used or layer < first for layer in range(layers)]

    def sliding_windows(self, layers):
        """The number of latest positions that each layer attends to; 0 = all."""
        window = int(self.config.get("sliding_window", 4096) or 0)
        return [0 if full else window for full in self.full_layers(layers)]

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
        names = HF_GEMMA_NAMES if self.is_gemma() else HF_NAMES
        return f"model.layers.{layer}.{names[name]}"

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
        values = bfloat16_to_float(values) if dtype == "BF16" else np.asarray(values, np.float32)
        # Gemma's norms hold what is added to 1. (Those of a GGUF file hold the sum.)
        return values + np.float32(1) if self.is_gemma() and len(shape) == 1 else values

    def architecture(self):
        config = self.config
        try:
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            layers = int(config["num_hidden_layers"])
            architecture = {
                "layers": layers, "hidden_size": hidden,
                "ffn_size": int(config["intermediate_size"]), "query_heads": heads,
                "kv_heads": int(config.get("num_key_value_heads") or heads),
                "head_dim": int(config.get("head_dim") or hidden // heads),
                "vocabulary": int(config["vocab_size"]),
                "context_tokens": int(config["max_position_embeddings"]),
                "sliding_window": self.sliding_windows(layers),
                "norm_epsilon": float(config["rms_norm_eps"]),
                "rope_theta": self.rope["rope_theta"],
                "rope_pairs": "half", "rope_scaling": "none"}
            if self.is_gemma():
                architecture |= gemma_parts(
                    architecture, self.full_layers(layers), int(config["sliding_window"]),
                    self.rope["rope_theta"], self.rope["local_theta"],
                    float(config["query_pre_attn_scalar"]) ** -0.5)
            return architecture
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


class ModelFileSource:
    """A model file of f32 or bf16 matrices, such as `kvreplay fetch-model` leaves."""

    def __init__(self, path):
        self.files = [path]
        self.path = path
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if 8 + length <= size else b""
        try:
            self.header = json.loads(text)
            self.metadata = self.header.pop("__metadata__")
            if self.metadata["format"] != "kvmodel":
                raise ValueError("format is " + self.metadata["format"])
            self.made = json.loads(self.metadata["architecture"])
            self.begin = 8 + length
            for name, entry in self.header.items():
                if entry["data_offsets"][1] > size - self.begin:
                    raise ValueError(f"tensor {name} lies beyond the file's end")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a model file, or cut short: {error}") from None
        self.names = set(self.header)

    def is_gemma(self):
        return "layer.00.post_ffn_norm" in self.names

    def name(self):
        return self.metadata["name"]

    def tied(self):
        return "output" not in self.names

    def is_redundant(self, name):
        return name in ("rope_factors", "tokenizer")  # read by methods of their own

    def layer_name(self, layer, name):
        return f"layer.{layer:02d}.{name}"

    def special_name(self, name):
        return name

    def is_bfloat16(self, name):
        return self.header[name]["dtype"] == "BF16"

    def raw(self, name, dtype):
        begin, end = self.header[name]["data_offsets"]
        dtype = np.dtype(dtype)
        return np.memmap(self.path, dtype, "r", self.begin + begin,
                         (end - begin) // dtype.itemsize)

    def load(self, name):
        shape, stored = self.header[name]["shape"], self.header[name]["dtype"]
        if stored not in ("F32", "BF16"):
            raise UserError(f"{self.path}: tensor {name} is {stored}; allowed: F32, BF16")
        values = (self.raw(name, np.float32) if stored == "F32"
                  else bfloat16_to_float(self.raw(name, np.uint16)))
        if len(shape) == 1:
            return np.array(values)
        panels = values.reshape(shape).transpose(0, 2, 1).reshape(-1, shape[1])
        vocabulary = name in ("embedding", "output")  # alone may end within a panel
        return panels[:self.made["vocabulary"]] if vocabulary else panels

    def architecture(self):
        return {"sliding_window": 0, **self.made}

    def rope_factors(self, _):
        return (np.array(self.raw("rope_factors", np.float32)) if "rope_factors" in self.names
                else None)

    def tokenizer(self):
        text = (bytes(self.raw("tokenizer", np.uint8)).decode() if "tokenizer" in self.names
                else None)
        return text, self.metadata["tokenizer_name"]


def to_panels(matrix, dtype):
    """[outputs, inputs] to [outputs / 16, inputs, 16]; rows of zeros fill the last panel."""
    rows, columns = matrix.shape
    padded = np.zeros((-(-rows // PANEL) * PANEL, columns), np.float32)
    padded[:rows] = matrix
    panels = np.ascontiguousarray(padded.reshape(-1, PANEL, columns).transpose(0, 2, 1))
    return float_to_bfloat16(panels) if dtype == "BF16" else panels


def to_integers(matrix, bits):
    """[outputs, inputs] to integers [outputs / 16, inputs / 32, bits, 16, 4] and their scales
    [outputs / 16, inputs / 32, 16], as the kernels read them (docs/recording.md).

    The rounding is that of GGUF's Q8_0 and Q4_0: of 8 bits a group's largest magnitude becomes 127
    or -127; of 4 bits its element of largest magnitude becomes -8, whatever its sign."""
    rows, columns = matrix.shape
    panels, groups = -(-rows // PANEL), -(-columns // GROUP)
    padded = np.zeros((panels * PANEL, groups * GROUP), np.float32)
    padded[:rows, :columns] = matrix
    values = padded.reshape(-1, GROUP)
    farthest = values[np.arange(len(values)), np.abs(values).argmax(axis=1)]
    scales = np.abs(farthest) / np.float32(127) if bits == 8 else farthest / np.float32(-8)
    inverses = np.divide(np.float32(1), scales, out=np.zeros_like(scales),
                         where=np.abs(scales) > 1e-30)
    values = values * inverses[:, None]
    if bits == 8:
        integers = np.rint(values).astype(np.int8)
        # [panel, output, group, 8, 4] to [panel, group, 8, output, 4]
        integers = integers.reshape(panels, PANEL, groups, 8, 4).transpose(0, 2, 3, 1, 4)
    else:
        integers = np.minimum(values + np.float32(8.5), 15).astype(np.uint8)
        halves = integers.reshape(panels, PANEL, groups, 2, 4, 4).transpose(3, 0, 2, 4, 1, 5)
        integers = halves[0] | halves[1] << 4
    with np.errstate(over="ignore"):  # which the caller finds
        scales = scales.reshape(panels, PANEL, groups).transpose(0, 2, 1).astype(np.float16)
    return np.ascontiguousarray(integers), np.ascontiguousarray(scales)


def plan_tensors(source, architecture):
    """(name here, name there, shape there) of every tensor, by the architecture."""
    hidden, ffn = architecture["hidden_size"], architecture["ffn_size"]
    head_dim, vocabulary = architecture["head_dim"], architecture["vocabulary"]
    queries, keys = architecture["query_heads"] * head_dim, architecture["kv_heads"] * head_dim
    shapes = {"query": (queries, hidden), "key": (keys, hidden), "value": (keys, hidden),
              "attention_output": (hidden, queries), "gate": (ffn, hidden), "up": (ffn, hidden),
              "down": (hidden, ffn), "attention_norm": (hidden,), "ffn_norm": (hidden,),
              "query_bias": (queries,), "key_bias": (keys,), "value_bias": (keys,),
              "query_norm": (head_dim,), "key_norm": (head_dim,), "post_attention_norm": (hidden,),
              "post_ffn_norm": (hidden,), "embedding": (vocabulary, hidden),
              "output": (vocabulary, hidden), "output_norm": (hidden,)}
    plan = [(name, source.special_name(name), shapes[name])
            for name in ["embedding", "output", "output_norm"]
            if name != "output" or not source.tied()]
    optional = OPTIONAL_VECTORS
    vectors = LAYER_VECTORS + OPTIONAL_VECTORS
    if source.is_gemma():
        optional = [name for name in OPTIONAL_VECTORS if name not in GEMMA_HEAD_NORMS]
        vectors = vectors + GEMMA_NORMS
    for layer in range(architecture["layers"]):
        for name in vectors + LAYER_MATRICES:
            theirs = source.layer_name(layer, name)
            if name not in optional or theirs in source.names:
                plan.append((f"layer.{layer:02d}.{name}", theirs, shapes[name]))
    planned = {theirs for _, theirs, _ in plan}
    for name in sorted(planned - source.names):
        raise UserError(f"{source.files[0]}: tensor {name} is missing")
    for name in sorted(source.names - planned):
        if not source.is_redundant(name):
            raise UserError(f"{source.files[0]}: tensor {name} has no place in a model file; "
                            f"allowed: {', '.join(shapes)}")
    return plan


def say_by_layer(architecture):
    """One number where all layers have the same; a window that no position fills is none, and where
    no layer has one the model file does not speak of windows."""
    def as_list(value):
        return value if isinstance(value, list) else [value] * architecture["layers"]

    windows, thetas = as_list(architecture["sliding_window"]), as_list(architecture["rope_theta"])
    windows = [0 if window >= architecture["context_tokens"] else window for window in windows]
    for name, values in (("sliding_window", windows), ("rope_theta", thetas)):
        if len(values) != architecture["layers"]:
            raise UserError(f"the kinds of {len(values)} layers are given; allowed: "
                                 f"{architecture['layers']}, one per layer")
        architecture[name] = values if len(set(values)) > 1 else values[0]
    if architecture["sliding_window"] == 0:
        del architecture["sliding_window"]


def import_model(source, out, name, dtype):
    architecture = source.architecture()
    for key in ["hidden_size", "ffn_size", "head_dim"]:
        if architecture[key] % PANEL:
            raise UserError(f"{key} is {architecture[key]}; allowed: a multiple of {PANEL}")
    say_by_layer(architecture)
    factors = source.rope_factors(architecture)
    plan = plan_tensors(source, architecture)
    tokenizer, tokenizer_name = source.tokenizer()

    def stored_type(theirs, shape):
        if len(shape) == 1 or dtype == "f32":
            return "F32"
        if dtype.startswith("int"):
            return "I8" if dtype == "int8" else "U8"
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
        if bits := INTEGER_BITS.get(stored):
            groups = (panels[0], -(-shape[1] // GROUP))
            place(ours, stored, (*groups, bits, PANEL, 4), 1)
            place(f"{ours}.scales", "F16", (*groups, PANEL), 2)
            offset += -offset % ALIGNMENT
        else:
            place(ours, stored, panels, 2 if stored == "BF16" else 4)
    if factors is not None:
        place("rope_factors", "F32", factors.shape, 4)
    encoded = tokenizer.encode() if tokenizer else b""
    if encoded:
        place("tokenizer", "U8", [len(encoded)], 1)

    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    temporary = partial_path(out)
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
                if stored not in INTEGER_BITS:
                    parts = [values if len(shape) == 1 else to_panels(values, stored)]
                else:
                    parts = to_integers(values, INTEGER_BITS[stored])
                    if not np.isfinite(parts[1]).all():
                        raise UserError(f"{source.files[0]}: tensor {theirs} holds "
                                        f"{np.abs(values).max():g}, beyond what a scale of 16 bits "
                                        "reaches; allowed: --dtype bf16")
                for part in parts:
                    part.tofile(file)
                    progress.update(part.nbytes)
                if stored in INTEGER_BITS:
                    file.write(b"\0" * (-file.tell() % ALIGNMENT))
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
    parser.add_argument("source", help="a .gguf file, a folder of Hugging Face's form, or a "
                        "model file to store in another type")
    parser.add_argument("out", help="the model file to write: NAME.kvmodel")
    parser.add_argument("--name", help="the model's name in traces (default: the source's own)")
    parser.add_argument("--dtype", choices=["auto", "f32", "bf16", "int8", "int4"],
                        default="auto",
                        help="of matrices; auto: bf16 where the source is, f32 elsewhere, so that "
                             "nothing is lost; int8, int4: integers with a scale per 32 inputs, as "
                             "GGUF's Q8_0 and Q4_0 (default: auto)")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.source):
        raise UserError(f"{arguments.source}: there is no such file or folder")
    if not os.path.isdir(arguments.source) and not os.path.isfile(arguments.source):
        raise UserError(f"{arguments.source}: is not a regular file; allowed: a GGUF file, or the "
                        "folder of a Hugging Face model")
    make = (HuggingFaceSource if os.path.isdir(arguments.source)
            else ModelFileSource if arguments.source.endswith(".kvmodel") else GgufSource)
    made = import_model(make(arguments.source), arguments.out, arguments.name, arguments.dtype)
    print(f"import_model: wrote {arguments.out}: {made['layers']} layers, "
          f"{made['query_heads']} query heads on {made['kv_heads']} KV heads", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code("import_model", main, mistakes=(OSError,)))
