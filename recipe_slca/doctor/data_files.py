"""The data: files, columns, rows and prompt lengths."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recipe_slca import task
from recipe_slca.doctor.checks import Outcome, Run, first_line
from recipe_slca.doctor.ray_workers import LOOP

ROWS_CHECKED = 100
"""Spread over the file, so that the check takes seconds; `data_prep.inspect` checks every row."""
_BUILD = "make it with `python -m data_prep.build`"


def check_data(run: Run) -> Iterator[Outcome]:
    """One outcome for each file of data.train_files and data.val_files."""
    for key in ("train_files", "val_files"):
        files = run.config.data[key]
        for file in [files] if isinstance(files, str) else list(files):
            yield _check_file(run, f"data.{key}", Path(file).expanduser())


def _check_file(run: Run, key: str, path: Path) -> Outcome:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from data_prep.fitness import Findings, check_rows, check_schema, file_kind

    check = f"{key} {path.name}"
    if not path.is_file():
        return Outcome(check, False, f"there is no file {path}", f"{_BUILD}, or correct {key}")
    try:
        table = pq.read_table(path, memory_map=True)
    except (pa.ArrowException, OSError) as error:
        return Outcome(check, False, f"not a parquet file: {first_line(error)}", f"{_BUILD} again")
    if table.num_rows == 0:
        return Outcome(check, False, "it has no rows", f"{_BUILD}, and see its report for what was left out and why")
    if file_kind(table.schema) != "task":
        remedy = f"give {key} an RL or evaluation file; {_BUILD}"
        return Outcome(
            check, False, f"not an RL or evaluation file, its columns are {', '.join(table.schema.names)}", remedy
        )
    findings = Findings()
    check_schema(table.schema, "task", findings)
    step = max(1, table.num_rows // ROWS_CHECKED)
    rows = [table.slice(number, 1).to_pylist()[0] for number in range(0, table.num_rows, step)]
    if not findings.faults:
        check_rows(iter(rows), "task", None, findings)
    if findings.faults:
        remedy = f"see all with `python -m data_prep.inspect {path}`; {_BUILD}"
        return Outcome(check, False, f"{findings.faults} faults in {len(rows)} rows; {findings.first[0]}", remedy)
    if names := _other_loops(table):
        found = f"its column agent_name asks for {', '.join(names)}"
        return Outcome(check, False, found, f"drop the column, or set it to {LOOP}")
    return _check_sizes(run, check, rows, table.num_rows)


def _other_loops(table: Any) -> list[str]:
    if "agent_name" not in table.schema.names:
        return []
    return sorted({str(name) for name in table.column("agent_name").unique().to_pylist()} - {LOOP})


def _check_sizes(run: Run, check: str, rows: list[dict[str, Any]], total: int) -> Outcome:
    """Whether there are enough rows for a batch, and whether prompts fit."""
    batch = run.config.data.train_batch_size
    if "train_files" in check and total < batch and not run.config.trainer.val_only:
        remedy = "lower data.train_batch_size, or build more data: verl drops the last, smaller batch"
        return Outcome(check, False, f"{total} rows, and a batch has {batch}", remedy)
    limit = run.config.data.max_prompt_length
    try:
        assert run.tokenizer
    except Exception:  # the model's own check says why
        return Outcome(check, None, f"{total} rows; prompt lengths not checked: there is no tokenizer")
    try:
        lengths = [_prompt_tokens(run, row) for row in rows]
    except Exception as error:  # a tokenizer or template may fail in any way
        return Outcome(
            check, False, f"a prompt cannot be tokenized: {first_line(error)}", "repair the model folder first"
        )
    found = f"{total} rows, longest prompt {max(lengths)} of {limit} tokens (in {len(rows)} rows)"
    too_long = sum(length > limit for length in lengths)
    if too_long and not run.config.data.filter_overlong_prompts:
        remedy = "raise data.max_prompt_length, or set data.filter_overlong_prompts=True to leave such rows out"
        return Outcome(check, False, f"{too_long} of {len(rows)} prompts are longer than {limit} tokens", remedy)
    if too_long == len(rows):
        remedy = "raise data.max_prompt_length"
        return Outcome(check, False, f"all {len(rows)} prompts looked at are longer than {limit} tokens", remedy)
    return Outcome(check, True, found + (f", {too_long} will be left out" if too_long else ""))


def _prompt_tokens(run: Run, row: dict[str, Any]) -> int:
    """Tokens of the prompt as the rollout renders it."""
    messages = row["prompt"]
    embedded = run.settings.tool_prompt == "embedded" or (
        run.settings.tool_prompt == "auto" and task.shows_tools(messages)
    )
    text = run.tokenizer.apply_chat_template(
        messages, tools=None if embedded else task.tool_schemas(row), add_generation_prompt=True, tokenize=False
    )
    return len(run.tokenizer.encode(text, add_special_tokens=False))
