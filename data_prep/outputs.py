"""Files that appear only when they are complete."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_BYTES = 64_000_000
# Many rows of a row group have the same tools, so a large dictionary holds each long text once.
_ENCODING: dict[str, Any] = {"use_dictionary": True, "dictionary_pagesize_limit": ROW_GROUP_BYTES}
_WORK_PREFIX = ".data_prep-"


class OutputError(RuntimeError):
    """The output folder cannot be written; the message says what to do."""


@contextmanager
def staging(folder: Path, names: Sequence[str], overwrite: bool) -> Iterator[Path]:
    """A working folder inside `folder`; on success its files `names` are moved up, the last one last.

    What a killed run left is removed first. Raises `OutputError` when another build is at work there, when
    outputs exist and `overwrite` is not set, and when the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OutputError(f"--output {folder}: cannot be used as a folder ({error.strerror})") from error
    try:
        _lock(descriptor, folder)
        existing = [name for name in names if (folder / name).exists()]
        if existing and not overwrite:
            raise OutputError(f"--output {folder}: {', '.join(existing)} exist; choose another folder or --overwrite")
        for left in folder.glob(f"{_WORK_PREFIX}*"):
            shutil.rmtree(left)
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=folder))
        try:
            yield work
            for name in existing:
                (folder / name).unlink()
            for name in names:
                if (work / name).exists():
                    os.replace(work / name, folder / name)
        except OSError as error:
            raise OutputError(f"--output {folder}: writing failed ({error}); make room and run again") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    """Hold the folder as long as the descriptor is open; a killed process lets go of it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OutputError(f"--output {folder}: another build is writing there") from error


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Stream record batches into zstd row groups of about ROW_GROUP_BYTES."""
    with pq.ParquetWriter(path, schema, compression="zstd", write_statistics=False, **_ENCODING) as writer:
        group: list[pa.RecordBatch] = []
        held = 0
        for batch in batches:
            group.append(batch)
            held += batch.nbytes
            if held >= ROW_GROUP_BYTES:
                _write_group(writer, group)
                group, held = [], 0
        if group:
            _write_group(writer, group)


def _write_group(writer: pq.ParquetWriter, group: list[pa.RecordBatch]) -> None:
    table = pa.Table.from_batches(group)
    writer.write_table(table, row_group_size=table.num_rows)
