"""What a check sees and what it says."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe_slca.settings import Settings, read_settings


@dataclass(frozen=True)
class Outcome:
    """One line of the table.

    ok: None when there was nothing to check, or no way to. found: what is there. remedy: what to do about a
    failure; empty otherwise.
    """

    check: str
    ok: bool | None
    found: str
    remedy: str = ""


@dataclass
class Run:
    """The run that is to start: its composed config, and what several checks read from it."""

    config: DictConfig

    @cached_property
    def settings(self) -> Settings:
        """The `slca:` node. Raises `SettingsError`."""
        node = self.config.get("slca")
        return read_settings(None if node is None else OmegaConf.to_container(node, resolve=True))

    @property
    def model_path(self) -> str:
        return str(self.config.actor_rollout_ref.model.path)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, with the chat template that the run uses."""
        from transformers import AutoTokenizer

        model = self.config.actor_rollout_ref.model
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer_path or self.model_path, trust_remote_code=model.trust_remote_code
        )
        if model.custom_chat_template:
            tokenizer.chat_template = model.custom_chat_template
        return tokenizer


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of its message, short enough for a table."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
