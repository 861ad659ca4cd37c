"""A training checkpoint as a Hugging Face folder that transformers and vLLM load.

    python -m recipe_slca.evaluation.export outputs/my-run/checkpoints exports/my-model

CHECKPOINT is a `global_step_N` folder of the RL or the SFT trainer, or the folder that holds these: then the
newest one. verl's model merger joins the weight shards; LoRA adapters are merged into the weights. The chat
template shows tools as training did, and the model card holds data, settings, commit and results. The folder
appears under its name only when it is complete.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipe_slca.evaluation.model_card import find_run_folder, model_card

LATEST = "latest_checkpointed_iteration.txt"


class ExportError(RuntimeError):
    """An export that cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a checkpoint's parts are.

    step_folder: its `global_step_N` folder; shards: the folder with weights, `fsdp_config.json` and
    `huggingface/` (config and tokenizer).
    """

    step_folder: Path
    shards: Path


def find_checkpoint(path: Path) -> Checkpoint:
    """Find the checkpoint that `path` names. Raises `ExportError`."""
    if not path.is_dir():
        raise ExportError(f"{path} is no folder; give a global_step_N folder or the folder that holds these")
    if (path / LATEST).is_file():
        step = (path / LATEST).read_text(encoding="utf-8").strip()
        path = path / f"global_step_{step}"
        if not path.is_dir():
            raise ExportError(f"{path.parent / LATEST} names step {step}, but {path} is missing")
    if path.name == "actor":
        path = path.parent
    for shards in (path / "actor", path):
        if (shards / "fsdp_config.json").is_file():
            world_size = json.loads((shards / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"]
            names = [f"model_world_size_{world_size}_rank_{rank}.pt" for rank in range(world_size)]
            missing = [name for name in names if not (shards / name).is_file()]
            if missing:
                raise ExportError(f"{shards} lacks {', '.join(missing)}; the checkpoint is not complete")
            if not (shards / "huggingface" / "config.json").is_file():
                raise ExportError(f"{shards / 'huggingface'} has no config.json; the checkpoint is not complete")
            return Checkpoint(path, shards)
    raise ExportError(f"{path} holds no FSDP checkpoint: no fsdp_config.json in it or in its actor/ folder")


def export(checkpoint: Checkpoint, output: Path, tool_prompt: str, run: Path | None, results: list[Path]) -> None:
    """Write `output` from a checkpoint.

    tool_prompt: "embedded" gives the chat template that shows tools as our data does, "template" keeps the
        checkpoint's own.

    Raises `ExportError`; nothing is left under `output` then.
    """
    if output.exists():
        raise ExportError(f"{output} exists; give another name or remove it")
    with _appearing_when_complete(output) as folder:
        _merge_shards(checkpoint.shards, folder)
        if (folder / "lora_adapter").is_dir():
            merge_adapter(folder)
        _write_tokenizer(folder, tool_prompt)
        for weights in folder.glob("*.safetensors"):
            shutil.copymode(folder / "config.json", weights)  # written for their owner alone
        card = model_card(output.name, folder, checkpoint.step_folder, tool_prompt, run, results)
        (folder / "README.md").write_text(card, encoding="utf-8")


@contextlib.contextmanager
def _appearing_when_complete(output: Path) -> Iterator[Path]:
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(output)
    except OSError as error:
        raise ExportError(f"cannot write {output}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _merge_shards(shards: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(shards), "--target_dir", str(folder)]
    merger = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if merger.returncode:
        tail = "\n".join(merger.stdout.splitlines()[-15:])
        raise ExportError(f"verl's model merger failed on {shards} (status {merger.returncode}):\n{tail}")


def merge_adapter(folder: Path) -> None:
    """Add the LoRA adapter that verl's merger wrote beside the base weights to these.

    Raises `ExportError` when its scale is not on record: with the merger's stand-in of 0 it would add nothing.
    """
    adapter = folder / "lora_adapter"
    if not json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8")).get("lora_alpha"):
        raise ExportError("the checkpoint has LoRA weights but no lora_alpha (lora_train_meta.json is missing)")

    import peft
    import torch
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    merged = peft.PeftModel.from_pretrained(base, adapter).merge_and_unload(safe_merge=True)
    for weights in folder.glob("model*.safetensors*"):
        weights.unlink()
    merged.save_pretrained(folder)
    shutil.rmtree(adapter)


def _write_tokenizer(folder: Path, tool_prompt: str) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    from recipe_slca.evaluation.chat_template import with_training_tools

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.chat_template:
        raise ExportError("the checkpoint's tokenizer has no chat template; train with one, or add it to huggingface/")
    if tool_prompt == "embedded":
        tokenizer.chat_template = with_training_tools(tokenizer.chat_template)
        tokenizer.save_pretrained(folder)
    if not (folder / "generation_config.json").is_file():
        GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id).save_pretrained(
            folder
        )


def main() -> int:
    """Export as the command line says. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--tool-prompt",
        choices=["embedded", "template"],
        default="embedded",
        help="embedded: tools shown as in our data; template: the checkpoint's own chat template is kept",
    )
    parser.add_argument("--run", type=Path, help="the run's folder, with its config (default: looked for upwards)")
    parser.add_argument("--results", type=Path, nargs="*", default=[], help="further results.json files for the card")
    arguments = parser.parse_args()
    try:
        checkpoint = find_checkpoint(arguments.checkpoint.resolve())
        run = arguments.run or find_run_folder(checkpoint.step_folder)
        export(checkpoint, arguments.output.resolve(), arguments.tool_prompt, run, arguments.results)
    except ExportError as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    print(f"exported {checkpoint.step_folder.name} to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
