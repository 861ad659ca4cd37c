"""Input files cut into units of work, and the rows of one unit."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep import readers
from data_prep.json_list import iterate_json_list
from data_prep.json_text import loads
from data_prep.reasons import Unusable

SUFFIXES = (".parquet", ".json", ".jsonl")
_BATCH_BYTES = 8_000_000
_JSON_LINES_BYTES = 32_000_000


class SourceError(ValueError):
    """An input that cannot be read at all; the message names the file and what to do."""


@dataclass(frozen=True)
class Unit:
    """A part of an input file that one worker reads: a parquet row group, a byte range of JSON lines, or a
    whole JSON file.

    part: the row group, or the first byte. rows: how many, None where only reading tells.
    """

    path: str
    layout: str
    part: int
    rows: int | None = None


def find_units(inputs: Sequence[str], layout: str | None) -> list[Unit]:
    """All units of the inputs (files, folders or globs), in order.

    Raises `SourceError` for an input without files, a file that cannot be read, an unknown layout, a column
    of a wrong type, and files of different layouts.
    """
    files = find_files(inputs)
    units: list[Unit] = []
    seen: dict[str, str] = {}
    for file in files:
        columns, parts = _open_parquet(file) if file.suffix == ".parquet" else _open_json(file)
        name = layout or _recognise(file, columns)
        missing = readers.READERS[name].DISTINCTIVE - set(columns)
        if missing:
            raise SourceError(
                f"{file}: layout {name} needs the columns {', '.join(sorted(missing))}; seen: {', '.join(columns)}"
            )
        seen.setdefault(name, str(file))
        units += [Unit(str(file), name, part, rows) for part, rows in parts]
    if len(seen) > 1:
        found = "; ".join(f"{name}: {file}" for name, file in seen.items())
        raise SourceError(f"the inputs mix layouts ({found}); build each layout by itself")
    return units


def find_files(inputs: Sequence[str]) -> list[Path]:
    """The files that the inputs name, each once, in order. Raises `SourceError`."""
    found: dict[Path, None] = {}
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        elif path.is_file():
            files = [path]
        else:
            files = sorted(Path(match) for match in glob.glob(name, recursive=True) if Path(match).is_file())
        if not files:
            raise SourceError(f"--input {name}: no such file, and no {', '.join(SUFFIXES)} file inside")
        for file in files:
            if file.suffix not in SUFFIXES:
                raise SourceError(f"{file}: use a {', '.join(SUFFIXES)} file")
            found[file] = None
    return list(found)


def read_unit(unit: Unit) -> Iterator[dict[str, Any] | Unusable]:
    """The rows of a unit in order; a row that cannot be decoded comes as its fault.

    Raises `SourceError` when the file breaks off.
    """
    if unit.path.endswith(".parquet"):
        return _read_row_group(unit)
    if unit.path.endswith(".jsonl"):
        return _read_lines(unit)
    return _read_json(unit)


def _recognise(file: Path, columns: Sequence[str]) -> str:
    try:
        return readers.recognise(columns)
    except readers.UnknownLayout as error:
        raise SourceError(f"{file}: unknown layout; {error}. Choose one with --layout if it fits") from error


def _open_parquet(file: Path) -> tuple[list[str], list[tuple[int, int]]]:
    try:
        with pq.ParquetFile(file) as parquet:
            for column in parquet.schema_arrow:
                _check_type(file, column)
            metadata = parquet.metadata
            parts = [(at, metadata.row_group(at).num_rows) for at in range(metadata.num_row_groups)]
            return parquet.schema_arrow.names, parts
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file}: not a complete parquet file ({error}); fetch it again") from error


def _check_type(file: Path, column: pa.Field) -> None:
    known = {name for module in readers.READERS.values() for name in module.DISTINCTIVE}
    kind = column.type
    if column.name in known and (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)):
        raise SourceError(f"{file}: column {column.name} holds {kind}; text, or lists and objects, are expected")


def _read_row_group(unit: Unit) -> Iterator[dict[str, Any] | Unusable]:
    wanted = readers.READERS[unit.layout].COLUMNS
    try:
        with pq.ParquetFile(unit.path, buffer_size=1 << 20, pre_buffer=False) as parquet:
            columns = [name for name in wanted if name in parquet.schema_arrow.names]
            group = parquet.metadata.row_group(unit.part)
            rows = max(1, min(512, _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
            for batch in parquet.iter_batches(rows, row_groups=[unit.part], columns=columns, use_threads=False):
                yield from _decode(batch)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{unit.path}: row group {unit.part} cannot be read ({error}); fetch the file again"
        ) from error


def _decode(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Unusable]:
    """The rows of a batch; bytes are UTF-8 text."""
    binary = [field.name for field in batch.schema if pa.types.is_binary(field.type)]
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            yield Unusable("invalid_text")
            return
        for at in range(batch.num_rows):
            yield from _decode(batch.slice(at, 1))
        return
    for row in rows:
        try:
            yield row | {name: row[name].decode() for name in binary if row[name] is not None} if binary else row
        except UnicodeDecodeError:
            yield Unusable("invalid_text")


def _open_json(file: Path) -> tuple[list[str], list[tuple[int, None]]]:
    """The keys of the first row that can be read, and the parts of the file."""
    parts = [(0, None)]
    if file.suffix == ".jsonl":
        parts = [(start, None) for start in range(0, max(1, file.stat().st_size), _JSON_LINES_BYTES)]
    for row in read_unit(Unit(str(file), "", 0)):
        if isinstance(row, dict):
            return list(row), parts
    return [], parts


def _read_lines(unit: Unit) -> Iterator[dict[str, Any] | Unusable]:
    """The lines that start inside the unit's byte range."""
    with open(unit.path, "rb") as file:
        if unit.part:
            file.seek(unit.part - 1)
            file.readline()
        while file.tell() < unit.part + _JSON_LINES_BYTES:
            line = file.readline()
            if not line:
                return
            if line.strip():
                yield _read_object(line)


def _read_object(line: bytes) -> dict[str, Any] | Unusable:
    try:
        row = loads(line.decode())
    except UnicodeDecodeError:
        return Unusable("invalid_text")
    except ValueError:
        return Unusable("unparseable_row")
    return row if isinstance(row, dict) else Unusable("unparseable_row")


def _read_json(unit: Unit) -> Iterator[dict[str, Any] | Unusable]:
    """The elements of a JSON list, one at a time, or the one object of the file."""
    try:
        with open(unit.path, encoding="utf-8") as file:
            for value in iterate_json_list(file):
                yield value if isinstance(value, dict) else Unusable("unparseable_row")
    except ValueError as error:
        raise SourceError(f"{unit.path}: not a JSON list of rows ({error})") from error
