"""Text to token ids and back, with the tokenizer that a model file holds.

    tools/scripts/python-env tools/scripts/tokenise.py encode MODEL FILE
    tools/scripts/python-env tools/scripts/tokenise.py decode MODEL FILE
    tools/scripts/python-env tools/scripts/tokenise.py pieces MODEL
    tools/scripts/python-env tools/scripts/tokenise.py chat MODEL FILE.jsonl

The first prints the token ids of FILE, one per line; the second prints the text of FILE's ids; the
third prints each token's bytes in hexadecimal, one line per id. The last prints a conversation in the
model's chat form: a line `close` with the ids that end a turn, then for each part its role,
`prefilled`, `followed` or `drawn`, and its ids, of which a drawn answer has none.
"""

import json
import pathlib
import sys

import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from kvreplay.command_line import exit_code  # noqa: E402  (where it lies comes first)
from kvreplay.errors import UserError  # noqa: E402

from chat_forms import FORMS, form_of  # noqa: E402


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


def read_chat(text, path):
    """(role, content or None, whether it is prefilled) of each turn."""
    turns = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            turn = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{place}: {error}; allowed: one JSON object per line") from None
        if not isinstance(turn, dict) or turn.keys() - {"role", "content", "prefilled"}:
            raise UserError(f"{place}: {line.strip()[:80]}; allowed: an object with the members "
                            "role and content, of an assistant's turn also prefilled")
        role, content, prefilled = turn.get("role"), turn.get("content"), turn.get("prefilled", False)
        if role not in ("system", "user", "assistant"):
            raise UserError(f"{place}: role is {json.dumps(role)}; allowed: system, user, assistant")
        if not isinstance(content, str if role != "assistant" else (str, type(None))) or content == "":
            raise UserError(f"{place}: content is {json.dumps(content)}; allowed: a text"
                            + (", or none, so that the model writes it" * (role == "assistant")))
        if not isinstance(prefilled, bool) or (prefilled and (role != "assistant" or content is None)):
            raise UserError(f"{place}: prefilled is {json.dumps(prefilled)}; allowed: true or false, of "
                            "an assistant's turn with content")
        last = turns[-1][0] if turns else None
        if (role == "assistant" and last != "user") or (role == "system" and turns):
            raise UserError(f"{place}: role is {role} after {last or 'nothing'}; allowed: system first, "
                            "assistant after user")
        turns.append((role, content, prefilled))
    if not turns or turns[-1][0] != "assistant" or turns[-1][2]:
        ends = f"{turns[-1][0]}{', prefilled' * turns[-1][2]}" if turns else "nothing"
        raise UserError(f"{path}: ends with {ends}; allowed: an assistant last, such as "
                        '{"role": "assistant"}')
    return turns


def print_chat(tokenizer, text, path):
    def encode(piece):
        return tokenizer.encode(piece).ids

    form, before = form_of(encode)
    if form is None:
        raise UserError(f"--chat: the model's tokenizer knows none of {', '.join(FORMS)}; allowed: a "
                        "model that was trained for chats")
    begin, end, roles = form
    print("close", *encode(end)[len(before):])
    parts = []
    for role, content, prefilled in read_chat(text, path):
        if role not in roles:
            raise UserError(f"{path}: role {role}; allowed: {', '.join(roles)}, which the model knows")
        opened = begin.format(role=roles[role])
        if role == "assistant" and not prefilled:
            # What opens the answer is prefilled with the question.
            parts[-1] += encode(opened)[len(before):]
            answer = [] if content is None else encode(content)[len(before):]
            parts.append([role, "drawn" if content is None else "followed", *answer])
        else:
            ids = encode(opened + content + end)
            parts.append([role, "prefilled", *(ids[len(before):] if parts else ids)])
    for part in parts:
        print(*part)


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
    if direction == "chat":
        print_chat(tokenizer, text, path)
    elif direction == "encode":
        sys.stdout.writelines(f"{token}\n" for token in tokenizer.encode(text).ids)
    else:
        ids = [int(word) for word in text.split()]
        sys.stdout.buffer.write(tokenizer.decode(ids, skip_special_tokens=False).encode())


if __name__ == "__main__":
    sys.exit(exit_code("tokenise", main))
