"""tau2-Bench: its summaries become our report, and the script measures agents that solve a task or break off."""

import json
import subprocess

import pytest
from conftest import REPOSITORY, benchmark_venv, environment
from scripted_server import Reply

from recipe_slca.evaluation.tau2_bench import drop_failed_dialogues, read_results, table
from recipe_slca.tool_calls import ToolCall, render


def write_summary(folder, domain, passes, failed=0):
    summary = {
        "num_tasks": 4,
        "num_simulations": 8,
        "metrics": {"pass_at_k": passes, "pass_at_1_stats": {"stderr": 0.1}},
    }
    endings = {"skipped_samples": failed, "termination_reasons": {"user_stop": 8 - failed}}
    (folder / f"{domain}_results.json").write_text(json.dumps(summary))
    (folder / f"{domain}_termination_summary.json").write_text(json.dumps(endings))


def test_the_report_counts_each_domain_alike(tmp_path):
    write_summary(tmp_path, "airline", {"1": 0.5, "2": 0.25})
    write_summary(tmp_path, "retail", {"1": 0.25, "2": 0.0}, failed=3)
    report = read_results(tmp_path, ["airline", "retail"])
    assert report["pass"] == {"1": 0.375, "2": 0.125}
    assert report["domains"]["retail"]["failed"] == 3
    assert table(report).splitlines()[-1].split() == ["mean", "of", "domains", "37.50%", "12.50%"]


def test_only_dialogues_that_broke_off_are_held_again(tmp_path):
    saved = tmp_path / "mock.json"
    assert drop_failed_dialogues(saved) == 0
    saved.write_text(
        json.dumps({"info": 1, "simulations": [{"id": "a", "skipped": True}, {"id": "b", "skipped": False}]})
    )
    assert drop_failed_dialogues(saved) == 1
    assert json.loads(saved.read_text()) == {"info": 1, "simulations": [{"id": "b", "skipped": False}]}


@pytest.fixture(scope="module")
def venv():
    return benchmark_venv("TAU2_VENV", ".venv-tau2", "tau2-Bench")


def evaluate(venv, server, output, *arguments, **variables):
    settings = {"MODEL": "policy", "BASE_URL": server.url, "USER_MODEL": "user", "USER_BASE_URL": server.url}
    settings |= {"OUTPUT": str(output), "VENV": str(venv), "DOMAINS": "mock", "TASKS": "1", **variables}
    command = ["bash", str(REPOSITORY / "run_scripts/eval_tau2.sh"), "--retries", "0", *arguments]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True, timeout=300)


def solve_first_task(body):
    """Both sides of the first mock task: a task called 'Important Meeting' for user_1."""
    last = body["messages"][-1]
    if body["model"] == "user":
        return Reply("###STOP###" if "created" in str(last["content"]) else "Please make the task, for user_1.")
    if last["role"] == "tool":
        return Reply("<think>Good.</think>It is created.")
    return Reply(render([ToolCall("create_task", {"user_id": "user_1", "title": "Important Meeting"})]))


def test_an_agent_that_solves_its_task_passes_through_the_whole_path(venv, text_server, tmp_path):
    server = text_server(solve_first_task)
    done = evaluate(venv, server, tmp_path, TRIALS="2")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "results.json").read_text())
    assert report["pass"] == {"1": 1.0, "2": 1.0}
    assert report["domains"]["mock"] | {"pass": 0} == {
        "pass": 0,
        "pass_1_standard_error": None,
        "tasks": 1,
        "dialogues": 2,
        "failed": 0,
        "endings": {"user_stop": 2},
    }
    agent_turns = [body for body in server.requests if body["model"] == "policy" and body["max_tokens"] > 1]
    assert "create_task" in agent_turns[0]["messages"][0]["content"] and "tools" not in agent_turns[0]

    asked = len(server.requests)
    again = evaluate(venv, server, tmp_path, TRIALS="2")
    assert again.returncode == 0 and len(server.requests) == asked + 2  # the checks of both endpoints alone
    other = evaluate(venv, server, tmp_path, "--seed", "7", TRIALS="2")
    assert other.returncode == 1 and "is from a run with other settings" in other.stderr


def test_dialogues_that_break_off_are_counted_and_keys_are_not_saved(venv, text_server, tmp_path):
    server = text_server(lambda body: Reply("   " if body["model"] == "policy" else "Hello?"))
    done = evaluate(venv, server, tmp_path, USER_API_KEY_ENV="USER_KEY", USER_KEY="sesame")
    assert done.returncode == 1
    assert "1 of 1 dialogues broke off on an error" in done.stderr
    assert "Bearer sesame" in server.authorizations
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and "sesame" in file.read_text()]


def test_a_user_that_does_not_answer_stops_the_run_at_once(venv, text_server, tmp_path):
    done = evaluate(venv, text_server(solve_first_task), tmp_path, USER_BASE_URL="http://127.0.0.1:9/v1")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr and "USER_BASE_URL" in done.stderr
