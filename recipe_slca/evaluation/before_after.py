"""What a run changed: its first and its last validation, side by side.

python -m recipe_slca.evaluation.before_after outputs/cpu_demo/slca_seed1/rl/metrics.jsonl
"""

import argparse
import json
from pathlib import Path

_SHOWN = {
    "slca/val/success@0.9": "Success@0.9",
    "slca/val/reward/process/mean": "Process",
    "slca/val/name_f1": "Name F1",
    "slca/val/arg_match": "ArgMatch",
    "slca/val/reward/summary/mean": "Summary",
    "slca/val/tool_turns": "Tool turns",
    "slca/val/calls": "Calls",
    "slca/val/redundant_calls": "Redundant calls",
    "slca/val/omission_share": "Without a readable call",
    "slca/val/ended/replied": "Ended with a reply",
}


def validations(log: Path) -> list[tuple[int, dict[str, float]]]:
    """The validations in a log of verl's file logger: (step, metrics) in the order logged.

    Raises `ValueError` when there are fewer than two.
    """
    steps = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found = [(entry["step"], entry["data"]) for entry in steps if "slca/val/rollouts" in entry["data"]]
    if len(found) < 2:
        raise ValueError(f"{log} has {len(found)} validations, two are needed: set trainer.val_before_train=true")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipe_slca.evaluation.before_after", description=__doc__)
    parser.add_argument("log", type=Path, help="log of verl's file logger")
    options = parser.parse_args()

    from rich.console import Console
    from rich.table import Table

    found = validations(options.log)
    (first, before), (last, after) = found[0], found[-1]
    table = Table(title=f"{int(before['slca/val/rollouts'])} rollouts of the evaluation tasks, sampled")
    for column in ("", f"step {first}", f"step {last}", "change"):
        table.add_column(column, justify="right" if column else "left")
    for key, name in _SHOWN.items():
        table.add_row(name, f"{before[key]:.3f}", f"{after[key]:.3f}", f"{after[key] - before[key]:+.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
