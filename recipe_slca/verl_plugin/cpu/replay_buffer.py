"""A replay buffer that looks often. verl's own looks every two seconds whether a step's rollouts are done;
those of a tiny model are done sooner. Select it by `trainer.v1.sampler.custom_sampler`, as slca_cpu does."""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class QuickReplayBuffer(ReplayBuffer):
    """verl's replay buffer, asked five times a second."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs, poll_interval=0.2)
