"""Models of other families: made by transformers, imported by tools/scripts/import_model.py, run by kvreplay,
beside what transformers itself computes; the same through GGUF, and the token ids of both.

Runs where a Python with torch and transformers is: $KVREPLAY_TORCH_PYTHON, or python3.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import unittest

import h5py
import numpy as np

from program import SOURCE, ProgramTest

PYTHON = os.environ.get("KVREPLAY_TORCH_PYTHON", "python3")
PROMPT, STEPS = 8, 152
TOKENS = PROMPT + STEPS

WINDOW = 48
GEMMA = {"head_dim": 32, "sliding_window": WINDOW, "hidden_activation": "gelu_pytorch_tanh"}

# (name, class, how it is saved, configuration); 4 query heads on 2 KV heads.
VARIANTS = {
    "llama": ("Llama", "float32", {"tie_word_embeddings": False}),
    "llama_tied_in_bf16": ("Llama", "bfloat16", {"tie_word_embeddings": True}),
    "llama3_in_shards_of_f16": ("Llama", "float16", {
        "tie_word_embeddings": False, "max_position_embeddings": 1024, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "llama_linear": ("Llama", "float32", {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "qwen2": ("Qwen2", "float32", {"rope_parameters": {"rope_type": "default",
                                                       "rope_theta": 1000000.0}}),
    "qwen3": ("Qwen3", "bfloat16", {"head_dim": 32}),
    "mistral": ("Mistral", "float32", {"sliding_window": None, "head_dim": 32}),
    "mistral_window": ("Mistral", "float32", {"sliding_window": WINDOW}),
    "qwen2_windows": ("Qwen2", "float32", {
        "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    # Everything that the family adds to the llama family differs from its default.
    "gemma3": ("Gemma3", "float32", {
        **GEMMA, "query_pre_attn_scalar": 24, "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}}),
    # As in a GGUF file, which says neither: every sixth layer is full, q . k is scaled by the head.
    "gemma3_by_sixths": ("Gemma3", "float32", {
        **GEMMA, "query_pre_attn_scalar": 32, "num_hidden_layers": 7}),
}

# Models, and what each says of the ids: log-probabilities [tokens, vocabulary].
MAKE = """
import json, pathlib, sys
import numpy, torch, transformers
folder, variants, ids = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
for number, (name, (family, dtype, config)) in enumerate(variants.items()):
    torch.manual_seed(number)
    config = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
              "initializer_range": 0.3, "rms_norm_eps": 1e-5, **config}
    kind = {"Gemma3": "Gemma3Text"}.get(family, family)
    made = getattr(transformers, kind + "Config")(**config)
    model = getattr(transformers, family + "ForCausalLM")(made).eval()
    with torch.no_grad():  # transformers starts norms at 1 and biases at 0
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += torch.randn_like(parameter) * 0.3
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder / name, max_shard_size="60KB" if "shards" in name else "1GB")
    # Read again: in half precision RoPE's frequencies, which are not saved, were rounded too.
    model = type(model).from_pretrained(folder / name, dtype=torch.float32).eval()
    with torch.no_grad():
        logs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    numpy.save(folder / f"{name}.npy", logs.numpy())
    if name in ("llama", "gemma3_by_sixths"):
        numpy.savez(folder / f"{name}.npz", **{key: value.numpy()
                                             for key, value in model.state_dict().items()})
"""

# A llama.cpp file of the weights: q and k permuted as its converter does, so that RoPE turns
# neighbours. Quantised ones come back as a model of transformers, for the reference.
WRITE_GGUF = """
import json, pathlib, sys
import gguf, numpy
source, out, kind, vocabulary = sys.argv[1:5]
weights = dict(numpy.load(source))
names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
tops = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}
writer = gguf.GGUFWriter(out, "llama")
writer.add_name("tiny")
writer.add_context_length(512)
writer.add_embedding_length(64)
writer.add_block_count(2)
writer.add_feed_forward_length(96)
writer.add_head_count(4)
writer.add_head_count_kv(2)
writer.add_rope_dimension_count(16)
writer.add_rope_freq_base(10000.0)
writer.add_layer_norm_rms_eps(1e-5)
for name, value in json.loads(sys.argv[5]).items():
    (writer.add_string if isinstance(value, str) else writer.add_float32)("llama." + name, value)
vocabulary = json.loads(pathlib.Path(vocabulary).read_text()) if vocabulary else None
if vocabulary:
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = numpy.resize(weights[name], (len(vocabulary["tokens"]), 64))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary["pre"])
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["kinds"])
    writer.add_token_merges(vocabulary["merges"])
    writer.add_bos_token_id(vocabulary["bos"])
else:
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(320)])
kind = gguf.GGMLQuantizationType[kind]
for key, value in weights.items():
    name, ending = key.rsplit(".", 1)
    if name in tops:
        ours = tops[name]
    else:
        _, _, layer, part = name.split(".", 3)
        ours = f"blk.{layer}.{names[part]}"
        if part in heads:
            value = value.reshape(heads[part], 2, -1, value.shape[1]).swapaxes(1, 2).reshape(
                value.shape)
    if value.ndim == 1:
        writer.add_tensor(f"{ours}.{ending}", value.astype(numpy.float32))
    else:
        writer.add_tensor(f"{ours}.{ending}", gguf.quantize(value.astype(numpy.float32), kind),
                          raw_dtype=kind)
        weights[key] = gguf.dequantize(gguf.quantize(weights[key], kind), kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
numpy.savez(out + ".npz", **weights)
"""

# The same of Gemma 3, with SentencePiece's vocabulary; norms as its converter writes them, 1 added.
WRITE_GEMMA_GGUF = """
import json, pathlib, sys
import gguf, numpy
source, out, vocabulary = sys.argv[1:4]
weights = dict(numpy.load(source))
names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "post_attention_norm",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
tops = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
writer = gguf.GGUFWriter(out, "gemma3")
for add, value in ((writer.add_context_length, 512), (writer.add_embedding_length, 64),
                   (writer.add_block_count, 7), (writer.add_feed_forward_length, 96),
                   (writer.add_head_count, 4), (writer.add_head_count_kv, 2),
                   (writer.add_key_length, 32), (writer.add_value_length, 32),
                   (writer.add_rope_freq_base, 1e6), (writer.add_layer_norm_rms_eps, 1e-5),
                   (writer.add_sliding_window, 48)):
    add(value)
for name, value in json.loads(sys.argv[4]).items():
    (writer.add_string if isinstance(value, str) else writer.add_float32)("gemma3." + name, value)
vocabulary = json.loads(pathlib.Path(vocabulary).read_text())
writer.add_tokenizer_model("llama")
writer.add_tokenizer_pre("default")
writer.add_token_list(vocabulary["tokens"])
writer.add_token_scores(vocabulary["scores"])
writer.add_token_types(vocabulary["kinds"])
writer.add_bos_token_id(2)
writer.add_unk_token_id(3)
writer.add_add_space_prefix(vocabulary["prefix"])
weights["model.embed_tokens.weight"] = numpy.resize(weights["model.embed_tokens.weight"],
                                                    (len(vocabulary["tokens"]), 64))
for key, value in weights.items():
    name = key.rsplit(".", 1)[0]
    if name == "lm_head":  # tied
        continue
    _, _, layer, part = name.split(".", 3) if name not in tops else (0, 0, 0, 0)
    name = tops.get(name) or f"blk.{layer}.{names[part]}"
    writer.add_tensor(f"{name}.weight", (value + (value.ndim == 1)).astype(numpy.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
"""

RUN_WEIGHTS = """
import json, sys
import numpy, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
model.load_state_dict({key: torch.tensor(value) for key, value in numpy.load(sys.argv[2]).items()})
with torch.no_grad():
    logs = torch.log_softmax(model(torch.tensor([json.loads(sys.argv[3])])).logits[0], -1)
numpy.save(sys.argv[4], logs.numpy())
"""

# A byte-level BPE with the pre-tokeniser of a family, as its tokenizer.json has it; what
# transformers makes of a text.
MAKE_TOKENIZER = """
import json, pathlib, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers, trainers
import transformers
folder, kind, text = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}DIGITS| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
         r"|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+").replace("DIGITS", "{1,3}" if kind == "llama-bpe" else "")
bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind in ("smollm", "gpt-2"))
first = {"smollm": [pre_tokenizers.Digits(individual_digits=True)], "gpt-2": []}.get(
    kind, [pre_tokenizers.Split(Regex(split), "isolated")])
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, bytewise])
tokenizer.normalizer = normalizers.NFC() if kind == "qwen2" else None
tokenizer.decoder = decoders.ByteLevel()
special = ["<|begin|>", "<|end|>"]
tokenizer.train([str(text)], trainers.BpeTrainer(
    vocab_size=640, special_tokens=special, show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.add_tokens([AddedToken("<call>", normalized=False)])
if kind == "llama-bpe":
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
folder.mkdir(exist_ok=True)
whole = json.loads(tokenizer.to_str())
vocabulary = tokenizer.get_vocab(with_added_tokens=True)
tokens = sorted(vocabulary, key=vocabulary.get)
pathlib.Path(str(folder) + ".vocabulary.json").write_text(json.dumps({
    "pre": kind, "tokens": tokens, "bos": 0, "merges": [" ".join(m) for m in whole["model"]["merges"]],
    "kinds": [3 if token in special else 4 if token == "<call>" else 1 for token in tokens]}))
# Settings that cut a text short belong to training, not to its tokens.
tokenizer.enable_truncation(7)
tokenizer.save(str(folder / "tokenizer.json"))
fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
print(json.dumps(fast(text.read_bytes().decode())["input_ids"]))
"""

TEXT = """In 1890, 12345 of them said: "it's the KING'S own, we'll see".\r
\tTabs,   many spaces   \n\n\n and e\u0301 or \u00e9, \u00fc\u00df, \u4f60\u597d, \u0663\u0664, \U0001f600!!\n
<|begin|>system<|end|><call>the end<call> of  the  text; the the the king 3.14159 -- x\u00a0y \u2028 z
"""


def sentence_pieces(text, size):
    """A vocabulary of SentencePiece's kind, of the runs of characters that `text` has most of:
    tokens, kinds (3: control, 4: taken whole, 6: a byte, 1: other) and scores, best first."""
    words = text.replace(" ", "\u2581")
    runs = {words[i:i + length] for length in range(1, 6) for i in range(len(words) - length + 1)}
    runs = sorted((run for run in runs if run.isprintable() or run == "\u2581"),
                  key=lambda run: (len(run) > 1, -words.count(run) * len(run), run))
    whole = ["\n", "\n\n", "  ", "   ", "<call>"]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<|begin|>", "<|end|>"]
    # The rarest letters are left out: their bytes stand for them.
    letters = [run for run in runs if len(run) == 1 and words.count(run) > 1]
    longer = [run for run in runs if len(run) > 1 and set(run) <= set(letters)]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = special + whole + bytes_ + (longer[:size] + letters)
    kinds = [3] * len(special) + [4] * len(whole) + [6] * 256
    kinds += [1] * (len(tokens) - len(kinds))
    scores = [0.0 if kind != 1 else -float(i) for i, kind in enumerate(kinds)]
    return {"tokens": tokens, "kinds": kinds, "scores": scores}


def sentence_piece_ids(text, vocabulary):
    """SentencePiece's BPE from its description: what is taken whole first, the longest where there
    are several; elsewhere the two neighbours whose union scores highest become one, the left ones of
    equals, until no union is a token; what is none is spelt in bytes."""
    tokens, kinds = vocabulary["tokens"], vocabulary["kinds"]
    ids = {token: i for i, token in enumerate(tokens)}
    scores = {token: score for token, kind, score in zip(tokens, kinds, vocabulary["scores"])
              if kind == 1}
    whole = sorted((token for token, kind in zip(tokens, kinds) if kind in (3, 4)), key=len)[::-1]
    found, rest = [ids["<bos>"]], text

    def join(part):
        pieces = list((vocabulary["prefix"] * " " + part).replace(" ", "\u2581"))
        while True:
            unions = [(-scores[a + b], i) for i, (a, b) in enumerate(zip(pieces, pieces[1:]))
                      if a + b in scores]
            if not unions:
                break
            _, i = min(unions)
            pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
        for piece in pieces:
            found.extend([ids[piece]] if piece in scores else
                         [ids[f"<0x{byte:02X}>"] for byte in piece.encode()])

    part = ""
    while rest:
        first = next((token for token in whole if rest.startswith(token)), None)
        if first is None:
            part, rest = part + rest[0], rest[1:]
            if rest:
                continue
        if part:
            join(part)
            part = ""
        if first is not None:
            found.append(ids[first])
            rest = rest[len(first):]
    return found


def architecture_of(model):
    with open(model, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return json.loads(header["__metadata__"]["architecture"])


def missing_module():
    """What is missing; empty when nothing is."""
    try:
        found = subprocess.run([PYTHON, "-c", "import torch, transformers"], check=False,
                               capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if found.returncode == 0 else (found.stderr.strip().splitlines() or ["no reason"])[-1]


MISSING = missing_module()


@unittest.skipIf(MISSING, f"{PYTHON} cannot import torch and transformers ({MISSING})")
class ImportModel(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = [int(i) for i in np.random.default_rng(3).integers(0, 320, TOKENS)]
        (cls.folder / "ids.txt").write_text(" ".join(map(str, cls.ids)))
        cls.torch(MAKE, cls.folder, json.dumps(VARIANTS), json.dumps(cls.ids))

    @classmethod
    def torch(cls, script, *arguments):
        result = subprocess.run([PYTHON, "-B", "-c", script, *map(str, arguments)], check=False,
                                capture_output=True, text=True)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        return result.stdout

    def gguf_python(self, *arguments):
        """Python with the gguf package, from the private environment."""
        result = subprocess.run([SOURCE / "tools/scripts/python-env", *map(str, arguments)],
                                capture_output=True, text=True, check=False)
        if "could not be installed" in result.stderr:
            self.skipTest("the packages of tools/scripts/requirements.txt could not be installed")
        return result

    def import_model(self, source, out, python=(sys.executable, "-B")):
        return subprocess.run([*python, SOURCE / "tools/scripts/import_model.py", source, self.folder / out],
                              capture_output=True, text=True, check=False)

    def compare(self, model, logs, steps=STEPS):
        """Log-probabilities, entropy and top probability at every position by `record`; the likeliest
        token of every step by `evaluate`."""
        for name in ("made.kvtrace.h5", "evaluated"):
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        common = ["--model", self.folder / model, "--token-ids", "ids.txt", "--prompt", PROMPT,
                  "--steps", steps]
        self.succeed("record", *common, "--out", "made.kvtrace.h5")
        tokens = PROMPT + steps
        logs = logs[:tokens].astype(np.float64)
        following = logs[np.arange(tokens - 1), self.ids[1:tokens]]
        with h5py.File(self.folder / "made.kvtrace.h5") as trace:
            error = np.abs(trace["tokens/log_probability"][:-1] - following).max()
            self.assertLess(error, 5e-4)
            np.testing.assert_allclose(trace["tokens/entropy"],
                                       -(np.exp(logs) * logs).sum(1), atol=2e-3)
            np.testing.assert_allclose(trace["tokens/top_probability"], np.exp(logs.max(1)),
                                       atol=2e-3)
        self.succeed("evaluate", *common, "--systems", "in_memory", "--out", "evaluated")
        with open(self.folder / "evaluated/steps.csv", newline="") as file:
            likeliest = [int(row["likeliest"]) for row in csv.DictReader(file)
                         if row["system"] == "full"]
        self.assertGreaterEqual(np.mean(np.array(likeliest) == logs[PROMPT:].argmax(1)), 0.99)


    def test_families_agree_with_transformers(self):
        for name in VARIANTS:
            with self.subTest(name):
                made = self.import_model(self.folder / name, f"{name}.kvmodel")
                self.assertEqual(made.returncode, 0, made.stderr)
                logs = np.load(self.folder / f"{name}.npy")
                self.compare(f"{name}.kvmodel", logs)

    def test_the_shards_are_more_than_one(self):
        shards = list((self.folder / "llama3_in_shards_of_f16").glob("model-*.safetensors"))
        self.assertGreater(len(shards), 2)

    def test_windows_are_told_by_layer(self):
        """One number where all layers have the same; none where no position lies outside."""
        for name, window, config in (
                ("mistral_window", WINDOW, {}), ("mistral_window", 0, {"sliding_window": 512}),
                ("qwen2_windows", [0, WINDOW], {}), ("qwen2", 0, {}),
                ("qwen2_windows", [0, WINDOW], {"layer_types": None}),
                ("gemma3", [0, WINDOW, WINDOW], {}),
                ("gemma3_by_sixths", [WINDOW] * 5 + [0, WINDOW], {"layer_types": None})):
            with self.subTest(name, **config):
                made = self.import_model(self.edited(name, **config), "window.kvmodel")
                self.assertEqual(made.returncode, 0, made.stderr)
                architecture = architecture_of(self.folder / "window.kvmodel")
                self.assertEqual(architecture.get("sliding_window", 0), window)
                self.assertEqual(architecture["context_tokens"], 512)

    def edited(self, name, file="config.json", **changes):
        """A copy of a model with another configuration."""
        copy = self.folder / "edited"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / name, copy)
        config = {**json.loads((copy / file).read_text()), **changes}
        (copy / file).write_text(json.dumps({key: value for key, value in config.items()
                                             if value is not None}))
        return copy

    def test_rope_as_earlier_versions_wrote_it(self):
        rope = VARIANTS["llama3_in_shards_of_f16"][2]["rope_parameters"]
        source = self.edited("llama3_in_shards_of_f16", rope_parameters=None, rope_theta=500000.0,
                             rope_scaling={key: value for key, value in rope.items()
                                           if key != "rope_theta"})
        self.assertEqual(self.import_model(source, "earlier.kvmodel").returncode, 0)
        self.compare("earlier.kvmodel", np.load(self.folder / "llama3_in_shards_of_f16.npy"))

    def test_what_cannot_be_represented_is_refused(self):
        def refuses(says, source):
            made = self.import_model(source, "bad.kvmodel")
            self.assertEqual(made.returncode, 2, made.stderr)
            self.assertRegex(made.stderr, r"\Aimport_model: [^\n]*\n\Z")
            for text in says:
                self.assertIn(text, made.stderr)
            self.assertEqual(list(self.folder.glob("bad.kvmodel*")), [])

        for kind in ("yarn", "dynamic", "longrope", "proportional"):
            rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0}
            refuses([f"scaling is {kind}", "llama3, linear"],
                    self.edited("llama", rope_parameters=rope))
        refuses(["there is no 'low_freq_factor'"], self.edited("llama", rope_parameters={
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0}))
        refuses(["differ by kind of layer"], self.edited("llama", rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0}}))
        refuses(["partial_rotary_factor is 0.5"], self.edited("llama", partial_rotary_factor=0.5))
        refuses(["hidden_act is gelu"], self.edited("llama", hidden_act="gelu"))
        refuses(["lm_head.weight is missing"],
                self.edited("llama_tied_in_bf16", tie_word_embeddings=False))
        # A layer fewer than the file holds, and biases that Llama's output projection may have.
        refuses(["model.layers.1.", "no place"], self.edited("llama", num_hidden_layers=1))
        source = self.edited("llama3_in_shards_of_f16")
        next(source.glob("model-00001*")).unlink()
        refuses(["model-00001", "is missing"], source)

    def test_gguf_agrees_with_transformers(self):
        for kind in ("F32", "F16", "BF16", "Q8_0"):
            with self.subTest(kind):
                file = self.folder / f"{kind}.gguf"
                made = self.gguf_python("-c", WRITE_GGUF, self.folder / "llama.npz", file, kind, "",
                                        "{}")
                self.assertEqual(made.returncode, 0, made.stderr)
                made = self.import_model(file, f"{kind}.kvmodel", [SOURCE / "tools/scripts/python-env"])
                self.assertEqual(made.returncode, 0, made.stderr)
                self.assertIn("tokenizer llama/not stated is not known", made.stderr)
                logs = self.folder / f"{kind}.npy"
                self.torch(RUN_WEIGHTS, self.folder / "llama", f"{file}.npz", json.dumps(self.ids),
                           logs)
                self.compare(f"{kind}.kvmodel", np.load(logs))

    def test_gemma_gguf_agrees_with_transformers(self):
        vocabulary = self.folder / "pieces.json"
        vocabulary.write_text(json.dumps({**sentence_pieces(TEXT, 80), "prefix": False}))
        file = self.folder / "gemma.gguf"
        made = self.gguf_python("-c", WRITE_GEMMA_GGUF, self.folder / "gemma3_by_sixths.npz", file,
                                vocabulary, "{}")
        self.assertEqual(made.returncode, 0, made.stderr)
        made = self.import_model(file, "gemma.kvmodel", [SOURCE / "tools/scripts/python-env"])
        self.assertEqual(made.returncode, 0, made.stderr)
        ours = architecture_of(self.folder / "gemma.kvmodel")
        self.import_model(self.folder / "gemma3_by_sixths", "hf.kvmodel")
        theirs = architecture_of(self.folder / "hf.kvmodel")
        self.assertEqual({**ours, "vocabulary": 320, "norm_epsilon": 0},
                         {**theirs, "norm_epsilon": 0})
        ids = [token % 256 for token in self.ids]
        self.compare_ids(ids, "gemma.kvmodel", "hf.kvmodel")

    def compare_ids(self, ids, *models):
        """Models that must give the same results, but for the vocabulary that they do not share."""
        (self.folder / "shared.txt").write_text(" ".join(map(str, ids)))
        keys = []
        for model in models:
            out = self.folder / "shared.kvtrace.h5"
            out.unlink(missing_ok=True)
            self.succeed("record", "--model", self.folder / model, "--token-ids", "shared.txt",
                         "--prompt", PROMPT, "--steps", STEPS, "--out", out)
            with h5py.File(out) as trace:
                keys.append([layer["key"][:] for layer in trace["layer"].values()])
        np.testing.assert_array_equal(keys[0], keys[1])

    def test_token_ids_are_those_of_sentence_piece(self):
        text = self.folder / "pieces.txt"
        text.write_bytes(TEXT.encode())
        for prefix in (False, True):
            with self.subTest(prefix=prefix):
                pieces = {**sentence_pieces(TEXT, 80), "prefix": prefix}
                (self.folder / "pieces.json").write_text(json.dumps(pieces))
                file = self.folder / "pieces.gguf"
                made = self.gguf_python("-c", WRITE_GEMMA_GGUF,
                                        self.folder / "gemma3_by_sixths.npz", file,
                                        self.folder / "pieces.json", "{}")
                self.assertEqual(made.returncode, 0, made.stderr)
                made = self.import_model(file, "pieces.kvmodel", [SOURCE / "tools/scripts/python-env"])
                self.assertEqual(made.returncode, 0, made.stderr)
                found = self.gguf_python(SOURCE / "tools/scripts/tokenise.py", "encode",
                                         self.folder / "pieces.kvmodel", text)
                expected = sentence_piece_ids(TEXT, pieces)
                self.assertEqual(list(map(int, found.stdout.split())), expected)
                self.assertGreater(sum(token < 267 for token in expected), 20, "nothing spelt")
                self.assertLess(len(expected), len(TEXT))

    def test_gemma_gguf_that_cannot_be_represented(self):
        vocabulary = self.folder / "pieces.json"
        vocabulary.write_text(json.dumps({**sentence_pieces(TEXT, 80), "prefix": False}))
        for settings, says in (({"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
                                "rope.scaling.type is linear"),
                               ({"final_logit_softcapping": 30.0},
                                "final_logit_softcapping is 30")):
            file = self.folder / "bad.gguf"
            made = self.gguf_python("-c", WRITE_GEMMA_GGUF, self.folder / "gemma3_by_sixths.npz",
                                    file, vocabulary, json.dumps(settings))
            self.assertEqual(made.returncode, 0, made.stderr)
            made = self.import_model(file, "bad.kvmodel", [SOURCE / "tools/scripts/python-env"])
            self.assertEqual(made.returncode, 2, made.stderr)
            self.assertIn(says, made.stderr)

    def test_gguf_that_cannot_be_represented(self):
        for settings, says in (({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
                                "rope.scaling.type is yarn"),):
            file = self.folder / "bad.gguf"
            made = self.gguf_python("-c", WRITE_GGUF, self.folder / "llama.npz", file, "F32", "",
                                    json.dumps(settings))
            self.assertEqual(made.returncode, 0, made.stderr)
            made = self.import_model(file, "bad.kvmodel", [SOURCE / "tools/scripts/python-env"])
            self.assertEqual(made.returncode, 2, made.stderr)
            self.assertIn(says, made.stderr)

    def test_token_ids_are_those_of_transformers(self):
        """Of a tokenizer.json, and of GGUF's vocabulary with the pre-tokeniser's name."""
        text = self.folder / "text.txt"
        text.write_bytes(TEXT.encode())
        for kind in ("gpt-2", "smollm", "llama-bpe", "qwen2"):
            with self.subTest(kind):
                folder = self.folder / f"tokenizer {kind}"
                expected = json.loads(self.torch(MAKE_TOKENIZER, folder, kind, text))
                self.assertGreater(len(expected), 60)
                for file in (self.folder / "llama").iterdir():
                    shutil.copy(file, folder)
                made = self.import_model(folder, "hf.kvmodel")
                self.assertEqual(made.returncode, 0, made.stderr)
                file = self.folder / "tokens.gguf"
                vocabulary = f"{folder}.vocabulary.json"
                made = self.gguf_python("-c", WRITE_GGUF, self.folder / "llama.npz", file, "F16",
                                        vocabulary, "{}")
                self.assertEqual(made.returncode, 0, made.stderr)
                made = self.import_model(file, "gguf.kvmodel", [SOURCE / "tools/scripts/python-env"])
                self.assertEqual(made.returncode, 0, made.stderr)
                for model in ("hf.kvmodel", "gguf.kvmodel"):
                    ids = self.gguf_python(SOURCE / "tools/scripts/tokenise.py", "encode",
                                           self.folder / model, text)
                    self.assertEqual(list(map(int, ids.stdout.split())), expected, model)


if __name__ == "__main__":
    unittest.main()
