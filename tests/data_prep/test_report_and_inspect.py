"""The account of a build, limits in tokens, and the command that judges a file."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from toucan_rows import MULTI, SINGLE, build, build_rows, call, kimi, read, response, said, user, write
from transformers import PreTrainedTokenizerFast

from data_prep import inspect, page, report
from data_prep.pipeline import Account

TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """One token a word."""
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    fast.chat_template = TEMPLATE
    folder = tmp_path_factory.mktemp("tokenizer")
    fast.save_pretrained(folder)
    return str(folder)


def words_of(messages, with_reply=False):
    return sum(2 + len(message["content"].split()) for message in messages) + 2 * (not with_reply)


def test_prompt_limit_is_exact(tmp_path, tokenizer):
    rows = [kimi(uuid="a"), kimi(MULTI, uuid="b", subset_name="multi-turn")]
    _, output = build_rows(tmp_path, rows, "--splits", "rl=rest")
    short, long = sorted(words_of(row["prompt"]) for row in read(output, "rl"))
    for limit, written in ((long, 2), (long - 1, 1), (short, 1)):
        limits = ["--tokenizer", tokenizer, "--max-prompt-tokens", str(limit)]
        result, output = build_rows(tmp_path, rows, "--splits", "rl=rest", *limits)
        assert result["splits"]["rl"]["rows"] == written
        assert result["notes"] == ({"sample_too_long": 2 - written} if written < 2 else {})
    limits = ["--tokenizer", tokenizer, "--max-prompt-tokens", "5", "--max-sft-tokens", "5"]
    result, _ = build_rows(tmp_path, rows, "--splits", "rl=rest", *limits)
    assert result["dropped"] == {"too_long": 2}


def test_sft_limit_is_exact(tmp_path, tokenizer):
    _, output = build_rows(tmp_path, [kimi()], "--splits", "sft=rest")
    tokens = words_of(read(output, "sft")[0]["messages"], with_reply=True)
    for limit, written in ((tokens, 1), (tokens - 1, 0)):
        options = ["--tokenizer", tokenizer, "--max-sft-tokens", str(limit)]
        result, _ = build_rows(tmp_path, [kimi()], "--splits", "sft=rest", *options)
        assert result["splits"]["sft"]["rows"] == written


def test_limits_need_a_usable_tokenizer(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [kimi()])
    build(source, tmp_path / "out", "--max-prompt-tokens", "5", expect=2)
    assert "need --tokenizer" in capsys.readouterr().err
    build(source, tmp_path / "out", "--max-prompt-tokens", "5", "--tokenizer", str(tmp_path), expect=2)
    assert "cannot be loaded" in capsys.readouterr().err


def test_report_adds_up_and_shows_rows(tmp_path):
    rows = [kimi(uuid="a"), kimi(MULTI, uuid="b"), kimi("[{", uuid="c | ```"), kimi(uuid="d"), kimi("", uuid="e")]
    result, output = build_rows(tmp_path, rows, "--splits", "sft=1,rl=rest")
    assert (
        result["rows_in"]
        == 5
        == (sum(result["conversations_used"].values()) + sum(result["dropped"].values()) + result["not_selected"])
    )
    assert result["dropped"] == {"empty_messages": 1, "unparseable_messages": 1, "duplicate": 1}
    text = (output / "report.md").read_text()
    assert "| `duplicate`: another row has the same content | 1 |" in text
    assert "## A row of sft" in text and "## A row of rl" in text and "Weather in Oslo?" in text
    assert "````text" in text
    lengths = [sum(len(m["content"].encode()) for m in row["messages"]) for row in read(output, "sft")]
    assert result["splits"]["sft"]["bytes"]["p100"] == max(lengths)


def test_a_sum_that_does_not_hold_fails(tmp_path):
    from collections import Counter

    account = Account(read=3, dropped=Counter(duplicate=1), notes=Counter(), examples={}, splits={}, not_selected=1)
    with pytest.raises(report.AccountError, match="3 rows were read but 2 are accounted for"):
        report.summarise(account, {})


def run_inspect(capsys, *arguments):
    status = inspect.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(("split", "said_fit"), [("sft", "Fit for SFT."), ("rl", "Fit for RL"), ("eval", "Fit for RL")])
def test_inspect_passes_what_build_writes(tmp_path, capsys, tokenizer, split, said_fit):
    rows = [kimi(uuid="a"), kimi(MULTI, uuid="b")]
    _, output = build_rows(tmp_path, rows, "--splits", f"{split}=rest")
    capsys.readouterr()
    status, out, _ = run_inspect(
        capsys, output / f"{split}.parquet", "--tokenizer", tokenizer, "--max-prompt-length", "500"
    )
    assert status == 0 and said_fit in out and "Longest" in out
    status, out, _ = run_inspect(
        capsys, output / f"{split}.parquet", "--tokenizer", tokenizer, "--max-prompt-length", "20"
    )
    assert status == 1 and "row 0: " in out and "tokens, more than 20" in out


def changed(tmp_path, split, change):
    """A file of one good and one changed row."""
    _, output = build_rows(tmp_path, [kimi(uuid="a"), kimi(MULTI, uuid="b")], "--splits", f"{split}=rest")
    path = output / f"{split}.parquet"
    schema = pq.read_schema(path)
    good, bad = pq.read_table(path).to_pylist()[:2]
    change(bad)
    pq.write_table(pa.Table.from_pylist([good, bad], schema), path)
    return path


def truth(row):
    return row["reward_model"]["ground_truth"]


TASK_FAULTS = {
    "does not end with the user": lambda row: row["prompt"].pop(),
    "there are no messages": lambda row: row.update(prompt=[]),
    "has the role 'stranger'": lambda row: row["prompt"][1].update(role="stranger"),
    "has no text": lambda row: row["prompt"][1].update(content=None),
    "unreadable_calls": lambda row: row["prompt"][2].update(content="<tool_call>["),
    "unparseable_tools": lambda row: row.update(tools="[{"),
    "no_tools": lambda row: row.update(tools=""),
    "ground_truth.gold_tool_calls is missing": lambda row: truth(row).update(gold_tool_calls=None),
    "unparseable_gold": lambda row: truth(row).update(gold_tool_calls="[[{]]"),
    "'nobody', which is not among the tools": lambda row: truth(row).update(gold_tool_calls='[[{"name": "nobody"}]]'),
    "arguments that fail its schema": lambda row: truth(row).update(
        gold_tool_calls='[[{"name": "weather-get", "arguments": {"city": 5}}]]'
    ),
    "tools without a schema: nobody": lambda row: truth(row).update(allowed_tools=["nobody"]),
    "recorded_calls is not": lambda row: row["extra_info"].update(recorded_calls="[1]"),
}


@pytest.mark.parametrize("fault", TASK_FAULTS)
def test_inspect_finds_task_faults(tmp_path, capsys, fault):
    path = changed(tmp_path, "rl", TASK_FAULTS[fault])
    capsys.readouterr()
    status, out, _ = run_inspect(capsys, path)
    assert status == 1 and "  row 1: " in out and fault in out and "row 0" not in out


SFT_FAULTS = {
    "does not end with the assistant": lambda row: row["messages"].pop(),
    "declares no tools": lambda row: row["messages"][0].update(content="Be brief."),
    "unreadable_calls": lambda row: row["messages"][2].update(content="</tool_call>"),
    "not among the tools": lambda row: row["messages"][2].update(content='<tool_call>{"name": "x"}</tool_call>'),
}


@pytest.mark.parametrize("fault", SFT_FAULTS)
def test_inspect_finds_sft_faults(tmp_path, capsys, fault):
    path = changed(tmp_path, "sft", SFT_FAULTS[fault])
    capsys.readouterr()
    status, out, _ = run_inspect(capsys, path)
    assert status == 1 and "  row 1: " in out and fault in out


def test_inspect_shows_ten_faults_of_all(tmp_path, capsys):
    _, output = build_rows(tmp_path, [kimi([user(str(at)), *SINGLE[1:]], uuid=str(at)) for at in range(30)])
    rows = pq.read_table(output / "sft.parquet").to_pylist()
    for row in rows:
        row["messages"].pop()
    path = write(tmp_path / "bad.parquet", rows)
    capsys.readouterr()
    status, out, _ = run_inspect(capsys, path)
    assert status == 1 and f"{len(rows)} faults" in out and out.count("  row ") == 10


def test_inspect_judges_columns(tmp_path, capsys):
    for rows, said_so in (
        ([kimi()], "source file (layout toucan)"),
        ([{"text": "x"}], "columns seen: text"),
        ([{"messages": "[]"}], "messages is string, not list"),
        ([{"prompt": "x", "reward_model": "y"}], "data_source is missing"),
    ):
        status, out, _ = run_inspect(capsys, write(tmp_path / "rows.parquet", rows))
        assert status == 1 and said_so in out


def test_inspect_of_what_is_no_parquet(tmp_path, capsys):
    (tmp_path / "rows.parquet").write_text("text")
    for name in ("rows.parquet", "missing.parquet"):
        status, _, err = run_inspect(capsys, tmp_path / name)
        assert status == 2 and "cannot be read as parquet" in err


def test_one_row_as_a_page(tmp_path, capsys):
    row = kimi([user("Weather \x1b[31m in Oslo?"), call(), response(), said()])
    _, output = build_rows(tmp_path, [row], "--splits", "rl=rest")
    capsys.readouterr()
    status, out, _ = run_inspect(capsys, output / "rl.parquet", "--row", "0")
    assert status == 0
    assert "weather-get(city, days)" in out and "Weather \\x1b[31m in Oslo?" in out and "\x1b" not in out
    assert '[{"name": "weather-get", "arguments": {"city": "Oslo"}}]' in out
    status, _, err = run_inspect(capsys, output / "rl.parquet", "--row", "1")
    assert status == 2 and "has rows 0 to 0" in err


def test_page_survives_any_row():
    assert page.render({}) == ""
    assert "gold" in page.render({"prompt": [], "reward_model": {"ground_truth": {"gold_tool_calls": "[{"}}})
    assert json.loads(json.dumps(page.fenced("```` x"))).startswith("`````text")
