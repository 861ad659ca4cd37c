"""All benchmarks in one table: `python tests/benchmarks [NAME ...]`, as in `python tests/benchmarks advantage import`.

Each row compares ours with a peer that was measured in the same run. Named by path, since verl's wheel installs a
package `tests` of its own.
"""

import argparse
import importlib
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent


def main() -> None:
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description="Run benchmarks, print one table.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; all by default: {', '.join(names)}")
    wanted = parser.parse_args().names or names
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(names)}")
    # The benchmarks import each other's tests and the packages of this checkout, installed or not.
    sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE.parent)]
    table = Table("benchmark", "what", "unit", title="Ours against a peer in the same run")
    for column in ("ours", "peer", "ratio"):
        table.add_column(column, justify="right")
    progress = Console(stderr=True)
    failed = []
    for name in wanted:
        progress.print(f"running {name}")
        try:
            rows = importlib.import_module(f"bench_{name}").run()
        except Exception:
            progress.print_exception()
            failed.append(name)
            continue
        for row in rows:
            figures = (f"{row['ours']:,.4g}", f"{row['peer']:,.4g}", f"{row['ratio']:.2f}")
            table.add_row(name, row["what"], row["unit"], *figures)
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 160).print(table, markup=False)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
