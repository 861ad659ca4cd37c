"""The command line.

    python -m recipe_slca.doctor --config-path=pkg://recipe_slca.config --config-name=slca_trainer [key=value ...]

Takes the arguments of `python -m verl.trainer.main_ppo`, prints a table with one line a check and what to do
about each failure, and starts no training. The exit status is 1 when a check failed.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator

from recipe_slca.doctor.checks import Outcome, Run, first_line
from recipe_slca.doctor.compose import ConfigUnusable, argument_parser, compose


def main(argv: list[str] | None = None) -> int:
    """Check, print, and return the exit status."""
    options = argument_parser().parse_args(argv)
    os.environ.setdefault("VERL_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.captureWarnings(True)
    outcomes = list(examine(options.config_path, options.config_name, options.overrides, options.wait))
    _print_table(outcomes)
    return int(any(outcome.ok is False for outcome in outcomes))


def examine(config_path: str, config_name: str, overrides: list[str], wait_s: float = 0.0) -> Iterator[Outcome]:
    """All checks in order. What needs Ray goes on beside the others and comes last."""
    from recipe_slca.doctor import environment

    yield (plugin := environment.check_plugin())
    try:
        run = Run(compose(config_path, config_name, overrides))
    except ConfigUnusable as error:
        yield Outcome("config", False, str(error), "correct the arguments; without a `+`, a key must exist already")
        return
    versions = environment.check_versions(run)
    yield versions
    if not (plugin.ok and versions.ok):
        yield Outcome("all else", None, "not checked: the packages come first")
        return
    yield from _after_packages(run, wait_s)


def _after_packages(run: Run, wait_s: float) -> Iterator[Outcome]:
    from recipe_slca.doctor import config_check, data_files, endpoints, machine, model_files, ray_workers

    ray_check = ray_workers.RayCheck(run)
    yield from _guarded("settings", lambda: [config_check.check_settings(run)])
    yield from _guarded("estimator", lambda: [config_check.check_estimator(run)])
    yield from _guarded("verl's own checks", lambda: [config_check.check_verl(run)])
    yield from _guarded("traps", lambda: config_check.check_traps(run))
    yield from _guarded("model", lambda: model_files.check_model(run))
    yield from _guarded("data", lambda: data_files.check_data(run))
    yield from _guarded("output folder", lambda: [machine.check_output(run)])
    yield from _guarded("checkpoint", lambda: [machine.check_checkpoint(run)])
    yield from _guarded("memory", lambda: machine.check_memory(run))
    yield from _guarded("endpoints", lambda: endpoints.check_endpoints(run, wait_s))
    yield from ray_check.outcomes()


def _guarded(name: str, check: Callable[[], Iterable[Outcome]]) -> Iterator[Outcome]:
    """A check that breaks is a finding of its own, and keeps no other from being made."""
    try:
        yield from check()
    except Exception as error:
        yield Outcome(name, False, f"the check broke off: {first_line(error)}", "repair what stands above first")


def _print_table(outcomes: list[Outcome]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "check", "found", "what to do", show_lines=False)
    marks = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("-", "dim")}
    for outcome in outcomes:
        mark, style = marks[outcome.ok]
        # As Text, so that square brackets in a value are no markup.
        table.add_row(Text(mark, style), Text(outcome.check), Text(outcome.found), Text(outcome.remedy))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    failed = sum(outcome.ok is False for outcome in outcomes)
    console.print(f"{failed} of {len(outcomes)} checks failed" if failed else "nothing keeps this run from starting")


if __name__ == "__main__":
    sys.exit(main())
