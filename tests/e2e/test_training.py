"""Real training runs of stock verl on the CPU."""

import json
from pathlib import Path

import pytest
import torch

from recipe_slca import advantage, segments

SPY = {"VERL_USE_EXTERNAL_MODULES": "spy_estimator", "PYTHONPATH": str(Path(__file__).parent)}


@pytest.fixture(scope="module")
def slca_run(world, tmp_path_factory):
    """Two steps of slca, with validation, both dumps, and a spy on the estimator's inputs."""
    folder = tmp_path_factory.mktemp("slca")
    return world.train(
        folder,
        "algorithm.adv_estimator=spy",
        "trainer.total_training_steps=2",
        "trainer.test_freq=2",
        "+slca.dump.every=1",
        f"trainer.rollout_data_dir={folder}/verl_dump",
        SPY_FOLDER=str(folder),
        **SPY,
    )


def estimator_inputs(training) -> list[dict]:
    return [torch.load(path, weights_only=False) for path in sorted(training.folder.glob("*.pt"))]


def test_rollouts_call_tools_and_see_observations(slca_run):
    rollouts = slca_run.rollouts("1.jsonl")
    calls = [call for rollout in rollouts for turn in rollout["trajectory"]["turns"] for call in turn["calls"]]
    assert len(rollouts) == 16
    assert any(call["status"] == "ok" for call in calls)
    assert all(call["observation"] for call in calls)


def test_rewards_reach_the_estimator_on_the_last_token_of_their_segments(slca_run):
    for step, seen in enumerate(estimator_inputs(slca_run), start=1):
        tool, summary = advantage.segment_rewards(seen["rewards"], seen["mask"])
        got = sorted(
            (group, round(float(t), 5), round(float(s), 5))
            for group, t, s in zip(seen["groups"], tool.reward, summary.reward, strict=True)
        )
        scored = sorted(
            (rollout["group"], round(rollout["tool_reward"] or 0.0, 5), round(rollout["summary_reward"] or 0.0, 5))
            for rollout in slca_run.rollouts(f"{step}.jsonl")
        )
        assert got == scored
        runs = segments.find_runs(seen["mask"])
        on_last_tokens = torch.zeros_like(seen["mask"], dtype=torch.bool)
        on_last_tokens[runs.row, runs.end - 1] = True
        assert not seen["rewards"][~on_last_tokens].any()


def test_segments_of_the_estimator_are_the_turns_of_the_rollout(slca_run):
    seen = estimator_inputs(slca_run)[0]
    runs_of_rows = sorted(segments.find_runs(seen["mask"]).row.bincount(minlength=16).tolist())
    assert runs_of_rows == sorted(len(rollout["trajectory"]["turns"]) for rollout in slca_run.rollouts("1.jsonl"))
    assert max(runs_of_rows) > 1


def test_every_tool_segment_is_graded(slca_run, grpo_run):
    for rollout in slca_run.rollouts("1.jsonl") + slca_run.rollouts("2.jsonl") + grpo_run.rollouts("1.jsonl"):
        assert (rollout["tool_reward"] is not None) == (len(rollout["trajectory"]["turns"]) > 1)


def test_verl_itself_sees_the_sum_of_both_rewards(slca_run):
    lines = (slca_run.folder / "verl_dump" / "1.jsonl").read_text().splitlines()
    scores = sorted(round(json.loads(line)["score"], 4) for line in lines)
    ours = sorted(
        round((rollout["tool_reward"] or 0.0) + (rollout["summary_reward"] or 0.0), 4)
        for rollout in slca_run.rollouts("1.jsonl")
    )
    assert scores == pytest.approx(ours, abs=2e-4)


def test_metrics_are_in_the_log_of_every_step(slca_run):
    log = slca_run.log
    assert set(log) == {1, 2}
    rollouts = slca_run.rollouts("2.jsonl")
    mean = sum(rollout["metrics"]["process"] for rollout in rollouts) / len(rollouts)
    assert log[2]["slca/reward/process/mean"] == pytest.approx(mean, abs=1e-5)
    assert log[1]["slca/rollouts"] == 16
    assert log[2]["slca/val/rollouts"] == 8
    assert "slca/val/rollouts" not in log[1]
    assert {f"slca/ended/{ending}" for ending in ("replied", "turn_limit", "response_full")} <= set(log[1])
    assert log[1]["slca/sgls/calls"] > 0


def test_grpo_runs_with_nothing_else_changed(grpo_run):
    def asked(estimator: str) -> str:
        folder = grpo_run.folder.with_name(f"{estimator}-noise1-seed1")
        text = (folder / "hydra/.hydra/overrides.yaml").read_text()
        assert f"algorithm.adv_estimator={estimator}" in text
        return text.replace(f"adv_estimator={estimator}", "").replace(folder.name, "")

    assert asked("grpo") == asked("slca")
    metrics = grpo_run.log[1]
    assert metrics["slca/rollouts"] == 64
    assert metrics["critic/rewards/mean"] == pytest.approx(
        sum((r["tool_reward"] or 0.0) + (r["summary_reward"] or 0.0) for r in grpo_run.rollouts("1.jsonl")) / 64,
        abs=1e-4,
    )


def test_run_stops_when_the_simulator_is_down(world, tmp_path):
    with pytest.raises(AssertionError, match="the run stops after step 1.*no answer from the simulator"):
        world.train(
            tmp_path,
            "trainer.total_training_steps=3",
            "slca.simulator.responders=[llm]",
            "+slca.simulator.endpoint.base_urls=['http://127.0.0.1:9/v1']",
            "+slca.simulator.endpoint.model=absent",
            "+slca.simulator.endpoint.retries=0",
            "+slca.simulator.endpoint.timeout_s=2",
            "+slca.simulator.failure_window=4",
        )
