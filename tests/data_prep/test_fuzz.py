"""Whatever a row holds, it is converted or dropped for a reason; nothing else happens."""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from toucan_rows import MULTI, OTHER_TOOL, TOOL, kimi, kimi_system

from data_prep import readers, spool
from data_prep.filters import FilterOptions
from data_prep.reasons import REASONS, Unusable
from data_prep.rows import spool_batch

OPTIONS = spool.SpoolOptions(FilterOptions(lenient=True, keep_irrelevant=True), seed=0)
CALL_TEXT = '<tool_call>\n[{"name": "weather-get", "arguments": {"city": "Oslo"}}]\n</tool_call>'
SYSTEM_TEXT = f"Use tools.\n<tools>\n{json.dumps(TOOL)}\n</tools>"
ROWS = {
    "toucan": kimi([kimi_system(), *MULTI]),
    "toucan-sft": {
        "uuid": "u",
        "subset_name": "multi-turn",
        "tools": [TOOL, OTHER_TOOL],
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "tool_call", "content": "{'name': 'weather-get', 'arguments': '{\"city\": \"Oslo\"}'}"},
            {"role": "tool_response", "content": "sun"},
            {"role": "assistant", "content": "Sun."},
        ],
    },
    "slca-rl": {
        "data_source": "toucan_toolcall_v4_rl",
        "prompt": [{"role": "system", "content": SYSTEM_TEXT}, {"role": "user", "content": "Weather?"}],
        "tools": [TOOL],
        "reward_model": {
            "ground_truth": {"gold_tool_calls": [[{"name": "weather-get", "arguments": {"city": "Oslo"}}]]}
        },
        "extra_info": {"original_idx": 1, "source": "x", "turn_index": 2, "split_position": 3, "parallel_type": "y"},
    },
    "slca-sft": {
        "conversations": [
            {"from": "system", "value": SYSTEM_TEXT},
            {"from": "human", "value": "Weather?"},
            {"from": "gpt", "value": CALL_TEXT},
            {"from": "human", "value": "<tool_response>sun</tool_response>"},
            {"from": "gpt", "value": "Sun."},
        ]
    },
}
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", "\0", "\ud800", "assistant", "[]", "{}", "<tool_call>", "<think>", "<tool_response>", "weather-get"]
    )
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "role", "content"]), inner),
    max_leaves=4,
)


def unpack(value):
    """JSON text inside a row as parsed JSON, so that its parts can be changed too."""
    if isinstance(value, str) and value[:1] in ("[", "{") and not value.startswith("{'"):
        return unpack(json.loads(value))
    if isinstance(value, list):
        return [unpack(item) for item in value]
    return {key: unpack(item) for key, item in value.items()} if isinstance(value, dict) else value


def places(value, path=()):
    """The paths of all parts of a value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def put(row, path, value):
    """A copy of `row` with another value at `path`; as if it were not there when the value is `...`."""
    changed = copy.deepcopy(row)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return changed


def convert(row, layout):
    try:
        spooled, _, _ = spool._convert(row, 0, readers.READERS[layout], OPTIONS)
    except Unusable as error:
        assert error.reason in REASONS
        return
    spool_batch([spooled])


def test_the_rows_that_are_changed_are_good():
    for layout, row in ROWS.items():
        spool._convert(row, 0, readers.READERS[layout], OPTIONS)
        spool._convert(unpack(row), 0, readers.READERS[layout], OPTIONS)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(list(ROWS)), st.data())
def test_any_part_may_be_anything(layout, data):
    row = unpack(ROWS[layout])
    path = data.draw(st.sampled_from([path for path in places(row) if path]))
    changed = put(row, path, data.draw(anything | st.just(...)))
    convert(changed, layout)
    as_text = {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in changed.items()}
    convert(as_text, layout)
