"""The checks that a conversation must pass. Each failure is one of `reasons.REASONS`."""

import re
from dataclasses import dataclass

from data_prep.conversation import Conversation
from data_prep.reasons import Unusable
from recipe_slca import tool_calls

# Control tokens of the chat templates in use: tokenizers read them as control wherever they stand.
SPECIAL_TOKEN = re.compile(
    r"<\|(?:im_start|im_end|im_system|im_middle|im_user|im_assistant|endoftext|eot_id|start_header_id|end_header_id"
    r"|begin_of_text|end_of_text|tool_calls?(?:_section|_argument)?_(?:begin|end)|start|end|channel|message|call"
    r"|return|constrain)\|>"
)


@dataclass(frozen=True)
class FilterOptions:
    """lenient: arguments that fail their schema are kept and counted. min_*_quality: 1 to 5, None for no limit."""

    lenient: bool = False
    keep_irrelevant: bool = False
    min_question_quality: float | None = None
    min_response_quality: float | None = None


def check(conversation: Conversation, options: FilterOptions) -> list[str]:
    """Raise `Unusable` when the conversation must be dropped; return notes on what is kept nevertheless.

    Raises `UnicodeEncodeError` for text that is not Unicode.
    """
    _check_texts(conversation)
    _check_ending(conversation)
    relevant = _is_relevant(conversation)
    if not relevant and not options.keep_irrelevant:
        raise Unusable("irrelevant")
    _check_quality(conversation, options, relevant)
    return _check_calls(conversation, options)


def _is_relevant(conversation: Conversation) -> bool:
    calls = bool(conversation.gold) or any([message.calls for message in conversation.messages])
    if calls:
        return True
    if conversation.subset != "irrelevant":
        raise Unusable("no_tool_calls")
    return False


def _check_texts(conversation: Conversation) -> None:
    outer = f"{conversation.system or ''}{conversation.subset}{conversation.provenance}{conversation.identity}"
    outer.encode()  # raises UnicodeEncodeError for half characters; messages and tools are encoded for their digest
    if "\0" in outer:
        raise Unusable("invalid_text")
    everything = "\n".join([message.content for message in conversation.messages])
    if "\0" not in everything and "<|" not in everything:
        return
    for message in conversation.messages:
        if "\0" in message.content:
            raise Unusable("invalid_text")
        if "<|" in message.content and SPECIAL_TOKEN.search(message.content):
            raise Unusable("special_tokens")


def _check_ending(conversation: Conversation) -> None:
    messages = conversation.messages
    if not messages:
        raise Unusable("empty_messages")
    if messages[0].role != "user":
        raise Unusable("no_question")
    if conversation.gold is not None:
        if messages[-1].role != "user":
            raise Unusable("no_question")
        return
    if messages[-1].role == "tool":
        raise Unusable("ends_on_tool_response")
    if messages[-1].role != "assistant" or not _without_reasoning(messages[-1].content):
        raise Unusable("no_final_reply")


def _without_reasoning(content: str) -> str:
    return tool_calls.strip_reasoning(content) if "<" in content else content.strip()


def _check_quality(conversation: Conversation, options: FilterOptions, relevant: bool) -> None:
    question, response = conversation.question_quality, conversation.response_quality
    if options.min_question_quality is not None and (question is None or question < options.min_question_quality):
        raise Unusable("question_quality")
    # Replies that need no tool were not assessed by the publisher.
    if options.min_response_quality is not None and relevant:
        if response is None or response < options.min_response_quality:
            raise Unusable("response_quality")


def _check_calls(conversation: Conversation, options: FilterOptions) -> list[str]:
    history = [call for message in conversation.messages for call in message.calls]
    gold = [call for step in conversation.gold or [] for call in step]
    declared = conversation.tools.names
    if not all([call.name in declared for call in [*history, *gold]]):
        raise Unusable("undeclared_tool")
    given = [*history, *gold] if conversation.gold_has_arguments else history
    notes = {verdict for call in given if (verdict := conversation.tools.verdict(call))}
    if "invalid_arguments" in notes and not options.lenient:
        raise Unusable("invalid_arguments")
    return sorted(notes)
