"""First pass: one unit of input to a spool file of kept conversations, and the account of the rest.

A spooled conversation is ready for every split: its messages, its tools one a line, and its samples. Which
split it goes to is only known when all units are read.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data_prep import filters, readers, samples
from data_prep.conversation import Conversation
from data_prep.prompt_length import count_tokens
from data_prep.reasons import Unusable
from data_prep.rows import SPOOL_SCHEMA, gold_json, recorded_json, spool_batch, system_message
from data_prep.sources import SourceError, Unit, read_unit
from data_prep.splits import KEPT, content_digest, group_hash
from data_prep.tools import ToolReader

MAX_ROW_CHARS = 16_000_000
EXAMPLES_KEPT = 5
_BATCH_CHARS = 8_000_000
_TOOL_READER = ToolReader()  # one a process: units share their servers


@dataclass
class UnitAccount:
    """What became of one unit's rows.

    read: rows in. kept: array of dtype KEPT, one a spooled row. dropped, notes: counts by reason. examples:
    for each reason the first rows, by their place in the unit and their uuid.
    """

    read: int = 0
    kept: np.ndarray = field(default_factory=lambda: np.empty(0, KEPT))
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def drop(self, reason: str, at: int, row: Any) -> None:
        """Count a row that is dropped, and remember the first ones."""
        self.dropped[reason] += 1
        seen = self.examples.setdefault(reason, [])
        if len(seen) < EXAMPLES_KEPT:
            seen.append((at, str(row.get("uuid", ""))[:100] if isinstance(row, dict) else ""))


@dataclass(frozen=True)
class SpoolOptions:
    """What the first pass needs to know.

    seed: of the splits. tokenizer: a folder or hub name, needed with a limit in tokens; None: no limit.
    """

    filters: filters.FilterOptions
    seed: int
    tokenizer: str | None = None
    max_prompt_tokens: int | None = None
    max_sft_tokens: int | None = None


def spool_unit(unit: Unit, options: SpoolOptions, path: Path) -> UnitAccount:
    """Read one unit, write what is kept to `path`, and account for every row."""
    with _rare_collections():
        return _spool_unit(unit, options, path)


def _spool_unit(unit: Unit, options: SpoolOptions, path: Path) -> UnitAccount:
    account = UnitAccount()
    kept: list[tuple] = []
    reader = readers.READERS[unit.layout]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SPOOL_SCHEMA) as writer:
        batch: list[dict[str, Any]] = []
        batch_chars = 0
        for row in read_unit(unit):
            at = account.read
            account.read += 1
            try:
                spooled, entry, notes = _convert(row, at, reader, options)
            except Unusable as error:
                account.drop(error.reason, at, row)
                continue
            except Exception as error:
                where = f"{unit.path}, part {unit.part}, row {at}"
                raise SourceError(f"{where}: the reader fails on this row ({error!r}); please report it") from error
            account.notes.update(notes)
            kept.append(entry)
            batch.append(spooled)
            batch_chars += len(spooled["tools"]) + sum([len(message.content) for message in spooled["messages"]])
            if batch_chars >= _BATCH_CHARS:
                writer.write_batch(spool_batch(batch))
                batch, batch_chars = [], 0
        if batch:
            writer.write_batch(spool_batch(batch))
    account.kept = np.array(kept, dtype=KEPT)
    return account


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Parsed rows are many small objects without cycles; the usual search for cycles takes a tenth of all time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def read_spool(path: Path) -> Iterator[pa.RecordBatch]:
    """The spooled conversations, in order."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _convert(row, at, reader, options) -> tuple[dict[str, Any], tuple, list[str]]:
    if isinstance(row, Unusable):
        raise row
    if sum([len(value) for value in row.values() if isinstance(value, str)]) > MAX_ROW_CHARS:
        raise Unusable("too_large")
    try:
        conversation = reader.read(row, _TOOL_READER)
        notes = filters.check(conversation, options.filters)
        return _spooled(conversation, at, options, notes)
    except RecursionError as error:
        raise Unusable("nested_too_deeply") from error
    except UnicodeEncodeError as error:
        raise Unusable("invalid_text") from error


def _spooled(
    conversation: Conversation, at: int, options: SpoolOptions, notes: list[str]
) -> tuple[dict[str, Any], tuple, list[str]]:
    tools = conversation.tools
    messages = conversation.messages
    gold = gold_json(conversation.gold) if conversation.gold is not None else ""
    digest = content_digest([*[f"{message.role} {message.content}" for message in messages], tools.digest, gold])
    identity = conversation.identity or f"{digest[0]:016x}{digest[1]:016x}"
    provenance = conversation.provenance
    cut, for_sft, too_long = _within_limits(conversation, options)
    spooled = {
        "place": at,
        "original_idx": provenance.get("original_idx"),
        "identity": identity,
        "subset": conversation.subset,
        "system": conversation.system,
        "messages": conversation.messages,
        "calls": sum([len(message.calls) for message in messages]),
        "tools": tools.text,
        "tool_names": list(tools.names),
        "samples": [_sample(sample, provenance) for sample in cut],
        "recorded_calls": provenance.get("recorded_calls") or recorded_json(samples.recorded_calls(conversation)),
    }
    entry = (
        group_hash(identity, options.seed),
        digest,
        len(cut),
        bool(cut and cut[0].has_history),
        for_sft,
        conversation.evaluation_only,
    )
    return spooled, entry, [*notes, *too_long]


def _within_limits(conversation: Conversation, options: SpoolOptions) -> tuple[list[samples.Sample], bool, list[str]]:
    """The samples whose prompts are short enough, whether the dialogue is for SFT, and notes on what is not.

    Raises `Unusable("too_long")` when nothing is left because of the limits.
    """
    cut = samples.cut(conversation)
    for_sft = conversation.gold is None
    notes: list[str] = []
    if options.tokenizer is None:
        return cut, for_sft, notes
    system = conversation.system if conversation.system is not None else system_message(conversation.tools.text)
    messages = [{"role": "system", "content": system}]
    messages += [{"role": message.role, "content": message.content} for message in conversation.messages]
    if options.max_prompt_tokens is not None:
        lengths = [count_tokens(messages[: sample.split_position + 1], options.tokenizer) for sample in cut]
        short = [sample for sample, tokens in zip(cut, lengths, strict=True) if tokens <= options.max_prompt_tokens]
        notes += ["sample_too_long"] * (len(cut) - len(short))
        cut = short
    if options.max_sft_tokens is not None and for_sft:
        for_sft = count_tokens(messages, options.tokenizer, with_reply=True) <= options.max_sft_tokens
        notes += [] if for_sft else ["dialogue_too_long"]
    if notes and not cut and not for_sft:
        raise Unusable("too_long")
    return cut, for_sft, notes


def _sample(sample: samples.Sample, provenance: Mapping[str, Any]) -> dict[str, Any]:
    decomposed = sample.has_history
    return {
        "split_position": provenance.get("split_position", sample.split_position if decomposed else None),
        "prompt_messages": sample.split_position,
        "turn_index": sample.turn_index,
        "source": provenance.get("source", "decomposed_multi_turn" if decomposed else "native_single_turn"),
        "parallel_type": sample.parallel_type,
        "has_history": decomposed,
        "gold": gold_json(sample.gold),
        "calls": sum(map(len, sample.gold)),
    }
