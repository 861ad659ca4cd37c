"""SFT samples in the very tokens that a rollout of the same conversation has.

verl's own dataset renders each message alone. Templates that put several observations into one turn (Qwen's)
then give other tokens than the rollout, and parallel calls are learnt in a form that never occurs. This
dataset builds a sample as the agent loop builds a rollout: the prompt once, then each assistant turn and
each group of observations appended. Select it with

    data.custom_cls.path=pkg://recipe_slca.verl_plugin.sft_dataset data.custom_cls.name=SlcaSftDataset
"""

from typing import Any

import torch
from transformers import AutoConfig
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from recipe_slca.verl_plugin.chat_tokens import end_of_turn_token


class SlcaSftDataset(MultiTurnSFTDataset):
    """Samples from the column `messages`; all assistant turns are learnt, nothing else.

    Raises `ValueError` for a sample longer than data.max_length (data.truncation=error) and for a
    data.pad_mode other than no_padding.
    """

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        if self.pad_mode != "no_padding":
            raise ValueError(f"data.pad_mode={self.pad_mode}: SlcaSftDataset gives unpadded samples, use no_padding")
        model_type = AutoConfig.from_pretrained(self.tokenizer.name_or_path).model_type
        self._builder = create_continuous_token_builder(
            self.tokenizer, hf_model_type=model_type, chat_template_kwargs=dict(self.apply_chat_template_kwargs)
        )
        self._end_of_turn = end_of_turn_token(self.tokenizer)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        tokens, loss_mask = conversation_tokens(self._builder, self.tokenizer, self.messages[item], self._end_of_turn)
        if len(tokens) > self.max_length and self.truncation == "error":
            raise ValueError(
                f"sample {item} of {self.parquet_files} has {len(tokens)} tokens, data.max_length is "
                f"{self.max_length}: raise it, or drop long rows with `python -m data_prep.build --max-prompt-tokens`"
            )
        tokens, loss_mask = tokens[: self.max_length], loss_mask[: self.max_length]
        return {
            "input_ids": torch.tensor(tokens),
            "position_ids": torch.arange(len(tokens)),
            "loss_mask": torch.tensor(loss_mask),
        }


def conversation_tokens(
    builder: Any, tokenizer: Any, messages: list[dict[str, str]], end_of_turn: int
) -> tuple[list[int], list[int]]:
    """The tokens of a conversation as a rollout has them, and a mask of the tokens to learn.

    builder: verl's continuous token builder. messages: role and content, the first assistant message not
    the first of all. A turn's closing token is learnt too, so that the policy learns to stop.
    """
    first = next(number for number, message in enumerate(messages) if message["role"] == "assistant")
    tokens = builder.build_initial_tokens(messages[:first])
    mask = [0] * len(tokens)
    done = first
    while done < len(messages):
        if messages[done]["role"] == "assistant":
            turn = tokenizer.encode(messages[done]["content"], add_special_tokens=False) + [end_of_turn]
            tokens, mask = tokens + turn, mask + [1] * len(turn)
            done += 1
            continue
        until = done
        while until < len(messages) and messages[until]["role"] != "assistant":
            until += 1
        merged = builder.merge_context_tokens(messages[:done], messages[:until], tokens)
        mask, _ = builder.align_response_metadata(merged, mask)
        tokens, done = merged.token_ids, until
    return tokens, mask
