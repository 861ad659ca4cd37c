"""The record of one rollout: what the policy wrote, which calls it made, what came back, why it ended.

The agent loop fills it, HierR scores it, the rollout dump shows it. It holds nothing that the policy was
not shown; in particular no gold calls.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from recipe_slca import tool_calls

Ending = Literal["replied", "turn_limit", "call_limit", "response_full", "aborted"]


@dataclass
class CallRecord:
    """One call and its observation.

    status: "ok", the type of a validation error (`sgls.validation`), "malformed_call" for a block that
        could not be read, or "service_unavailable" when no responder could answer.
    source: who answered: a responder's name, "cache", or "validation".
    """

    name: str
    arguments: dict[str, Any]
    observation: str = ""
    status: str = "ok"
    source: str = ""


@dataclass
class TurnRecord:
    """One assistant turn: its text as generated (reasoning and call blocks included) and its calls."""

    text: str
    calls: list[CallRecord] = field(default_factory=list)


@dataclass
class Trajectory:
    """One rollout. `ended` says why it stopped:

    replied: the last turn makes no call; turn_limit: no assistant turn was left; call_limit: no call was
    left; response_full: the response's token budget is used up; aborted: generation was cut off.
    """

    question: str
    turns: list[TurnRecord] = field(default_factory=list)
    ended: Ending = "aborted"

    @property
    def reply(self) -> str:
        """What the last turn says to the user: its text without reasoning and call blocks."""
        return tool_calls.parse(self.turns[-1].text).content if self.turns else ""

    @property
    def calls(self) -> list[CallRecord]:
        """All calls that were answered, in the order made."""
        return [call for turn in self.turns for call in turn.calls]

    @property
    def unanswered(self) -> bool:
        """Whether some call got no answer because the simulator failed: the reply cannot be judged then."""
        return any(call.status == "service_unavailable" for call in self.calls)

    def to_dict(self) -> dict[str, Any]:
        """A plain dict that JSON can hold; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Trajectory":
        """Read what `to_dict` wrote."""
        turns = [TurnRecord(turn["text"], [CallRecord(**call) for call in turn["calls"]]) for turn in value["turns"]]
        return cls(value["question"], turns, value["ended"])
