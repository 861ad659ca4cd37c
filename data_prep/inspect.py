"""What is in a data file, is it fit for training, and how does one row read?

    python -m data_prep.inspect data/toucan/rl.parquet
    python -m data_prep.inspect data/toucan/rl.parquet --tokenizer models/Qwen2.5-7B-Instruct --max-prompt-length 24576
    python -m data_prep.inspect data/toucan/rl.parquet --row 3

The exit status is 1 when the file is not fit for training, 2 when it cannot be read.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="python -m data_prep.inspect", description=__doc__.splitlines()[0])
    result.add_argument("file", metavar="FILE")
    result.add_argument("--row", type=int, metavar="N", help="show row N, counted from 0, as a page")
    result.add_argument("--tokenizer", metavar="DIR", help="to compare lengths with --max-prompt-length")
    result.add_argument(
        "--max-prompt-length", type=int, metavar="TOKENS", help="verl's data.max_prompt_length (SFT: data.max_length)"
    )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    command = parser()
    options = command.parse_args(arguments)
    if (options.tokenizer is None) != (options.max_prompt_length is None):
        command.error("--tokenizer and --max-prompt-length go together")
    import pyarrow as pa
    import pyarrow.parquet as pq

    from data_prep.prompt_length import TokenizerError

    try:
        with pq.ParquetFile(options.file, pre_buffer=False) as file:
            return _show_row(file, options) if options.row is not None else _inspect(file, options)
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        return 0
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        print(f"data_prep.inspect: {options.file}: cannot be read as parquet ({error})", file=sys.stderr)
    except TokenizerError as error:
        print(f"data_prep.inspect: {error}", file=sys.stderr)
    return 2


def _show_row(file: Any, options: argparse.Namespace) -> int:
    from data_prep import page

    count = file.metadata.num_rows
    if not 0 <= options.row < count:
        print(f"data_prep.inspect: --row {options.row}: {options.file} has rows 0 to {count - 1}", file=sys.stderr)
        return 2
    for number, row in enumerate(_rows(file)):
        if number == options.row:
            print(page.render(row))
            return 0
    return 2


def _inspect(file: Any, options: argparse.Namespace) -> int:
    from data_prep import fitness, page, readers

    schema = file.schema_arrow
    print(f"{options.file}: {file.metadata.num_rows} rows in {file.metadata.num_row_groups} row groups")
    for column in schema:
        print(page.safe(f"  {column.name}: {column.type}"))
    kind = fitness.file_kind(schema)
    if kind is None:
        try:
            name = readers.recognise(schema.names)
            print(f"Not fit for training: this is a source file (layout {name}); run python -m data_prep.build on it.")
        except readers.UnknownLayout as error:
            print(page.safe(f"Not fit for training: {error}"))
        return 1
    findings = fitness.Findings()
    fitness.check_schema(schema, kind, findings)
    limit = fitness.LengthLimit(options.tokenizer, options.max_prompt_length) if options.tokenizer else None
    if not findings.faults:
        fitness.check_rows(_rows(file), kind, limit, findings)
        print(f"Kinds: {page.safe(', '.join(f'{name} {rows}' for name, rows in sorted(findings.kinds.items())))}")
    if limit:
        print(f"Longest {'dialogue' if kind == 'sft' else 'prompt'}: {findings.longest_tokens} tokens")
    if not findings.faults and file.metadata.num_rows:
        print(f"Fit for {'SFT' if kind == 'sft' else 'RL and evaluation'}.")
        return 0
    print(f"Not fit for training: {findings.faults} faults" if findings.faults else "Not fit for training: no rows")
    for fault in findings.first:
        print(page.safe(f"  {fault}"))
    return 1


def _rows(file: Any) -> Iterator[dict[str, Any]]:
    for batch in file.iter_batches(16, use_threads=False):
        yield from batch.to_pylist()


if __name__ == "__main__":
    sys.exit(main())
