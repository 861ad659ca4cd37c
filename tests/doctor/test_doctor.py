"""Each planted fault is found, and the remedy is named."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi import Response
from scripted_server import Reply, ScriptedServer

from recipe_slca.doctor import config_check, data_files, endpoints, environment, machine, model_files, ray_workers
from recipe_slca.doctor.checks import Outcome, Run
from recipe_slca.doctor.compose import ConfigUnusable, compose

CONFIG_PATH = "pkg://recipe_slca.config"


class ModelServer(ScriptedServer):
    """A server that lists one model and answers for no other, as vLLM's does."""

    def __init__(self, model: str, key: str = "", html: bool = False):
        super().__init__(lambda request: Reply("ready"))
        self.model, self.key, self.html = model, key, html

    def _app(self):
        app = super()._app()

        @app.get("/v1/models")
        async def models() -> dict:
            return {"object": "list", "data": [{"id": self.model}]}

        @app.middleware("http")
        async def guard(request, call_next):
            if self.html:
                return Response("<html>welcome</html>", media_type="text/html")
            if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
                return Response('{"error": {"message": "no key"}}', 401, media_type="application/json")
            return await call_next(request)

        return app


def run_of(world, *overrides: str) -> Run:
    return Run(compose(CONFIG_PATH, "slca_cpu", [*world.arguments, *overrides]))


def fault(outcomes, check: str) -> Outcome:
    """The only failure among the outcomes, which is of this check and says what to do."""
    failures = [outcome for outcome in outcomes if outcome.ok is False]
    assert [outcome.check for outcome in failures] == [check], failures
    assert failures[0].remedy
    return failures[0]


def shadow(monkeypatch, folder: Path, distribution: str, version: str) -> None:
    """Put another distribution of that name first on the path: its metadata is what Python finds."""
    info = folder / f"{distribution}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_sound_run_has_no_fault(world):
    run = run_of(world)
    checks = [environment.check_plugin(), environment.check_versions(run), config_check.check_settings(run)]
    checks += [config_check.check_estimator(run), config_check.check_verl(run), *config_check.check_traps(run)]
    checks += [*model_files.check_model(run), *data_files.check_data(run), machine.check_output(run)]
    checks += [*machine.check_memory(run), *endpoints.check_endpoints(run, 0)]
    assert [outcome for outcome in checks if outcome.ok is False] == []
    assert sum(outcome.ok is True for outcome in checks) >= 16


# The 15 faults.


def test_wrong_verl(world, monkeypatch, tmp_path):
    shadow(monkeypatch, tmp_path, "verl", "0.8.0")
    found = fault([environment.check_versions(run_of(world))], "versions")
    assert "verl is 0.8.0, needed is ==0.9.1" in found.found and "pip install" in found.remedy


def test_plugin_not_installed(monkeypatch, tmp_path):
    shadow(monkeypatch, tmp_path, "recipe_slca", "0.1.0")
    found = fault([environment.check_plugin()], "plugin")
    assert "no entry point" in found.found and "pip install" in found.remedy


@pytest.mark.parametrize("written", ["scla", "slca_turns"])
def test_estimator_misspelt(world, written):
    found = fault([config_check.check_estimator(run_of(world, f"algorithm.adv_estimator={written}"))], "estimator")
    assert "did you mean algorithm.adv_estimator=slca" in found.remedy


def test_data_without_tools(world, tmp_path):
    table = pq.read_table(world.data / "rl.parquet").drop_columns(["tools"])
    pq.write_table(table, tmp_path / "rl.parquet")
    run = run_of(world, f"data.train_files={tmp_path}/rl.parquet")
    assert "tools is missing" in fault(data_files.check_data(run), "data.train_files rl.parquet").found


def test_gold_that_is_not_json(world, tmp_path):
    table = pq.read_table(world.data / "rl.parquet")
    rows = table.to_pylist()
    rows[3]["reward_model"]["ground_truth"]["gold_tool_calls"] = "[{'name': weather}]"
    pq.write_table(pa.Table.from_pylist(rows, table.schema), tmp_path / "rl.parquet")
    run = run_of(world, f"data.train_files={tmp_path}/rl.parquet")
    found = fault(data_files.check_data(run), "data.train_files rl.parquet")
    assert "row 3" in found.found and "data_prep.inspect" in found.remedy


def llm_judge(world, url: str, *overrides: str) -> Run:
    endpoint = f"{{base_urls:['{url}'],model:the-judge}}"
    return run_of(world, "slca.judge.kind=llm", f"+slca.judge.endpoint={endpoint}", *overrides)


def test_endpoint_down(world):
    found = fault(
        endpoints.check_endpoints(llm_judge(world, "http://127.0.0.1:9/v1"), 0), "judge http://127.0.0.1:9/v1"
    )
    assert "connection failed" in found.found and "serve_judge.sh" in found.remedy


def test_endpoint_of_another_model(world):
    with ModelServer("qwen") as server:
        found = fault(endpoints.check_endpoints(llm_judge(world, server.url), 0), f"judge {server.url}")
    assert "it serves qwen, not the-judge" in found.found and "slca.judge.endpoint.model" in found.remedy


def test_key_missing(world, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY_OF_TEST", raising=False)
    with ModelServer("the-judge", key="secret") as server:
        run = llm_judge(world, server.url, "+slca.judge.endpoint.api_key_env=JUDGE_KEY_OF_TEST")
        assert "JUDGE_KEY_OF_TEST" in fault(endpoints.check_endpoints(run, 0), f"judge {server.url}").found
        unnamed = fault(endpoints.check_endpoints(llm_judge(world, server.url), 0), f"judge {server.url}")
        assert "401" in unnamed.found and "api_key_env" in unnamed.remedy
        monkeypatch.setenv("JUDGE_KEY_OF_TEST", "secret")
        assert [outcome.ok for outcome in endpoints.check_endpoints(run, 0)] == [True]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{% for m in messages if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}",
            "it does not show what a tool answered",
        ),
        (
            "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
            "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
            "no tools",
        ),
    ],
)
def test_template_without_tool_role(world, tmp_path, template, said):
    shutil.copytree(world.model, tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").write_text(template)
    run = run_of(world, f"actor_rollout_ref.model.path={tmp_path}/model")
    found = fault(model_files.check_model(run), "chat template")
    assert said in found.found and "tool role" in found.remedy


def test_batch_that_does_not_divide(world):
    run = run_of(world, "actor_rollout_ref.actor.ppo_mini_batch_size=3")
    assert "8 is not divisible by 3" in fault(config_check.check_traps(run), "batch sizes").found


@pytest.mark.parametrize("key", ["rollout.log_prob_micro_batch_size_per_gpu", "actor.ppo_micro_batch_size_per_gpu"])
def test_micro_batch_that_does_not_divide(world, key):
    run = run_of(world, f"actor_rollout_ref.{key}=64")
    found = fault(config_check.check_traps(run), "batch sizes")
    assert f"32 rollouts are not divisible by 64: actor_rollout_ref.{key}" in found.found


def test_response_shorter_than_an_observation(world):
    run = run_of(world, "data.max_response_length=64")
    assert "data.max_response_length" in fault(config_check.check_traps(run), "response length").remedy


def test_stock_agent_loop(world):
    run = run_of(world, "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent")
    found = fault(config_check.check_traps(run), "agent loop")
    assert "1 call(s) a turn" in found.found and "default_agent_loop=slca_tool_agent" in found.remedy


def test_stock_reward_manager(world):
    run = run_of(world, "reward.reward_manager.name=naive")
    assert "reward.reward_manager.name=hierr" in fault(config_check.check_traps(run), "reward manager").remedy


def test_kl_in_the_reward(world):
    run = run_of(world, "algorithm.use_kl_in_reward=True")
    assert "use_kl_loss=True" in fault(config_check.check_traps(run), "KL").remedy


def test_kl_loss_without_a_gpu(world):
    run = run_of(world, "actor_rollout_ref.actor.use_kl_loss=True")
    assert "use_kl_loss=False" in fault(config_check.check_traps(run), "KL").remedy


def test_output_folder_that_cannot_be_written_to(world, tmp_path):
    (tmp_path / "file").touch()
    run = run_of(world, f"trainer.default_local_dir={tmp_path}/file/run")
    assert "RUN_DIR" in fault([machine.check_output(run)], "output folder").remedy


# Further bad input.


def test_checkpoint_that_is_gone(world, tmp_path):
    run = run_of(world, f"trainer.default_local_dir={tmp_path}")
    assert machine.check_checkpoint(run).found == "none to go on from"
    (tmp_path / "global_step_4/actor").mkdir(parents=True)
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("4")
    assert machine.check_checkpoint(run).found == f"goes on from {tmp_path}/global_step_4"
    for newest in ("5", ""):
        tracker.write_text(newest)
        assert str(tracker) in fault([machine.check_checkpoint(run)], "checkpoint").remedy
    run = run_of(world, "trainer.resume_mode=resume_path", f"trainer.resume_from_path={tmp_path}/global_step_7")
    assert "CHECKPOINT" in fault([machine.check_checkpoint(run)], "checkpoint").remedy


def test_missing_model_and_data(world, tmp_path):
    run = run_of(world, f"actor_rollout_ref.model.path={tmp_path}/none", f"data.val_files={tmp_path}/none.parquet")
    assert "config.json" in fault(model_files.check_model(run), "model").found
    assert "data_prep.build" in fault(data_files.check_data(run), "data.val_files none.parquet").remedy


def test_a_file_that_is_no_parquet(world, tmp_path):
    (tmp_path / "rl.parquet").write_text("not parquet")
    run = run_of(world, f"data.train_files={tmp_path}/rl.parquet")
    assert "not a parquet file" in fault(data_files.check_data(run), "data.train_files rl.parquet").found


def test_endpoint_that_answers_with_a_web_page(world):
    with ModelServer("the-judge", html=True) as server:
        found = fault(endpoints.check_endpoints(llm_judge(world, server.url), 0), f"judge {server.url}")
    assert "not a chat completion" in found.found and "/v1" in found.remedy


def test_waiting_ends_when_the_server_is_up(world, capsys):
    with ModelServer("another") as server:
        run = llm_judge(world, server.url)
        start = time.monotonic()
        assert [outcome.ok for outcome in endpoints.check_endpoints(run, 1.0)] == [False]
        assert time.monotonic() - start >= 1.0
        assert f"waiting for: judge {server.url}" in capsys.readouterr().out
        server.model = "the-judge"
        assert [outcome.ok for outcome in endpoints.check_endpoints(run, 60.0)] == [True]


def test_prompts_that_do_not_fit(world):
    run = run_of(world, "data.max_prompt_length=20")
    assert "data.filter_overlong_prompts" in fault_of_both(data_files.check_data(run))


def fault_of_both(outcomes) -> str:
    failures = [outcome for outcome in outcomes if outcome.ok is False]
    assert [outcome.check.split()[0] for outcome in failures] == ["data.train_files", "data.val_files"]
    return failures[0].remedy


def test_more_positions_than_the_model_has(world):
    run = run_of(world, "data.max_response_length=8192")
    assert "max_response_length" in fault(model_files.check_model(run), "model").remedy


def test_unknown_setting(world):
    run = run_of(world, "+slca.limits.calls=3")
    assert "slca.limits.calls is not a setting" in fault([config_check.check_settings(run)], "settings").found


def test_arguments_that_make_no_config(world):
    with pytest.raises(ConfigUnusable, match="adv_estimater"):
        compose(CONFIG_PATH, "slca_cpu", [*world.arguments, "algorithm.adv_estimater=slca"])


def test_too_few_cpus_for_ray(world):
    few = ray_workers._check_resources(run_of(world), {"GPU": 1, "CPU": 2})
    assert few.ok is False and "num_cpus=6" in few.remedy
    assert ray_workers._check_resources(run_of(world), {"GPU": 1, "CPU": 6}).ok


# The command.


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "recipe_slca.doctor", f"--config-path={CONFIG_PATH}", "--config-name=slca_cpu"]
    variables = {**os.environ, "VERL_PLATFORM": "cpu", **environment}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300, env=variables)


def test_the_command_asks_a_ray_worker_and_ends_with_0(world):
    done = doctor(*world.arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 node knows slca_tool_agent, hierr, toucan, slca" in done.stdout
    assert "nothing keeps this run from starting" in done.stdout
    assert not world.output.exists()


def test_the_command_shows_the_import_error_that_verl_hides(world, tmp_path):
    (tmp_path / "wrapt.py").write_text("raise ImportError('wrapt is broken here')")
    done = doctor(*world.arguments, PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
    assert done.returncode == 1
    assert "wrapt is broken here" in done.stdout


def test_help_names_the_argument_of_its_own():
    assert "--wait" in doctor("--help").stdout
