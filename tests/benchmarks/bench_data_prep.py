"""Data preparation on generated files of realistic row sizes (8 kB to 400 kB): speed, scaling and memory.

    python tests/benchmarks/bench_data_prep.py [--megabytes 1600] [--memory-megabytes 2000]

The peer of the speed is a process that only reads the parquet files and calls `json.loads` on the same
columns. All figures are of whole processes, start included, and medians of interleaved repeats. The targets are
for the full size, about 500,000 rows a configuration, so the default is large enough for the start to matter
little; with `--megabytes 400` the start is a good part of each figure.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

WORDS = (
    "the a of to returns list record city name value user order price first page limit offset search query by with "
    "and for each result optional identifier date time language format status when given default maximum number"
).split()
ROW_GROUP_ROWS = 250
ROOT = Path(__file__).parents[2]


def write_source(folder: Path, megabytes: int, unique_megabytes: int = 400, seed: int = 0) -> int:
    """Write files in Toucan's Kimi-K2 layout, about so many megabytes of text in all; returns the rows.

    Beyond the first `unique_megabytes` the same dialogues come again with other questions and identities.
    """
    rng = random.Random(seed)
    servers = [_server(number, rng) for number in range(400)]
    groups: list[pa.Table] = []
    while sum(group.nbytes for group in groups) < min(megabytes, unique_megabytes) * 1_000_000:
        groups.append(pa.Table.from_pylist([_row(rng, servers) for _ in range(ROW_GROUP_ROWS)], _SCHEMA))
    rows = size = variant = 0
    while size < megabytes * 1_000_000:
        with pq.ParquetWriter(folder / f"part-{variant:03d}.parquet", _SCHEMA, compression="zstd") as writer:
            for group in groups:
                group = _vary(group, variant)
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
                rows += group.num_rows
                size += group.nbytes
        variant += 1
    return rows


def _vary(group: pa.Table, variant: int) -> pa.Table:
    said = '"role": "user", "content": "'
    messages = pc.replace_substring(group["messages"], said, f"{said}{variant} ")
    group = group.set_column(group.schema.names.index("messages"), "messages", messages)
    return group.set_column(0, "uuid", pc.binary_join_element_wise(group["uuid"], str(variant), "-"))


_SCHEMA = pa.schema(
    [
        (name, pa.string())
        for name in (
            "uuid", "subset_name", "messages", "question", "available_tools", "target_tools",
            "question_quality_assessment", "response_quality_assessment", "metadata",
        )
    ]
)  # fmt: skip
_READ = ("messages", "available_tools", "question_quality_assessment", "response_quality_assessment")


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def _server(number: int, rng: random.Random) -> list[dict]:
    """The tools of one server, 1 kB to 80 kB of schema."""
    tools = []
    for at in range(min(60, max(1, int(rng.lognormvariate(1.8, 0.9))))):
        properties = {
            f"{rng.choice(WORDS)}_{i}": {"type": "string", "description": _text(rng, rng.randint(5, 40))}
            for i in range(rng.randint(1, 8))
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
        function = {
            "name": f"server-{number}-tool_{at}",
            "description": _text(rng, rng.randint(10, 120)),
            "parameters": parameters,
        }
        tools.append({"type": "function", "function": function})
    return tools


def _row(rng: random.Random, servers: list[list[dict]]) -> dict[str, str]:
    chosen = rng.sample(servers, 1 if rng.random() < 0.8 else rng.randint(2, 4))
    tools = [tool for server in chosen for tool in server]
    declared = json.dumps(tools)
    messages = [{"role": "system", "content": f"<|im_system|>tool_declare<|im_middle|>{declared}<|im_end|>"}]
    multi_turn = rng.random() < 0.3
    for _ in range(rng.randint(2, 4) if multi_turn else 1):
        messages.append({"role": "user", "content": _text(rng, rng.randint(20, 120))})
        for _ in range(rng.randint(1, 3)):
            calls = [rng.choice(tools)["function"] for _ in range(rng.choice((1, 1, 2)))]
            for function in calls:
                arguments = {name: _text(rng, 3) for name in function["parameters"]["properties"]}
                call = {"name": function["name"], "arguments": json.dumps(arguments)}
                messages.append({"role": "assistant", "content": "", "function_call": call})
            for function in calls:
                answer = json.dumps([{"id": i, "text": _text(rng, 12)} for i in range(rng.randint(1, 30))])
                messages.append({"role": "function", "name": function["name"], "content": answer})
        messages.append({"role": "assistant", "content": _text(rng, rng.randint(50, 400))})
    aspect = {"reasoning": _text(rng, 60), "score": 4}
    return {
        "uuid": f"{rng.getrandbits(128):032x}",
        "subset_name": "multi-turn" if multi_turn else "single-turn-original",
        "messages": json.dumps(messages),
        "question": messages[1]["content"],
        "available_tools": declared,
        "target_tools": "",
        "question_quality_assessment": json.dumps({**{f"aspect_{i}": aspect for i in range(6)}, "overall_score": 4.2}),
        "response_quality_assessment": json.dumps(
            {"completeness": aspect, "conciseness": aspect, "overall_score": 4.0}
        ),
        "metadata": json.dumps({"note": _text(rng, 100)}),
    }


def read_only(folder: Path) -> int:
    """The peer: read the columns and parse their JSON, nothing else."""
    rows = 0
    for file in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(64, columns=list(_READ), use_threads=False):
            for row in batch.to_pylist():
                rows += 1
                for value in row.values():
                    json.loads(value)
    return rows


def _measure(*command: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds (of all its processes), and peak memory in MB (of its largest process)."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def _build(source: Path, work: Path, workers: int = 1) -> tuple[float, float, float]:
    command = ["-m", "data_prep.build", "--input", str(source), "--output", str(work / "out"), "--overwrite"]
    return _measure(*command, "--workers", str(workers))


def run(megabytes: int = 100, memory_megabytes: int = 0, repeats: int = 3) -> list[dict]:
    """Rows of `what`, `ours`, `peer`, `ratio`, `unit`; memory at the larger size when `memory_megabytes` is given."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = work / "source"
        source.mkdir()
        rows = write_source(source, megabytes)
        peer, one, two = [], [], []
        for _ in range(repeats):
            peer.append(_measure(__file__, "--read-only", str(source)))
            one.append(_build(source, work))
            two.append(_build(source, work, workers=2))

        def median(measured: list[tuple], which: int) -> float:
            return statistics.median(values[which] for values in measured)

        for which, unit in ((0, "rows/s"), (1, "rows/s of CPU time")):
            ours, theirs = rows / median(one, which), rows / median(peer, which)
            results.append(_result("build against reading and json.loads alone", ours, theirs, unit))
        ours, theirs = rows / median(two, 0), rows / median(one, 0)
        results.append(_result("build, two workers against one", ours, theirs, "rows/s"))
        if memory_megabytes:
            small = median(one, 2)
            shutil.rmtree(source)
            source.mkdir()
            write_source(source, memory_megabytes, unique_megabytes=100, seed=1)
            peak = _build(source, work)[2]
            what = f"peak memory at {memory_megabytes} MB of input against {megabytes} MB"
            results.append(_result(what, peak, small, "MB"))
    return results


def _result(what: str, ours: float, peer: float, unit: str) -> dict:
    return {"what": what, "ours": round(ours, 1), "peer": round(peer, 1), "ratio": round(ours / peer, 2), "unit": unit}


def main() -> None:
    """Print the results, one a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1600)
    parser.add_argument("--memory-megabytes", type=int, default=0)
    parser.add_argument("--read-only", type=Path, help="only run the peer on this folder")
    options = parser.parse_args()
    if options.read_only:
        read_only(options.read_only)
        return
    for result in run(options.megabytes, options.memory_megabytes):
        print(json.dumps(result))


if __name__ == "__main__":
    main()
