"""An estimator that keeps what verl hands it, then does as `slca` does. Loaded by VERL_USE_EXTERNAL_MODULES."""

import os
import time

import torch
import wrapt


def _register(module) -> None:
    @module.register_adv_est("spy")
    def spy(token_level_rewards, response_mask, config, index, **kwargs):
        seen = {"rewards": token_level_rewards, "mask": response_mask, "groups": list(index)}
        advantages, returns = module.get_adv_estimator_fn("slca")(
            token_level_rewards=token_level_rewards, response_mask=response_mask, config=config, index=index, **kwargs
        )
        torch.save({**seen, "advantages": advantages}, os.path.join(os.environ["SPY_FOLDER"], f"{time.time_ns()}.pt"))
        return advantages, returns


wrapt.register_post_import_hook(_register, "verl.trainer.ppo.core_algos")
