"""Reads a verl run's config for the adapters. Imports nothing of verl, so any hook may import it."""

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from recipe_slca import advantage
from recipe_slca.metrics import Estimator
from recipe_slca.settings import SettingsError, read_algorithm_settings

ESTIMATORS = ("slca", "slca_turn", "toolpo", "rltr")


def plain(node: Any) -> Any:
    """A config node as plain containers; None stays None."""
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def estimator(name: str, algorithm: Mapping[str, Any]) -> Estimator | None:
    """The advantage estimator `name` as a function of rewards, mask and groups; None for one we do not know.

    algorithm: verl's `algorithm` node. verl's `grpo` is the shared advantage of the summed reward, which is
    `toolpo` without its tool term. Raises `SettingsError` for bad `algorithm.slca` settings.
    """
    settings = read_algorithm_settings(plain(algorithm.get("slca")))
    weights = (settings.tool_weight, settings.summary_weight)
    arguments = {
        "slca": (advantage.slca, {"weights": weights}),
        "slca_turn": (advantage.slca_turn, {"weights": weights, "turn_weight": settings.turn_weight}),
        "toolpo": (advantage.toolpo, {"tool_weight": settings.toolpo_weight}),
        "rltr": (advantage.rltr, {}),
        "grpo": (advantage.toolpo, {"tool_weight": 0.0}),
    }
    if name not in arguments:
        return None
    function, own = arguments[name]
    norm_by_std = bool(algorithm.get("norm_adv_by_std_in_grpo", True))
    return lambda rewards, mask, groups: function(rewards, mask, groups, norm_by_std=norm_by_std, **own)


def check_rollout_correction(algorithm: Mapping[str, Any]) -> None:
    """Refuse token-level rejection: it cuts holes into the response mask, and so into the segments.

    Raises `SettingsError`.
    """
    rejection = (algorithm.get("rollout_correction") or {}).get("rollout_rs")
    if rejection and "token" in str(rejection):
        raise SettingsError(
            f"algorithm.rollout_correction.rollout_rs={rejection!r} rejects single tokens, which cuts the segments of "
            "a response apart; use a sequence-level criterion (seq_...) or set it to null"
        )
