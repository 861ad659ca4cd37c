"""Dialogues cut into samples for RL and evaluation, with gold calls nested by step.

A dialogue of one user turn is one sample. Of a longer one, every user turn that leads to tool calls becomes
a sample whose prompt holds the history before it, but the first such turn is left out, so that these
samples train what one-turn dialogues cannot: using a history.
"""

from dataclasses import dataclass

from data_prep.conversation import Conversation, Message
from recipe_slca.tool_calls import ToolCall

GoldSteps = list[list[ToolCall]]


@dataclass(frozen=True)
class Sample:
    """One task: the first `split_position` messages are its prompt, whose last is the question.

    has_history: earlier turns come before its question. turn_index: the number of its user turn, from 1, in
    a decomposed dialogue.
    """

    split_position: int
    gold: GoldSteps
    has_history: bool = False
    turn_index: int | None = None

    @property
    def parallel_type(self) -> str:
        """The kind of its gold calls, in the words of the released files."""
        widths = [len(step) for step in self.gold]
        if not widths:
            return "irrelevant"
        if len(widths) == 1:
            return "single_step_parallel" if widths[0] > 1 else "single_step_single_tool"
        if max(widths) == 1:
            return "multi_step_all_serial"
        return "multi_step_all_parallel" if min(widths) > 1 else "multi_step_has_parallel"


def cut(conversation: Conversation) -> list[Sample]:
    """The samples of a dialogue, in order; empty for a longer dialogue with fewer than two tool turns."""
    messages = conversation.messages
    if conversation.gold is not None:
        has_history = any(message.role == "assistant" for message in messages)
        return [Sample(len(messages), conversation.gold, has_history, conversation.provenance.get("turn_index"))]
    turns = _user_turns(messages)
    if len(turns) == 1:
        return [Sample(turns[0][0], _gold(messages[turns[0][0] : turns[0][1]]))]
    samples = [
        Sample(start, _gold(messages[start:end]), True, number)
        for number, (start, end) in enumerate(turns, start=1)
        if any(message.calls for message in messages[start:end])
    ]
    return samples[1:]


def recorded_calls(conversation: Conversation) -> list[tuple[ToolCall, str]]:
    """Every call of the dialogue with its response, for the simulator's replay."""
    recorded = []
    waiting: list[ToolCall] = []
    for message in conversation.messages:
        if message.role == "assistant":
            waiting = list(message.calls)
        elif message.role == "tool" and waiting:
            recorded.append((waiting.pop(0), message.content))
    return recorded


def _user_turns(messages: list[Message]) -> list[tuple[int, int]]:
    """For each run of user messages: where the answer to it starts, and where the next run starts."""
    starts = [
        at + 1
        for at, message in enumerate(messages)
        if message.role == "user" and (at + 1 == len(messages) or messages[at + 1].role != "user")
    ]
    ends = [
        at for at, message in enumerate(messages) if at and message.role == "user" and messages[at - 1].role != "user"
    ]
    return list(zip(starts, [*ends, len(messages)], strict=True))


def _gold(messages: list[Message]) -> GoldSteps:
    return [list(message.calls) for message in messages if message.calls]
