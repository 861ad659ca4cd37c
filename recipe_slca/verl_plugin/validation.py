"""Tells validation rollouts from training rollouts: verl's agent loops are not told which they are."""

import wrapt
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from recipe_slca.verl_plugin import tracking


def _validate(wrapped, instance, args, kwargs):
    if tracking.run_log is None:
        return wrapped(*args, **kwargs)
    tracking.run_log.begin_validation()
    try:
        return wrapped(*args, **kwargs)
    finally:
        tracking.run_log.end_validation()


wrapt.wrap_function_wrapper(PPOTrainer, "_validate", _validate)
