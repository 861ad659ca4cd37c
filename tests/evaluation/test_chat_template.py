"""The exported chat template writes the same prompt as the proxy, whatever the model's own template is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from recipe_slca.evaluation.chat_format import policy_messages
from recipe_slca.evaluation.chat_template import with_training_tools

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# In the manner of Qwen2.5: tools in its own words, a default system message, observations gathered in one user turn.
WITH_TOOLS_OF_ITS_OWN = (
    "{%- if tools %}<|im_start|>system\n# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n"
    "{%- elif messages[0].role != 'system' %}<|im_start|>system\nYou are an assistant.<|im_end|>\n{%- endif %}"
    "{%- for m in messages %}{%- if m.role == 'tool' %}"
    "{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{%- endif %}\n"
    "<tool_response>\n{{ m.content }}\n</tool_response>"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{%- endif %}"
    "{%- else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
words = st.text("ab éü{}\"'[]<>&|\\%#\n", max_size=12)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner, max_size=3))
objects = st.dictionaries(words, json_values, max_size=3)
functions = st.fixed_dictionaries(
    {"name": st.from_regex(r"[a-zé/_-]{1,6}", fullmatch=True)},
    optional={"description": words, "parameters": objects.map(lambda extra: {"type": "object", **extra})},
)
tools = st.lists(functions.map(lambda f: {"type": "function", "function": f}), min_size=1, max_size=3).filter(
    lambda listed: len({tool["function"]["name"] for tool in listed}) == len(listed)
)
made_calls = st.builds(
    lambda name, arguments: {"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}},
    st.from_regex(r"[a-z]{1,6}", fullmatch=True),
    objects,
)
messages = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "system", "content": text}, words),
        st.builds(lambda text: {"role": "user", "content": text}, words),
        st.builds(lambda text: {"role": "tool", "content": text, "tool_call_id": "a"}, words),
        st.builds(
            lambda text, reasoning, calls: {
                "role": "assistant",
                "content": text,
                "reasoning_content": reasoning,
                "tool_calls": calls,
            },
            st.none() | words,
            st.none() | words,
            st.none() | st.lists(made_calls, max_size=2),
        ),
    ),
    min_size=1,
    max_size=5,
)


def render(template, messages, tools=None):
    """As transformers renders: its sandbox, block trimming and `tojson`."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **form: json.dumps(value, ensure_ascii=False, **form)
    return environment.from_string(template).render(messages=messages, tools=tools, add_generation_prompt=True)


@pytest.mark.parametrize("template", [PLAIN, WITH_TOOLS_OF_ITS_OWN])
@settings(max_examples=60, deadline=None)
@given(dialogue=messages, offered=tools)
def test_it_writes_what_the_proxy_writes(template, dialogue, offered):
    written = render(with_training_tools(template), dialogue, offered)
    assert written == render(template, policy_messages(dialogue, offered))


@pytest.mark.parametrize("template", [PLAIN, WITH_TOOLS_OF_ITS_OWN])
@settings(max_examples=60, deadline=None)
@given(dialogue=messages)
def test_without_tools_it_is_the_models_own_template(template, dialogue):
    assert render(with_training_tools(template), dialogue) == render(template, dialogue)


def test_arguments_may_be_json_text():
    call = {"function": {"name": "f", "arguments": '{"x": 1}'}}
    dialogue = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    offered = [{"type": "function", "function": {"name": "f"}}]
    assert render(with_training_tools(PLAIN), dialogue, offered) == render(PLAIN, policy_messages(dialogue, offered))


def test_it_is_applied_once():
    once = with_training_tools(PLAIN)
    assert with_training_tools(once) == once
