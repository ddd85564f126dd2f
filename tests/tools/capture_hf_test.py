"""tools/scripts/capture_hf.py on small random models. On a Llama with grouped queries: the trace is sound, its
keys are those of the model's cache, and attention computed from it is the model's own. On models of
other kinds: what a trace can say is right, layer by layer, and the rest is refused by name.

Runs where a Python with torch, transformers, h5py and tqdm is: $KVREPLAY_TORCH_PYTHON, or python3.
"""

import os
import subprocess
import unittest
from unittest import mock

from program import PROGRAM, SOURCE, ProgramTest

PYTHON = os.environ.get("KVREPLAY_TORCH_PYTHON", "python3")
CAPTURE = SOURCE / "tools/scripts/capture_hf.py"
PROMPT, STEPS, WINDOW = 90, 30, 20

MAKE_MODEL = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(3)
LlamaForCausalLM(LlamaConfig(
    vocab_size=101, hidden_size=48, intermediate_size=64, num_hidden_layers=4,
    num_attention_heads=6, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
    initializer_range=0.4)).save_pretrained(sys.argv[1])
"""

# The trace against one forward pass of the whole text by transformers' plain implementation.
COMPARE = """
import sys, h5py, numpy, torch
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager").eval()
trace = h5py.File(sys.argv[2])
tolerance = float(sys.argv[3])
def rows(path):
    stored = trace[path][:]
    if stored.dtype == numpy.uint16:
        stored = (stored.astype(numpy.uint32) << 16).view(numpy.float32)
    return torch.tensor(stored.astype(numpy.float32))
outputs, entered = {}, {}
for layer in model.model.layers:
    layer.register_forward_pre_hook(
        lambda module, inputs, at=layer.self_attn.layer_idx: entered.update({at: inputs[0]}))
    layer.self_attn.o_proj.register_forward_pre_hook(
        lambda module, inputs, at=layer.self_attn.layer_idx: outputs.update({at: inputs[0][0]}))
with torch.no_grad():
    result = model(torch.tensor(trace["tokens/id"][:][None].astype(numpy.int64)), use_cache=True)
logs = torch.log_softmax(result.logits[0], -1)
ids = torch.tensor(trace["tokens/id"][:].astype(numpy.int64))
expected = logs[torch.arange(len(ids) - 1), ids[1:]]
assert (expected - torch.tensor(trace["tokens/log_probability"][:-1])).abs().max() < 1e-3
entropy = -(logs.exp() * logs).sum(-1)
assert (entropy - torch.tensor(trace["tokens/entropy"][:])).abs().max() < 1e-3
layers = [int(layer) for layer in trace.attrs["recorded_layers"]]
for layer in layers:
    key, value, query = (rows(f"layer/{layer:02}/{name}") for name in ("key", "value", "query"))
    cache = result.past_key_values.layers[layer]
    for ours, theirs in ((key, cache.keys[0]), (value, cache.values[0])):
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
        assert (ours - theirs).abs().max() < tolerance * theirs.abs().max()
    start = trace[f"layer/{layer:02}/query"].attrs["query_start"]
    if f"layer/{layer:02}/query_ahead" in trace:
        block = model.model.layers[layer]
        with torch.no_grad():
            ahead = block.self_attn.q_proj(block.input_layernorm(entered[max(layer - 1, 0)]))
            ahead = ahead.view(1, len(ids), 6, 16).transpose(1, 2)
            turns = model.model.rotary_emb(ahead, torch.arange(len(ids))[None])
            ahead, _ = apply_rotary_pos_emb(ahead, ahead, *turns)
        error = rows(f"layer/{layer:02}/query_ahead") - ahead[0, :, start:]
        assert error.abs().max() < tolerance * ahead.abs().max(), (layer, float(error.abs().max()))
        same = (rows(f"layer/{layer:02}/query_ahead") == query).all()
        assert same == (layer == 0), layer
        print("ahead", layer)
    theirs = outputs[layer].view(len(ids), 6, 16)
    for head in range(6):
        scores = query[head] @ key[head // 3].T * float(trace.attrs["softmax_scale"])
        position = torch.arange(start, len(ids))[:, None]
        scores[torch.arange(len(ids))[None] > position] = -torch.inf
        ours = scores.softmax(-1) @ value[head // 3]
        error = (ours - theirs[start:, head]).abs().max() / theirs.abs().max()
        assert error < 3 * tolerance, (layer, head, float(error))
print("compared", layers)
"""


# Kinds of attention, each where this transformers has it. Prints the names of those made.
MAKE_KINDS = """
import sys, torch, transformers
size = dict(vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0)
six = {**size, "num_hidden_layers": 6, "head_dim": 16, "sliding_window": 32}
latent = {**size, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
          "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 32,
          "first_k_dense_replace": 4}
scaled = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
if int(transformers.__version__.split(".")[0]) < 5:
    scaled = {"rope_scaling": {name: value for name, value in scaled.items() if name != "rope_theta"}}
else:
    scaled = {"rope_parameters": scaled}
kinds = {
    "llama": ("LlamaConfig", size), "scaled": ("LlamaConfig", {**size, **scaled}),
    "smollm3": ("SmolLM3Config", {**size, "no_rope_layers": [1, 1, 1, 0]}),
    "ernie": ("Ernie4_5Config", {**size, "head_dim": 16}),
    "cohere2": ("Cohere2Config", {**size, "sliding_window": 32}),
    "gemma3": ("Gemma3TextConfig", {**six, "query_pre_attn_scalar": 16}),
    "gemma4": ("Gemma4TextConfig", {**six, "global_head_dim": 32, "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 101}),
    "sinks": ("GptOssConfig", {**size, "head_dim": 16, "sliding_window": 32, "num_local_experts": 4,
        "num_experts_per_tok": 2}),
    "softcap": ("Gemma2Config", {**size, "head_dim": 16, "sliding_window": 32,
        "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16}),
    "latent": ("DeepseekV3Config", latent)}
for name, (config, values) in kinds.items():
    config = getattr(transformers, config, None)
    if config is None:
        continue
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config(**values))
    with torch.no_grad():
        for path, weights in model.named_parameters():
            if path.endswith(("q_proj.weight", "k_proj.weight")):
                weights.mul_(8)
            if path.endswith("sinks"):
                weights.fill_(4)
    model.save_pretrained(sys.argv[1] + "/" + name)
    print("made", name)
"""

# capture_hf on several models in one process: TOOL IDS SPOIL MODEL=OPTIONS...
CAPTURE_ALL = """
import pathlib, runpy, sys
tool, ids, spoil, *models = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(tool).parent))
if spoil:  # a model with a sink that nothing names
    from transformers.models.llama import modeling_llama
    plain = modeling_llama.eager_attention_forward
    def spoiled(*arguments, **options):
        output, weights = plain(*arguments, **options)
        return 0.9 * output, weights
    modeling_llama.eager_attention_forward = spoiled
for model in models:
    name, _, options = model.partition("=")
    sys.argv = [tool, name, name + ".kvtrace.h5", "--ids", ids, "--prompt", "80", "--steps", "16",
                "--chunk", "48", *options.split()]
    try:
        runpy.run_path(tool, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
    print(f"MODEL {name} {code}", file=sys.stderr, flush=True)
"""

# Log-probabilities against transformers' plain implementation, keys before RoPE against what the
# projections give, and what attention's output does to the residual stream: MODEL for each
# MODEL.kvtrace.h5 and MODEL.pre.kvtrace.h5.
COMPARE_KINDS = """
import sys, h5py, numpy, torch
from transformers import AutoModelForCausalLM
for name in sys.argv[1:]:
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager").eval()
    before, streams, added = {}, {}, {}
    for at, block in enumerate(model.model.layers):
        after = getattr(block, "post_attention_layernorm", None)
        norm = getattr(block, "pre_feedforward_layernorm", after)
        if norm is not None:
            norm.register_forward_pre_hook(
                lambda _, inputs, at=at: streams.update({at: inputs[0][0].norm(dim=-1)}))
        if norm is not after:
            after.register_forward_pre_hook(lambda _, inputs, at=at: added.update({at: inputs[0][0]}))
    for module in model.modules():
        if hasattr(module, "k_proj") and hasattr(module, "layer_idx"):
            (getattr(module, "k_norm", None) or module.k_proj).register_forward_hook(
                lambda _, inputs, output, at=module.layer_idx: before.update({at: output[0]}))
    with h5py.File(name + ".kvtrace.h5") as trace:
        ids = torch.tensor(trace["tokens/id"][:].astype(numpy.int64))
        with torch.no_grad():
            logs = torch.log_softmax(model(ids[None]).logits[0], -1)
        logs = logs[torch.arange(len(ids) - 1), ids[1:]]
        off = (logs - torch.tensor(trace["tokens/log_probability"][:-1])).abs().max()
        for layer in map(int, trace.attrs["recorded_layers"]):
            group = trace[f"layer/{layer:02}"]
            if "output_sketch" not in group:
                assert "residual_norm" not in group
                print("without a sketch", name, layer)
                continue
            start = group["query"].attrs["query_start"]
            norms = streams[layer].detach()
            block = model.model.layers[layer]
            matrix = block.self_attn.o_proj.weight.detach()
            if layer in added:
                norms = norms * added[layer].square().mean(-1).sqrt()
                matrix = (1 + block.post_attention_layernorm.weight.detach())[:, None] * matrix if (
                    name.startswith("gemma3")) else (
                    block.post_attention_layernorm.weight.detach()[:, None] * matrix)
            theirs = torch.tensor(group["residual_norm"][:])
            assert ((norms[start:] - theirs).abs() < 1e-4 * theirs).all(), (name, layer)
            errors = torch.randn(matrix.shape[1], 50, generator=torch.Generator().manual_seed(1))
            ratio = (torch.tensor(group["output_sketch"][:]) @ errors).norm(dim=0) / (
                matrix @ errors).norm(dim=0)
            # 9 % for one vector; the 50 share the sketch.
            assert (ratio - 1).abs().max() < 0.4 and abs(ratio.mean() - 1) < 0.1, (name, ratio)
            print("sketched", name, layer)
    assert off < 1e-4, (name, float(off))
    with h5py.File(name + ".pre.kvtrace.h5") as trace:
        for layer in trace.attrs["recorded_layers"]:
            keys = torch.tensor(trace[f"layer/{layer:02}/key"][:].astype(numpy.float32))
            expected = before[int(layer)]
            if expected.dim() == 2:
                expected = expected.view(len(ids), keys.shape[0], -1)
            if expected.shape[0] == len(ids):
                expected = expected.transpose(0, 1)
            error = float((keys - expected).norm() / expected.norm())
            assert error < 1e-3, (name, int(layer), error)
        print("same", name, "by layer" if "layer_rope_theta" in trace.attrs else "",
              trace.attrs["rope_pairs"])
"""


def probe():
    """What is missing; empty when nothing is."""
    try:
        found = subprocess.run([PYTHON, "-c", "import torch, transformers, h5py, tqdm"], check=False,
                               capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if found.returncode == 0 else (found.stderr.strip().splitlines() or ["no reason"])[-1]


MISSING = probe()


@unittest.skipIf(MISSING, f"{PYTHON} cannot import torch, transformers, h5py and tqdm ({MISSING})")
class TorchTest(ProgramTest):
    @classmethod
    def python(cls, *arguments, code=0):
        result = subprocess.run([PYTHON, "-B", *map(str, arguments)], cwd=cls.folder, check=False,
                                capture_output=True, text=True)
        if result.returncode != code:
            raise AssertionError(f"{result.returncode}: {result.stderr}")
        return result.stdout + result.stderr


class CaptureTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model"
        cls.python("-c", MAKE_MODEL, cls.model)
        cls.ids = cls.folder / "ids.txt"
        cls.ids.write_text(" ".join(str((7 * i * i + 3 * i) % 101) for i in range(PROMPT + STEPS)),
                           encoding="utf-8")

    def capture(self, name, *options, code=0):
        trace = self.folder / name
        said = self.python(CAPTURE, self.model, trace, "--ids", self.ids, "--prompt", PROMPT,
                           "--steps", STEPS, "--query-window", WINDOW, "--chunk", 32, *options,
                           code=code)
        return trace, said

    def arrays(self, trace):
        return self.python("-c", "import h5py, sys; print(*h5py.File(sys.argv[1])['layer/00'])", trace)

    def test_teacher_forced(self):
        trace, said = self.capture("forced.kvtrace.h5", "--layers", "0,2,3")
        self.assertIn("MB", said)
        self.succeed("verify", trace)
        self.assertIn("teacher_forced", self.succeed("inspect", trace))
        said = self.python("-c", COMPARE, self.model, trace, 1e-3)
        self.assertIn("ahead 0\nahead 2\nahead 3\ncompared [0, 2, 3]", said)

    def test_generated_in_bf16(self):
        trace, _ = self.capture("own.kvtrace.h5", "--generate", "--every", 2, "--dtype", "bf16",
                                "--no-query-ahead")
        self.succeed("verify", trace)
        said = self.python("-c", COMPARE, self.model, trace, 8e-3)
        self.assertIn("compared [0, 2]", said)
        self.assertNotIn("ahead", said)
        self.assertIn("output_sketch", self.arrays(trace))

    def test_adapters_of_another_text_in_the_same_run(self):
        other = self.folder / "other.txt"
        other.write_text(" ".join(str((5 * i * i + i) % 101) for i in range(60)), encoding="utf-8")
        with mock.patch.dict(os.environ, {"KVREPLAY_PROGRAM": PROGRAM}):
            trace, _ = self.capture("adapted.kvtrace.h5", "--layers", "0,2", "--adapt-ids", other,
                                    "--adapt-spread")
        self.succeed("verify", trace)
        said = self.succeed("inspect", trace)
        self.assertIn("joint_lowrank", said)
        self.assertNotIn("adapter", said.partition("cannot run")[2])
        self.assertIn("residual_norm", self.arrays(trace))
        said = self.python("-c", "import h5py, sys; print(h5py.File(sys.argv[1])"
                           "['adapter/02/head_pca'].attrs['positions'])", trace)
        self.assertEqual(int(said), PROMPT + STEPS)

    def test_mistakes(self):
        for options, says in ((("--layers", "4"), "0 to 3"),
                              (("--steps", STEPS + 1), "120 tokens"),
                              (("--adapt-spread",), "--adapt-text FILE"),
                              (("--adapt-tokens", 50), "--adapt-text FILE")):
            with self.subTest(options):
                trace, said = self.capture("bad.kvtrace.h5", *options, code=2)
                self.assertIn(says, said)
                self.assertFalse(list(self.folder.glob("bad*")), trace)


class CaptureKindsTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = cls.python("-c", MAKE_KINDS, cls.folder).split()
        cls.ids = cls.folder / "ids.txt"
        cls.ids.write_text(" ".join(str((7 * i * i + 3 * i) % 101) for i in range(96)),
                           encoding="utf-8")

    def tearDown(self):
        for trace in self.folder.glob("*.kvtrace.h5"):
            trace.unlink()

    def capture_all(self, models, spoil=""):
        """Exit code and messages, by model; of `models` (options by name) those that were made."""
        wanted = [f"{name}={options}" for name, options in models.items() if name in self.made]
        said = self.python("-c", CAPTURE_ALL, CAPTURE, self.ids, spoil, *wanted)
        results, lines = {}, []
        for line in said.splitlines():
            if line.startswith("MODEL "):
                _, name, code = line.split()
                results[name], lines = (int(code), "\n".join(lines)), []
            else:
                lines.append(line)
        self.assertEqual(len(results), len(wanted), said)
        return results

    def test_what_a_trace_cannot_say_is_refused_by_name(self):
        says = {"sinks": ["layer 0", "s_aux (learned sinks)"], "softcap": ["layer 0", "softcap"],
                "latent": ["layer 0", "multi-head latent attention (MLA)"],
                "gemma4": ["layer 5: 4 query heads on 2 KV heads of size 32", "layer 0", "of size 16",
                           "--layers 0,1,2,3,4 or --layers 5"]}
        for name, (code, said) in self.capture_all(dict.fromkeys(says, "")).items():
            with self.subTest(name):
                self.assertEqual(code, 2, said)
                last = said.splitlines()[-1]
                for words in says[name]:
                    self.assertIn(words, last)
                self.assertNotIn("Traceback", said)
                self.assertFalse(list(self.folder.glob(f"{name}.kvtrace*")))

    def test_what_nothing_names_is_measured(self):
        code, said = self.capture_all({"llama": "--layers 1"}, spoil="spoil")["llama"]
        self.assertEqual(code, 2, said)
        self.assertIn("layer 0: its own attention differs by 0.11 of its norm", said.splitlines()[-1])

    def test_rotary_embedding_by_layer(self):
        of_kind = {"llama": ("half", False), "smollm3": ("half", True), "ernie": ("interleaved", False),
                   "cohere2": ("interleaved", True), "gemma3": ("half", True), "gemma4": ("half", False)}
        models = dict.fromkeys([*of_kind, "scaled"], "")
        models["gemma4"] = "--layers 0,1,2,3,4"
        results = self.capture_all(models)
        for name, (code, said) in results.items():
            self.assertEqual(code, 0, f"{name}: {said}")
            self.succeed("verify", self.folder / f"{name}.kvtrace.h5")
        recorded = [name for name in results if name != "scaled"]
        for name in recorded:
            self.succeed("convert", self.folder / f"{name}.kvtrace.h5",
                         self.folder / f"{name}.pre.kvtrace.h5", "--key-state", "pre_rope")
        said = self.python("-c", COMPARE_KINDS, *recorded).splitlines()
        for name in recorded:
            pairs, by_layer = of_kind[name]
            self.assertIn(f"same {name} {'by layer' if by_layer else ''} {pairs}", said)
            # Cohere adds attention's output and the next part's in one sum.
            told = "without a sketch" if name == "cohere2" else "sketched"
            self.assertIn(f"{told} {name} 1", said)
        if "cohere2" in recorded:
            self.assertIn("output_sketch and residual_norm are left out", results["cohere2"][1])

        self.assertIn("keys cannot be turned back", results["scaled"][1])
        self.refuses(["convert", self.folder / "scaled.kvtrace.h5",
                      self.folder / "scaled.pre.kvtrace.h5", "--key-state", "pre_rope"], ["llama3"])


if __name__ == "__main__":
    unittest.main()
