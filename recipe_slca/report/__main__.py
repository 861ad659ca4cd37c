"""The command line: see `python -m recipe_slca.report --help`."""

import argparse
import sys
from pathlib import Path

from recipe_slca.report.errors import ReportError


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, or 1 when there is nothing to show (the reason goes to stderr)."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.command(arguments)
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"error: this needs {error.name}, which is not installed: pip install {error.name}", file=sys.stderr)
        return 1
    return 0


def _trajectories(arguments: argparse.Namespace) -> None:
    from recipe_slca.report import rollout_dump, trajectories

    dump = rollout_dump.read(arguments.run_dir, steps=arguments.steps, max_rollouts=arguments.max_rollouts)
    trajectories.write_page(dump, arguments.output)
    print(f"{arguments.output}: {dump.rollout_count} rollouts in {len(dump.groups)} groups")
    for note in dump.notes():
        print(f"note: {note}", file=sys.stderr)


def _curves(arguments: argparse.Namespace) -> None:
    from recipe_slca.report import curves, run_logs

    runs = run_logs.read(arguments.runs)
    page = curves.write_report(runs, arguments.output, smooth=arguments.smooth)
    print(f"{page}: {len(runs)} runs")
    for run in runs:
        for note in run.notes:
            print(f"note: {run.name}: {note}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m recipe_slca.report", description="Show what a run did.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    trajectories = commands.add_parser(
        "trajectories",
        help="one HTML page of a run's rollouts",
        description="Write one self-contained HTML page from the rollouts under RUN_DIR/slca_rollouts "
        "(written by training every `slca.dump.every` steps).",
    )
    trajectories.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    trajectories.add_argument("--output", type=Path, required=True, metavar="PAGE.html")
    trajectories.add_argument(
        "--steps", type=_steps, metavar="N,N,...", help="only these steps (default: the latest that fit)"
    )
    trajectories.add_argument(
        "--max-rollouts",
        type=_positive,
        default=2000,
        metavar="N",
        help="whole groups, latest steps first, up to about this many rollouts (default: %(default)s)",
    )
    trajectories.set_defaults(command=_trajectories)

    curves = commands.add_parser(
        "curves",
        help="curves of several runs as PNG and one HTML page",
        description="Draw the logs of runs (verl's file logger or TensorBoard; a file or a folder). Runs whose "
        "names differ only in a trailing seed, such as slca_seed1 and slca_seed2, become one line: their mean, "
        "with a band from the lowest to the highest seed.",
    )
    curves.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    curves.add_argument("--output", type=Path, required=True, metavar="DIR")
    curves.add_argument(
        "--smooth",
        type=_positive,
        default=1,
        metavar="N",
        help="plot the mean of the last N logged values (default: no smoothing)",
    )
    curves.set_defaults(command=_curves)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _steps(text: str) -> set[int]:
    try:
        return {int(part) for part in text.split(",")}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of steps such as 10,20") from error


if __name__ == "__main__":
    sys.exit(main())
