"""What the rollout must know of a tokenizer: the token that closes a turn, and a text cut by tokens."""

from functools import lru_cache

_PROBE = "probe"


def end_of_turn_token(tokenizer) -> int:
    """The token with which the chat template closes an assistant turn.

    It may differ from the tokenizer's own end-of-sequence token (base models). Raises `ValueError` when the
    template puts no special token after a turn.
    """
    messages = [{"role": "user", "content": _PROBE}, {"role": "assistant", "content": _PROBE}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    after = tokenizer.encode(text[text.rindex(_PROBE) + len(_PROBE) :], add_special_tokens=False)
    special = set(tokenizer.all_special_ids)
    for token in after:
        if token in special:
            return token
    raise ValueError(
        "the chat template closes an assistant turn without a special token, so turns cannot be told apart; "
        "use a tokenizer with a ChatML-like template"
    )


@lru_cache(maxsize=4096)
def _tokens(tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def cut_middle(tokenizer, text: str, max_tokens: int) -> str:
    """The text when it has at most `max_tokens` tokens, else its head and tail with a note between them."""
    if len(text) <= max_tokens:  # a token is at least one character
        return text
    tokens = _tokens(tokenizer, text)
    left_out = len(tokens) - max_tokens
    if left_out <= 0:
        return text
    head, tail = tokens[: (max_tokens + 1) // 2], tokens[len(tokens) - max_tokens // 2 :]
    return f"{tokenizer.decode(head)}\n[... {left_out} tokens left out ...]\n{tokenizer.decode(tail)}"
