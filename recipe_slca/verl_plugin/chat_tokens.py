"""What the rollout must know of a tokenizer: which tokens are text, which one closes a turn, where to cut."""

from functools import lru_cache

from recipe_slca import tool_calls

_PROBE = "probe"
_TAGS = (tool_calls.OPEN_TAG, tool_calls.CLOSE_TAG, "<think>", "</think>", "<thinking>", "</thinking>")


@lru_cache(maxsize=8)
def special_tokens(tokenizer) -> frozenset[int]:
    """Tokens that are no text. The call and reasoning tags are text, also where a tokenizer marks them as special."""
    added = tokenizer.added_tokens_decoder
    special = {token for token, entry in added.items() if entry.special and entry.content not in _TAGS}
    return frozenset(special | ({*tokenizer.all_special_ids} - {*added}))


def policy_text(tokenizer, token_ids: list[int]) -> str:
    """The text of a generation, without special tokens but with the call and reasoning tags."""
    special = special_tokens(tokenizer)
    return tokenizer.decode([token for token in token_ids if token not in special], skip_special_tokens=False)


def end_of_turn_token(tokenizer) -> int:
    """The token with which the chat template closes an assistant turn.

    It may differ from the tokenizer's own end-of-sequence token (base models). Raises `ValueError` when the
    template puts no special token after a turn.
    """
    messages = [{"role": "user", "content": _PROBE}, {"role": "assistant", "content": _PROBE}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    after = tokenizer.encode(text[text.rindex(_PROBE) + len(_PROBE) :], add_special_tokens=False)
    for token in after:
        if token in special_tokens(tokenizer):
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
