"""The two servers' scripts: what they start, and what they say when they cannot."""

import shlex
import socket

import pytest
from launching import run_script


@pytest.mark.parametrize(
    ("script", "model", "port"),
    [
        ("serve_simulator.sh", "Qwen/Qwen3-235B-A22B-Instruct-2507", "8001"),
        ("serve_judge.sh", "openai/gpt-oss-120b", "8002"),
    ],
)
def test_they_serve_the_papers_models(script, model, port):
    done = run_script(script, "--enforce-eager", DRY_RUN="1")
    command = shlex.split(done.stdout)
    assert command[:3] == ["vllm", "serve", model]
    assert command[command.index("--port") + 1] == port
    assert command[-1] == "--enforce-eager"


@pytest.mark.parametrize("script", ["serve_simulator.sh", "serve_judge.sh"])
def test_a_port_in_use_is_named(script):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run_script(script, HOST="127.0.0.1", PORT=port, VLLM="true")
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr and "set PORT" in done.stderr


def test_a_missing_server_or_model_is_named():
    done = run_script("serve_judge.sh", VLLM="no-such-vllm")
    assert done.returncode == 1 and "no-such-vllm is not installed" in done.stderr
    done = run_script("serve_judge.sh", VLLM="true", MODEL="/no/model")
    assert done.returncode == 1 and "no model at /no/model" in done.stderr
