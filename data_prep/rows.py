"""The rows that training reads: SFT rows, and RL and evaluation rows in the released layout.

Whatever differs in form from row to row (tools, gold calls, recorded responses) is a JSON string: Arrow
would merge the fields of differing objects and fill them with nulls. All work here is on whole columns of
spooled conversations (`SPOOL_SCHEMA`).
"""

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.conversation import Message
from data_prep.json_text import to_json
from recipe_slca.tool_calls import ToolCall

SYSTEM_PROMPT = (
    "Reason inside <think></think>. When tools are needed, write one JSON list of independent calls, "
    '[{"name": ..., "arguments": {...}}, ...], inside <tool_call></tool_call>. Otherwise answer the user.'
)
AGENT_NAME = "slca_tool_agent"
DATA_SOURCES = {"rl": "toucan_toolcall_v4_rl", "eval": "toucan_eval_v4"}

_MESSAGE = pa.struct({"role": pa.string(), "content": pa.string()})
MESSAGES = pa.list_(_MESSAGE)
SAMPLE = pa.struct(
    {
        "prompt_messages": pa.int64(),
        "calls": pa.int64(),
        "gold": pa.string(),
        "source": pa.string(),
        "parallel_type": pa.string(),
        "has_history": pa.bool_(),
        "turn_index": pa.int64(),
        "split_position": pa.int64(),
    }
)
_SHARED_TEXT = pa.dictionary(pa.int32(), pa.string())
SPOOL_SCHEMA = pa.schema(
    {
        "place": pa.int64(),
        "original_idx": pa.int64(),
        "identity": pa.string(),
        "subset": pa.string(),
        "system": _SHARED_TEXT,
        "messages": MESSAGES,
        "calls": pa.int64(),
        "tools": _SHARED_TEXT,
        "tool_names": pa.list_(pa.string()),
        "samples": pa.list_(SAMPLE),
        "recorded_calls": pa.string(),
    }
)
_GROUND_TRUTH = pa.struct(
    {
        "question_content": pa.string(),
        "allowed_tools": pa.list_(pa.string()),
        "tool_schemas": pa.string(),
        "gold_tool_calls": pa.string(),
        "subset_name": pa.string(),
    }
)
_EXTRA_INFO = pa.struct(
    {
        "index": pa.int64(),
        "original_idx": pa.int64(),
        "uuid": pa.string(),
        "source": pa.string(),
        "parallel_type": pa.string(),
        "has_history": pa.bool_(),
        "need_tools_kwargs": pa.bool_(),
        "turn_index": pa.int64(),
        "split_position": pa.int64(),
        "recorded_calls": pa.string(),
    }
)
SFT_SCHEMA = pa.schema(
    {"messages": MESSAGES, "uuid": pa.string(), "subset_name": pa.string(), "original_idx": pa.int64()}
)
TASK_SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "agent_name": pa.string(),
        "prompt": MESSAGES,
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": _GROUND_TRUTH}),
        "extra_info": _EXTRA_INFO,
        "tools": pa.string(),
    }
)


@lru_cache(maxsize=128)
def system_message(tools: str) -> str:
    """The system message over tools given one a line."""
    return f"{SYSTEM_PROMPT}\n<tools>\n{tools}\n</tools>"


def gold_json(steps: list[list[ToolCall]]) -> str:
    """Gold calls, nested by step, as the released files write them."""
    return to_json([[{"name": call.name, "arguments": call.arguments} for call in step] for step in steps])


def recorded_json(recorded: list[tuple[ToolCall, str]]) -> str:
    """Calls and their responses, for the simulator's replay."""
    return to_json([{"name": call.name, "arguments": call.arguments, "response": text} for call, text in recorded])


def spool_batch(conversations: list[dict[str, Any]]) -> pa.RecordBatch:
    """Conversations as Arrow; their `messages` are of the type `Message`."""
    columns = []
    for name, kind in zip(SPOOL_SCHEMA.names, SPOOL_SCHEMA.types, strict=True):
        values = [conversation[name] for conversation in conversations]
        if name == "messages":
            columns.append(_messages(values))
        elif kind == _SHARED_TEXT:
            columns.append(_shared_texts(values))
        else:
            columns.append(pa.array(values, kind))
    return pa.RecordBatch.from_arrays(columns, schema=SPOOL_SCHEMA)


def _messages(dialogues: list[list[Message]]) -> pa.Array:
    offsets = np.cumsum([0, *map(len, dialogues)], dtype=np.int32)
    roles = pa.array([message.role for dialogue in dialogues for message in dialogue], pa.string())
    contents = pa.array([message.content for dialogue in dialogues for message in dialogue], pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays([roles, contents], type=_MESSAGE))


def _shared_texts(values: list[str]) -> pa.DictionaryArray:
    """Long texts of which many rows have the same one, stored once a batch."""
    places: dict[str, int] = {}
    indices = [places.setdefault(value, len(places)) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(places, pa.string()))


def sft_rows(batch: pa.RecordBatch, first: int, owners: np.ndarray) -> pa.RecordBatch:
    """SFT rows of the conversations at the places `owners`; `first` is the place of the unit's first row in all."""
    widths = np.diff(batch["messages"].offsets.to_numpy())[owners]
    owner = pa.array(owners)
    columns = [
        _dialogues(batch, owners, widths),
        batch["identity"].take(owner),
        batch["subset"].take(owner),
        _original_idx(batch, first).take(owner),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SFT_SCHEMA)


def task_rows(
    batch: pa.RecordBatch, first: int, owners: np.ndarray, samples: pa.StructArray, split: str, index: int
) -> pa.RecordBatch:
    """RL or evaluation rows, one a sample.

    owners: the place of the conversation that each of `samples` (of type SAMPLE) is from. index: of the first
    row in its file.
    """
    rows = len(samples)
    owner = pa.array(owners)
    tools = batch["tools"].dictionary.take(batch["tools"].indices.take(owner))
    widths = _field(samples, "prompt_messages").to_numpy()
    irrelevant = pc.equal(_field(samples, "parallel_type"), "irrelevant")
    ground_truth = [
        batch["messages"].values.field("content").take(pa.array(_starts(batch)[owners] + widths - 1)),
        batch["tool_names"].take(owner),
        tools,
        _field(samples, "gold"),
        pc.if_else(irrelevant, "irrelevant", "tool_call"),
    ]
    extra_info = [
        pa.array(np.arange(index, index + rows)),
        _original_idx(batch, first).take(owner),
        batch["identity"].take(owner),
        _field(samples, "source"),
        _field(samples, "parallel_type"),
        _field(samples, "has_history"),
        pa.repeat(False, rows),
        _field(samples, "turn_index"),
        _field(samples, "split_position"),
        batch["recorded_calls"].take(owner),
    ]
    truth = pa.StructArray.from_arrays(ground_truth, type=_GROUND_TRUTH)
    columns = [
        pa.repeat(DATA_SOURCES[split], rows),
        pa.repeat(AGENT_NAME, rows),
        _dialogues(batch, owners, widths),
        pa.repeat("tool_call", rows),
        pa.StructArray.from_arrays([pa.repeat("rule", rows), truth], type=TASK_SCHEMA.field("reward_model").type),
        pa.StructArray.from_arrays(extra_info, type=_EXTRA_INFO),
        tools,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TASK_SCHEMA)


def _dialogues(batch: pa.RecordBatch, owners: np.ndarray, widths: np.ndarray) -> pa.ListArray:
    """For each owner its system message and then its first `widths` messages."""
    systems, messages = batch["system"], batch["messages"].values
    offsets = np.concatenate([[0], np.cumsum(widths + 1)]).astype(np.int32)
    before = len(systems.dictionary)  # places of messages come after those of the system texts
    places = np.arange(offsets[-1]) + np.repeat(before + _starts(batch)[owners] - offsets[:-1] - 1, widths + 1)
    places[offsets[:-1]] = systems.indices.to_numpy()[owners]
    contents = pa.concat_arrays([systems.dictionary, messages.field("content")]).take(pa.array(places))
    roles = pa.concat_arrays([pa.repeat("system", before), messages.field("role")]).take(pa.array(places))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays([roles, contents], type=_MESSAGE))


def _starts(batch: pa.RecordBatch) -> np.ndarray:
    return batch["messages"].offsets.to_numpy()[:-1]


def _original_idx(batch: pa.RecordBatch, first: int) -> pa.Array:
    return pc.coalesce(batch["original_idx"], pc.add(batch["place"], first))


def _field(samples: pa.StructArray, name: str) -> pa.Array:
    return samples.field(SAMPLE.get_field_index(name))
