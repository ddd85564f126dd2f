"""Small random models in Hugging Face's form, and as model files."""

import json
import pathlib
import subprocess
import sys

import numpy as np

from program import SOURCE

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 144, "intermediate_size": 96,
          "num_hidden_layers": 3, "num_attention_heads": 9, "num_key_value_heads": 3,
          "head_dim": 16, "vocab_size": 101, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "hidden_act": "silu"}

# What Gemma 3 has beside that: layers of two kinds, RoPE of two bases.
GEMMA = {"architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "sliding_window": 24, "rope_theta": 1000000.0, "rope_local_base_freq": 1000.0,
         "query_pre_attn_scalar": 20}


def tensors(config, tied, biases, norms, seed):
    random = np.random.default_rng(seed)
    hidden, ffn, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim

    def matrix(outputs, inputs, scale=1.5):
        return random.normal(0, scale / np.sqrt(inputs), (outputs, inputs))

    gemma = config["architectures"] == GEMMA["architectures"]

    def vector(size, mean):
        return random.normal(0 if gemma else mean, 0.2, size)  # Gemma's are added to 1

    made = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden, 4),
            "model.norm.weight": vector(hidden, 1)}
    if not tied:
        made["lm_head.weight"] = matrix(config["vocab_size"], hidden, 4)
    for layer in range(config["num_hidden_layers"]):
        own = {"self_attn.q_proj.weight": matrix(queries, hidden, 3),
               "self_attn.k_proj.weight": matrix(keys, hidden, 3),
               "self_attn.v_proj.weight": matrix(keys, hidden),
               "self_attn.o_proj.weight": matrix(hidden, queries),
               "mlp.gate_proj.weight": matrix(ffn, hidden),
               "mlp.up_proj.weight": matrix(ffn, hidden),
               "mlp.down_proj.weight": matrix(hidden, ffn),
               "input_layernorm.weight": vector(hidden, 1),
               "post_attention_layernorm.weight": vector(hidden, 1)}
        if biases:
            own |= {"self_attn.q_proj.bias": vector(queries, 0),
                    "self_attn.k_proj.bias": vector(keys, 0),
                    "self_attn.v_proj.bias": vector(keys, 0)}
        if norms:
            own |= {"self_attn.q_norm.weight": vector(dim, 1),
                    "self_attn.k_norm.weight": vector(dim, 1)}
        if gemma:
            own |= {f"{name}_feedforward_layernorm.weight": vector(hidden, 1)
                    for name in ("pre", "post")}
        made |= {f"model.layers.{layer}.{name}": values for name, values in own.items()}
    return made


def write(folder, dtype="F32", tied=True, biases=False, norms=False, seed=1, **config):
    """A folder with config.json and model.safetensors, without a tokenizer."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **config}
    (folder / "config.json").write_text(json.dumps(config))
    header, blobs, offset = {}, [], 0
    for name, values in tensors(config, tied, biases, norms, seed).items():
        values = values.astype(np.float32)
        blob = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else values
        end = offset + blob.nbytes
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [offset, end]}
        blobs.append(blob.tobytes())
        offset = end
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text +
                                               b"".join(blobs))
    return folder


def imported(file, **config):
    """Writes a model of this `config` as the model file NAME.kvmodel, and returns its path; its
    source stays beside it, in NAME."""
    return import_source(write(file.with_suffix(""), **config), file)


def import_source(source, file):
    """Writes the model file of a folder in Hugging Face's form, and returns its path."""
    subprocess.run([sys.executable, "-B", SOURCE / "tools/scripts/import_model.py", source, file],
                   check=True, stderr=subprocess.DEVNULL)
    return file
