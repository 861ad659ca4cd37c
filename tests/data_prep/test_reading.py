"""Reading in pieces gives what reading at once gives; verl reads what is written."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toucan_rows import MULTI, OTHER_TOOL, TOOL, build, build_rows, kimi, read

from data_prep import demo_world, json_list, sources
from data_prep.json_text import loads_exactly, loads_json_or_literal, to_json
from data_prep.readers.chat_text import split_responses
from data_prep.text_cache import TextCache
from recipe_slca.tool_calls import loads

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(json_values, max_size=6), st.integers(1, 40), st.booleans())
def test_json_list_in_chunks(values, chunk, indented):
    text = json.dumps(values, indent=2 if indented else None)
    original, json_list._CHUNK_CHARS = json_list._CHUNK_CHARS, chunk
    try:
        assert list(json_list.iterate_json_list(io.StringIO(text))) == values
    finally:
        json_list._CHUNK_CHARS = original


@settings(deadline=None)
@given(json_values)
def test_fast_json_is_exact(value):
    text = json.dumps(value)
    assert loads_exactly(text) == loads(text) == value
    assert loads_json_or_literal(repr(value)) == value
    if "\\ud" not in text.lower():
        assert loads(to_json(value)) == value


@pytest.mark.parametrize("number", [10**18, 2**63, 2**64, -(2**64), 10**30, 123456789012345678901])
def test_long_numbers(number):
    assert loads_exactly(f'{{"n": {number}}}') == {"n": number}
    assert loads(to_json({"n": number})) == {"n": number}


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "[1e999]", "{", "[" * 100_000, "", "__import__('os')", "{1, 2}"])
def test_what_is_not_json(text):
    with pytest.raises(ValueError):
        loads_exactly(text)
    with pytest.raises(ValueError):
        loads_json_or_literal(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_hold_are_not_written(number):
    with pytest.raises(ValueError):
        to_json({"n": [1, number]})


@given(st.lists(st.text(max_size=4)), st.integers(0, 12))
def test_text_cache_is_exact_and_bounded(texts, chars):
    cache = TextCache(lambda text: text[::-1], chars)
    for text in texts:
        assert cache(text) == text[::-1]
        assert sum(map(len, cache._made)) <= chars


def test_text_cache_keeps_the_most_recent():
    made = []
    cache = TextCache(made.append, chars=4)
    for text in ("aa", "bb", "aa", "cc", "aa", "bb"):
        cache(text)
    assert made == ["aa", "bb", "cc", "bb"]


@pytest.mark.parametrize("part_bytes", [500, 1001, 4096])
def test_json_lines_in_parts(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(sources, "_JSON_LINES_BYTES", part_bytes)
    rows = list(demo_world.rows(30, seed=1))
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(sources.find_units([str(source)], None)) > 5
    report = build(source, tmp_path / "out", "--splits", "sft=rest", "--keep-irrelevant")
    assert report["rows_in"] == 30
    assert [row["uuid"] for row in read(tmp_path / "out", "sft")] == [row["uuid"] for row in rows]
    assert [row["original_idx"] for row in read(tmp_path / "out", "sft")] == list(range(30))


@pytest.mark.parametrize(
    ("text", "responses"),
    [
        ("<tool_response>\na\n</tool_response>", ["a"]),
        ("<tool_response>a</tool_response>\n<tool_response>\n\nb \n</tool_response>\n", ["a", "\nb "]),
        ("plain", []),
        ("", []),
        ("<tool_response>a</tool_response> and text", []),
        ("text <tool_response>a</tool_response>", []),
        ("<tool_response>a </tool_response> b</tool_response>", []),
    ],
)
def test_split_responses(text, responses):
    assert split_responses(text) == responses


CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_verl_reads_what_is_written(tmp_path):
    """The data sets of the trainer, not a stand-in for them."""
    from omegaconf import OmegaConf
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.dataset.rl_dataset import RLHFDataset

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<|pad|>")
    tokenizer.chat_template = CHAT_TEMPLATE

    rows = [kimi(uuid="a"), kimi(MULTI, uuid="b", subset_name="multi-turn")]
    _, output = build_rows(tmp_path, rows, "--splits", "rl=rest")
    config = OmegaConf.create(
        {"max_prompt_length": 10_000, "cache_dir": str(tmp_path), "filter_overlong_prompts": True}
    )
    config["filter_overlong_prompts_workers"] = 1
    dataset = RLHFDataset([str(output / "rl.parquet")], tokenizer, config)
    assert len(dataset) == 2
    for item, row in zip(dataset, read(output, "rl"), strict=True):
        assert item["raw_prompt"] == row["prompt"]
        assert json.loads(item["tools"]) == [TOOL, OTHER_TOOL]
        assert item["index"] == row["extra_info"]["index"] and item["agent_name"] == "slca_tool_agent"
        assert item["reward_model"]["ground_truth"] == row["reward_model"]["ground_truth"]

    _, output = build_rows(tmp_path, rows, "--splits", "sft=rest")
    config = {"max_length": 10_000, "pad_mode": "no_padding", "truncation": "error"}
    sft = MultiTurnSFTDataset([str(output / "sft.parquet")], tokenizer, OmegaConf.create(config))
    for at, row in enumerate(read(output, "sft")):
        item = sft[at]
        learnt = tokenizer.decode(item["input_ids"][item["loss_mask"].bool()])
        turns = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert learnt == "".join(f"{turn}<|im_end|>\n" for turn in turns)
