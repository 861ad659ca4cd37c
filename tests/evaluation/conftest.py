"""Real servers for the evaluation tests: a model's server with scripted answers, and our proxy as its own process."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from fastapi import Response
from fastapi.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripted_server import Reply, ScriptedServer  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]


class TextServer(ScriptedServer):
    """A model's server; `choice` is laid over the choice of every answer, such as {"finish_reason": "length"}."""

    choice: Mapping[str, Any] = MappingProxyType({})

    def _respond(self, reply: Reply, *request: Any) -> Response:
        response = super()._respond(reply, *request)
        if not self.choice:
            return response
        body = json.loads(response.body)
        body["choices"][0] |= self.choice
        return JSONResponse(body)


@pytest.fixture(scope="module")
def text_server() -> Iterator[Callable[..., TextServer]]:
    """Starts model servers; call it with the function from a request to the model's `Reply`."""
    with contextlib.ExitStack() as stack:
        yield lambda script: stack.enter_context(TextServer(script))


@pytest.fixture(scope="module")
def start_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Starts the proxy as its own process; call it with its arguments, it returns the proxy's URL."""
    processes = []
    folder = tmp_path_factory.mktemp("proxies")

    def start(*arguments: str) -> str:
        url_file = folder / f"proxy{len(processes)}.url"
        command = [sys.executable, "-m", "recipe_slca.evaluation.chat_proxy", *arguments]
        command += ["--port", "0", "--url-file", str(url_file)]
        processes.append(subprocess.Popen(command, env=environment()))
        deadline = time.monotonic() + 120
        while not url_file.exists():
            assert processes[-1].poll() is None, "the proxy ended"
            assert time.monotonic() < deadline, "the proxy did not start within 120 s"
            time.sleep(0.05)
        return url_file.read_text()

    yield start
    for process in processes:
        process.terminate()
        process.wait(timeout=10)


def environment(**variables: str) -> dict[str, str]:
    """The environment of a child process that imports this project."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHON": sys.executable, **variables}


def benchmark_venv(variable: str, default: str, reason: str) -> Path:
    """The environment of a benchmark; skips the test where nobody has made one."""
    venv = Path(os.environ.get(variable, REPOSITORY / default))
    if not (venv / "bin" / "python").is_file():
        pytest.skip(f"{reason}: no environment at {venv}; run_scripts make it, {variable} names another")
    return venv
