"""The scripts say what is wrong before anything is installed or started, and leave no process behind."""

import subprocess

import pytest
from conftest import REPOSITORY, environment
from scripted_server import Reply

SCRIPTS = {
    "eval_bfcl.sh": {"MODEL": "policy"},
    "eval_tau2.sh": {"MODEL": "policy", "USER_MODEL": "user"},
}


def run(script, tmp_path, **variables):
    settings = {"OUTPUT": str(tmp_path / "output"), "VENV": str(tmp_path / "venv"), **variables}
    command = ["bash", str(REPOSITORY / "run_scripts" / script)]
    done = subprocess.run(command, env=environment(**settings), capture_output=True, text=True, timeout=180)
    assert not (tmp_path / "venv").exists()
    return done


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_server_that_is_down_or_answers_with_a_web_page_is_named(script, tmp_path, text_server):
    user = text_server(lambda body: Reply("Hello?")).url
    down = run(script, tmp_path, **SCRIPTS[script], USER_BASE_URL=user, BASE_URL="http://127.0.0.1:9/v1")
    assert down.returncode == 1
    assert "http://127.0.0.1:9/v1/chat/completions cannot be reached" in down.stderr
    page = text_server(lambda body: Reply(fault="garbage", headers={"content-type": "text/html"})).url
    html = run(script, tmp_path, **SCRIPTS[script], USER_BASE_URL=user, BASE_URL=page)
    assert html.returncode == 1
    assert "answered with text/html" in html.stderr


@pytest.mark.parametrize(
    ("script", "variables", "part"),
    [
        ("eval_bfcl.sh", {}, "MODEL: name of the model"),
        ("eval_tau2.sh", {"MODEL": "policy"}, "USER_MODEL: name of the model"),
        ("eval_tau2.sh", {"MODEL": "policy", "USER_MODEL": "user"}, "USER_BASE_URL: its endpoint"),
        (
            "eval_tau2.sh",
            {"MODEL": "policy", "USER_MODEL": "user", "USER_BASE_URL": "x", "USER_API_KEY_ENV": "NO_SUCH_KEY"},
            "NO_SUCH_KEY",
        ),
    ],
)
def test_a_missing_setting_is_named(script, variables, part, tmp_path):
    done = run(script, tmp_path, **variables)
    assert done.returncode != 0 and part in done.stderr


def test_export_says_how_it_is_called():
    command = ["bash", str(REPOSITORY / "run_scripts/export_model.sh"), "only-one"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2 and "CHECKPOINT_DIR OUTPUT_DIR" in done.stderr
