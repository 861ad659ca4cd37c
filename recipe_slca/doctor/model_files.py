"""The model: its folder, its tokenizer's tags, and its chat template's tool turns."""

from collections.abc import Iterator
from pathlib import Path

from recipe_slca import tool_calls
from recipe_slca.doctor.checks import Outcome, Run, first_line

_QUESTION = {"role": "user", "content": "What is the weather in Oslo?"}
_CALL = {
    "role": "assistant",
    "content": '<tool_call>\n[{"name": "weather", "arguments": {"city": "Oslo"}}]\n</tool_call>',
}
_OBSERVATIONS = [{"role": "tool", "content": '{"sky": "clear 7"}'}, {"role": "tool", "content": '{"sky": "rain 3"}'}]


def check_model(run: Run) -> Iterator[Outcome]:
    """Folder and tokenizer first; the template only when there is one to look at."""
    path = Path(run.model_path).expanduser()
    looks_local = run.model_path.startswith(("/", ".", "~")) or path.exists()
    if looks_local and not (path / "config.json").is_file():
        remedy = "set actor_rollout_ref.model.path to a Hugging Face folder (after SFT: global_step_N/huggingface)"
        yield Outcome("model", False, f"there is no config.json in {path}", remedy)
        return
    try:
        assert run.tokenizer
    except Exception as error:  # transformers raises whatever its formats do
        yield Outcome(
            "model", False, f"the tokenizer does not load: {first_line(error)}", "repair or replace the folder"
        )
        return
    yield _check_context(run)
    yield _check_tags(run)
    yield _check_tool_turn(run)


def _check_context(run: Run) -> Outcome:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(run.model_path, trust_remote_code=run.config.data.trust_remote_code)
    longest = getattr(config, "max_position_embeddings", None)
    prompt, response = run.config.data.max_prompt_length, run.config.data.max_response_length
    found = f"{config.model_type}, {longest} positions for {prompt} + {response} tokens"
    if longest is not None and prompt + response > longest:
        remedy = "lower data.max_prompt_length or data.max_response_length, or extend the model's rope"
        return Outcome("model", False, found, remedy)
    return Outcome("model", True, found)


def _check_tags(run: Run) -> Outcome:
    split = [tag for tag in (tool_calls.OPEN_TAG, tool_calls.CLOSE_TAG) if len(_encode(run, tag)) != 1]
    if not split:
        return Outcome("tags", True, f"{tool_calls.OPEN_TAG} and {tool_calls.CLOSE_TAG} are one token each")
    if tool_calls.CLOSE_TAG not in split or not run.settings.stop_at_tool_call:
        return Outcome("tags", True, f"{', '.join(split)} is several tokens; nothing depends on it")
    return Outcome(
        "tags",
        False,
        f"{tool_calls.CLOSE_TAG} is several tokens, so generation cannot stop at it",
        "add it to the tokenizer before SFT (as Qwen's have it), or set slca.stop_at_tool_call=false",
    )


def _encode(run: Run, text: str) -> list[int]:
    return run.tokenizer.encode(text, add_special_tokens=False)


def _check_tool_turn(run: Run) -> Outcome:
    """Whether a rollout's tokens, appended piece by piece, are those of the whole conversation's template."""
    from recipe_slca.verl_plugin.chat_tokens import end_of_turn_token

    name = "chat template"
    remedy = (
        "use a template with a tool role (Qwen2.5's and Qwen3's have one): actor_rollout_ref.model.custom_chat_template"
    )
    messages = [_QUESTION, _CALL, *_OBSERVATIONS]
    try:
        whole = run.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        end_of_turn = end_of_turn_token(run.tokenizer)
    except Exception as error:  # a template may raise what it likes
        return Outcome(name, False, f"it cannot render a tool turn: {first_line(error)}", remedy)
    lost = [message["content"] for message in _OBSERVATIONS if message["content"] not in whole]
    if lost:
        return Outcome(name, False, "it does not show what a tool answered: it has no tool role", remedy)
    try:
        tokens = _rollout_tokens(run, messages, end_of_turn)
    except Exception as error:  # whatever the trainer's helper raises, it would raise in the rollout
        return Outcome(name, False, f"verl cannot append a tool turn: {first_line(error)}", remedy)
    if tokens != _encode(run, whole):
        found = "observations appended in a rollout get other tokens than the template gives the whole conversation"
        return Outcome(name, False, found, remedy)
    return Outcome(name, True, "renders tool turns as the rollout appends them")


def _rollout_tokens(run: Run, messages: list[dict[str, str]], end_of_turn: int) -> list[int]:
    from transformers import AutoConfig
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    from recipe_slca.verl_plugin.sft_dataset import conversation_tokens

    model_type = AutoConfig.from_pretrained(run.model_path).model_type
    builder = create_continuous_token_builder(run.tokenizer, hf_model_type=model_type, chat_template_kwargs={})
    tokens, _mask = conversation_tokens(builder, run.tokenizer, messages, end_of_turn)
    return tokens
