"""The simulator and the judge: a real call to every server that the run will ask."""

import asyncio
import os
import time
from collections.abc import Iterator

from recipe_slca.doctor.checks import Outcome, Run
from recipe_slca.llm_client import ChatClient, EndpointFailure
from recipe_slca.settings import EndpointSettings, SettingsError

CALL_S = 15.0
PAUSE_S = 5.0
_QUESTION = [{"role": "user", "content": "Answer with the word ready."}]


def check_endpoints(run: Run, wait_s: float) -> Iterator[Outcome]:
    """One outcome for each server. Asks again until all answer or `wait_s` seconds are over."""
    services = _services(run)
    if isinstance(services, Outcome):
        yield services
        return
    deadline = time.monotonic() + wait_s
    while True:
        outcomes = asyncio.run(_ask_all(services))
        passing = all(outcome.ok for outcome in outcomes)
        if passing or time.monotonic() >= deadline:
            break
        waiting = ", ".join(outcome.check for outcome in outcomes if not outcome.ok)
        print(f"waiting for: {waiting} ({deadline - time.monotonic():.0f} s left)", flush=True)
        time.sleep(min(PAUSE_S, max(0.0, deadline - time.monotonic())))
    yield from outcomes
    if not services:
        yield Outcome("endpoints", None, "none is needed: no LLM simulates tools or judges replies")


def _services(run: Run) -> list[tuple[str, EndpointSettings]] | Outcome:
    try:
        settings = run.settings
    except SettingsError:
        return Outcome("endpoints", None, "not checked: the settings are not valid")
    services = []
    if "llm" in settings.simulator.responders:
        services.append(("simulator", settings.simulator.endpoint))
    if settings.judge.kind == "llm":
        services.append(("judge", settings.judge.endpoint))
    return services


async def _ask_all(services: list[tuple[str, EndpointSettings]]) -> list[Outcome]:
    tasks = []
    for name, endpoint in services:
        for url in endpoint.base_urls or [""]:
            tasks.append(_ask(name, endpoint, url))
    return list(await asyncio.gather(*tasks))


async def _ask(name: str, endpoint: EndpointSettings, url: str) -> Outcome:
    check = f"{name} {url}".strip()
    node = f"slca.{name}.endpoint"
    one = endpoint.model_copy(
        update={
            "base_urls": [url] if url else [],
            "timeout_s": min(CALL_S, endpoint.timeout_s),
            "retries": 0,
            "max_tokens": min(16, endpoint.max_tokens),
        }
    )
    try:
        client = ChatClient(one, name)
    except SettingsError as error:
        return Outcome(
            check, False, str(error), f"set {node}: base_urls, model, and the key's variable where it is asked"
        )
    try:
        served = await _served_models(one, url)
        if served and endpoint.model not in served:
            remedy = f"set {node}.model to the name that the server uses, or start the server with that model"
            return Outcome(check, False, f"it serves {', '.join(served)}, not {endpoint.model}", remedy)
        start = time.monotonic()
        await client.ask(_QUESTION, lambda text: text)
    except EndpointFailure as error:
        return Outcome(check, False, error.last_error, _remedy(name, node, error.last_error))
    finally:
        await client.close()
    return Outcome(check, True, f"{endpoint.model} answers in {time.monotonic() - start:.1f} s")


async def _served_models(endpoint: EndpointSettings, url: str) -> list[str]:
    """The models that the server lists; empty when it lists none (not every server does)."""
    import httpx

    key = os.environ.get(endpoint.api_key_env, "") if endpoint.api_key_env else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with httpx.AsyncClient(timeout=CALL_S, headers=headers) as client:
            listing = (await client.get(f"{url.rstrip('/')}/models")).json()
        return [str(model["id"]) for model in listing["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return []


def _remedy(name: str, node: str, error: str) -> str:
    if "HTTP 401" in error or "HTTP 403" in error:
        return f"set {node}.api_key_env to the name of the variable that holds a key this server takes"
    if "not a chat completion" in error:
        return f"the address is not of an OpenAI-compatible API; {node}.base_urls ends in /v1 on most servers"
    if "HTTP 404" in error:
        return f"check {node}.model against what the server serves, and that base_urls ends in /v1"
    return f"start it (run_scripts/serve_{name}.sh), or correct {node}.base_urls"
