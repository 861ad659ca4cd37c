"""The Berkeley Function Calling Leaderboard, by its official package `bfcl-eval`, on any OpenAI-compatible server.

    OPENAI_BASE_URL=http://127.0.0.1:8600/v1 OPENAI_API_KEY=none \\
        python -m recipe_slca.evaluation.bfcl --model my-model --output eval/bfcl --categories simple_python,parallel

It runs in an environment of its own, which `run_scripts/eval_bfcl.sh` makes: it imports nothing of this
project. The server must answer `tools` with `tool_calls`: `chat_proxy` does, in front of a server of the
trained model. A rerun with the same output continues: cases that have an answer are not asked again, those
whose request failed are.
"""

import argparse
import json
import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REGISTERED_NAME = "slca"
"""Our entry among the benchmark's models; it reads `_` in a name as `/`, so the name holds neither."""
REQUEST_FAILED = "Error during inference:"
"""How the benchmark records a case whose request failed, as the model's answer."""
DEFAULT_CATEGORIES = "single_turn,multi_turn"
"""Without the agentic ones: these need a search service's key and an embedding model."""


def main() -> int:
    """Answer the cases, score them, write `results.json`. Returns the exit status."""
    arguments = _arguments()
    output = Path(arguments.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    os.environ["BFCL_PROJECT_ROOT"] = str(output)  # read when the package is imported

    from bfcl_eval.__main__ import cli
    from bfcl_eval.constants.category_mapping import ALL_SCORING_CATEGORIES, TEST_COLLECTION_MAPPING
    from bfcl_eval.utils import parse_test_category_argument

    wanted = [name for name in arguments.categories.split(",") if name]
    unknown = [name for name in wanted if name not in {*ALL_SCORING_CATEGORIES, *TEST_COLLECTION_MAPPING}]
    if unknown or not wanted:
        known = ", ".join([*TEST_COLLECTION_MAPPING, *ALL_SCORING_CATEGORIES])
        print(f"--categories: {', '.join(unknown) or 'none given'}; known are {known}", file=sys.stderr)
        return 2
    categories = parse_test_category_argument(wanted)
    if "memory_vector" in categories and not all(map(find_spec, ("sentence_transformers", "faiss"))):
        install = f"{sys.executable} -m pip install sentence-transformers faiss-cpu==1.11.0"
        print(f"memory_vector needs two packages more, which bring torch along: {install}", file=sys.stderr)
        return 2

    _same_settings(output, {"model": arguments.model, "temperature": arguments.temperature})
    _register(arguments.model)
    retried = drop_failed_requests(output / "result")
    if retried:
        print(f"{retried} cases whose request failed before are asked again")
    joined = ",".join(categories)
    generate = ["--model", REGISTERED_NAME, "--num-threads", str(arguments.threads)]
    generate += ["--temperature", str(arguments.temperature)]
    evaluate = ["--model", REGISTERED_NAME, "--test-category", joined]
    if arguments.limit:
        _write_case_ids(categories, arguments.limit)
        generate.append("--run-ids")
        evaluate.append("--partial-eval")
    else:
        generate += ["--test-category", joined]
    for command in (["generate", *generate], ["evaluate", *evaluate]):
        if status := cli(command, standalone_mode=False):  # such as 130 after Ctrl-C
            return status

    report = {
        "benchmark": "BFCL",
        "package": f"bfcl-eval {version('bfcl_eval')}",
        "model": arguments.model,
        "cases_per_category": arguments.limit or "all",
        **read_scores(
            output, categories, complete=not arguments.limit and set(ALL_SCORING_CATEGORIES) <= set(categories)
        ),
    }
    (output / "results.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table(report))
    cases = sum(row["cases"] for row in report["categories"].values())
    failed = sum(row["failed_requests"] for row in report["categories"].values())
    if failed:
        print(f"{failed} of {cases} requests failed and count as wrong; a rerun asks them again", file=sys.stderr)
    return int(failed == cases)


def drop_failed_requests(results: Path) -> int:
    """Take cases whose request failed out of the benchmark's answer files; returns how many there were."""
    dropped = 0
    for path in sorted(results.rglob("BFCL_*_result.json")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not _request_failed(json.loads(line))]
        if len(kept) < len(lines):
            dropped += len(lines) - len(kept)
            partial = path.with_suffix(".partial")
            partial.write_text("".join(kept), encoding="utf-8")
            partial.replace(path)
    return dropped


def read_scores(output: Path, wanted: list[str], complete: bool) -> dict[str, Any]:
    """The benchmark's score files of the `wanted` categories as one report.

    `categories` has accuracy in [0, 1], correct, cases and failed_requests by category. `overall` is the
    leaderboard's weighted accuracy, only where `complete` says that every scoring category was run in full:
    the benchmark counts a category that was not run as 0.
    """
    failed = {
        _category(path, "_result"): sum(
            _request_failed(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()
        )
        for path in output.glob(f"result/{REGISTERED_NAME}/**/BFCL_*_result.json")
    }
    categories = {}
    for path in sorted(output.glob(f"score/{REGISTERED_NAME}/**/BFCL_*_score.json")):
        with path.open(encoding="utf-8") as lines:
            header = json.loads(next(lines))
        category = _category(path, "_score")
        if category not in wanted:
            continue
        categories[category] = {
            "accuracy": header["accuracy"],
            "correct": header["correct_count"],
            "cases": header["total_count"],
            "failed_requests": failed.get(category, 0),
        }
    if not categories:
        raise SystemExit(f"the benchmark wrote no scores under {output / 'score'}; its messages above say why")
    report: dict[str, Any] = {"categories": categories}
    accuracies = [row["accuracy"] for row in categories.values()]
    report["mean_of_categories"] = sum(accuracies) / len(accuracies)
    report["overall"] = _leaderboard_accuracy(output) if complete else None
    return report


def table(report: dict[str, Any]) -> str:
    """The report as text, one line a category."""
    lines = [f"{'category':<28}{'accuracy':>10}{'correct':>10}{'cases':>8}{'failed':>8}"]
    lines += [
        f"{name:<28}{row['accuracy']:>10.2%}{row['correct']:>10}{row['cases']:>8}{row['failed_requests']:>8}"
        for name, row in report["categories"].items()
    ]
    lines.append(f"{'mean of these categories':<28}{report['mean_of_categories']:>10.2%}")
    if report["overall"] is not None:
        lines.append(f"{'overall (leaderboard)':<28}{report['overall']:>10.2%}")
    return "\n".join(lines)


def _same_settings(output: Path, settings: dict[str, Any]) -> None:
    """Refuse to continue a run of another model: its answers would be taken for this one's."""
    path = output / "settings.json"
    answers = sum(len(file.read_bytes().splitlines()) for file in output.glob("result/**/BFCL_*_result.json"))
    if answers:
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if known != settings:
            raise SystemExit(f"{output} holds answers under {known}, not {settings}; give another --output")
        print(f"continuing: {output} holds {answers} answers of {settings['model']}; delete it to start over")
    path.write_text(json.dumps(settings), encoding="utf-8")


def _register(model: str) -> None:
    """Add the served model to the benchmark's models, as one that makes native calls over the chat API."""
    from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING, ModelConfig
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler

    MODEL_CONFIG_MAPPING[REGISTERED_NAME] = ModelConfig(
        model_name=model,
        display_name=model,
        url="",
        org="",
        license="",
        model_handler=OpenAICompletionsHandler,
        is_fc_model=True,
        underscore_to_dot=True,  # the handler writes `.` in function names as `_`; the checker must know
    )


def _write_case_ids(categories: list[str], limit: int) -> None:
    """Name the first `limit` cases of each category in the file that the benchmark's --run-ids reads."""
    from bfcl_eval.constants.eval_config import TEST_IDS_TO_GENERATE_PATH
    from bfcl_eval.utils import load_dataset_entry

    ids = {
        category: [case["id"] for case in load_dataset_entry(category, include_prereq=False)[:limit]]
        for category in categories
    }
    Path(TEST_IDS_TO_GENERATE_PATH).write_text(json.dumps(ids, indent=2), encoding="utf-8")


def _request_failed(answer: dict[str, Any]) -> bool:
    return isinstance(answer["result"], str) and answer["result"].startswith(REQUEST_FAILED)


def _category(path: Path, suffix: str) -> str:
    """`multi_turn_base` of `BFCL_v4_multi_turn_base_score.json`."""
    return path.stem.removesuffix(suffix).split("_", 2)[2]


def _leaderboard_accuracy(output: Path) -> float:
    header, row = (output / "score" / "data_overall.csv").read_text(encoding="utf-8").splitlines()[:2]
    return float(row.split(",")[header.split(",").index("Overall Acc")].rstrip("%")) / 100


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name of the model at the server")
    parser.add_argument("--output", required=True, help="folder for answers, scores and results.json")
    parser.add_argument("--categories", default=DEFAULT_CATEGORIES, help="comma-separated (default: %(default)s)")
    parser.add_argument("--limit", type=_limit, default=0, help="only the first cases of each category; 0: all")
    parser.add_argument("--threads", type=int, default=16, help="requests under way at once")
    parser.add_argument("--temperature", type=float, default=0.001, help="sampling temperature")
    return parser.parse_args()


def _limit(text: str) -> int:
    value = int(text)
    if value == 1 or value < 0:
        raise argparse.ArgumentTypeError("at least 2 (the benchmark's table needs two latencies), or 0 for all")
    return value


if __name__ == "__main__":
    sys.exit(main())
