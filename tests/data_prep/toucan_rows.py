"""One small dialogue in every published layout, and short ways to build and read files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep import build as build_command

TOOL = {
    "type": "function",
    "function": {
        "name": "weather-get",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city"],
        },
    },
}
OTHER_TOOL = {
    "type": "function",
    "function": {"name": "mail-send", "description": "", "parameters": {"type": "object"}},
}
OSLO, LIMA = '{"city": "Oslo"}', '{"city": "Lima", "days": 2}'


def call(arguments: str = OSLO, name: str = "weather-get", **more: Any) -> dict:
    """A Kimi-K2 call message."""
    return {"role": "assistant", "content": "", "function_call": {"name": name, "arguments": arguments, **more}}


def response(content: str = "sun", name: str = "weather-get") -> dict:
    """A Kimi-K2 response message."""
    return {"role": "function", "name": name, "content": content}


def user(content: str = "Weather in Oslo?") -> dict:
    return {"role": "user", "content": content}


def said(content: str = "It is sunny.") -> dict:
    return {"role": "assistant", "content": content}


def kimi_system(tools: list | None = None) -> dict:
    listed = json.dumps(tools if tools is not None else [TOOL, OTHER_TOOL])
    return {"role": "system", "content": f"<|im_system|>tool_declare<|im_middle|>{listed}<|im_end|>"}


SINGLE = [user(), call(), response(), said()]
MULTI = [
    user("Weather in Oslo?"),
    call(),
    response(),
    said(),
    user("Thanks!"),
    said("You are welcome."),
    user("And Oslo and Lima, then Oslo again?"),
    said("I look both up."),
    call(OSLO),
    call(LIMA),
    response("sun"),
    response("rain"),
    call(OSLO),
    response("fog"),
    said("Sun, rain, and now fog."),
]


def kimi(messages: Any = None, **changes: Any) -> dict[str, Any]:
    """A row of the Kimi-K2 config; `changes` replace columns."""
    messages = SINGLE if messages is None else messages
    listed = [kimi_system(), *messages] if isinstance(messages, list) else messages
    row = {
        "uuid": "u1",
        "subset_name": "single-turn-original",
        "messages": json.dumps(listed) if isinstance(listed, list) else listed,
        "question": "q",
        "available_tools": json.dumps([TOOL, OTHER_TOOL]),
        "target_tools": "get",
        "question_quality_assessment": json.dumps({"overall_score": 4.0}),
        "response_quality_assessment": json.dumps({"overall_score": 3.0}),
        "metadata": "{}",
    }
    return {**row, **changes}


def write(path: Path, rows: list[dict], schema: pa.Schema | None = None, **options: Any) -> Path:
    """Write rows as parquet."""
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **options)
    return path


def build(source: Path, output: Path, *options: str, expect: int | None = None) -> dict[str, Any]:
    """Run the command in this process; returns its report.json. `expect` is the exit status (0 or 1 if None)."""
    status = build_command.main(["--input", str(source), "--output", str(output), *options])
    assert status == expect if expect is not None else status in (0, 1)
    return json.loads((output / "report.json").read_text()) if status != 2 else {}


def build_rows(tmp_path: Path, rows: list[dict], *options: str) -> tuple[dict[str, Any], Path]:
    """Write rows, build from them; returns the report and the output folder."""
    source = write(tmp_path / "source.parquet", rows)
    output = tmp_path / "out"
    return build(source, output, "--overwrite", *options), output


def read(output: Path, split: str) -> list[dict[str, Any]]:
    """The rows of a split."""
    return pq.read_table(output / f"{split}.parquet").to_pylist()
