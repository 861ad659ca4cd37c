"""Build SFT, RL and evaluation files from published data.

    python -m data_prep.build --input Toucan-1.5M/Kimi-K2 --output data/toucan --preset paper
    python -m data_prep.build --input rows.parquet --output data/small --splits eval=10%,sft=60%,rl=rest

Writes sft.parquet, rl.parquet and eval.parquet (those that are asked for), report.json and report.md. The
exit status is 2 when the command could not do its work, 1 when a split came out empty.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

NAMES = ("sft.parquet", "rl.parquet", "eval.parquet", "report.md", "report.json")
_NOT_OF_THE_DATA = ("output", "workers", "overwrite")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="python -m data_prep.build", description=__doc__.splitlines()[0])
    add = result.add_argument
    add("--input", action="append", required=True, metavar="PATH", help="a parquet, JSON or JSONL file, folder or glob")
    add("--output", type=Path, required=True, metavar="DIR")
    add("--layout", metavar="NAME", help="read the inputs as this layout instead of recognising it from the columns")
    add(
        "--splits",
        default="eval=5%,sft=57%,rl=rest",
        metavar="SIZES",
        help="the splits to write, drawn in the order eval, sft, rl: each a number of rows, a share of what is left "
        "(60%%), or rest; eval also as SINGLE+DECOMPOSED rows (default %(default)s)",
    )
    add("--preset", choices=["paper"], help="in place of --splits; paper: eval=3000+1000,sft=42423,rl=31818")
    add("--seed", type=int, default=0, help="of the hash that draws the splits")
    add("--lenient", action="store_true", help="keep, and count, calls whose arguments fail their tool's schema")
    add("--keep-irrelevant", action="store_true", help="keep rows that need no tool, with empty gold")
    add("--min-question-quality", type=float, metavar="1-5", help="drop questions of a lower overall score")
    add("--min-response-quality", type=float, metavar="1-5", help="drop responses of a lower overall score")
    add("--tokenizer", metavar="DIR", help="counts tokens for the two limits below")
    add("--max-prompt-tokens", type=int, metavar="N", help="leave out RL and evaluation rows with longer prompts")
    add("--max-sft-tokens", type=int, metavar="N", help="leave out SFT rows that are longer in all")
    add("--workers", type=int, default=1, metavar="N", help="processes; the output is the same with any number")
    add("--overwrite", action="store_true", help="replace outputs that exist")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    options = parser().parse_args(arguments)
    from data_prep.outputs import OutputError
    from data_prep.prompt_length import TokenizerError
    from data_prep.report import AccountError
    from data_prep.sources import SourceError
    from data_prep.splits import SplitError

    try:
        summary = _run(options)
    except (UsageError, SourceError, SplitError, OutputError, TokenizerError, AccountError) as error:
        print(f"data_prep.build: {error}", file=sys.stderr)
        return 2
    for name, split in summary["splits"].items():
        print(f"{options.output / name}.parquet: {split['rows']} rows of {split['conversations']} conversations")
    dropped = sum(summary["dropped"].values())
    print(f"{summary['rows_in']} rows in, {dropped} dropped by reason, see {options.output / 'report.md'}")
    empty = [name for name, split in summary["splits"].items() if not split["rows"]]
    if empty:
        print(f"data_prep.build: no row is left for {', '.join(empty)}; the report says why", file=sys.stderr)
    return 1 if empty else 0


class UsageError(ValueError):
    """Options that do not go together."""


def _run(options: argparse.Namespace) -> dict[str, Any]:
    from tqdm import tqdm

    from data_prep import pipeline, report
    from data_prep.filters import FilterOptions
    from data_prep.outputs import staging
    from data_prep.prompt_length import check_tokenizer
    from data_prep.readers import READERS
    from data_prep.sources import find_units
    from data_prep.splits import PRESETS, parse_sizes
    from data_prep.spool import SpoolOptions

    if options.layout is not None and options.layout not in READERS:
        raise UsageError(f"--layout {options.layout}: known are {', '.join(READERS)}")
    if options.workers < 1:
        raise UsageError(f"--workers {options.workers}: use at least 1")
    if (options.max_prompt_tokens or options.max_sft_tokens) and not options.tokenizer:
        raise UsageError("--max-prompt-tokens and --max-sft-tokens need --tokenizer")
    if options.tokenizer:
        check_tokenizer(options.tokenizer)
    try:
        sizes = PRESETS[options.preset] if options.preset else parse_sizes(options.splits)
    except ValueError as error:
        raise UsageError(f"--splits: {error}") from error
    units = find_units(options.input, options.layout)
    spool_options = SpoolOptions(
        FilterOptions(
            options.lenient, options.keep_irrelevant, options.min_question_quality, options.min_response_quality
        ),
        options.seed,
        options.tokenizer,
        options.max_prompt_tokens,
        options.max_sft_tokens,
    )
    known_rows = [unit.rows for unit in units]
    total = None if None in known_rows else sum(known_rows)
    with staging(options.output, NAMES, options.overwrite) as work:
        with tqdm(total=total, unit=" rows", disable=None) as bar:
            account = pipeline.build(units, work, spool_options, sizes, options.workers, bar.update)
        settings = {key: value for key, value in vars(options).items() if key not in _NOT_OF_THE_DATA}
        summary = report.summarise(account, settings)
        report.write(summary, account, work)
    return summary


if __name__ == "__main__":
    sys.exit(main())
