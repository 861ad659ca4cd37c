"""The machine: the output folder, its disk, GPUs and memory against a rough need."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from recipe_slca.doctor.checks import Outcome, Run, first_line

GIB = 2**30
# Bytes a parameter: float32 weights, gradients and Adam's two moments in training; bfloat16 in the rollout server.
TRAINING_BYTES = 16
CHECKPOINT_BYTES = 12
ROLLOUT_BYTES = 2


def check_output(run: Run) -> Outcome:
    """Whether the run's folder can be written to, and has room for a checkpoint."""
    name = "output folder"
    folder = Path(run.config.trainer.default_local_dir).expanduser().absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    remedy = "set trainer.default_local_dir (in the scripts: RUN_DIR) to a folder that can be written to"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x" * 4096)
    except OSError as error:
        return Outcome(name, False, f"{folder} cannot be written to: {first_line(error)}", remedy)
    free = shutil.disk_usage(existing).free
    parameters = count_parameters(run)
    found = f"{free / GIB:.0f} GiB free"
    if parameters and run.config.trainer.save_freq > 0 and not run.config.trainer.val_only:
        # The older ones go only when the newer one is written.
        kept = (run.config.trainer.max_actor_ckpt_to_keep or 1) + 1
        need = parameters * CHECKPOINT_BYTES * kept
        found += f", about {need / GIB:.1f} GiB needed for {kept} checkpoints"
        if free < need:
            remedy = "free disk space, lower trainer.max_actor_ckpt_to_keep, or set trainer.default_local_dir elsewhere"
            return Outcome(name, False, found, remedy)
    return Outcome(name, True, found)


def check_checkpoint(run: Run) -> Outcome:
    """What the run goes on from. verl begins anew, without a word, where the newest checkpoint is gone."""
    name = "checkpoint"
    trainer = run.config.trainer
    tracker = Path(trainer.default_local_dir).expanduser() / "latest_checkpointed_iteration.txt"
    if trainer.resume_mode == "resume_path":
        folder = Path(trainer.resume_from_path or "")
        remedy = "set trainer.resume_from_path (for eval_toucan.sh: CHECKPOINT) to a global_step_N of the RL trainer"
    elif trainer.resume_mode == "auto" and tracker.is_file():
        folder = tracker.with_name(f"global_step_{tracker.read_text().strip()}")
        remedy = f"bring it back, write the step of an older one into {tracker}, or delete that file to begin anew"
    else:
        return Outcome(name, True, "none to go on from")
    if not (folder / "actor").is_dir() or not folder.name.removeprefix("global_step_").isdigit():
        return Outcome(name, False, f"there is no checkpoint of the RL trainer in {folder}", remedy)
    return Outcome(name, True, f"goes on from {folder}")


def check_memory(run: Run) -> Iterator[Outcome]:
    """GPUs of this machine and their memory, or main memory on the CPU; a rough need without activations."""
    from verl.plugin.platform.platform_manager import get_platform

    parameters = count_parameters(run)
    if get_platform().device_name == "cpu":
        yield _check_main_memory(parameters)
    else:
        yield _check_gpus(run, parameters)


def count_parameters(run: Run) -> float | None:
    """From the size of the weights' files; None when they are not on this disk."""
    files = list(Path(run.model_path).expanduser().glob("*.safetensors"))
    if not files:
        return None
    import json
    import math

    parameters = 0
    for file in files:
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        parameters += sum(math.prod(entry["shape"]) for key, entry in header.items() if key != "__metadata__")
    return float(parameters)


def _check_main_memory(parameters: float | None) -> Outcome:
    import psutil

    free = psutil.virtual_memory().available
    if parameters is None:
        return Outcome("memory", None, f"CPU, {free / GIB:.1f} GiB free; no weights on this disk to count")
    need = parameters * (TRAINING_BYTES + 2 * ROLLOUT_BYTES)
    found = f"CPU, {free / GIB:.1f} GiB free, about {need / GIB:.2g} GiB needed"
    return Outcome("memory", free >= need, found, "" if free >= need else "use a smaller model, or end other processes")


def _check_gpus(run: Run, parameters: float | None) -> Outcome:
    import torch

    trainer, actor, rollout = (
        run.config.trainer,
        run.config.actor_rollout_ref.actor,
        run.config.actor_rollout_ref.rollout,
    )
    here = torch.cuda.device_count()
    if here < trainer.n_gpus_per_node:
        remedy = (
            f"set trainer.n_gpus_per_node={here} (in the scripts: N_GPUS)"
            if here
            else "run on a machine with GPUs and a CUDA build of torch; to try it without: run_scripts/run_cpu_demo.sh"
        )
        return Outcome("GPUs", False, f"{here} of {trainer.n_gpus_per_node} GPUs on this machine", remedy)
    total = min(torch.cuda.get_device_properties(number).total_memory for number in range(here))
    found = f"{here} GPUs of {total / GIB:.0f} GiB"
    if parameters is None:
        return Outcome("GPUs", None, f"{found}; no weights on this disk to count")
    gpus = trainer.n_gpus_per_node * trainer.nnodes
    adapter = run.config.actor_rollout_ref.model.lora_rank > 0
    resting = 0 if actor.fsdp_config.optimizer_offload and actor.fsdp_config.param_offload else 1
    training = parameters * (4 if adapter else TRAINING_BYTES) / gpus
    server = parameters * ROLLOUT_BYTES / rollout.tensor_model_parallel_size
    found += (
        f"; about {training / GIB:.1f} GiB each for training, {server / GIB:.1f} GiB for a rollout server's weights"
    )
    if training > 0.9 * total:
        remedy = "use more GPUs, LoRA (LORA_RANK=32) or a smaller model"
    elif server > rollout.gpu_memory_utilization * total:
        remedy = "raise actor_rollout_ref.rollout.tensor_model_parallel_size or gpu_memory_utilization"
    elif resting * training + rollout.gpu_memory_utilization * total > total:
        remedy = "lower actor_rollout_ref.rollout.gpu_memory_utilization, or set OFFLOAD=True in the scripts"
    else:
        return Outcome("GPUs", True, found)
    return Outcome("GPUs", False, found, remedy)
