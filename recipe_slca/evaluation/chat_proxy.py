"""Tool calling over the OpenAI chat API, in front of a server that only writes text.

    python -m recipe_slca.evaluation.chat_proxy --base-url http://127.0.0.1:8000/v1 --model my-model --port 8600

Any OpenAI client (BFCL, tau2-Bench, the openai package) then uses the trained model at port 8600 with
`tools` and `tool_calls`; the model reads and writes exactly the text format of its training, whatever chat
template and tool parser its server has. `GET /counts` says what became of the requests. `--check` asks the
server one real question and stops: exit status 0, or 1 with what is wrong and what to do.
"""

import argparse
import asyncio
import json
import os
import socket
import sys
import time
import uuid
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

SAMPLING_PARAMETERS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
REMEMBERED_CALLS = 20_000
_BASE_URL_HINT = "the base URL of an OpenAI-compatible server usually ends in /v1"


class EndpointProblem(RuntimeError):
    """The model's server failed. `status` is the HTTP status that a client of the proxy gets."""

    def __init__(self, message: str, status: int = 502):
        super().__init__(message)
        self.status = status


class ModelServer:
    """The model's own server, asked for plain chat turns.

    max_tokens: bound of one turn where the client sets none.
    """

    def __init__(self, base_url: str, model: str, api_key: str, max_tokens: int, timeout_s: float):
        import httpx

        self.url = f"{base_url.rstrip('/')}/chat/completions"
        self.model = model
        self.max_tokens = max_tokens
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout_s, limits=limits)

    async def chat(self, messages: list[dict[str, str]], stop: list[str], **sampling: Any) -> dict[str, Any]:
        """One chat completion, as the server sends it. Raises `EndpointProblem`."""
        import httpx

        body = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens, **sampling}
        if stop:
            body["stop"] = stop
        try:
            response = await self._http.post(self.url, json=body)
        except httpx.TimeoutException as error:
            raise EndpointProblem(f"{self.url} gave no answer in time ({error!r})", status=504) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EndpointProblem(f"{self.url} cannot be reached ({error!r}); is the server up?") from error
        kind = response.headers.get("content-type", "no content type")
        if response.is_error:
            said = " ".join(response.text[:500].split()) or "nothing"  # on one line, for the end of a log
            hint = "" if "json" in kind else f"; {_BASE_URL_HINT}"
            raise EndpointProblem(f"{self.url} answered {response.status_code}: {said}{hint}", response.status_code)
        try:
            completion = response.json()
            completion["choices"][0]["message"].get("content")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise EndpointProblem(
                f"{self.url} answered with {kind}, not with a chat completion: {response.text[:200]!r}; "
                f"{_BASE_URL_HINT}"
            ) from error
        return completion

    async def check(self) -> None:
        """Ask for one token. Raises `EndpointProblem`."""
        await self.chat([{"role": "user", "content": "Hello"}], [], max_tokens=1)


class ChatProxy:
    """Translates requests and answers, and counts what became of them."""

    def __init__(self, server: ModelServer, stop_at_tool_call: bool):
        self._server = server
        self._stop_at_tool_call = stop_at_tool_call
        self._turns: OrderedDict[str, str] = OrderedDict()
        self.counts: Counter[str] = Counter()

    async def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request. Raises `UnusableRequest` or `EndpointProblem`."""
        from recipe_slca.evaluation.chat_format import client_message, policy_messages
        from recipe_slca.tool_calls import CLOSE_TAG, parse

        self.counts["requests"] += 1
        tools = request.get("tools") if request.get("tool_choice") != "none" else None
        messages = policy_messages(_checked(request), tools, self._turns.get)
        sampling = {key: request[key] for key in SAMPLING_PARAMETERS if request.get(key) is not None}
        if limit := request.get("max_completion_tokens") or request.get("max_tokens"):
            sampling["max_tokens"] = limit
        stop = _listed(request.get("stop"))
        if tools and self._stop_at_tool_call:
            stop.append(CLOSE_TAG)
        completion = await self._server.chat(messages, stop, **sampling)

        choice = completion["choices"][0]
        text = choice["message"].get("content") or ""
        if reasoning := choice["message"].get("reasoning_content") or choice["message"].get("reasoning"):
            text = f"<think>\n{reasoning}\n</think>\n{text}"
        turn = parse(text)
        if CLOSE_TAG in stop and _stopped_at_tag(choice) and turn.opening_tags > turn.closing_tags:
            # Most servers leave the stop string out of the text.
            text += CLOSE_TAG
            turn = parse(text)
        self.counts["turns_cut_at_max_tokens"] += choice.get("finish_reason") == "length"
        finish_reason = choice.get("finish_reason") or "stop"
        message = {"role": "assistant", "content": turn.content}
        if tools:
            message = client_message(turn, text)
            self.counts["turns_with_calls"] += bool(turn.calls)
            self.counts["calls"] += len(turn.calls)
            self.counts.update(f"malformed_blocks/{block.error}" for block in turn.blocks if block.error)
        if message.get("tool_calls"):
            finish_reason = "tool_calls"
            self._remember(message["tool_calls"][0]["id"], text)
        usage = completion.get("usage") or {}
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.get("model") or self._server.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}],
            "usage": {key: usage.get(key, 0) for key in ("prompt_tokens", "completion_tokens", "total_tokens")},
        }

    def _remember(self, call_id: str, text: str) -> None:
        self._turns[call_id] = text
        if len(self._turns) > REMEMBERED_CALLS:
            self._turns.popitem(last=False)


def build_app(proxy: ChatProxy, model: str) -> Any:
    """The web application around a proxy."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    from recipe_slca.evaluation.chat_format import UnusableRequest

    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> JSONResponse:
        try:
            body = await request.json()
            if not isinstance(body, dict):
                raise UnusableRequest("the request is not a JSON object")
            return JSONResponse(await proxy.complete(body))
        except EndpointProblem as problem:
            proxy.counts["failed_requests"] += 1
            return _error(problem.status, str(problem))
        except (UnusableRequest, json.JSONDecodeError, UnicodeDecodeError) as error:
            proxy.counts["refused_requests"] += 1
            return _error(400, str(error))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "slca"}]}

    @app.get("/counts")
    async def counts() -> dict[str, int]:
        return dict(sorted(proxy.counts.items()))

    def _error(status: int, message: str) -> JSONResponse:
        return JSONResponse({"error": {"message": message, "type": "proxy", "code": status}}, status)

    return app


def main() -> int:
    """Check the model's server, then serve until stopped. Returns the exit status."""
    arguments = _arguments()
    api_key = ""
    if arguments.api_key_env:
        api_key = os.environ.get(arguments.api_key_env, "")
        if not api_key:
            return _fail(f"the environment variable {arguments.api_key_env} (--api-key-env) is not set")
    try:
        asyncio.run(_server(arguments, api_key).check())
    except EndpointProblem as problem:
        return _fail(str(problem))
    if arguments.check:
        return 0

    import uvicorn

    proxy = ChatProxy(_server(arguments, api_key), arguments.stop_at_tool_call)
    app = build_app(proxy, arguments.model)
    try:
        listener = socket.create_server((arguments.host, arguments.port), backlog=2048)
    except OSError as error:
        return _fail(f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}; give another --port, or 0")
    url = f"http://{arguments.host}:{listener.getsockname()[1]}/v1"
    print(f"serving {arguments.model} with tool calls at {url}", flush=True)
    if arguments.url_file:
        partial = Path(f"{arguments.url_file}.partial")
        partial.write_text(url, encoding="utf-8")
        partial.replace(arguments.url_file)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
    return 0


def _server(arguments: argparse.Namespace, api_key: str) -> ModelServer:
    return ModelServer(arguments.base_url, arguments.model, api_key, arguments.max_tokens, arguments.timeout_s)


def _checked(request: dict[str, Any]) -> list[dict[str, Any]]:
    from recipe_slca.evaluation.chat_format import UnusableRequest

    if request.get("stream"):
        raise UnusableRequest("stream: true is not offered here; ask for the whole turn")
    if (request.get("n") or 1) != 1:
        raise UnusableRequest("n: one choice a request")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise UnusableRequest("messages: a non-empty list of objects is needed")
    return messages


def _listed(stop: str | list[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop or [])


def _stopped_at_tag(choice: dict[str, Any]) -> bool:
    """Whether generation may have ended on the stop string; servers that name the `stop_reason` are believed."""
    from recipe_slca.tool_calls import CLOSE_TAG

    return choice.get("finish_reason") == "stop" and choice.get("stop_reason", CLOSE_TAG) == CLOSE_TAG


def _fail(message: str) -> int:
    print(f"chat_proxy: {message}", file=sys.stderr)
    return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="the model's server, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", required=True, help="name of the model at that server")
    parser.add_argument("--api-key-env", default="", help="environment variable with that server's key, if it asks")
    parser.add_argument("--max-tokens", type=int, default=4096, help="bound of one turn, where the client sets none")
    parser.add_argument("--timeout-s", type=float, default=600, help="seconds that one turn may take")
    parser.add_argument(
        "--stop-at-tool-call",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="stop a turn at </tool_call>, as slca.stop_at_tool_call does in training",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8600, help="0: any free one")
    parser.add_argument("--url-file", default="", help="write the proxy's URL here once it answers")
    parser.add_argument("--check", action="store_true", help="only ask the server one question")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
