"""From input files to split files in two passes, with every row accounted for.

The first pass reads, checks and spools each unit of input (in any number of processes); then the splits are
drawn from the hashes of all rows; the second pass writes each split from the spool, in the input's order.
Memory holds some rows at a time, and for each kept row a record of 40 bytes.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep import rows, splits
from data_prep.outputs import ROW_GROUP_BYTES, OutputError, write_batches
from data_prep.sources import Unit
from data_prep.splits import Size
from data_prep.spool import SpoolOptions, UnitAccount, read_spool, spool_unit

CODES = {"eval": splits.EVAL, "sft": splits.SFT, "rl": splits.RL}


@dataclass
class SplitAccount:
    """What a written split holds.

    conversations, rows: counts. kinds: rows by parallel type (SFT: by subset). lengths: arrays of one number a
    row (`bytes` of the prompt, or of the whole SFT dialogue; `tools`; `calls`). shown: its first row.
    """

    conversations: int = 0
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    lengths: dict[str, list[np.ndarray]] = field(default_factory=lambda: {"bytes": [], "tools": [], "calls": []})
    shown: dict[str, Any] | None = None

    def count(self, rows: pa.RecordBatch, kinds: pa.Array, **lengths: np.ndarray) -> None:
        """Take note of written rows."""
        if not self.shown:
            self.shown = rows.slice(0, 1).to_pylist()[0]
        self.rows += rows.num_rows
        for entry in kinds.value_counts().to_pylist():
            self.kinds[entry["values"]] += entry["counts"]
        for name, values in lengths.items():
            self.lengths[name].append(values)


@dataclass
class Account:
    """Where every row of the input went."""

    read: int
    dropped: Counter[str]
    notes: Counter[str]
    examples: dict[str, list[str]]
    splits: dict[str, SplitAccount]
    not_selected: int


def build(
    units: list[Unit],
    work: Path,
    options: SpoolOptions,
    sizes: Mapping[str, Size],
    workers: int,
    progress: Callable[[int], None],
) -> Account:
    """Write `<split>.parquet` into `work` for each split in `sizes`; `progress` hears of rows read.

    Raises `SplitError`, `SourceError`, `OutputError`.
    """
    spools = [work / f"spool-{at:06d}" for at in range(len(units))]
    with _mapper(workers) as mapper:
        parts: list[UnitAccount] = []
        for part in mapper(spool_unit, units, [options] * len(units), spools):
            parts.append(part)
            progress(part.read)
        kept = np.concatenate([part.kept for part in parts]) if parts else np.empty(0, splits.KEPT)
        duplicate = splits.find_duplicates(kept)
        split = np.full(len(kept), splits.NONE, dtype=np.int8)
        taken = np.zeros(len(kept), dtype=np.int32)
        split[~duplicate], taken[~duplicate] = splits.assign(kept[~duplicate], sizes)
        firsts = np.cumsum([0, *(part.read for part in parts)])
        bounds = np.cumsum([len(part.kept) for part in parts])[:-1]
        # The split with the most to write is begun first, so that one worker writes it while others do the rest.
        names = sorted(sizes, key=lambda name: int(taken[split == CODES[name]].sum()), reverse=True)
        jobs = [
            (name, work / f"{name}.parquet", spools, firsts, np.split(np.where(split == CODES[name], taken, 0), bounds))
            for name in names
        ]
        written = dict(zip(names, mapper(_write_split, *zip(*jobs, strict=True)), strict=True))
    for spool in spools:
        spool.unlink()
    dropped = sum((part.dropped for part in parts), Counter())
    if duplicate.any():
        dropped["duplicate"] = int(duplicate.sum())
    return Account(
        read=int(firsts[-1]),
        dropped=dropped,
        notes=sum((part.notes for part in parts), Counter()),
        examples=_examples(units, parts),
        splits={name: written[name] for name in sizes},
        not_selected=int((~duplicate & (split == splits.NONE)).sum()),
    )


def _write_split(
    name: str, path: Path, spools: list[Path], firsts: np.ndarray, taken: list[np.ndarray]
) -> SplitAccount:
    """Write one split; `taken[unit][row]` says how many samples (SFT: 1) a spooled row gives."""
    account = SplitAccount()
    chosen = _chosen(spools, firsts, taken, account)
    if name == "sft":
        write_batches(path, rows.SFT_SCHEMA, _sft_batches(chosen, account))
    else:
        write_batches(path, rows.TASK_SCHEMA, _task_batches(chosen, name, account))
    return account


def _chosen(spools: list[Path], firsts: np.ndarray, taken: list[np.ndarray], account: SplitAccount) -> Iterator[tuple]:
    """Spooled batches that give something, how much each of their rows gives, and where their unit begins."""
    for spool, first, counts in zip(spools, firsts[:-1], taken, strict=True):
        start = 0
        for batch in read_spool(spool) if counts.any() else ():
            given = counts[start : start + batch.num_rows]
            start += batch.num_rows
            if given.any():
                account.conversations += int((given > 0).sum())
                yield batch, given, int(first)


def _sft_batches(chosen: Iterator[tuple], account: SplitAccount) -> Iterator[pa.RecordBatch]:
    for batch, given, first in chosen:
        owners = np.flatnonzero(given)
        written = rows.sft_rows(batch, first, owners)
        account.count(
            written,
            written["subset_name"],
            bytes=_bytes(written["messages"]),
            tools=_lengths(batch["tool_names"], owners),
            calls=batch["calls"].to_numpy()[owners],
        )
        yield written


def _task_batches(chosen: Iterator[tuple], name: str, account: SplitAccount) -> Iterator[pa.RecordBatch]:
    for batch, given, first in chosen:
        # The first `given` samples of each row, out of the flattened list of all samples.
        every_owner = np.repeat(np.arange(len(given)), given)
        within = np.arange(len(every_owner)) - np.repeat(np.cumsum(given) - given, given)
        lists = batch["samples"]
        places = lists.offsets.to_numpy()[every_owner] + within
        for part in _parts(rows.task_bytes(batch, every_owner, places)):
            owners = every_owner[part]
            samples = lists.values.take(pa.array(places[part]))
            written = rows.task_rows(batch, first, owners, samples, name, account.rows)
            account.count(
                written,
                samples.field("parallel_type"),
                bytes=_bytes(written["prompt"]),
                tools=_lengths(batch["tool_names"], owners),
                calls=samples.field("calls").to_numpy(),
            )
            yield written


def _parts(sizes: np.ndarray) -> Iterator[slice]:
    """Rows of `sizes` bytes cut into stretches of at most ROW_GROUP_BYTES, or of one row that is larger.

    A long dialogue of many turns gives many samples, each with most of it as its history.
    """
    start, held = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if held and held + size > ROW_GROUP_BYTES:
            yield slice(start, at)
            start, held = at, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def _lengths(lists: pa.ListArray, owners: np.ndarray) -> np.ndarray:
    return np.diff(lists.offsets.to_numpy())[owners]


def _bytes(dialogues: pa.ListArray) -> np.ndarray:
    """UTF-8 bytes of each row's messages; no row is without messages."""
    lengths = pc.binary_length(dialogues.values.field("content")).to_numpy()
    return np.add.reduceat(lengths, dialogues.offsets.to_numpy()[:-1])


def _examples(units: list[Unit], parts: list[UnitAccount]) -> dict[str, list[str]]:
    examples: dict[str, list[str]] = {}
    for unit, part in zip(units, parts, strict=True):
        for reason, seen in part.examples.items():
            said = [f"{unit.path}, part {unit.part}, row {at} {identity}".strip() for at, identity in seen]
            examples[reason] = [*examples.get(reason, []), *said][:5]
    return examples


@contextmanager
def _mapper(workers: int) -> Iterator[Callable]:
    """`map` over so many processes, results in order."""
    if workers == 1:
        yield map
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_end_with_parent) as pool:
        try:
            yield pool.map
        except BrokenProcessPool as error:
            raise OutputError("a worker process was killed, most likely for memory; use fewer --workers") from error


def _end_with_parent() -> None:
    """End this worker when the command is killed: the pool itself would wait for work for ever."""

    def wait() -> None:
        parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
