"""The rows that training reads: SFT rows, and RL and evaluation rows in the released layout.

Whatever differs in form from row to row (tools, gold calls, recorded responses) is a JSON string: Arrow
would merge the fields of differing objects and fill them with nulls. All work here is on whole columns of
spooled conversations (`SPOOL_SCHEMA`).
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.conversation import Message
from data_prep.json_text import to_json
from data_prep.reasons import Unusable
from recipe_slca.tool_calls import ToolCall

SYSTEM_PROMPT = (
    "Reason inside <think></think>. When tools are needed, write one JSON list of independent calls, "
    '[{"name": ..., "arguments": {...}}, ...], inside <tool_call></tool_call>. Otherwise answer the user.'
)
_BEFORE_TOOLS, _AFTER_TOOLS = f"{SYSTEM_PROMPT}\n<tools>\n", "\n</tools>"
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
SPOOL_SCHEMA = pa.schema(
    {
        "place": pa.int64(),
        "original_idx": pa.int64(),
        "identity": pa.string(),
        "subset": pa.string(),
        "system": pa.string(),  # null: ours over the tools
        "messages": MESSAGES,
        "calls": pa.int64(),
        "tools": pa.dictionary(pa.int32(), pa.string()),  # one a line
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


def system_message(tools: str) -> str:
    """The system message over tools given one a line."""
    return f"{_BEFORE_TOOLS}{tools}{_AFTER_TOOLS}"


def gold_json(steps: list[list[ToolCall]]) -> str:
    """Gold calls, nested by step, as the released files write them."""
    return _calls_json([[{"name": call.name, "arguments": call.arguments} for call in step] for step in steps])


def recorded_json(recorded: list[tuple[ToolCall, str]]) -> str:
    """Calls and their responses, for the simulator's replay."""
    listed = [{"name": call.name, "arguments": call.arguments, "response": text} for call, text in recorded]
    return _calls_json(listed)


def _calls_json(calls: list) -> str:
    try:
        return to_json(calls)
    except (ValueError, TypeError) as error:
        raise Unusable("unparseable_arguments") from error


def spool_batch(conversations: list[dict[str, Any]]) -> pa.RecordBatch:
    """Conversations as Arrow; their `messages` are of the type `Message`."""
    columns = []
    for name, kind in zip(SPOOL_SCHEMA.names, SPOOL_SCHEMA.types, strict=True):
        values = [conversation[name] for conversation in conversations]
        if name == "messages":
            columns.append(_messages(values))
        elif pa.types.is_dictionary(kind):
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
    tools = _tool_lists(batch["tools"], owners)
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


def task_bytes(batch: pa.RecordBatch, owners: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """About how many bytes each RL or evaluation row takes.

    owners: the place of each row's conversation. samples: the place of its sample among all of the batch.
    """
    contents = batch["messages"].values.field("content")
    before = np.concatenate([[0], np.cumsum(pc.binary_length(contents).to_numpy(), dtype=np.int64)])
    starts = _starts(batch)[owners]
    history = before[starts + _field(batch["samples"].values, "prompt_messages").to_numpy()[samples]] - before[starts]
    tools = pc.binary_length(batch["tools"].dictionary).to_numpy()[batch["tools"].indices.to_numpy()[owners]]
    recorded = pc.binary_length(batch["recorded_calls"]).to_numpy()[owners]
    return history + 3 * tools.astype(np.int64) + recorded


def _dialogues(batch: pa.RecordBatch, owners: np.ndarray, widths: np.ndarray) -> pa.ListArray:
    """For each owner its system message and then its first `widths` messages."""
    messages = batch["messages"].values
    roles, contents = messages.field("role"), messages.field("content")
    systems, tools, tools_at = batch["system"], batch["tools"].dictionary, batch["tools"].indices.to_numpy()
    ours = systems.is_null().to_numpy(zero_copy_only=False)
    before, after, system_role = (_text(text) for text in (_BEFORE_TOOLS, _AFTER_TOOLS, "system"))
    role_parts, content_parts = [], []
    for owner, start, width in zip(owners.tolist(), _starts(batch)[owners].tolist(), widths.tolist(), strict=True):
        role_parts += [system_role, roles.slice(start, width)]
        system = [before, tools.slice(tools_at[owner], 1), after] if ours[owner] else [systems.slice(owner, 1)]
        content_parts += [*system, contents.slice(start, width)]
    offsets = np.concatenate([[0], np.cumsum(widths + 1)]).astype(np.int32)
    counts = np.ones(offsets[-1], dtype=np.int64)
    counts[offsets[:-1]] = np.where(ours[owners], 3, 1)
    columns = [pa.concat_arrays(role_parts), _run_together(pa.concat_arrays(content_parts), counts)]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, type=_MESSAGE))


def _tool_lists(tools: pa.DictionaryArray, owners: np.ndarray) -> pa.StringArray:
    """For each owner its tools as one JSON list; JSON text has no line breaks of its own."""
    start, end = _text("["), _text("]")
    parts = [part for at in tools.indices.to_numpy()[owners] for part in (start, tools.dictionary.slice(at, 1), end)]
    lists = _run_together(pa.concat_arrays(parts), np.full(len(owners), 3))
    _, offsets, data = lists.buffers()
    return pa.StringArray.from_buffers(len(lists), offsets, pa.py_buffer(data.to_pybytes().replace(b"\n", b",")))


def _run_together(texts: pa.StringArray, counts: np.ndarray) -> pa.StringArray:
    """Texts joined without a copy: the first `counts[0]` of a new array become one, and so on."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[np.concatenate([[0], np.cumsum(counts)])]
    return pa.StringArray.from_buffers(len(counts), pa.py_buffer(bounds), data)


def _text(text: str) -> pa.StringArray:
    return pa.array([text], pa.string())


def _starts(batch: pa.RecordBatch) -> np.ndarray:
    return batch["messages"].offsets.to_numpy()[:-1]


def _original_idx(batch: pa.RecordBatch, first: int) -> pa.Array:
    return pc.coalesce(batch["original_idx"], pc.add(batch["place"], first))


def _field(samples: pa.StructArray, name: str) -> pa.Array:
    return samples.field(SAMPLE.get_field_index(name))
