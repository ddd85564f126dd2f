"""Text to token ids and back, with the tokenizer that a model file holds.

    tools/scripts/python-env tools/scripts/tokenise.py encode MODEL FILE
    tools/scripts/python-env tools/scripts/tokenise.py decode MODEL FILE

The first prints the token ids of FILE, one per line; the second prints the text of FILE's ids.
"""

import json
import pathlib
import sys

import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402


def load_tokenizer(model):
    with open(model, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        begin, end = header["tokenizer"]["data_offsets"]
        file.seek(8 + length + begin)
        tokenizer = tokenizers.Tokenizer.from_str(file.read(end - begin).decode())
    # Settings for training would truncate a text.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def main():
    direction, model, path = sys.argv[1:]
    tokenizer = load_tokenizer(model)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    if direction == "encode":
        sys.stdout.writelines(f"{token}\n" for token in tokenizer.encode(text).ids)
    else:
        ids = [int(word) for word in text.split()]
        sys.stdout.buffer.write(tokenizer.decode(ids, skip_special_tokens=False).encode())


if __name__ == "__main__":
    sys.exit(exit_code("tokenise", main))
