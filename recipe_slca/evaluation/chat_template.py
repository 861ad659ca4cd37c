"""The chat template of an exported model: its own, told to show tools as training did.

With `tools` in a request, the template's first lines write our system message and past calls as text into
the messages, then leave them to the model's own template, without tools. Requests without tools reach it
unchanged. The result equals what `chat_format.policy_messages` makes of the same request.
"""

import json

from data_prep.rows import system_message
from data_prep.tools import NO_PARAMETERS
from recipe_slca.tool_calls import CLOSE_TAG, OPEN_TAG

MARK = "{#- Tools are shown as in training: recipe_slca.evaluation.chat_template. -#}"

# `tojson` is that of transformers: json.dumps without ASCII escapes and with keys in the order given. Tools are
# written compactly and calls with spaces, as data_prep and tool_calls write them.
_SHOW_TOOLS = """\
{%- if tools %}
{%- set slca = namespace(system=[], lines=[], messages=[]) %}
{%- for tool in tools %}
{%- set function = tool.function if tool.function is defined else tool %}
{%- set description = function.description if function.description else "" %}
{%- set parameters = function.parameters if function.parameters else @NO_PARAMETERS@ %}
{%- set line = {"type": "function", "function": {"name": function.name, "description": description,
    "parameters": parameters}} | tojson(separators=(",", ":")) %}
{%- if line not in slca.lines %}{%- set slca.lines = slca.lines + [line] %}{%- endif %}
{%- endfor %}
{%- set slca.system = [@BEFORE_TOOLS@ ~ (slca.lines | join("\\n")) ~ @AFTER_TOOLS@] %}
{%- for message in messages %}
{%- set content = message.content if message.content else "" %}
{%- if message.role == "system" or message.role == "developer" %}
{%- set slca.system = slca.system + [content] %}
{%- elif message.role == "assistant" %}
{%- set turn = namespace(parts=[], calls=[]) %}
{%- if message.reasoning_content %}
{%- set turn.parts = turn.parts + ["<think>\\n" ~ message.reasoning_content ~ "\\n</think>"] %}
{%- endif %}
{%- if content %}{%- set turn.parts = turn.parts + [content] %}{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- set function = call.function if call.function is defined else call %}
{%- set arguments = function.arguments if function.arguments is string else function.arguments | tojson %}
{%- set turn.calls = turn.calls + ['{"name": ' ~ (function.name | tojson) ~ ', "arguments": ' ~ arguments ~ '}'] %}
{%- endfor %}
{%- if turn.calls %}
{%- set turn.parts = turn.parts + [@OPEN_TAG@ ~ "\\n[" ~ (turn.calls | join(", ")) ~ "]\\n" ~ @CLOSE_TAG@] %}
{%- endif %}
{%- set slca.messages = slca.messages + [{"role": "assistant", "content": turn.parts | join("\\n")}] %}
{%- else %}
{%- set slca.messages = slca.messages + [message] %}
{%- endif %}
{%- endfor %}
{%- set messages = [{"role": "system", "content": slca.system | join("\\n\\n")}] + slca.messages %}
{%- set tools = none %}
{%- endif -%}
"""


def with_training_tools(template: str) -> str:
    """A chat template that shows tools as training did and leaves everything else to `template`.

    A template that is of this kind already comes back as it is.
    """
    if template.startswith(MARK):
        return template
    before, after = system_message("\0").split("\0")
    values = {
        "@NO_PARAMETERS@": json.dumps(NO_PARAMETERS),
        "@BEFORE_TOOLS@": json.dumps(before, ensure_ascii=False),
        "@AFTER_TOOLS@": json.dumps(after, ensure_ascii=False),
        "@OPEN_TAG@": json.dumps(OPEN_TAG),
        "@CLOSE_TAG@": json.dumps(CLOSE_TAG),
    }
    shown = _SHOW_TOOLS
    for name, value in values.items():
        shown = shown.replace(name, value)
    return f"{MARK}\n{shown}{template}"
