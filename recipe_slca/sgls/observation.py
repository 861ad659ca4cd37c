"""What a call brings back into the conversation, and the only way errors are written there."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Observation:
    """The answer to one call.

    text: what the policy reads. status: "ok", the type of a validation error, "malformed_call" or
    "service_unavailable". source: the responder that answered, "cache", "validation" or "simulator".
    """

    text: str
    status: str
    source: str


def error_observation(error: dict[str, Any], source: str, **further: Any) -> Observation:
    """An observation `{"error": {"type": ..., ...}}`; the type is its status.

    The text is JSON in which `<` is escaped: what a policy put into a call must not come back as a tag or
    as a token of its chat template.
    """
    text = json.dumps({"error": error, **further}, ensure_ascii=False).replace("<", "\\u003c")
    return Observation(well_formed(text), error["type"], source)


def well_formed(text: str) -> str:
    """The text with lone surrogates, which JSON escapes can smuggle in and UTF-8 cannot hold, turned into `?`."""
    return text.encode("utf-8", "replace").decode()
