"""A trace larger than the memory that a replay may use: it is read by layer and given back."""

import re
import resource
import subprocess
import unittest

import h5py
import numpy

from program import PROGRAM, SANITIZED, ProgramTest

LAYERS, KV_HEADS, QUERY_HEADS, TOKENS, STEPS, DIM = 16, 2, 4, 131072, 2, 64
LIMIT = 256 << 20


def write_sparse_trace(path):
    """A file of 1.07 GB, which takes little more on disk than its few rows that are not 0."""
    with h5py.File(path, "w") as file:
        file.attrs.update({
            "format": "kvtrace", "format_version": 1, "model": "sparse", "model_revision": "",
            "weights_sha256": "", "layers": LAYERS, "query_heads": QUERY_HEADS,
            "kv_heads": KV_HEADS, "head_dim": DIM, "hidden_size": 256,
            "recorded_layers": list(range(LAYERS)), "prompt_tokens": TOKENS - STEPS,
            "tokens": TOKENS, "dtype": "f16", "key_state": "post_rope", "rope_theta": 10000.0,
            "rope_pairs": "half", "rope_scaling": "none", "softmax_scale": 0.125,
            "sliding_window": [0] * LAYERS, "tokenizer": "none", "text_source": "none",
            "text_sha256": "", "tool": "large_trace_test", "tool_version": "1", "seed": 0,
            "created_utc": "2000-01-01T00:00:00Z", "synthetic": 1})
        file["tokens/id"] = numpy.zeros(TOKENS, numpy.int32)
        for name in ("entropy", "top_probability", "log_probability"):
            file[f"tokens/{name}"] = numpy.zeros(TOKENS, numpy.float32)
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        early.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        for layer in range(LAYERS):
            group = file.create_group(f"layer/{layer:02}")
            for name in ("key", "value"):
                space = h5py.h5s.create_simple((KV_HEADS, TOKENS, DIM))
                h5py.h5d.create(group.id, name.encode(), h5py.h5t.IEEE_F16LE, space, early)
            group["value"][:, ::1024] = 1
            query = group.create_dataset("query", data=numpy.ones((QUERY_HEADS, STEPS, DIM), "f2"))
            query.attrs["query_start"] = TOKENS - STEPS
        file.attrs["complete"] = 1


@unittest.skipIf(SANITIZED, "a sanitizer has its own memory")
class LargeTraceTest(ProgramTest):
    def test_replay_in_a_quarter_of_its_size(self):
        trace = self.folder / "sparse.synthetic.kvtrace.h5"
        write_sparse_trace(trace)
        size = trace.stat().st_size
        self.assertGreater(size, 4 * LIMIT)

        def limit():
            # Allocated memory; mapped pages of the file do not count here, but do in what it prints.
            resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))

        result = subprocess.run(
            [PROGRAM, "run", "first", "--set", f"trace={trace}", "--set",
             "system=streaming_llm", "--set", "warm_up_steps=0", "--threads", "1", "--out",
             "results", "--format", "csv"],
            cwd=self.folder, capture_output=True, text=True, check=False, preexec_fn=limit)
        self.assertEqual(result.returncode, 0, result.stderr)
        peak = re.search(r"peak memory (\d+) MB", result.stderr)
        self.assertIsNotNone(peak, result.stderr)
        self.assertGreater(int(peak[1]), 20)
        self.assertLess(int(peak[1]) * 1e6, LIMIT)
        self.assertIn("synthetic", result.stdout.splitlines()[0])
        self.assertIn('"synthetic": true', (self.folder / "results/manifest.json").read_text())
        self.assertIn("SYNTHETIC", (self.folder / "results/table.txt").read_text())


if __name__ == "__main__":
    unittest.main()
