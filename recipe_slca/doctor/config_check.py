"""The config: verl's own validation, our settings, and the traps that verl does not see."""

import contextlib
import difflib
import io
import warnings
from collections.abc import Iterator

from recipe_slca.doctor.checks import Outcome, Run, first_line
from recipe_slca.doctor.ray_workers import LOOP, MANAGER, known_estimators
from recipe_slca.settings import SettingsError
from recipe_slca.verl_plugin.run_config import ESTIMATORS, check_rollout_correction, estimator, plain


def check_settings(run: Run) -> Outcome:
    """The nodes `slca` and `algorithm.slca`."""
    name = "settings"
    try:
        assert run.settings
        estimator(str(run.config.algorithm.adv_estimator), run.config.algorithm)
        check_rollout_correction(plain(run.config.algorithm))
    except SettingsError as error:
        return Outcome(name, False, str(error), "correct the key; all settings: recipe_slca/settings.py")
    return Outcome(name, True, "slca and algorithm.slca are valid")


def check_estimator(run: Run) -> Outcome:
    wanted = str(run.config.algorithm.adv_estimator)
    known = known_estimators()
    if wanted in known:
        return Outcome("estimator", True, wanted)
    near = difflib.get_close_matches(wanted, known, n=1) or ["slca"]
    remedy = f"did you mean algorithm.adv_estimator={near[0]}? Known: {', '.join(known)}"
    return Outcome("estimator", False, f"algorithm.adv_estimator={wanted} is not known", remedy)


def check_verl(run: Run) -> Outcome:
    """verl's own `validate_config`, which `main_ppo` runs first."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            validate_config(run.config, need_reference_policy(run.config), need_critic(run.config))
    except ModuleNotFoundError as error:
        return Outcome("verl's own checks", False, first_line(error), f"install {error.name}, which this config needs")
    except Exception as error:
        return Outcome("verl's own checks", False, first_line(error), "change the values that it names")
    return Outcome("verl's own checks", True, "validate_config passes")


def check_traps(run: Run) -> Iterator[Outcome]:
    """What verl accepts and the run then suffers from: each trap is one outcome, silent ones last."""
    yield _check_loop(run)
    yield _check_manager(run)
    yield _check_kl(run)
    yield _check_lengths(run)
    yield _check_batches(run)


def _uses_our_rewards(run: Run) -> bool:
    return str(run.config.algorithm.adv_estimator) in ESTIMATORS or run.config.reward.reward_manager.name == MANAGER


def _check_loop(run: Run) -> Outcome:
    rollout = run.config.actor_rollout_ref.rollout
    loop = rollout.agent.default_agent_loop
    if loop == LOOP or not _uses_our_rewards(run):
        return Outcome("agent loop", True, loop)
    limits = rollout.multi_turn
    return Outcome(
        "agent loop",
        False,
        f"{loop} keeps no trajectory, answers {limits.max_parallel_calls} call(s) a turn and cuts observations to "
        f"{limits.max_tool_response_length} characters",
        f"set actor_rollout_ref.rollout.agent.default_agent_loop={LOOP}",
    )


def _check_manager(run: Run) -> Outcome:
    manager = run.config.reward.reward_manager.name
    if manager == MANAGER or str(run.config.algorithm.adv_estimator) not in ESTIMATORS:
        return Outcome("reward manager", True, manager)
    found = f"{manager} gives one reward for the whole response, so the tool segment would have none"
    return Outcome("reward manager", False, found, f"set reward.reward_manager.name={MANAGER}")


def _check_kl(run: Run) -> Outcome:
    if run.config.algorithm.use_kl_in_reward and _uses_our_rewards(run):
        return Outcome(
            "KL",
            False,
            "algorithm.use_kl_in_reward=true puts a term on every token, so a segment that the judge could not grade "
            "looks graded with 0",
            "set algorithm.use_kl_in_reward=False and actor_rollout_ref.actor.use_kl_loss=True",
        )
    actor = run.config.actor_rollout_ref.actor
    if actor.use_kl_loss and run.config.trainer.device == "cpu":
        remedy = "set actor_rollout_ref.actor.use_kl_loss=False"
        return Outcome("KL", False, "verl's reference model needs a GPU, and a KL loss needs the reference", remedy)
    return Outcome("KL", True, f"as a loss, {actor.kl_loss_coef:g}" if actor.use_kl_loss else "none")


def _check_lengths(run: Run) -> Outcome:
    name = "response length"
    response = run.config.data.max_response_length
    try:
        observation = run.settings.limits.max_observation_tokens
    except SettingsError:
        return Outcome(name, None, "not checked: the settings are not valid")
    found = f"{response} tokens for turns and observations, an observation may have {observation}"
    if response <= observation:
        remedy = (
            "raise data.max_response_length well above it, or lower slca.limits.max_observation_tokens: a rollout ends "
            "when an observation does not fit"
        )
        return Outcome(name, False, found, remedy)
    return Outcome(name, True, found)


def _check_batches(run: Run) -> Outcome:
    """Divisions that verl makes later, in the middle of a run or silently rounding down."""
    name = "batch sizes"
    actor, rollout, trainer = (
        run.config.actor_rollout_ref.actor,
        run.config.actor_rollout_ref.rollout,
        run.config.trainer,
    )
    gpus = trainer.n_gpus_per_node * trainer.nnodes
    batch, mini, rollouts = run.config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n
    shared = gpus // max(actor.get("ulysses_sequence_parallel_size", 1), 1)
    for parts, whole, what in (
        (mini, batch, "data.train_batch_size by actor_rollout_ref.actor.ppo_mini_batch_size"),
        (shared, mini * rollouts, "ppo_mini_batch_size x rollout.n by the GPUs that get a share of it"),
        (rollout.tensor_model_parallel_size, gpus, "GPUs by actor_rollout_ref.rollout.tensor_model_parallel_size"),
    ):
        if parts < 1 or whole % parts:
            return Outcome(name, False, f"{whole} is not divisible by {parts}: {what}", "choose sizes that divide")
    if problem := _micro_batch_problem(run, shared):
        return Outcome(name, False, problem, "choose sizes that divide, or set ...actor.use_dynamic_bsz=True")
    if rollouts < 2 and not trainer.val_only:
        remedy = "set actor_rollout_ref.rollout.n=16, as in the paper"
        return Outcome(name, False, f"a group of {rollouts} has no spread, so no advantage", remedy)
    return Outcome(name, True, f"{batch} prompts x {rollouts} rollouts, mini-batches of {mini} prompts")


def _micro_batch_problem(run: Run, workers: int) -> str | None:
    """verl cuts what one worker gets into micro-batches of one size, and stops in the first step when it cannot."""
    actor, rollout = run.config.actor_rollout_ref.actor, run.config.actor_rollout_ref.rollout
    if actor.use_dynamic_bsz or run.config.trainer.val_only:
        return None
    step, mini = run.config.data.train_batch_size * rollout.n, actor.ppo_mini_batch_size * rollout.n
    for rows, micro, what in (
        (step // workers, rollout.log_prob_micro_batch_size_per_gpu, "rollout.log_prob_micro_batch_size_per_gpu"),
        (mini // workers, actor.ppo_micro_batch_size_per_gpu, "actor.ppo_micro_batch_size_per_gpu"),
    ):
        if micro and rows % micro:
            return f"a worker's {rows} rollouts are not divisible by {micro}: actor_rollout_ref.{what}"
    return None
