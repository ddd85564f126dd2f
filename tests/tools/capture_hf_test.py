"""tools/scripts/capture_hf.py on a small random Llama with grouped queries: the trace is sound, its keys are
those of the model's cache, and attention computed from it is the model's own.

Runs where a Python with torch, transformers, h5py and tqdm is: $KVREPLAY_TORCH_PYTHON, or python3.
"""

import os
import subprocess
import unittest

from program import SOURCE, ProgramTest

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
class CaptureTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model"
        cls.python("-c", MAKE_MODEL, cls.model)
        cls.ids = cls.folder / "ids.txt"
        cls.ids.write_text(" ".join(str((7 * i * i + 3 * i) % 101) for i in range(PROMPT + STEPS)),
                           encoding="utf-8")

    @classmethod
    def python(cls, *arguments, code=0):
        result = subprocess.run([PYTHON, "-B", *map(str, arguments)], cwd=cls.folder, check=False,
                                capture_output=True, text=True)
        if result.returncode != code:
            raise AssertionError(f"{result.returncode}: {result.stderr}")
        return result.stdout + result.stderr

    def capture(self, name, *options, code=0):
        trace = self.folder / name
        said = self.python(CAPTURE, self.model, trace, "--ids", self.ids, "--prompt", PROMPT,
                           "--steps", STEPS, "--query-window", WINDOW, "--chunk", 32, *options,
                           code=code)
        return trace, said

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

    def test_mistakes(self):
        for options, says in ((("--layers", "4"), "0 to 3"),
                              (("--steps", STEPS + 1), "120 tokens")):
            with self.subTest(options):
                trace, said = self.capture("bad.kvtrace.h5", *options, code=2)
                self.assertIn(says, said)
                self.assertFalse(list(self.folder.glob("bad*")), trace)


if __name__ == "__main__":
    unittest.main()
