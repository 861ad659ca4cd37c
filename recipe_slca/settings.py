"""Every setting once: its type, default, range and meaning.

`Settings` is the `slca:` node of a verl config, `AlgorithmSettings` its `algorithm.slca` node. Both are
complete by default, so a config without them is valid. Unknown keys and values out of range stop the run
at the start with the key, the value and what is allowed.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SettingsError(ValueError):
    """A setting that cannot be used; the message names the key, the value and what is allowed."""


class _Node(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class AlgorithmSettings(_Node):
    """`algorithm.slca`: how the advantages of the two segments are weighted (METHOD: lambda_s)."""

    tool_weight: Weight = 1.0
    """Weight of the tool segment's advantage, applied after normalisation."""
    summary_weight: Weight = 1.0
    """Weight of the summary segment's advantage, applied after normalisation."""
    turn_weight: Share = 0.5
    """`slca_turn` only: share of the tool advantage that comes from the turn's own reward; 0 is plain slca."""
    toolpo_weight: Weight = 1.0
    """`toolpo` only: weight of the tool advantage added to the shared one on tool tokens."""


class EndpointSettings(_Node):
    """An OpenAI-compatible chat endpoint, or several that serve the same model."""

    base_urls: list[str] = []
    """Such as ["http://10.0.0.5:8000/v1"]; requests are spread over all of them."""
    model: str = ""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; empty when the server asks for none."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: int | None = 0
    max_tokens: Annotated[int, Field(ge=1)] = 4096
    timeout_s: Annotated[float, Field(gt=0)] = 540.0
    """Seconds that one request may take (paper: 540)."""
    retries: Annotated[int, Field(ge=0, le=20)] = 2
    """Further tries after a failed request or an unusable answer (paper: 2)."""
    max_concurrency: Annotated[int, Field(ge=1)] = 64
    """Requests under way at once from one process."""


class SimulatorEndpoint(EndpointSettings):
    """`slca.simulator.endpoint`: the frozen LLM that stands in for the tools."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7


class JudgeEndpoint(EndpointSettings):
    """`slca.judge.endpoint`: the frozen LLM that grades replies, at temperature 0 as in the paper."""

    max_tokens: Annotated[int, Field(ge=1)] = 1024


class CacheSettings(_Node):
    """Answers kept in one SQLite file, so that the same call is answered once and always alike."""

    path: str = ""
    """The SQLite file; empty keeps answers in memory, for this process alone."""
    mode: Literal["read_write", "replay_only"] = "read_write"
    """`replay_only` opens the file read-only and makes a miss an error: a rerun that costs no request."""


class SimulatorSettings(_Node):
    """`slca.simulator`: who answers tool calls (SGLS)."""

    responders: list[Literal["replay", "llm", "synthetic"]] = Field(default=["replay", "llm"], min_length=1)
    """Asked in this order; the first that has an answer gives it."""
    schema_guided: bool = True
    """False is the paper's ablation without SGLS: no validation, and no schema in the simulator's prompt."""
    context: Literal["stateless", "session"] = "stateless"
    """`session` also shows the simulator the earlier calls and responses of the rollout."""
    max_response_chars: Annotated[int, Field(ge=16)] = 65536
    """A longer answer of the LLM is not accepted."""
    max_failure_rate: Share = 0.2
    """The run stops when more than this share of the last `failure_window` calls got no answer."""
    failure_window: Annotated[int, Field(ge=1)] = 200
    endpoint: SimulatorEndpoint = SimulatorEndpoint()
    cache: CacheSettings = CacheSettings()


class JudgeSettings(_Node):
    """`slca.judge`: who grades the closing reply."""

    kind: Literal["llm", "reward_model", "rule"] = "llm"
    """`rule` is a deterministic grader for tests and the demo; `reward_model` uses verl's own reward model."""
    reward_model: Literal["discriminative", "generative"] = "discriminative"
    """`reward_model` only: whether it gives one number for an exchange, or answers the rubric as a chat model."""
    samples: Annotated[int, Field(ge=1, le=15)] = 1
    """Verdicts asked for each reply; the median counts."""
    max_tool_response_tokens: Annotated[int, Field(ge=16)] = 2048
    """Each tool response is shown to the judge cut in the middle to about this many tokens."""
    grade_direct_replies: bool = True
    """Grade a reply without calls when none was due; the paper gives 0 there."""
    noise_std: Annotated[float, Field(ge=0)] = 0.0
    """`rule` only: standard deviation of seeded Gaussian noise added to each grade, to study contamination."""
    noise_seed: int = 0
    endpoint: JudgeEndpoint = JudgeEndpoint()
    cache: CacheSettings = CacheSettings()


class ProcessWeights(_Node):
    """Weights of the five terms of the process reward (METHOD 3). All zero is the ablation without HierR."""

    format: Weight = 0.10
    name: Weight = 0.25
    key: Weight = 0.15
    value: Weight = 0.20
    parallel: Weight = 0.30


class ProcessSettings(_Node):
    """`slca.process`: the reward of the tool segment."""

    weights: ProcessWeights = ProcessWeights()
    assignment: Literal["greedy", "optimal"] = "greedy"
    """How predicted calls are matched to gold calls; `greedy` is the paper's."""
    schema_aware_values: bool = False
    """Count values as equal that the tool's schema makes equal: an explicit default, enum case, date forms."""
    execution_match: bool = False
    """A call also matches a gold call when the simulator answers both alike."""


class LimitSettings(_Node):
    """`slca.limits`: bounds of one rollout, beside verl's own max_assistant_turns and response_length."""

    max_calls_per_turn: Annotated[int, Field(ge=1)] = 20
    """Further calls of a turn get an error as their observation."""
    max_calls: Annotated[int, Field(ge=1)] = 100
    """Calls in one rollout."""
    max_observation_tokens: Annotated[int, Field(ge=8)] = 1024
    """A longer observation is cut in the middle, and says so."""


class DumpSettings(_Node):
    """`slca.dump`: rollouts written for `python -m recipe_slca.report`."""

    every: Annotated[int, Field(ge=0)] = 10
    """Write every this many steps; 0 writes none."""
    max_rollouts: Annotated[int, Field(ge=1)] = 256
    """At most this many rollouts a step, whole groups first come."""


class Settings(_Node):
    """The `slca:` node."""

    tool_prompt: Literal["auto", "template", "embedded"] = "auto"
    """Where the policy reads its tools: shown by the chat template, or `embedded` in the prompt's text."""
    stop_at_tool_call: bool = True
    """Stop generating at `</tool_call>`, so that the policy cannot write its own observations. Set false for
    models that write one block per parallel call."""
    limits: LimitSettings = LimitSettings()
    simulator: SimulatorSettings = SimulatorSettings()
    judge: JudgeSettings = JudgeSettings()
    process: ProcessSettings = ProcessSettings()
    dump: DumpSettings = DumpSettings()


def read_settings(node: Mapping[str, Any] | None) -> Settings:
    """Read the `slca:` node (a plain mapping or None). Raises `SettingsError`."""
    return _read(Settings, node, "slca")


def read_algorithm_settings(node: Mapping[str, Any] | None) -> AlgorithmSettings:
    """Read the `algorithm.slca` node (a plain mapping or None). Raises `SettingsError`."""
    return _read(AlgorithmSettings, node, "algorithm.slca")


def _read(model: type[_Node], node: Mapping[str, Any] | None, prefix: str) -> Any:
    try:
        return model.model_validate(dict(node or {}))
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(model, fault, prefix) for fault in error.errors())) from error


def _explain(model: type[_Node], fault: Any, prefix: str) -> str:
    key = ".".join([prefix, *map(str, fault["loc"])])
    if fault["type"] == "extra_forbidden":
        node: Any = model
        for part in fault["loc"][:-1]:
            node = node.model_fields[part].annotation
        return f"{key} is not a setting; known here: {', '.join(node.model_fields)}"
    return f"{key}={fault['input']!r}: {fault['msg']}"
