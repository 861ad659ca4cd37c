"""Why a row is dropped: every reason once, with its meaning for the report."""

REASONS = {
    "invalid_text": "a text is not valid Unicode, or holds a NUL character",
    "unparseable_row": "the row is not a JSON object",
    "too_large": "the row's text is larger than 16 MB",
    "nested_too_deeply": "JSON is nested too deeply to be handled",
    "empty_messages": "the row has no messages",
    "unparseable_messages": "the messages are not a JSON list of messages with known roles",
    "no_tools": "the row offers no tools",
    "unparseable_tools": "the tools are not JSON, or one of them has no usable name",
    "conflicting_tools": "one tool name has two different definitions",
    "unparseable_arguments": "the arguments of a call are not a JSON object",
    "undeclared_tool": "a call names a tool that the row does not offer",
    "invalid_arguments": "the arguments of a call fail the tool's own schema",
    "unanswered_calls": "calls and tool responses do not match one to one, in order",
    "unreadable_calls": "an assistant turn does not read back as the calls it makes (stray tags, a malformed block)",
    "special_tokens": "a message holds a special token of a chat template",
    "ends_on_tool_response": "the dialogue ends on a tool response",
    "no_final_reply": "the dialogue does not end with a non-empty reply",
    "no_question": "no user message comes before the first assistant turn",
    "no_tool_calls": "the dialogue makes no call although its subset is not `irrelevant`",
    "irrelevant": "no tool is needed (kept with --keep-irrelevant)",
    "unparseable_gold": "the gold calls of a released row cannot be read",
    "question_quality": "the question's quality is unknown or below --min-question-quality",
    "response_quality": "the response's quality is unknown or below --min-response-quality",
    "too_long": "no form of the row fits into the token limits",
    "duplicate": "another row has the same content",
}

NOTES = {
    "invalid_arguments": "arguments fail their tool's schema (kept with --lenient)",
    "sample_too_long": "a sample is left out because its prompt exceeds --max-prompt-tokens",
    "dialogue_too_long": "a dialogue is not used for SFT because it exceeds --max-sft-tokens",
    "broken_tool_schema": "the schema of a called tool cannot be used, so that its arguments are not checked",
}


class Unusable(ValueError):
    """The row cannot be used; `reason` is one of `REASONS`."""

    def __init__(self, reason: str):
        assert reason in REASONS, reason
        super().__init__(f"{reason}: {REASONS[reason]}")
        self.reason = reason
