"""A tokenizer and a tiny untrained model for the demo.

    python -m data_prep.demo_model --sft sft.parquet --output model

The tokenizer is a byte-level BPE trained on the SFT text, with a ChatML template like Qwen's; the model has
Qwen2's architecture and about half a million parameters.
"""

import argparse
from pathlib import Path

from recipe_slca.tool_calls import CLOSE_TAG, OPEN_TAG

CHAT_TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
{{ messages[0].content + '\\n' if messages[0].role == 'system' else '' }}<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools><|im_end|>
{% elif messages[0].role == 'system' -%}
<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{- '' if loop.index0 and messages[loop.index0 - 1].role == 'tool' else '<|im_start|>user' }}
<tool_response>
{{ message.content }}
</tool_response>
{{- '' if not loop.last and messages[loop.index0 + 1].role == 'tool' else '<|im_end|>\\n' }}
{%- elif message.role != 'system' -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Single tokens, but not special: they are part of what the policy says.
TAGS = [OPEN_TAG, CLOSE_TAG, "<tool_response>", "</tool_response>", "<think>", "</think>"]


def make_tokenizer(texts: list[str], prompt_lines: list[str], vocabulary: int):
    """A byte-level BPE tokenizer of at most `vocabulary` tokens, trained on `texts`.

    prompt_lines: lines that get a token each. The demo world's system messages are made of a dozen lines, the
    instruction and one for each tool; a token for each makes a sample three times shorter.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(TAGS) - len(prompt_lines),
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in [*TAGS, *prompt_lines]])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer, seed: int, max_positions: int = 2048):
    """An untrained Qwen2 model for this tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_positions,
        initializer_range=0.1,  # at 0.02 attention starts flat, and a model this small stays so for long
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m data_prep.demo_model", description=__doc__.splitlines()[0])
    parser.add_argument("--sft", type=Path, required=True, help="SFT parquet whose text the tokenizer is trained on")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--vocabulary", type=int, default=1024, help="tokens, 512 at least")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    import pyarrow.parquet as pq

    conversations = pq.read_table(options.sft, columns=["messages"]).column("messages").to_pylist()
    texts = [f"{message['role']}\n{message['content']}" for messages in conversations for message in messages[1:]]
    prompt_lines = sorted({line for messages in conversations for line in messages[0]["content"].splitlines()})
    tokenizer = make_tokenizer(texts, prompt_lines, options.vocabulary)
    model = make_model(tokenizer, options.seed)
    tokenizer.save_pretrained(options.output)
    model.save_pretrained(options.output)
    print(f"{options.output}: {model.num_parameters():,} parameters, {len(tokenizer)} tokens")


if __name__ == "__main__":
    main()
