"""A llama-family model in numpy, written from the papers' definitions in the plainest form, in
double precision and without a cache, so that it shares no shortcut with the C++ code."""

import json

import numpy as np


class ReferenceModel:
    """Reads a model file (docs/recording.md)."""

    def __init__(self, path):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self.header = json.loads(file.read(length))
        self.data = np.memmap(path, np.uint8, "r", 8 + length)
        self.shape = json.loads(self.header["__metadata__"]["architecture"])

    def has(self, name):
        return name in self.header

    def vector(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.data[begin:end].view(np.float32).astype(np.float64)

    def matrix(self, name, outputs):
        """[outputs, inputs], from its panels of 16 outputs."""
        begin, end = self.header[name]["data_offsets"]
        raw = self.data[begin:end]
        if self.header[name]["dtype"] in ("I8", "U8"):
            return self.integers(name, raw)[:outputs]
        if self.header[name]["dtype"] == "BF16":
            values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view(np.float32)
        panels = values.reshape(self.header[name]["shape"])
        return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:outputs].astype(np.float64)

    def integers(self, name, raw):
        """A matrix of integers: [outputs, inputs], with what fills the last panel."""
        shape = self.shape
        inputs = {"down": shape["ffn_size"],
                  "attention_output": shape["query_heads"] * shape["head_dim"]}
        panels, groups, bits, _, _ = shape = self.header[name]["shape"]
        begin, end = self.header[f"{name}.scales"]["data_offsets"]
        scales = self.data[begin:end].view(np.float16).reshape(panels, groups, 16, 1)
        if bits == 8:
            values = raw.view(np.int8).reshape(shape)
        else:
            raw = raw.reshape(shape)
            values = np.concatenate([raw & 15, raw >> 4], axis=2).astype(np.int8) - 8
        # [panel, group, 8, output, 4] to [panel, group, output, 32]
        values = values.transpose(0, 1, 3, 2, 4).reshape(panels, groups, 16, 32)
        return (values * scales.astype(np.float64)).transpose(0, 2, 1, 3).reshape(
            panels * 16, -1)[:, :inputs.get(name.split(".")[-1], self.shape["hidden_size"])]

    def multiply(self, x, name, outputs):
        """x times a matrix. One of integers takes x as integers from -127 to 127 with a scale per 32
        elements."""
        if self.header[name]["dtype"] in ("I8", "U8"):
            padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 32)))
            groups = padded.reshape(len(x), -1, 32)
            scales = np.abs(groups).max(2, keepdims=True) / 127
            rounded = np.rint(groups / np.where(scales > 0, scales, 1)) * scales
            x = rounded.reshape(padded.shape)[:, :x.shape[1]]
        return x @ self.matrix(name, outputs).T

    def norm(self, x, weights):
        mean = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.shape["norm_epsilon"]) * weights

    def by_layer(self, name, index, otherwise=0):
        value = self.shape.get(name, otherwise)
        return value[index] if isinstance(value, list) else value

    def rotate(self, heads, theta):
        """RoPE of [heads, tokens, head_dim], positions from 0 on."""
        dim = self.shape["head_dim"]
        frequencies = theta ** (-2.0 * np.arange(dim // 2) / dim)
        if self.has("rope_factors"):
            frequencies = frequencies / self.vector("rope_factors")
        angles = np.arange(heads.shape[1])[:, None] * frequencies
        cosine, sine = np.cos(angles), np.sin(angles)
        result = np.empty_like(heads)
        if self.shape["rope_pairs"] == "interleaved":
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, dim // 2), slice(dim // 2, None)
        x, y = heads[..., first], heads[..., second]
        result[..., first] = x * cosine - y * sine
        result[..., second] = x * sine + y * cosine
        return result

    def heads(self, index, name, x, count, turned):
        layer = f"layer.{index:02d}"
        dim = self.shape["head_dim"]
        vectors = self.multiply(x, f"{layer}.{name}", count * dim)
        if self.has(f"{layer}.{name}_bias"):
            vectors = vectors + self.vector(f"{layer}.{name}_bias")
        vectors = vectors.reshape(len(x), count, dim).transpose(1, 0, 2)
        if self.has(f"{layer}.{name}_norm"):
            vectors = self.norm(vectors, self.vector(f"{layer}.{name}_norm"))
        return self.rotate(vectors, self.by_layer("rope_theta", index)) if turned else vectors

    def add(self, x, change, norm):
        return x + (self.norm(change, self.vector(norm)) if self.has(norm) else change)

    def activate(self, gate):
        if self.shape.get("activation", "silu") == "silu":
            return gate / (1 + np.exp(-gate))
        return gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3)))

    def run(self, ids, visit=None):
        """Log-probabilities of the next token, [tokens, vocabulary]. visit(layer, dict) sees each
        layer's vectors."""
        shape = self.shape
        group = shape["query_heads"] // shape["kv_heads"]
        scale = shape.get("softmax_scale", 0) or shape["head_dim"] ** -0.5
        x = self.matrix("embedding", shape["vocabulary"])[ids] * shape.get("embedding_scale", 1)
        distance = np.arange(len(ids))[:, None] - np.arange(len(ids))
        before = None
        for index in range(shape["layers"]):
            layer = f"layer.{index:02d}"
            normed = self.norm(x, self.vector(f"{layer}.attention_norm"))
            window = self.by_layer("sliding_window", index) or len(ids)
            mask = (distance >= 0) & (distance < window)
            queries = self.heads(index, "query", normed, shape["query_heads"], True)
            keys = self.heads(index, "key", normed, shape["kv_heads"], True)
            values = self.heads(index, "value", normed, shape["kv_heads"], False)
            if visit:
                ahead = self.heads(index, "query",
                                   self.norm(x if before is None else before,
                                             self.vector(f"{layer}.attention_norm")),
                                   shape["query_heads"], True)
                visit(index, {"key": keys, "value": values, "query": queries,
                              "query_ahead": ahead, "attention_input": normed})
            before = x
            attended = []
            for head in range(shape["query_heads"]):
                logits = queries[head] @ keys[head // group].T * scale
                logits = np.where(mask, logits, -np.inf)
                weights = np.exp(logits - logits.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                attended.append(weights @ values[head // group])
            change = self.multiply(np.concatenate(attended, axis=1),
                                   f"{layer}.attention_output", shape["hidden_size"])
            x = self.add(x, change, f"{layer}.post_attention_norm")
            if visit:
                # An error of `change` is divided by what normalises it.
                divided = self.has(f"{layer}.post_attention_norm")
                visit(index, {"residual_norm": np.linalg.norm(x, axis=1) * (
                    np.sqrt(np.mean(change ** 2, axis=1)) if divided else 1)})
            normed = self.norm(x, self.vector(f"{layer}.ffn_norm"))
            gate = self.multiply(normed, f"{layer}.gate", shape["ffn_size"])
            up = self.multiply(normed, f"{layer}.up", shape["ffn_size"])
            down = self.multiply(self.activate(gate) * up, f"{layer}.down", shape["hidden_size"])
            x = self.add(x, down, f"{layer}.post_ffn_norm")
        x = self.norm(x, self.vector("output_norm"))
        head = "output" if self.has("output") else "embedding"
        logits = self.multiply(x, head, shape["vocabulary"])
        logits = logits - logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
