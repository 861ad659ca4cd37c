"""The claim on a real model: no summary reward reaches the gradient of the tool tokens' loss, not by a bit.

A shared advantage, as in GRPO, lets every one of them through.
"""

from collections.abc import Callable

import pytest
import torch
from rollout_batches import Batch, mask_of
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe_slca import advantage, segments

PROMPT, RESPONSE, VOCABULARY = 6, 18, 64
SEGMENT_LOCKED = {"slca": advantage.slca, "slca_turn": advantage.slca_turn, "rltr": advantage.rltr}


def shared(rewards: Tensor, mask: Tensor, groups: list[str]) -> Tensor:
    """GRPO's advantage of the summed reward, differentiable in the rewards."""
    return advantage.toolpo(rewards, mask, groups, tool_weight=0.0)


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (6, PROMPT + RESPONSE), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def batch() -> Batch:
    """Two groups of three rollouts, with two, one and two tool turns; run rewards as HierR shares them out."""
    mask = mask_of(*["111100111001111100", "111110001111000000", "110110110000000000"] * 2)
    rewards = [0.5, 0.5, 0.75, 0.4, 0.25, 0.6, 0.1, 1.0, 0.3, 0.2, 0.5, 0.9, 0.8, 0.35, 0.35, 0.15]
    return Batch(mask, ["a"] * 3 + ["b"] * 3, torch.tensor(rewards))


def log_probs(model: Qwen2ForCausalLM, tokens: Tensor) -> Tensor:
    """[rows, RESPONSE] log-probabilities of the response's tokens."""
    logits = model(tokens).logits[:, PROMPT - 1 : -1].log_softmax(-1)
    return logits.gather(-1, tokens[:, PROMPT:, None]).squeeze(-1)


def tool_loss(advantages: Tensor, batch: Batch, token_log_probs: Tensor) -> Tensor:
    """The policy gradient's loss over the tool segment, token-mean."""
    tool, _ = segments.split(batch.mask)
    return -(advantages * token_log_probs)[tool].mean()


def parameter_gradients(estimate: Callable, batch: Batch, model: Qwen2ForCausalLM, tokens: Tensor) -> list[Tensor]:
    advantages = estimate(batch.rewards, batch.mask, batch.groups)
    loss = tool_loss(advantages, batch, log_probs(model, tokens))
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_the_batch_has_what_the_claim_is_about(batch: Batch):
    runs = segments.find_runs(batch.mask)
    assert runs.is_summary.sum() == 6 and (~runs.is_summary).sum() == 10


@pytest.mark.parametrize("estimate", SEGMENT_LOCKED.values(), ids=SEGMENT_LOCKED)
def test_no_summary_reward_changes_the_gradient_of_the_tool_tokens(estimate, batch, model, tokens):
    before = parameter_gradients(estimate, batch, model, tokens)
    assert all(gradient.any() for gradient in before[:1]), "without any gradient nothing would be shown"
    runs = segments.find_runs(batch.mask)
    for run in runs.is_summary.nonzero().flatten().tolist():
        for reward in (5.0, -3.0, advantage.UNGRADED):
            changed = batch.run_rewards.clone()
            changed[run] = reward
            after = parameter_gradients(estimate, Batch(batch.mask, batch.groups, changed), model, tokens)
            assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_every_summary_reward_changes_it_when_the_advantage_is_shared(batch, model, tokens):
    before = parameter_gradients(shared, batch, model, tokens)
    runs = segments.find_runs(batch.mask)
    for run in runs.is_summary.nonzero().flatten().tolist():
        changed = batch.run_rewards.clone()
        changed[run] = 5.0
        after = parameter_gradients(shared, Batch(batch.mask, batch.groups, changed), model, tokens)
        assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))


def reward_gradients(
    estimate: Callable, batch: Batch, model: Qwen2ForCausalLM, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """The derivative of the tool tokens' loss by each run's reward: of the tool runs, of the summary runs."""
    rewards = batch.rewards.requires_grad_()
    advantages = estimate(rewards, batch.mask, batch.groups)
    (gradient,) = torch.autograd.grad(tool_loss(advantages, batch, log_probs(model, tokens)), rewards)
    runs = segments.find_runs(batch.mask)
    by_run = gradient[runs.row, runs.end - 1]
    return by_run[~runs.is_summary], by_run[runs.is_summary]


@pytest.mark.parametrize("estimate", SEGMENT_LOCKED.values(), ids=SEGMENT_LOCKED)
def test_the_derivative_by_every_summary_reward_is_zero(estimate, batch, model, tokens):
    by_tool, by_summary = reward_gradients(estimate, batch, model, tokens)
    assert torch.equal(by_summary, torch.zeros(6))
    assert by_tool.all()


def test_the_derivative_by_every_summary_reward_is_not_zero_when_the_advantage_is_shared(batch, model, tokens):
    _, by_summary = reward_gradients(shared, batch, model, tokens)
    assert by_summary.all()


def test_the_derivative_by_every_tool_reward_of_the_reply_is_zero_too(batch, model, tokens):
    """The other way round: the reply's loss does not depend on the calls' rewards."""
    rewards = batch.rewards.requires_grad_()
    _, summary = segments.split(batch.mask)
    advantages = advantage.slca(rewards, batch.mask, batch.groups)
    loss = -(advantages * log_probs(model, tokens))[summary].mean()
    (gradient,) = torch.autograd.grad(loss, rewards)
    runs = segments.find_runs(batch.mask)
    by_run = gradient[runs.row, runs.end - 1]
    assert torch.equal(by_run[~runs.is_summary], torch.zeros(10))
    assert by_run[runs.is_summary].all()
