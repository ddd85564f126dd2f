"""What a turn of a chat is between, in the forms that models were trained on."""

# By the token that begins a turn: how it begins, how it ends, and its name for each role.
FORMS = {
    "<|im_start|>": ("<|im_start|>{role}\n", "<|im_end|>\n",
                     {"system": "system", "user": "user", "assistant": "assistant"}),
    "<start_of_turn>": ("<start_of_turn>{role}\n", "<end_of_turn>\n",
                        {"user": "user", "assistant": "model"}),
}


def form_of(encode):
    """The form whose mark is a single token of encode(text), and the tokens that the tokenizer puts
    before each text; the form is None where there is none."""
    before = encode("a")[:-1]
    for mark, form in FORMS.items():
        if len(encode(mark)) == len(before) + 1:
            return form, before
    return None, before
