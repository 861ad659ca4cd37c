"""Time and memory of `slca` against verl's own estimators: `python tests/benchmarks/bench_advantage.py`.

All get the same tensors in the same process: rewards float32, mask int64 as verl's agent loop makes it, uids as
an object array, groups of 16 rollouts of two to six turns. Processor time on one thread, which other work on the
machine does not change.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo import core_algos

from recipe_slca import advantage

LENGTH = 8192
SHORT_LENGTH = 1024
ROWS = (256, 2048, 16384)
GROUP_SIZE = 16
SECONDS = 4.0
BYTES_PER_TOKEN = 40
PEERS = {
    "grpo": core_algos.compute_grpo_outcome_advantage,
    "grpo_vectorized": core_algos.compute_grpo_vectorized_outcome_advantage,
}


def batch(rows: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor, np.ndarray]:
    """Token rewards, mask and uids of `rows` rollouts: turns and observations of random length, one reward a turn."""
    random = np.random.default_rng(seed)
    rewards = torch.zeros(rows, length)
    mask = torch.zeros(rows, length, dtype=torch.int64)
    for row in range(rows):
        position = 0
        for _ in range(random.integers(2, 7)):
            end = min(position + int(random.integers(length // 64, length // 12)), length)
            if end <= position:
                break
            mask[row, position:end] = 1
            rewards[row, end - 1] = random.random()
            position = end + int(random.integers(length // 64, length // 12))
    return rewards, mask, np.array([f"uid-{row // GROUP_SIZE}" for row in range(rows)], dtype=object)


def run() -> list[dict[str, Any]]:
    """Milliseconds and peak megabytes of a call; the least time of several, taken in turns with the peers.

    The largest batch is cut to `SHORT_LENGTH` columns where memory is short; `what` shows the size measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _compare()
    finally:
        torch.set_num_threads(threads)


def _compare() -> list[dict[str, Any]]:
    results = []
    for rows in ROWS:
        enough_memory = _status_kib("/proc/meminfo", "MemAvailable") * 1024 > 2 * rows * LENGTH * BYTES_PER_TOKEN
        length = LENGTH if enough_memory else SHORT_LENGTH
        arguments = batch(rows, length)
        estimators: dict[str, Callable] = {"slca": advantage.slca, "slca_turn": advantage.slca_turn, **PEERS}
        milliseconds, megabytes = _measure({name: partial(f, *arguments) for name, f in estimators.items()})
        for measured, unit in ((milliseconds, "CPU ms"), (megabytes, "MB peak")):
            if measured is megabytes and rows == min(ROWS):
                continue  # so little that the allocator may reuse what it holds
            for ours in ("slca", "slca_turn"):
                for peer in PEERS:
                    results.append(
                        {
                            "what": f"{ours} against {peer}, {rows} x {length}",
                            "ours": measured[ours],
                            "peer": measured[peer],
                            "ratio": measured[ours] / measured[peer],
                            "unit": unit,
                        }
                    )
    return results


def _measure(calls: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, float]]:
    for call in calls.values():
        call()
    milliseconds, megabytes = dict.fromkeys(calls, float("inf")), {}
    started, rounds = time.process_time(), 0
    while rounds < 6 or time.process_time() - started < SECONDS:
        rounds += 1
        for name, call in calls.items():
            start = time.process_time()
            result = call()
            milliseconds[name] = min(milliseconds[name], 1000 * (time.process_time() - start))
            del result
    for name, call in calls.items():
        megabytes[name] = _peak_megabytes(call)
    return milliseconds, megabytes


def _peak_megabytes(call: Callable[[], Any]) -> float:
    """What a call adds to this process's memory at its highest, its result included (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to the present size
    before = _status_kib("/proc/self/status", "VmRSS")
    call()
    return (_status_kib("/proc/self/status", "VmHWM") - before) / 1024


def _status_kib(file: str, field: str) -> int:
    for line in Path(file).read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise KeyError(field)


if __name__ == "__main__":
    for row in run():
        print(f"{row['what']:<62} {row['ours']:>9.1f} {row['peer']:>9.1f} {row['unit']:<8} x{row['ratio']:.2f}")
