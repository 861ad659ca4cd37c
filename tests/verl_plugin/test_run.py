"""What a run checks at its start and gathers while it goes on."""

import asyncio
import json

import pytest
import torch
from omegaconf import OmegaConf

from recipe_slca import metrics
from recipe_slca.hierr.hierr import HierR
from recipe_slca.settings import Settings, SettingsError
from recipe_slca.trajectory import CallRecord, Trajectory, TurnRecord
from recipe_slca.verl_plugin import rollout_dump
from recipe_slca.verl_plugin.monitor import RunMonitor
from recipe_slca.verl_plugin.reward_model import reward_model_of_run
from recipe_slca.verl_plugin.run_config import check_rollout_correction, estimator


def record(group: str, rollout: int, tool: float | None = 0.5, summary: float | None = 0.25) -> metrics.RolloutRecord:
    scores = dict.fromkeys(
        ("process", "format", "name", "key", "value", "parallel", *metrics._MEAN, "success_0.9", "ended_replied"), 0.5
    )
    return metrics.RolloutRecord(group, rollout, tool, summary, [tool or 0.0, 0.0], scores)


def test_monitor_wants_whole_groups_up_to_the_limit():
    monitor = RunMonitor(max_dumped=4, rollouts_per_group=2)
    monitor.open_phase(True)
    wanted = [monitor.add_rollout(record(group, i)) for i in range(2) for group in ("a", "b", "c")]
    assert wanted == [True, True, False] * 2


def test_groups_of_validation_have_their_own_size():
    monitor = RunMonitor(max_dumped=4, rollouts_per_group=4, rollouts_per_validation_group=2)
    monitor.open_phase(True, validate=True)
    assert [monitor.add_rollout(record(group, 0)) for group in ("a", "b", "c")] == [True, True, False]
    monitor.open_phase(True)
    assert [monitor.add_rollout(record(group, 0)) for group in ("a", "b")] == [True, False]


def test_monitor_keeps_nothing_for_the_dump_when_it_is_off():
    monitor = RunMonitor(4, 2)
    assert monitor.add_rollout(record("a", 0)) is False


def test_taken_rollouts_are_not_taken_again():
    monitor = RunMonitor(4, 2)
    monitor.add_rollout(record("a", 0))
    assert len(monitor.take()[0]) == 1
    assert monitor.take()[0] == []


def test_counts_of_workers_add_up_and_latencies_do_not():
    monitor = RunMonitor(4, 2)
    for worker, calls, latency in (("one", 3, 0.5), ("two", 4, 0.25), ("two", 5, 0.25)):
        monitor.add_service(worker, "sgls", {"slca/sgls/calls": calls, "slca/sgls/call_p95_s": latency})
    services = monitor.take()[1]
    assert services["slca/sgls/calls"] == 8
    assert services["slca/sgls/call_p95_s"] == 0.5


def test_first_fatal_failure_is_the_reason_to_stop():
    monitor = RunMonitor(4, 2)
    monitor.add_failed_rollout("bad row", stop=False)
    assert monitor.take()[2] is None
    monitor.add_failed_rollout("down", stop=True)
    monitor.add_failed_rollout("still down", stop=True)
    _records, services, reason = monitor.take()
    assert (services["slca/failed_rollouts"], reason) == (3, "down")


@pytest.mark.parametrize("criterion", ["token_k1", "token_k2,seq_mean_k1"])
def test_token_level_rejection_is_refused(criterion):
    algorithm = {"rollout_correction": {"rollout_rs": criterion}}
    with pytest.raises(SettingsError, match="rollout_rs.*rejects single tokens"):
        check_rollout_correction(algorithm)


@pytest.mark.parametrize("correction", [None, {}, {"rollout_rs": None}, {"rollout_rs": "seq_sum_k1"}])
def test_other_rollout_correction_is_not(correction):
    check_rollout_correction({"rollout_correction": correction})


def test_estimators_read_their_own_weights():
    rewards = torch.tensor([[1.0, 0.0, 3.0], [0.0, 0.0, 1.0]])
    mask = torch.tensor([[1, 0, 1], [1, 0, 1]])
    algorithm = {"norm_adv_by_std_in_grpo": False, "slca": {"tool_weight": 2.0, "summary_weight": 0.5}}
    assert estimator("slca", algorithm)(rewards, mask, ["g", "g"]).tolist() == [[1.0, 0, 0.5], [-1.0, 0, -0.5]]
    assert estimator("grpo", algorithm)(rewards, mask, ["g", "g"]).tolist() == [[1.5, 0, 1.5], [-1.5, 0, -1.5]]
    assert estimator("gae", algorithm) is None
    with pytest.raises(SettingsError, match="algorithm.slca.tool_wait is not a setting"):
        estimator("slca", {"slca": {"tool_wait": 1}})


def reward_config(**reward_model):
    usable = {"enable": True, "enable_resource_pool": True, "model_path": "m", "rollout": {"name": "vllm"}}
    reward = {"reward_model": usable | reward_model, "custom_reward_function": {"path": "pkg://x"}}
    return OmegaConf.create({"reward": reward})


def test_reward_model_needs_what_lets_the_reward_manager_score():
    assert reward_model_of_run(reward_config(enable=False), None, None) is None
    assert reward_model_of_run(reward_config(), "host:1", None).router_address == "host:1"
    with pytest.raises(SettingsError, match="enable_resource_pool"):
        reward_model_of_run(reward_config(enable_resource_pool=False), "host:1", None)
    config = reward_config()
    config.reward.custom_reward_function.path = None
    with pytest.raises(SettingsError, match="reward.custom_reward_function.path=pkg://recipe_slca"):
        reward_model_of_run(config, "host:1", None)


def test_dump_holds_hostile_text_and_appears_only_when_complete(tmp_path):
    hostile = "\ud83d </script> \u2028"
    one = record("g", 0)
    one.details = {"question": hostile, "runs": [{"kind": "tool"}, {"kind": "observation"}, {"kind": "summary"}]}
    other = record("g", 1, tool=0.0)
    path = tmp_path / "rollouts" / "3.jsonl"
    rollout_dump.write(path, [other, one], {"step": 3}, estimator("slca", {"norm_adv_by_std_in_grpo": False}))
    (line,) = path.read_text().splitlines()
    read = json.loads(line)
    assert read["question"] == hostile
    assert [run["advantage"] for run in read["runs"]] == [0.25, None, 0.0]
    assert [file.name for file in path.parent.iterdir()] == ["3.jsonl"]


def test_scores_of_hierr_are_what_the_metrics_need():
    call = '<tool_call>[{"name": "weather", "arguments": {"city": "Oslo"}}]</tool_call>'
    turns = [TurnRecord(call, [CallRecord("weather", {"city": "Oslo"}, "sun")]), TurnRecord("Oslo has sun today.")]
    trajectory = Trajectory("Weather in Oslo?", turns, "replied")
    hierr = HierR(Settings(judge={"kind": "rule"}))
    score = asyncio.run(hierr.score(trajectory, [[{"name": "weather", "arguments": {"city": "Oslo"}}]], ["weather"]))
    scored = metrics.RolloutRecord("g", 0, score.tool_reward, score.summary_reward, score.turn_rewards, score.metrics)
    logged = metrics.step_metrics([scored, scored], estimator("slca", {}))
    assert logged["slca/success@0.9"] == 1
    assert logged["slca/zero_spread/tool"] == 1
    assert sum(score.turn_rewards) == pytest.approx(score.tool_reward)
