"""BFCL: its score files become our report, and the script measures models that answer right or not."""

import json
import subprocess

import pytest
from conftest import REPOSITORY, benchmark_venv, environment
from scripted_server import Reply

from recipe_slca.evaluation.bfcl import drop_failed_requests, read_scores
from recipe_slca.tool_calls import ToolCall, render

CATEGORIES = ("simple_python", "parallel")


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def run_folder(tmp_path):
    """A run of two categories, in the files that the benchmark writes; one request of the first has failed."""
    answers = [{"id": "multi_turn_base_0", "result": "Error during inference: timed out"}]
    answers += [{"id": "multi_turn_base_1", "result": [["Error during inference: is what I would say"]]}]
    write_lines(tmp_path / "result/slca/multi_turn/BFCL_v4_multi_turn_base_result.json", answers)
    write_lines(tmp_path / "result/slca/live/BFCL_v4_live_simple_result.json", [{"id": "live_simple_0", "result": "x"}])
    header = {"accuracy": 0.5, "correct_count": 1, "total_count": 2}
    write_lines(tmp_path / "score/slca/multi_turn/BFCL_v4_multi_turn_base_score.json", [header, {"id": "x"}])
    header = {"accuracy": 1.0, "correct_count": 1, "total_count": 1}
    write_lines(tmp_path / "score/slca/live/BFCL_v4_live_simple_score.json", [header])
    (tmp_path / "score/data_overall.csv").write_text("Rank,Overall Acc,Model\n1,41.50%,m\n")
    return tmp_path


def test_the_report_has_the_wanted_categories_and_their_failures(run_folder):
    report = read_scores(run_folder, ["multi_turn_base", "live_simple"], complete=False)
    assert report["categories"]["multi_turn_base"] == {"accuracy": 0.5, "correct": 1, "cases": 2, "failed_requests": 1}
    assert report["mean_of_categories"] == 0.75
    assert report["overall"] is None
    report = read_scores(run_folder, ["live_simple"], complete=True)
    assert (list(report["categories"]), report["overall"]) == (["live_simple"], pytest.approx(0.415))


def test_no_scores_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="wrote no scores"):
        read_scores(tmp_path, ["live_simple"], complete=False)


def test_only_failed_requests_are_asked_again(run_folder):
    assert drop_failed_requests(run_folder / "result") == 1
    kept = (run_folder / "result/slca/multi_turn/BFCL_v4_multi_turn_base_result.json").read_text()
    assert [json.loads(line)["id"] for line in kept.splitlines()] == ["multi_turn_base_1"]
    assert drop_failed_requests(run_folder / "result") == 0


@pytest.fixture(scope="module")
def venv():
    return benchmark_venv("BFCL_VENV", ".venv-bfcl", "BFCL")


@pytest.fixture(scope="module")
def right_answers(venv):
    """What a perfect model writes, by the user's question."""
    (data,) = venv.glob("lib/python*/site-packages/bfcl_eval/data")
    answers = {}
    for category in CATEGORIES:
        name = f"BFCL_v4_{category}.json"
        cases = (data / name).read_text().splitlines()
        accepted = (data / "possible_answer" / name).read_text().splitlines()
        for case, answer in zip(map(json.loads, cases), map(json.loads, accepted), strict=True):
            calls = [
                ToolCall(
                    name.replace(".", "_"), {key: values[0] for key, values in arguments.items() if values[0] != ""}
                )
                for call in answer["ground_truth"]
                for name, arguments in call.items()
            ]
            answers[case["question"][0][-1]["content"]] = render(calls)
    return answers


def evaluate(venv, server, output, **variables):
    settings = {"MODEL": "policy", "BASE_URL": server.url, "OUTPUT": str(output), "VENV": str(venv), "LIMIT": "2"}
    settings |= {"CATEGORIES": ",".join(CATEGORIES), **variables}
    command = ["bash", str(REPOSITORY / "run_scripts/eval_bfcl.sh")]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True, timeout=300)


def test_a_model_that_answers_right_scores_1_through_the_whole_path(venv, right_answers, text_server, tmp_path):
    server = text_server(
        lambda body: Reply(f"<think>Easy.</think>\n{right_answers.get(body['messages'][-1]['content'])}")
    )
    done = evaluate(venv, server, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "results.json").read_text())
    scores = {name: (row["accuracy"], row["cases"]) for name, row in report["categories"].items()}
    assert scores == {"simple_python": (1.0, 2), "parallel": (1.0, 2)}
    assert "mean of these categories       100.00%" in done.stdout
    assert '"calls":' in (tmp_path / "proxy_counts.jsonl").read_text()

    asked = len(server.requests)
    again = evaluate(venv, server, tmp_path)
    assert again.returncode == 0 and len(server.requests) == asked + 1  # the proxy's check alone
    other = evaluate(venv, server, tmp_path, MODEL="another")
    assert other.returncode == 1 and "holds answers under" in other.stderr


def test_a_model_that_makes_no_call_scores_0(venv, text_server, tmp_path):
    server = text_server(lambda body: Reply("I would rather not."))
    done = evaluate(venv, server, tmp_path, CATEGORIES="simple_python,irrelevance")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "results.json").read_text())
    assert {name: row["accuracy"] for name, row in report["categories"].items()} == {
        "simple_python": 0,
        "irrelevance": 1,
    }


def test_a_run_whose_requests_all_fail_is_a_failure(venv, text_server, tmp_path):
    served = iter(["the proxy's check"])
    server = text_server(lambda body: Reply(next(served)) if body["max_tokens"] == 1 else Reply(status=400))
    done = evaluate(venv, server, tmp_path, CATEGORIES="simple_python")
    assert done.returncode == 1
    assert "2 of 2 requests failed" in done.stderr


def test_unknown_categories_are_named_with_the_known(venv, text_server, tmp_path):
    done = evaluate(venv, text_server(lambda body: Reply()), tmp_path, CATEGORIES="simple_pyton")
    assert done.returncode == 2
    assert "simple_pyton; known are" in done.stderr and "simple_python" in done.stderr


def test_a_category_whose_packages_are_left_out_says_what_to_install(venv, text_server, tmp_path):
    if next(venv.glob("lib/python*/site-packages/sentence_transformers"), None):
        pytest.skip(f"{venv} has them")
    done = evaluate(venv, text_server(lambda body: Reply()), tmp_path, CATEGORIES="memory")
    assert done.returncode == 2
    assert "-m pip install sentence-transformers" in done.stderr
