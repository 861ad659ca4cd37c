"""What the plugin adds to `import verl`: `python tests/benchmarks/bench_import.py`."""

import os
import statistics
import subprocess
import sys
from typing import Any

ROUNDS = 7
CODE = """
import sys, time
start = time.perf_counter()
import verl
print(time.perf_counter() - start, "recipe_slca.verl_plugin" in sys.modules)
"""
OURS, PEER = "with the plugin", "without"


def run() -> list[dict[str, Any]]:
    """Median seconds of `import verl` in fresh processes, in turns with and without the plugin."""
    environments = {
        OURS: {name: value for name, value in os.environ.items() if name != "VERL_USE_EXTERNAL_PLUGINS"},
        PEER: {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": "none"},
    }
    for name, environment in environments.items():
        if _import_verl(environment)[1] != (name == OURS):
            raise RuntimeError(
                "`import verl` does not load the plugin by its entry point: run `pip install -e .` first"
            )
    seconds: dict[str, list[float]] = {OURS: [], PEER: []}
    for _ in range(ROUNDS):
        for name, environment in environments.items():
            seconds[name].append(_import_verl(environment)[0])
    results = []
    for statistic in (statistics.median, min):
        ours, peer = statistic(seconds[OURS]), statistic(seconds[PEER])
        what = f"import verl, with the plugin against without ({'least' if statistic is min else 'median'} of {ROUNDS})"
        results.append({"what": what, "ours": ours, "peer": peer, "ratio": ours / peer, "unit": "s"})
    return results


def _import_verl(environment: dict[str, str]) -> tuple[float, bool]:
    """The seconds that `import verl` takes, and whether it loaded the plugin."""
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    seconds, loaded = done.stdout.splitlines()[-1].split()
    return float(seconds), loaded == "True"


if __name__ == "__main__":
    for row in run():
        print(f"{row['what']:<70} {row['ours']:>7.3f} {row['peer']:>7.3f} {row['unit']}  x{row['ratio']:.2f}")
