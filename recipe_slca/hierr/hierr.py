"""Both rewards of a rollout, and the omission guard. METHOD 3."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from recipe_slca.hierr.execution import same_results
from recipe_slca.hierr.gold import GoldSteps, read_gold
from recipe_slca.hierr.process import ProcessScore, score_process
from recipe_slca.hierr.summary import Judge, grade_summary, open_judge
from recipe_slca.settings import Settings
from recipe_slca.sgls.responders import parse_recorded
from recipe_slca.sgls.simulator import Simulator
from recipe_slca.sgls.tools import Tools
from recipe_slca.tool_calls import ToolCall
from recipe_slca.trajectory import Ending, Trajectory

OMISSION_REWARD = -0.5
SUCCESS_THRESHOLDS = (0.7, 0.8, 0.9, 1.0)
_ROUNDING = 1e-9


@dataclass(frozen=True)
class RewardScore:
    """The rewards of one rollout.

    tool_reward: the process reward in [0, 1], 0 for omission; None when the rollout has no tool segment.
    summary_reward: the grade in [0, 1], or -0.5 for omission; None when ungraded.
    turn_rewards: one for each assistant turn, shares of tool_reward (`process`), all 0 where that is None.
    metrics: finite floats, the same keys for every rollout.
    """

    tool_reward: float | None
    summary_reward: float | None
    turn_rewards: list[float]
    metrics: dict[str, float]


class HierR:
    """Scores rollouts. Use one object from one event loop."""

    def __init__(
        self, settings: Settings | None = None, judge: Judge | None = None, simulator: Simulator | None = None
    ):
        """judge, simulator: by default those that `settings.judge` and `settings.simulator` describe, the
        simulator without its LLM, which must never see gold calls; their answers are in the row's recorded
        calls. It is only needed with `settings.process.execution_match`. Both are closed by `close`.
        """
        self._settings = settings or Settings()
        self._judge = judge or open_judge(self._settings.judge)
        if simulator is None and self._settings.process.execution_match:
            responders = [name for name in self._settings.simulator.responders if name != "llm"] or ["replay"]
            simulator = Simulator(self._settings.simulator.model_copy(update={"responders": responders}))
        self._simulator = simulator

    async def score(
        self,
        trajectory: Trajectory,
        gold_calls: Any,
        allowed_tools: Collection[str],
        tool_schemas: Any = None,
        recorded_calls: Any = None,
    ) -> RewardScore:
        """Score one rollout.

        gold_calls: nested, flat or bare names, or a JSON string of these (`gold.read_gold`).
        allowed_tools: names of the tools that the row offers.
        tool_schemas, recorded_calls: the row's raw schemas and recorded responses, which the refinements of
            `settings.process` use.

        Raises `ValueError` for gold calls that cannot be read.
        """
        gold = read_gold(gold_calls)
        process = await self._process(trajectory, gold, allowed_tools, tool_schemas, recorded_calls)
        omission = bool(gold) and not any(process.calls)
        if omission:
            # Malformed calls make a tool segment, because the policy is told and goes on. Left ungraded, its tokens
            # would never be discouraged.
            process = ProcessScore(calls=process.calls, turn_rewards=(0.0,) * len(trajectory.turns))
            summary_reward = OMISSION_REWARD
        else:
            summary_reward = (await grade_summary(trajectory, bool(gold), self._judge, self._settings.judge)).score
        tool_reward = process.total if len(trajectory.turns) > 1 else None
        metrics = _metrics(trajectory, process, tool_reward, summary_reward, omission)
        return RewardScore(tool_reward, summary_reward, list(process.turn_rewards), metrics)

    async def close(self) -> None:
        """Close the judge and the simulator."""
        await self._judge.close()
        if self._simulator is not None:
            await self._simulator.close()

    async def _process(
        self,
        trajectory: Trajectory,
        gold: GoldSteps,
        allowed_tools: Collection[str],
        tool_schemas: Any,
        recorded_calls: Any,
    ) -> ProcessScore:
        settings = self._settings.process
        turn_texts = [turn.text for turn in trajectory.turns]
        refined = settings.schema_aware_values or settings.execution_match
        tools = Tools.from_schemas(tool_schemas if refined else None)
        parameters = {name: tool.parameters for name, tool in tools.by_name.items()}
        score = partial(score_process, turn_texts, gold, frozenset(allowed_tools), settings, parameters)
        process = score()
        if not settings.execution_match or not allowed_tools:
            return process
        recorded = parse_recorded(recorded_calls)

        async def respond(call: ToolCall) -> str | None:
            observation = await self._simulator.respond(tools, call, recorded=recorded)
            return observation.text if observation.status == "ok" else None

        predicted = [call for turn in process.calls for call in turn]
        gold_calls = [ToolCall(**call) for step in gold for call in step]
        settled = [(match.predicted, match.gold) for match in process.matches if match.key == match.value == 1]
        return score(same_result=await same_results(predicted, gold_calls, respond, settled))


def _metrics(
    trajectory: Trajectory,
    process: ProcessScore,
    tool_reward: float | None,
    summary_reward: float | None,
    omission: bool,
) -> dict[str, float]:
    made = [_written(call) for turn in process.calls for call in turn]
    metrics = {
        "process": process.total,
        "format": process.format,
        "name": process.name,
        "key": process.key,
        "value": process.value,
        "parallel": process.parallel,
        "name_f1": process.name,
        "arg_match": (process.key + process.value) / 2,
        "tool_reward": tool_reward or 0.0,
        "summary_reward": summary_reward or 0.0,
        "ungraded": summary_reward is None,
        "omission": omission,
        "tool_segment": tool_reward is not None,
        "calls": len(made),
        "tool_turns": sum(map(bool, process.calls)),
        "redundant_calls": len(made) - len(set(made)),
    }
    metrics |= {f"success_{threshold}": process.total >= threshold - _ROUNDING for threshold in SUCCESS_THRESHOLDS}
    metrics |= {f"ended_{ending}": trajectory.ended == ending for ending in get_args(Ending)}
    return {name: float(value) for name, value in metrics.items()}


def _written(call: ToolCall) -> str:
    try:
        return json.dumps([call.name, call.arguments], sort_keys=True)
    except RecursionError:
        return call.name  # arguments nested this deeply are not worth telling apart
