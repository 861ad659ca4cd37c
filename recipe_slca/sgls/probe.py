"""Try a simulator from the terminal: show what it makes of tools and calls.

    python -m recipe_slca.sgls.probe --tools tools.json --call '{"name": "weather-get", "arguments": {"city": "Oslo"}}'
    python -m recipe_slca.sgls.probe --tools tools.json --base-url http://127.0.0.1:8000/v1 --model NAME < calls.jsonl

Without --base-url the synthetic responder answers. Without --call, calls are read from standard input, one
JSON object a line. With --cache, answers are kept in that file.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from recipe_slca.settings import SettingsError, SimulatorSettings
from recipe_slca.sgls.health import SimulatorDown
from recipe_slca.sgls.observation import Observation
from recipe_slca.sgls.simulator import Simulator
from recipe_slca.sgls.sqlite_store import CacheUnusable
from recipe_slca.sgls.tools import Tools
from recipe_slca.sgls.validation import malformed_call
from recipe_slca.tool_calls import loads, read_call
from recipe_slca.trajectory import CallRecord


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0 when every call got a response, 1 otherwise."""
    options = _read_options(arguments)
    try:
        with open(options.tools, encoding="utf-8") as file:
            tools = Tools.from_schemas(file.read())
        settings = _settings(options)
        calls: Iterable[str] = sys.stdin if options.call is None else options.call
        return asyncio.run(_try(settings, tools, calls))
    except (OSError, UnicodeDecodeError, SettingsError, SimulatorDown, CacheUnusable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def printable(text: str) -> str:
    """The text with control characters, which could drive the terminal, written as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


async def _try(settings: SimulatorSettings, tools: Tools, calls: Iterable[str]) -> int:
    _show_tools(tools)
    simulator = Simulator(settings)
    history: list[CallRecord] = []
    all_answered = True
    try:
        for line in calls:
            if not line.strip():
                continue
            start = time.perf_counter()
            record = await _answer(simulator, tools, line, history)
            milliseconds = 1000 * (time.perf_counter() - start)
            history.append(record)
            all_answered &= record.status == "ok"
            print(f"{record.status} from {record.source} in {milliseconds:.1f} ms")
            print(f"  {printable(record.observation)}", flush=True)
    finally:
        await simulator.close()
    return 0 if all_answered else 1


async def _answer(simulator: Simulator, tools: Tools, line: str, history: list[CallRecord]) -> CallRecord:
    try:
        call = read_call(_json(line))
    except ValueError as error:
        observation: Observation = malformed_call(str(error))
        return CallRecord("", {}, observation.text, observation.status, observation.source)
    observation = await simulator.respond(tools, call, history)
    return CallRecord(call.name, call.arguments, observation.text, observation.status, observation.source)


def _json(line: str) -> Any:
    try:
        return loads(line.strip())
    except ValueError:
        raise ValueError("invalid_json") from None


def _show_tools(tools: Tools) -> None:
    broken = {name: tool.validator.broken for name, tool in tools.by_name.items() if tool.validator.broken}
    print(f"{len(tools.by_name)} tools")
    for reason, count in tools.skipped.items():
        print(f"  {count} left out: {reason}")
    for name, reason in broken.items():
        print(f"  {printable(name)}: schema not usable ({reason}), every call passes")


def _settings(options: argparse.Namespace) -> SimulatorSettings:
    endpoint = {"base_urls": options.base_url, "model": options.model, "api_key_env": options.api_key_env}
    return SimulatorSettings.model_validate(
        {
            "responders": ["llm"] if options.base_url else ["synthetic"],
            "context": options.context,
            "cache": {"path": options.cache},
            "endpoint": endpoint if options.base_url else {},
        }
    )


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m recipe_slca.sgls.probe",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tools", required=True, metavar="FILE", help="a JSON list of tool schemas")
    parser.add_argument("--call", action="append", metavar="JSON", help="a call; may be given several times")
    parser.add_argument("--base-url", action="append", default=[], metavar="URL", help="a server that answers")
    parser.add_argument("--model", default="", help="the model to ask for there")
    parser.add_argument("--api-key-env", default="", metavar="NAME", help="environment variable that holds the key")
    parser.add_argument("--context", choices=["stateless", "session"], default="stateless")
    parser.add_argument("--cache", default="", metavar="FILE", help="SQLite file that keeps the answers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
