"""What figures and reports know of a column of results from its name: unit, words, direction.

The heads of `kvreplay table --format latex` have the same words (sim/replay/heading.cpp).
"""

import re

from kvreplay.sizes import size_text

WORDS = {
    "compute_ms": "Computation (ms)",
    "dram_kv_bytes": "DRAM of KV management",
    "energy_mj_per_token": "Energy per token (mJ)",
    "kl_nats": "KL to full attention (nats)",
    "latency_ms": "Time per token (ms)",
    "read_bytes_per_step": "Read per step",
    "recall": "Recall of the top tokens",
    "tokens_per_s": "Tokens/s",
}
UNITS = {"ms": "ms", "us": "\N{MICRO SIGN}s", "s": "s", "tokens": "tokens", "percent": "%",
         "nats": "nats", "bits": "bits", "kib": "KiB", "mib": "MiB", "nj": "nJ", "mj": "mJ",
         "mb_s": "MB/s", "groups": "groups", "steps": "steps"}
SPELT = {"dram": "DRAM", "io": "I/O", "kv": "KV", "nand": "NAND"}
# The unit of "hidden_io_ms" and of "flash_energy_mj_per_token".
UNIT = re.compile(rf"(.+?)_({'|'.join(sorted(UNITS, key=len, reverse=True))})(_per_.+)?")
HIGHER_IS_BETTER = {"tokens_per_s", "attention_mass", "best_attention_mass", "recall", "hit_rate",
                    "best_hit_rate", "agreement", "device_mb_s", "speedup", "accuracy", "iops"}
SCALES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def is_number(field):
    try:
        float(field)
    except (TypeError, ValueError):
        return False
    return True


def counts_bytes(name):
    return "bytes" in name.replace(".", "_").split("_")


def scale_of(name, values):
    """(what to divide the values by, the unit after that); (1, "") for what is no number of bytes."""
    if not counts_bytes(name):
        return 1, ""
    largest = max(map(abs, values), default=0)
    return next(((factor, unit) for factor, unit in SCALES if largest >= factor), (1, "B"))


def axis_label(name, unit=""):
    """Words for an axis; `unit` is that of scale_of()."""
    words = WORDS.get(name)
    if words is None:
        words = name.rsplit(".", 1)[-1]
        found = UNIT.fullmatch(words)
        if counts_bytes(words):
            words = "_".join(word for word in words.split("_") if word != "bytes") or "bytes"
        elif found and not found[1].endswith("_per"):
            words, unit = found[1] + (found[3] or ""), UNITS[found[2]]
        words = " ".join(SPELT.get(word, word) for word in words.split("_"))
        words = words[:1].upper() + words[1:]
    return words + (f" ({unit})" if unit else "")


def key_text(name, value):
    """A key's value beside its name: sizes in the unit that makes them short."""
    if counts_bytes(name) and is_number(value) and float(value).is_integer():
        return size_text(int(float(value)))
    return value


def shown_value(name, field):
    """A field for the eye: bytes in the unit that gives three digits, other numbers with four."""
    if not is_number(field):
        return field if field else "-"
    number = float(field)
    if number != number or abs(number) == float("inf"):
        return field
    if counts_bytes(name):
        factor, unit = scale_of(name, [round(number)])
        scaled = number / factor
        if factor > 1 and abs(scaled) >= 999.5 and factor < 1e12:
            factor, unit = factor * 1000, dict(SCALES)[factor * 1000]
            scaled = number / factor
        digits = 0 if factor == 1 or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
        return f"{scaled:.{digits}f} {unit}"
    if field.lstrip("-").isdigit():
        return field
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
