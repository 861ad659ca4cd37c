"""The summary reward: how well the closing reply answers, given what the tools said. METHOD 3.

Five grades, very poor to excellent, stand for 0, 1/4, 1/2, 3/4 and 1. A judge that cannot grade says why and
gives no score: the rollout then takes no part in the summary's statistics.
"""

from recipe_slca.hierr.grades import Grade, Judge
from recipe_slca.hierr.llm_judge import LlmJudge
from recipe_slca.hierr.reward_model_judge import DiscriminativeJudge, RewardModel
from recipe_slca.hierr.rule_judge import RuleJudge
from recipe_slca.settings import JudgeSettings, SettingsError
from recipe_slca.sgls.store import Store
from recipe_slca.trajectory import Trajectory

SHORTEST_REPLY = 10
"""Characters; a shorter reply gets 0 unseen."""


def open_judge(settings: JudgeSettings, reward_model: RewardModel | None = None, store: Store | None = None) -> Judge:
    """The judge that `slca.judge` describes.

    reward_model: the trainer's own one, needed by kind=reward_model. store: where an LLM's verdicts are kept,
    by default the cache that the settings name.
    Raises `SettingsError` when the judge cannot be used as configured.
    """
    if settings.kind == "rule":
        return RuleJudge(settings)
    if settings.kind == "llm":
        return LlmJudge(settings, store)
    if reward_model is None:
        raise SettingsError(
            "slca.judge.kind=reward_model, but the trainer serves no reward model: "
            "set reward.reward_model.enable=true and reward.reward_model.model_path"
        )
    if settings.reward_model == "generative":
        return LlmJudge(reward_model.as_chat_judge(settings), store)
    return DiscriminativeJudge(settings, reward_model)


async def grade_summary(trajectory: Trajectory, calls_due: bool, judge: Judge, settings: JudgeSettings) -> Grade:
    """Grade a rollout's closing reply, asking the judge only where no rule decides.

    calls_due: whether the task's gold calls are not empty.
    A call that the simulator failed to answer leaves the reply ungraded: it cannot be held against the
    policy that it did not know. No tool response although calls were due, or a reply that is too short: 0.
    """
    if trajectory.unanswered:
        return Grade(None, "the simulator left a call unanswered")
    responses = [call.observation for call in trajectory.calls]
    if calls_due and not any(response.strip() for response in responses):
        return Grade(0.0)
    if len(trajectory.reply) < SHORTEST_REPLY:
        return Grade(0.0)
    if not calls_due and not responses and not settings.grade_direct_replies:
        return Grade(0.0)
    return await judge.grade(trajectory.question, responses, trajectory.reply)
