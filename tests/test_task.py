"""What a dataset row says of its task, and what is said about a row that cannot be used."""

import json

import pytest

from recipe_slca import task
from recipe_slca.task import TaskError

SCHEMA = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


def row(**columns) -> dict:
    return {"reward_model": {"ground_truth": {"tool_schemas": json.dumps([SCHEMA])}}, **columns}


@pytest.mark.parametrize(
    "value", [[SCHEMA], json.dumps([SCHEMA]), json.dumps(json.dumps([SCHEMA])), json.dumps(SCHEMA)]
)
def test_schemas_of_the_tools_column_in_any_published_form(value: object):
    assert task.tool_schemas({"tools": value}) == [SCHEMA]


@pytest.mark.parametrize("columns", [{}, {"tools": None}, {"tools": ""}])
def test_schemas_of_the_ground_truth_where_there_is_no_column(columns: dict):
    assert task.tool_schemas(row(**columns)) == [SCHEMA]


def test_the_column_comes_before_the_ground_truth():
    other = {"function": {"name": "other"}}
    assert task.tool_schemas(row(tools=json.dumps([other]))) == [other]


@pytest.mark.parametrize(
    ("broken", "column", "problem"),
    [
        ({"tools": "[{"}, "tools", "is not JSON"),
        ({"tools": "3"}, "tools", "must be a JSON list of tool schemas"),
        ({"tools": '["find"]'}, "tools", "must be a JSON list of tool schemas"),
        ({"tools": json.dumps("[{")}, "tools", "is not JSON"),
        ({}, "reward_model.ground_truth", "must be an object"),
        ({"reward_model": None}, "reward_model.ground_truth", "must be an object"),
        ({"reward_model": {"ground_truth": "[]"}}, "reward_model.ground_truth", "must be an object"),
        (
            {"reward_model": {"ground_truth": {"gold_tool_calls": "[]"}}},
            "reward_model.ground_truth.tool_schemas",
            "must be a JSON list of tool schemas",
        ),
        (
            {"reward_model": {"ground_truth": {"tool_schemas": "{"}}},
            "reward_model.ground_truth.tool_schemas",
            "not JSON",
        ),
    ],
)
def test_a_row_that_cannot_be_used_names_the_column_and_the_remedy(broken: dict, column: str, problem: str):
    with pytest.raises(TaskError) as raised:
        task.tool_schemas(broken)
    message = str(raised.value)
    assert message.startswith(f"column {column} ")
    assert problem in message
    assert "python -m data_prep.build" in message and "python -m data_prep.inspect" in message


def test_recorded_calls():
    assert task.recorded_calls({"extra_info": {"recorded_calls": "[]"}}) == "[]"
    assert task.recorded_calls({"extra_info": {}}) is None
    assert task.recorded_calls({"extra_info": None}) is None
    assert task.recorded_calls({}) is None


def test_the_question_is_the_last_user_message():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "b"},
    ]
    assert task.question({"raw_prompt": messages}) == "second"
    assert task.question({"raw_prompt": messages[:1]}) == ""
    assert task.question({}) == ""


def test_whether_the_prompt_shows_the_tools():
    assert task.shows_tools([{"role": "system", "content": "You have <tools>[]</tools>."}])
    assert not task.shows_tools([{"role": "system", "content": "You have tools."}])
    assert not task.shows_tools([{"role": "user", "content": "<tools>"}])
    assert not task.shows_tools([])
