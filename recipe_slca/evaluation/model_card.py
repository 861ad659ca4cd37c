"""The model card of an export: data, settings, commit and results, each only as far as it is on record."""

import json
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

CONFIG_PLACES = (".hydra/config.yaml", "config.yaml")
SHOWN_SETTINGS = (
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.lora_rank",
    "algorithm.adv_estimator",
    "algorithm.norm_adv_by_std_in_grpo",
    "algorithm.use_kl_in_reward",
    "algorithm.slca",
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.kl_loss_coef",
    "actor_rollout_ref.actor.kl_loss_type",
    "actor_rollout_ref.actor.clip_ratio",
    "actor_rollout_ref.actor.entropy_coeff",
    "actor_rollout_ref.actor.loss_agg_mode",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.temperature",
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns",
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "trainer.total_epochs",
    "trainer.total_training_steps",
    "slca.stop_at_tool_call",
    "slca.tool_prompt",
    "slca.process",
    "slca.limits",
    "slca.simulator.responders",
    "slca.simulator.endpoint.model",
    "slca.judge.kind",
    "slca.judge.endpoint.model",
    "model.path",
    "model.lora_rank",
    "optim.lr",
    "optim.lr_scheduler_type",
    "optim.lr_warmup_steps_ratio",
    "data.max_length",
)
"""Keys of the RL and the SFT trainer's config; addresses and paths of services stay out of a card."""
TOOL_PROMPTS = {
    "embedded": "Its chat template shows the `tools` of a request in the system message, as training did.",
    "template": "Its chat template is that of the model it was trained from.",
}
NOT_RECORDED = "Not recorded in the run folder."
MAX_RESULT_LINES = 60


def find_run_folder(step_folder: Path) -> Path | None:
    """The nearest folder above a checkpoint that holds the run's config, at most three up; None without one."""
    candidates = list(step_folder.parents)[:3]
    return next((folder for folder in candidates if _config_file(folder)), None)


def model_card(
    name: str, export: Path, step_folder: Path, tool_prompt: str, run: Path | None, results: list[Path]
) -> str:
    """Write the card of an export whose files lie in `export`.

    tool_prompt: whether tools are "embedded" in the system message or left to the model's own "template".
    run: the run's folder; its `results.json` files and the further ones in `results` are shown.
    """
    config_file = _config_file(run) if run else None
    config = yaml.safe_load(config_file.read_text(encoding="utf-8")) if config_file else {}
    head = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["tool-calling", "slca-grpo"]}
    base = _look_up(config, "actor_rollout_ref.model.path") or _look_up(config, "model.path")
    if isinstance(base, str) and base.count("/") == 1 and not base.startswith((".", "/", "~")):
        head["base_model"] = base
    sections = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n# {name}",
        f"A tool-calling model, exported from `{step_folder.name}` of its training run. {TOOL_PROMPTS[tool_prompt]} "
        "It answers with `<tool_call>` blocks of a call or a JSON list of calls.",
        _usage(name, export),
        "## Data\n\n" + (_data(config) or NOT_RECORDED),
        "## Settings\n\n" + (_settings(config) or NOT_RECORDED),
        "## Commit\n\n" + _commit(run),
        "## Results\n\n" + (_results(run, results) or NOT_RECORDED),
    ]
    return "\n\n".join(sections) + "\n"


def _usage(name: str, export: Path) -> str:
    dtype = json.loads((export / "config.json").read_text(encoding="utf-8")).get("dtype", "unknown")
    return (
        f"## Use\n\nWeights are stored as {dtype}.\n\n```bash\nvllm serve {name} --enable-auto-tool-choice "
        "--tool-call-parser slca \\\n    --tool-parser-plugin recipe_slca/evaluation/vllm_tool_parser.py\n```"
    )


def _data(config: dict[str, Any]) -> str:
    lines = []
    for key in ("data.train_files", "data.val_files"):
        files = _look_up(config, key)
        for file in [files] if isinstance(files, str) else files or []:
            lines.append(f"- `{key}`: {_cell(Path(file).name)}{_rows(Path(file))}")
    return "\n".join(lines)


def _rows(file: Path) -> str:
    if not file.is_file() or file.suffix != ".parquet":
        return ""
    import pyarrow.parquet as pq

    return f", {pq.read_metadata(file).num_rows} rows"


def _settings(config: dict[str, Any]) -> str:
    found = [(key, _look_up(config, key)) for key in SHOWN_SETTINGS]
    rows = [f"| `{key}` | {_cell(json.dumps(_shown(value)))} |" for key, value in found if value is not None]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows]) if rows else ""


def _shown(value: Any) -> Any:
    """A local path by its last part alone: where it lay is nobody's business."""
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~", ".")) else value


def _commit(run: Path | None) -> str:
    lines = []
    recorded = run / "commit.txt" if run else None
    if recorded and recorded.is_file():
        lines.append(f"- trained at `{recorded.read_text(encoding='utf-8').strip()}`")
    else:
        lines.append(f"- trained at: {NOT_RECORDED.lower()}")
    repository = Path(__file__).resolve().parents[2]
    described = _git(repository, "describe", "--always", "--dirty", "--abbrev=40")
    lines.append(f"- exported at `{described}`" if described else "- exported outside a git checkout")
    for package in ("verl", "torch", "transformers"):
        try:
            lines.append(f"- exported with {package} {version(package)}")
        except PackageNotFoundError:
            continue
    return "\n".join(lines)


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _results(run: Path | None, further: list[Path]) -> str:
    files = sorted(run.rglob("results.json")) if run else []
    sections = []
    for file in [*files, *further]:
        values = dict(_leaves(json.loads(file.read_text(encoding="utf-8"))))
        shown = list(values.items())[:MAX_RESULT_LINES]
        rows = [f"| {_cell(key)} | {_cell(_figure(value))} |" for key, value in shown]
        if len(shown) < len(values):
            rows.append(f"| and {len(values) - len(shown)} further values in `{file.name}` | |")
        title = file.relative_to(run).as_posix() if run and file.is_relative_to(run) else file.parent.name
        sections.append("\n".join([f"### {_cell(title)}\n", "| measure | value |", "| --- | --- |", *rows]))
    return "\n\n".join(sections)


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, str | float | int]]:
    """The strings and numbers of nested objects, by dotted key; lists and nulls are left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, str | int | float):
        yield prefix, value


def _figure(value: str | float | int) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Text that is safe in a Markdown table: it was written by others and may hold markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _config_file(folder: Path) -> Path | None:
    return next((folder / place for place in CONFIG_PLACES if (folder / place).is_file()), None)


def _look_up(config: dict[str, Any], dotted: str) -> Any:
    value: Any = config
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
