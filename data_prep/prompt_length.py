"""Lengths in tokens, counted as verl counts them: through the tokenizer's own chat template."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded or has no chat template."""


def count_tokens(messages: Sequence[dict[str, str]], tokenizer: str, with_reply: bool = False) -> int:
    """Tokens of a prompt up to where the reply begins, or, `with_reply`, of a whole dialogue.

    tokenizer: a folder or hub name. Raises `TokenizerError`.
    """
    text = _load(tokenizer).apply_chat_template(list(messages), tokenize=False, add_generation_prompt=not with_reply)
    return len(_load(tokenizer)(text, add_special_tokens=False)["input_ids"])


def check_tokenizer(name: str) -> None:
    """Load a tokenizer before the work begins. Raises `TokenizerError`."""
    _load(name)


@lru_cache(maxsize=1)
def _load(name: str) -> Any:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()  # no warning about lengths: to measure them is what this is for
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise TokenizerError(f"--tokenizer {name}: cannot be loaded ({error})") from error
    if not tokenizer.chat_template:
        raise TokenizerError(f"--tokenizer {name}: has no chat template, so prompts cannot be counted")
    return tokenizer
