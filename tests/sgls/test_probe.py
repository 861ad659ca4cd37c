"""`python -m recipe_slca.sgls.probe`: a simulator tried from the terminal."""

import io
import json

import pytest
from scripted_server import Reply, ScriptedServer

from recipe_slca.sgls.probe import main, printable

TOOLS = [
    {"name": "get", "parameters": {"properties": {"city": {"type": "string"}}, "required": ["city"]}},
    {"name": "broken\x1b[31m", "parameters": {"type": "banana"}},
    {"no": "name"},
]
OSLO = json.dumps({"name": "get", "arguments": {"city": "Oslo"}})


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


def test_calls_and_tools_are_shown(tools, capsys):
    assert main(["--tools", tools, "--call", OSLO]) == 0
    told = capsys.readouterr().out
    assert "2 tools" in told and "1 left out: no_name" in told
    assert "broken\\x1b[31m: schema not usable (invalid_schema)" in told and "\x1b" not in told
    assert "ok from synthetic" in told and '"city": "Oslo"' in told


@pytest.mark.parametrize(
    ("call", "status"),
    [('{"name": "get"}', "missing_argument"), ('{"name": "gett"}', "unknown_tool"), ("{", "malformed_call")],
)
def test_a_call_that_gets_no_response_fails_the_command(tools, capsys, call, status):
    assert main(["--tools", tools, "--call", OSLO, "--call", call]) == 1
    assert f"{status} from validation" in capsys.readouterr().out


def test_calls_from_standard_input_against_a_server(tools, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{OSLO}\n\n{OSLO}\n"))
    with ScriptedServer(lambda request: Reply('{"sky": "clear"}')) as server:
        options = ["--base-url", server.url, "--model", "m", "--cache", str(tmp_path / "a.db")]
        assert main(["--tools", tools, *options]) == 0
    told = capsys.readouterr().out
    assert "ok from llm" in told and "ok from cache" in told and '{"sky": "clear"}' in told
    assert len(server.requests) == 1


def test_what_cannot_be_used_is_explained(tools, capsys, tmp_path):
    assert main(["--tools", str(tmp_path / "none.json"), "--call", OSLO]) == 1
    assert "none.json" in capsys.readouterr().err
    assert main(["--tools", tools, "--call", OSLO, "--base-url", "http://127.0.0.1:1/v1"]) == 1
    assert "endpoint.model is empty" in capsys.readouterr().err


def test_printable():
    assert printable("é\t\x1b[0m\u202e") == "é\\t\\x1b[0m\\u202e"
