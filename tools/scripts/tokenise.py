"""Text to token ids and back, with the tokenizer that a model file holds.

    tools/scripts/python-env tools/scripts/tokenise.py encode MODEL FILE
    tools/scripts/python-env tools/scripts/tokenise.py decode MODEL FILE
    tools/scripts/python-env tools/scripts/tokenise.py pieces MODEL

The first prints the token ids of FILE, one per line; the second prints the text of FILE's ids; the
third prints each token's bytes in hexadecimal, one line per id.
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


def bytes_of_characters():
    """The characters by which byte-level tokenizers write bytes (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def piece_bytes(piece, byte_level, table):
    if piece is None:
        return b""
    if byte_level:
        if all(character in table for character in piece):
            return bytes(table[character] for character in piece)
        return piece.encode()
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("\u2581", " ").encode()


def print_pieces(tokenizer):
    byte_level = '"ByteLevel"' in json.dumps(json.loads(tokenizer.to_str()).get("decoder"))
    table = bytes_of_characters()
    for token in range(tokenizer.get_vocab_size()):
        piece = tokenizer.id_to_token(token)
        print(piece_bytes(piece, byte_level, table).hex())


def main():
    direction, model = sys.argv[1:3]
    tokenizer = load_tokenizer(model)
    if direction == "pieces":
        print_pieces(tokenizer)
        return
    path = sys.argv[3]
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
