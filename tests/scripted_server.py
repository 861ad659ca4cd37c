"""A real OpenAI-compatible HTTP server that does what a test tells it to: answer, be slow, fail, or break off.

In a test:

    with ScriptedServer(lambda request: Reply('{"ok": true}')) as server:
        ... EndpointSettings(base_urls=[server.url], model="scripted") ...
    server.requests    # every request it received, as parsed JSON

From the terminal, as a process of its own: `python tests/scripted_server.py [--errors 0.1 --slow 0.1 ...]`
prints its base URL and serves until its standard input closes.
"""

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI, Request, Response
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class Reply:
    """What happens to one request.

    text: the content of the assistant message, or of the error. status: any other than 200 is an error.
    fault: "drop" closes the connection without a word, "half_body" breaks off inside the body, "garbage"
    sends what is not JSON, "no_choices" sends JSON that is no chat completion.
    """

    text: str = "{}"
    status: int = 200
    delay_s: float = 0.0
    fault: Literal["", "drop", "half_body", "garbage", "no_choices"] = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class ScriptedServer:
    """Serves `/v1/chat/completions` on a loopback port from a thread of its own, as a context manager.

    script: called with each request's JSON, from the server's thread; `requests` keeps them in order, and
    `most_at_once` is the largest number that was under way together. `url` is the base URL.
    """

    def __init__(self, script: Callable[[dict[str, Any]], Reply]):
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.most_at_once = 0
        self.url = ""
        self._at_once = 0
        self._transports: dict[tuple[str, int], asyncio.Transport] = {}
        config = uvicorn.Config(self._app(), host="127.0.0.1", port=0, log_level="critical", http=self._protocol())
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            if time.monotonic() > deadline:
                raise TimeoutError("the scripted server did not start within 20 s")
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=20)

    def _protocol(self) -> type[H11Protocol]:
        transports = self._transports

        class Recording(H11Protocol):
            """Keeps transports at hand, since only they can break a connection off."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                transports[transport.get_extra_info("peername")[:2]] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                transports.pop(self.transport.get_extra_info("peername")[:2], None)
                super().connection_lost(exc)

        return Recording

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def complete(http_request: Request) -> Response:
            request = await http_request.json()
            self.requests.append(request)
            self.authorizations.append(http_request.headers.get("authorization", ""))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            try:
                reply = self.script(request)
                if reply.delay_s:
                    await asyncio.sleep(reply.delay_s)
                return self._respond(reply, request, http_request)
            finally:
                self._at_once -= 1

        return app

    def _respond(self, reply: Reply, request: dict[str, Any], http_request: Request) -> Response:
        headers = dict(reply.headers)
        if reply.status != 200:
            error = {"error": {"message": f"scripted {reply.status}: {reply.text}", "type": "scripted"}}
            return Response(json.dumps(error), reply.status, headers, "application/json")
        body = json.dumps(_completion(reply.text, request))
        if reply.fault == "no_choices":
            body = json.dumps({"object": "chat.completion", "choices": []})
        elif reply.fault == "garbage":
            body = "\x00<html>" + body[:40]
        elif reply.fault:
            transport = self._transports[tuple(http_request.scope["client"])]
            if reply.fault == "half_body":
                head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                transport.write((head + body[: len(body) // 2]).encode())
                transport.close()
            else:
                transport.abort()
        return Response(body, 200, headers, "application/json")


def _completion(text: str, request: dict[str, Any]) -> dict[str, Any]:
    prompt_tokens = sum(len(str(message["content"]).split()) for message in request["messages"])
    tokens = len(text.split())
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens},
    }


def faulty(errors: float, slow: float, dropped: float, slow_s: float, seed: int = 0) -> Callable[[Any], Reply]:
    """A script with the given shares of errors (429 and 500 by turns), slow answers and dropped connections."""
    dice = random.Random(seed)

    def script(_: dict[str, Any]) -> Reply:
        roll = dice.random()
        if roll < errors:
            return Reply(status=dice.choice([429, 500]))
        if roll < errors + slow:
            return Reply('{"ok": true}', delay_s=slow_s)
        if roll < errors + slow + dropped:
            return Reply(fault=dice.choice(["drop", "half_body"]))
        return Reply('{"ok": true}')

    return script


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for share in ("errors", "slow", "dropped"):
        parser.add_argument(f"--{share}", type=float, default=0.0, help="share of the requests")
    parser.add_argument("--slow-s", type=float, default=1.0, help="seconds that a slow answer takes")
    options = parser.parse_args()
    with ScriptedServer(faulty(options.errors, options.slow, options.dropped, options.slow_s)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
