"""README.md does not drift: every command in it runs, every setting composes, every link and metric exists.

A command is run as it stands, with small inputs under the paths that it names. What needs a GPU, the network or an
hour is a dry run, in which programs in the place of Python and torchrun write down what they are asked for.
`TESTED_ELSEWHERE` holds what another test runs.
"""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from omegaconf import OmegaConf
from report.make_dump import make_group, write_dump, write_log
from run_scripts.launching import compose, run_script

from recipe_slca import settings
from recipe_slca.hierr.llm_judge import LlmJudge
from recipe_slca.metrics import RolloutRecord, step_metrics
from recipe_slca.sgls import Simulator
from recipe_slca.sgls.sqlite_store import SqliteStore
from recipe_slca.verl_plugin.run_config import estimator

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PROGRAM = re.compile(r"(?:[A-Z_]+=\S+ )*(?:bash|python3?|pip|torchrun|ray|git|docker|vllm|curl) ")
OVERRIDE = re.compile(r"\+{0,2}[a-z]\w*(?:\.\w+)+=\S+")
SETTING = re.compile(r"(?:slca|algorithm|data|actor_rollout_ref|trainer|reward|ray_kwargs)(?:\.\w+)+")


class Block(NamedTuple):
    """A code span or an indented block of the README."""

    line: int
    text: str


def blocks() -> list[Block]:
    found, indented = [], []
    for number, line in enumerate(README.splitlines(), start=1):
        if line.startswith("    "):
            indented.append(line.strip())
            continue
        if indented:
            found.append(Block(number - len(indented), "\n".join(indented)))
            indented = []
        found += [Block(number, span) for span in re.findall(r"`([^`]+)`", line)]
    return found


COMMANDS = sorted({line for block in blocks() for line in block.text.splitlines() if PROGRAM.match(line)})


# What runs each command. A function gets the command's arguments and a folder of its own to run in.


def _python(arguments: list[str], folder: Path, stdin: str = "") -> str:
    """Run `python ...` for real in the folder, with the packages of this checkout."""
    assert arguments[0] == "python"
    done = subprocess.run(
        [sys.executable, *arguments[1:]],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _replaced(arguments: list[str], **places: str) -> list[str]:
    """The arguments with the README's placeholders filled in."""
    assert set(places) <= set(arguments), f"the command has no {set(places) - set(arguments)} any more"
    return [places.get(argument, argument) for argument in arguments]


def _demo_rows(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    module = ["python", "-m", "data_prep.demo_world"]
    _python([*module, "--output", str(file), "--conversations", "120"], file.parent)


def build_paper_splits(arguments: list[str], folder: Path) -> None:
    """The paper's split sizes need 78,241 rows: taken here are smaller ones."""
    from data_prep.build import parser
    from data_prep.splits import PRESETS

    assert parser().parse_args(arguments[3:]).preset in PRESETS
    _demo_rows(folder / "Toucan-1.5M/Kimi-K2/train-00000.parquet")
    position = arguments.index("--preset")
    _python([*arguments[:position], "--splits", "eval=8,sft=40,rl=rest"], folder)
    written = {file.name for file in (folder / "data/toucan").iterdir()}
    assert written >= {"sft.parquet", "rl.parquet", "eval.parquet", "report.md"}


def build_own_data(arguments: list[str], folder: Path) -> None:
    _demo_rows(folder / "rows.parquet")
    _python(_replaced(arguments, PATH="rows.parquet", DIR="data"), folder)
    assert {"sft.parquet", "rl.parquet", "eval.parquet"} <= {file.name for file in (folder / "data").iterdir()}


def inspect_a_file(arguments: list[str], folder: Path) -> None:
    _demo_rows(folder / "rows.parquet")
    _python(["python", "-m", "data_prep.build", "--input", "rows.parquet", "--output", "data"], folder)
    command = _replaced(arguments, FILE="data/rl.parquet")
    assert "Fit for RL" in _python(command, folder)
    assert _python([*command, "--row", "0"], folder)


def probe_a_simulator(arguments: list[str], folder: Path) -> None:
    (folder / "tools.json").write_text(json.dumps([{"name": "get", "parameters": {"type": "object"}}]))
    told = _python(_replaced(arguments, FILE="tools.json"), folder, '{"name": "get", "arguments": {}}\n')
    assert "1 tools" in told and "ok from synthetic" in told


def look_into_a_cache(arguments: list[str], folder: Path) -> None:
    SqliteStore(folder / "answers.db").add([("key", {"response": "sunny", "tool": "weather", "model": "m"})])
    assert re.search(r"answers +1 ", _python(_replaced(arguments, PATH="answers.db"), folder))


def make_a_page(arguments: list[str], folder: Path) -> None:
    write_dump(folder / "run", groups=1, steps=1)
    assert "16 rollouts in 1 groups" in _python(_replaced(arguments, RUN_DIR="run"), folder)
    assert (folder / "rollouts.html").stat().st_size > 10_000


def draw_curves(arguments: list[str], folder: Path) -> None:
    for seed in (1, 2):
        write_log(folder / f"slca_seed{seed}/log.jsonl", seed, steps=3)
    position = arguments.index("RUN")
    assert arguments[position : position + 3] == ["RUN", "[RUN", "...]"]
    told = _python([*arguments[:position], "slca_seed1", "slca_seed2", *arguments[position + 3 :]], folder)
    assert "2 runs" in told and (folder / "curves/index.html").is_file()


def dry_run_launcher(arguments: list[str], folder: Path) -> None:
    """The launcher's arguments for verl are a config; test_launchers.py says that it is the right one."""
    variables = dict(argument.split("=", 1) for argument in arguments[: arguments.index("bash")])
    printer = _writes_arguments(folder / "bin/python", folder / "asked")
    done = run_script(Path(arguments[-1]).name, DRY_RUN="1", PYTHON=printer, OUTPUTS=str(folder), **variables)
    assert done.returncode == 0, done.stderr
    (asked,) = _asked(folder / "asked")
    module, config = compose(asked)
    assert module in ("verl.trainer.main_ppo", "verl.trainer.sft_trainer")
    if name := variables.get("ADV_ESTIMATOR"):
        assert config.algorithm.adv_estimator == name


def dry_run_server(arguments: list[str], folder: Path) -> None:
    done = run_script(Path(arguments[-1]).name, DRY_RUN="1")
    assert done.returncode == 0, done.stderr
    assert shlex.split(done.stdout)[:2] == ["vllm", "serve"]


def dry_run_demo(arguments: list[str], folder: Path) -> None:
    """All stages, in order, and each asks for what its program knows."""
    from data_prep import build

    asked = _stages(arguments, folder)
    modules = [call[call.index("-m") + 1] for call in asked]
    assert modules == [
        *["data_prep.demo_world"] * 2,
        *["data_prep.build"] * 2,
        "data_prep.demo_model",
        "verl.trainer.sft_trainer",
        "verl.trainer.main_ppo",
        "recipe_slca.evaluation.before_after",
    ]
    for call, module in zip(asked, modules, strict=True):
        if module.startswith("verl."):
            compose(call[call.index("-m") :])
        elif module == "data_prep.build":
            build.parser().parse_args(call[call.index(module) + 1 :])


def run_a_benchmark(arguments: list[str], folder: Path) -> None:
    assert "process reward" in _python([*arguments[:1], str(ROOT / arguments[1]), "hierr"], folder)


def dry_run_tests(arguments: list[str], folder: Path) -> None:
    assert [["-m", "pytest"]] == [call for call in _stages(arguments, folder) if "pytest" in call]


def _stages(arguments: list[str], folder: Path) -> list[list[str]]:
    """What a script asks of Python and torchrun, in a virtual environment that is ready made."""
    environment = folder / "environment"
    for program in ("python", "torchrun", "ruff"):
        _writes_arguments(environment / "bin" / program, folder / "asked")
    script = ROOT / arguments[1]
    path = f"{environment}/bin:/usr/bin:/bin"
    variables = {"PATH": path, "VIRTUAL_ENV": str(environment), "OUTPUT": str(folder / "output")}
    done = subprocess.run(["bash", str(script)], env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [call for call in _asked(folder / "asked") if "pip" not in call]


def _writes_arguments(program: Path, record: Path) -> str:
    """Put a program there that adds its arguments to the record, one a line, and an empty line."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" '' >>{shlex.quote(str(record))}\n")
    program.chmod(0o755)
    return str(program)


def _asked(record: Path) -> list[list[str]]:
    return [call.splitlines() for call in record.read_text().strip().split("\n\n")]


def install(arguments: list[str], folder: Path) -> None:
    """Everything but what comes from the network: pip reads the package, and knows the extra."""
    command = [sys.executable, "-m", *arguments, "--dry-run", "--no-deps", "--no-index", "--no-build-isolation"]
    # In a copy, because pip writes build files beside what it reads.
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stdout + done.stderr


RUN: dict[str, Callable[[list[str], Path], None]] = {
    "ADV_ESTIMATOR=grpo bash run_scripts/run_qwen2.5_7b_slca.sh": dry_run_launcher,
    "bash run_scripts/run_cpu_demo.sh": dry_run_demo,
    "bash run_scripts/run_qwen2.5_7b_sft.sh": dry_run_launcher,
    "bash run_scripts/run_qwen2.5_7b_slca.sh": dry_run_launcher,
    "bash run_scripts/run_tests.sh": dry_run_tests,
    "bash run_scripts/serve_judge.sh": dry_run_server,
    "bash run_scripts/serve_simulator.sh": dry_run_server,
    'pip install -e ".[vllm]"': install,
    "python -m data_prep.build --input PATH --output DIR": build_own_data,
    "python -m data_prep.build --input Toucan-1.5M/Kimi-K2 --output data/toucan --preset paper": build_paper_splits,
    "python -m data_prep.inspect FILE": inspect_a_file,
    "python -m recipe_slca.report curves RUN [RUN ...] --output curves": draw_curves,
    "python -m recipe_slca.report trajectories RUN_DIR --output rollouts.html": make_a_page,
    "python -m recipe_slca.sgls.cache stats PATH": look_into_a_cache,
    "python -m recipe_slca.sgls.probe --tools FILE": probe_a_simulator,
    "python tests/benchmarks": run_a_benchmark,
}
TESTED_ELSEWHERE = {
    "bash run_scripts/study_slca_vs_grpo.sh": "e2e/test_small_study.py::test_the_study_runs_once",
    "python -m recipe_slca.doctor": "doctor/test_doctor.py::test_the_command_asks_a_ray_worker_and_ends_with_0",
}


def test_every_command_of_the_readme_is_run_and_no_other():
    known = RUN.keys() | TESTED_ELSEWHERE.keys()
    assert sorted(set(COMMANDS) - known) == [], "no test runs these: add each to RUN or TESTED_ELSEWHERE"
    assert sorted(known - set(COMMANDS)) == [], "the README no longer has these: take them out of the tables"


@pytest.mark.parametrize("command", RUN)
def test_the_command_runs(command, tmp_path):
    RUN[command](shlex.split(command), tmp_path)


@pytest.mark.parametrize("command", TESTED_ELSEWHERE)
def test_the_test_that_runs_the_command_exists(command):
    file, _, test = TESTED_ELSEWHERE[command].partition("::")
    text = (ROOT / "tests" / file).read_text()
    assert re.search(rf"^def {test}\(", text, re.MULTILINE)
    assert Path(command.split()[-1]).name in text


def test_paths_that_the_readme_names_exist():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 10
    local = [link for link in links if not link.startswith("http")]
    scripts = re.findall(r"\brun_scripts/\w[\w.]*\.sh", README)
    assert [path for path in [*local, *scripts] if not (ROOT / path).exists()] == []


@pytest.fixture(scope="module")
def composed():
    return compose(["-m", "verl.trainer.main_ppo", *_OURS])[1]


_OURS = ("--config-path=pkg://recipe_slca.config", "--config-name=slca_trainer")
OVERRIDES = [(block.line, found) for block in blocks() if (found := OVERRIDE.findall(block.text))]


@pytest.mark.parametrize(("line", "overrides"), OVERRIDES, ids=[f"line{line}" for line, _ in OVERRIDES])
def test_overrides_compose_and_have_usable_values(line, overrides):
    _module, config = compose(["-m", "verl.trainer.main_ppo", *_OURS, *overrides])
    settings.read_settings(OmegaConf.to_container(config.slca, resolve=True))
    settings.read_algorithm_settings(OmegaConf.to_container(config.algorithm.slca, resolve=True))
    for path in re.findall(r"pkg://([\w.]+)", " ".join(overrides)):
        assert (ROOT / f"{path.replace('.', '/')}.py").is_file()


def test_the_overrides_for_a_config_of_ones_own_compose_on_verls():
    overrides = [found for _, group in OVERRIDES for found in group]
    first = overrides.index("algorithm.adv_estimator=slca")
    served = [found for found in overrides if "endpoint" in found]
    assert len(served) == 4
    arguments = [*overrides[first : first + 3], *served, "hydra.searchpath=[pkg://verl.trainer.config]"]
    _module, config = compose(["-m", "verl.trainer.main_ppo", "--config-name=ppo_trainer", *arguments])
    assert config.algorithm.adv_estimator == "slca"
    assert config.reward.reward_manager.name == "hierr"
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "slca_tool_agent"
    read = settings.read_settings(OmegaConf.to_container(config.slca, resolve=True))
    assert read.simulator.endpoint.base_urls and read.judge.endpoint.base_urls


def test_settings_that_the_readme_names_exist(composed):
    spans = {block.text.split("=")[0].lstrip("+") for block in blocks() if "\n" not in block.text}
    named = sorted(span for span in spans if SETTING.fullmatch(span))
    assert len(named) > 5
    assert [name for name in named if not (_is_setting(name) or _is_in(composed, name))] == []


def _is_setting(name: str) -> bool:
    for prefix, model in (("slca.", settings.Settings), ("algorithm.slca.", settings.AlgorithmSettings)):
        if name.startswith(prefix):
            for part in name.removeprefix(prefix).split("."):
                field = getattr(model, "model_fields", {}).get(part)
                if field is None:
                    return False
                model = field.annotation
            return True
    return False


def _is_in(config, name: str) -> bool:
    *parents, last = name.split(".")
    node = OmegaConf.select(config, ".".join(parents))
    return OmegaConf.is_dict(node) and last in node


@pytest.fixture(scope="module")
def emitted() -> set[str]:
    """Every metric that a run with a simulator and a judge can log."""
    import random

    from recipe_slca.verl_plugin.monitor import RunMonitor

    rollouts = make_group(random.Random(1), 1, "g", hostile=False, size=4)
    records = [
        RolloutRecord("g", r["rollout"], r["tool_reward"], r["summary_reward"], r["turn_rewards"], r["metrics"])
        for r in rollouts
    ]
    endpoint = {"base_urls": ["http://127.0.0.1:9/v1"], "model": "m"}
    simulator = Simulator(settings.SimulatorSettings(endpoint=endpoint))
    judge = LlmJudge(settings.JudgeSettings(endpoint=endpoint))
    monitor = RunMonitor(1, 1)
    monitor.add_service("worker", "sgls", simulator.metrics())
    monitor.add_service("worker", "judge", judge.metrics())
    asyncio.run(simulator.close())
    asyncio.run(judge.close())
    return set(step_metrics(records, estimator("slca", {}))) | set(monitor.take()[1])


def metric_rows() -> list[list[str]]:
    table = README.split("### Metrics")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


METRIC_ROWS = metric_rows()


@pytest.mark.parametrize("row", METRIC_ROWS, ids=[row[0][:40] for row in METRIC_ROWS])
def test_metrics_of_the_table_are_logged(row, emitted):
    assert len(row) == 4
    full = ""
    for span in re.findall(r"`([^`]+)`", row[0]):
        # `.../name` and `/name` stand for the metric before with another last part.
        full = span if span.startswith("slca/") else f"{full.rsplit('/', 1)[0]}/{span.rsplit('/', 1)[-1]}"
        if full.endswith("/*"):
            assert any(name.startswith(full[:-1]) for name in emitted), full
            continue
        assert full in emitted or f"{full}/mean" in emitted, full
        for statistic in re.findall(r"\b(?:mean|std|min|max)\b", row[0]):
            assert f"{full}/{statistic}" in emitted
    parts = {part for name in emitted for part in name.split("/")}
    for span in re.findall(r"`([a-z_]+)`", " ".join(row[1:])):
        assert span in parts, span
