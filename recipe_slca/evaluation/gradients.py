"""Do the two segments pull a policy in different directions? An offline look at recorded rollouts.

    python -m recipe_slca.evaluation.gradients --model CHECKPOINT --rollouts RUN_DIR/slca_rollouts

For each batch of rollouts it takes the policy gradient of the tool tokens and that of the summary tokens,
each with the advantages that the run gave them, and reports both norms and the cosine between the two. The
paper finds them near-orthogonal. In many dimensions noise is near-orthogonal too, so the cosine between one
segment's gradients on consecutive batches is reported beside it: the two segments differ in direction only
if they agree clearly less with each other than each agrees with itself.

Use the checkpoint that wrote the rollouts, or a close one: the gradient is the on-policy one (ratio 1, so
nothing is clipped; loss aggregated token-mean over the batch, no KL term). Training is not touched. Memory
on the device: the weights, and two gradients in float32; two more in main memory.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

SEGMENTS = ("tool", "summary")
MEASURES = ("norm_tool", "norm_summary", "cosine", "cosine_tool_next_batch", "cosine_summary_next_batch")
DEFAULT_BATCH = 64


class UnusableRollouts(ValueError):
    """A dump that the diagnostic cannot use; the message names the file and line, and what to do."""


@dataclass(frozen=True)
class Rollout:
    """One recorded rollout: its tokens, and for each response token its mask and its advantage."""

    group: str
    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    advantages: list[float]


@dataclass(frozen=True)
class BatchGradients:
    """What one batch shows. Cosines are None where a gradient is zero, or where there is no earlier batch."""

    rollouts: int
    norm_tool: float
    norm_summary: float
    cosine: float | None
    cosine_tool_next_batch: float | None = None
    cosine_summary_next_batch: float | None = None


def read_rollouts(path: Path) -> list[Rollout]:
    """Read a dump file, or the training steps of a folder of them, in order of step.

    Raises `UnusableRollouts` for a line that is no rollout and when no rollout has an advantage.
    """
    files = [path]
    if path.is_dir():
        files = sorted((file for file in path.glob("*.jsonl") if file.stem.isdigit()), key=lambda file: int(file.stem))
    rollouts = [rollout for file in files for rollout in _read_file(file)]
    if not rollouts:
        raise UnusableRollouts(
            f"{path}: no rollout with advantages; use the dump of training steps (validation has no advantages)"
        )
    return rollouts


def in_batches(rollouts: Sequence[Rollout], size: int) -> list[list[Rollout]]:
    """Batches of whole groups, each of at least `size` rollouts; a smaller rest joins the last one."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    batches: list[list[Rollout]] = [[]]
    for group in groups.values():
        if len(batches[-1]) >= size:
            batches.append([])
        batches[-1].extend(group)
    if len(batches) > 1 and len(batches[-1]) < size:
        batches[-2].extend(batches.pop())
    return batches


def segment_gradients(
    model: "PreTrainedModel", rollouts: Sequence[Rollout], temperature: float = 1.0
) -> dict[str, list["Tensor"]]:
    """The policy gradient of each segment over one batch: float32, one tensor for each trainable parameter.

    Each is the gradient of  -(sum over the segment's tokens of advantage * log-probability) / (all tokens of
    the policy in the batch), so that the two add up to the gradient of the whole loss. temperature: that of
    the sampling, by which the logits are divided.
    """
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = {
        segment: [torch.zeros_like(parameter, dtype=torch.float32) for parameter in parameters] for segment in SEGMENTS
    }
    learnable_tokens = sum(sum(rollout.mask) for rollout in rollouts)
    for rollout in rollouts:
        losses = _losses(model, rollout, learnable_tokens, temperature)
        for number, (segment, loss) in enumerate(losses.items()):
            last = number == len(losses) - 1
            parts = torch.autograd.grad(loss, parameters, retain_graph=not last, materialize_grads=True)
            for whole, part in zip(gradients[segment], parts, strict=True):
                whole += part
    return gradients


def measure(
    model: "PreTrainedModel", batches: Iterable[Sequence[Rollout]], temperature: float = 1.0
) -> Iterator[BatchGradients]:
    """Norms and cosines of each batch, in turn."""
    earlier: dict[str, list[Tensor]] = {}
    for batch in batches:
        gradients = segment_gradients(model, batch, temperature)
        cosines = {
            f"cosine_{segment}_next_batch": _cosine(earlier[segment], gradients[segment])
            for segment in SEGMENTS
            if earlier
        }
        norm_tool, norm_summary = (_norm(gradients[segment]) for segment in SEGMENTS)
        yield BatchGradients(
            len(batch), norm_tool, norm_summary, _cosine(gradients["tool"], gradients["summary"]), **cosines
        )
        earlier = {segment: [part.cpu() for part in gradient] for segment, gradient in gradients.items()}


def summarise(measured: Sequence[BatchGradients]) -> dict[str, dict[str, float | int | None]]:
    """Mean, sample standard deviation, least and greatest of each measure over the batches that have it."""
    summary = {}
    for name in MEASURES:
        values = [value for batch in measured if (value := getattr(batch, name)) is not None]
        summary[name] = {
            "batches": len(values),
            "mean": statistics.fmean(values) if values else None,
            "std": statistics.stdev(values) if len(values) > 1 else None,
            "min": min(values, default=None),
            "max": max(values, default=None),
        }
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _read_options(arguments)
    try:
        rollouts = read_rollouts(options.rollouts)
    except (UnusableRollouts, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    from tqdm import tqdm

    batches = in_batches(rollouts, options.batch_size)[: options.batches]
    model = _load(options.model, options.device)
    measured = list(measure(model, tqdm(batches, unit="batch", disable=None), options.temperature))
    summary = summarise(measured)
    _print_table(summary)
    report = {
        "model": str(options.model),
        "rollouts": str(options.rollouts),
        "summary": summary,
        "batches": [vars(batch) for batch in measured],
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"written: {options.out}")
    return 0


def _read_file(path: Path) -> Iterator[Rollout]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rollout = _read_rollout(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise UnusableRollouts(f"{path}, line {number}: not a rollout of slca-rollouts/1 ({reason})") from error
            if rollout is not None:
                yield rollout


def _read_rollout(record: dict[str, Any]) -> Rollout | None:
    """The rollout, or None when the run computed no advantages for it."""
    if record["format"] != "slca-rollouts/1":
        raise ValueError(f"format is {record['format']!r}")
    runs = record["runs"]
    if any(run["advantage"] is None for run in runs if run["kind"] != "observation"):
        return None
    advantages = [run["advantage"] or 0.0 for run in runs for _ in range(run["tokens"])]
    mask, response_ids = record["response_mask"], record["response_ids"]
    if not len(advantages) == len(mask) == len(response_ids):
        raise ValueError(f"{len(response_ids)} response_ids, {len(mask)} mask, {len(advantages)} tokens in runs")
    if not any(mask):
        return None
    # What follows the last token of the policy is padding or an observation that nothing depends on.
    end = len(mask) - mask[::-1].index(1)
    return Rollout(record["group"], record["prompt_ids"], response_ids[:end], mask[:end], advantages[:end])


def _losses(
    model: "PreTrainedModel", rollout: Rollout, learnable_tokens: int, temperature: float
) -> dict[str, "Tensor"]:
    """The loss of each segment that the rollout has and that pulls anywhere."""
    import torch

    from recipe_slca import segments

    device = model.device
    prompt = _without_padding(rollout.prompt_ids, model.config.pad_token_id)
    tokens = torch.tensor([prompt + rollout.response_ids], device=device)
    # The logits before each response token predict it.
    logits = model(input_ids=tokens, use_cache=False).logits[0, len(prompt) - 1 : -1]
    responses = tokens[0, len(prompt) :]
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1).gather(-1, responses.unsqueeze(-1)).squeeze(-1)
    advantages = torch.tensor(rollout.advantages, dtype=torch.float32, device=device)
    masks = segments.split(torch.tensor([rollout.mask], device=device))
    weighted = -advantages * log_probs / learnable_tokens
    return {
        segment: weighted[mask[0]].sum()
        for segment, mask in zip(SEGMENTS, masks, strict=True)
        if bool((advantages * mask[0]).any())
    }


def _without_padding(prompt_ids: list[int], pad_token_id: int | None) -> list[int]:
    start = next((place for place, token in enumerate(prompt_ids) if token != pad_token_id), len(prompt_ids))
    return prompt_ids[start:]


def _norm(gradient: Sequence["Tensor"]) -> float:
    return math.sqrt(sum(float(part.double().square().sum()) for part in gradient))


def _cosine(left: Sequence["Tensor"], right: Sequence["Tensor"]) -> float | None:
    norms = _norm(left) * _norm(right)
    if norms == 0:
        return None
    pairs = zip(left, right, strict=True)
    dot = sum(float((one.to(other.device).double() * other.double()).sum()) for one, other in pairs)
    return dot / norms


def _load(path: str, device: str | None) -> "PreTrainedModel":
    import torch
    from transformers import AutoModelForCausalLM

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    # eval(): a dropout of the checkpoint's config must not blur the measurement.
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(device).eval()


def _print_table(summary: dict[str, dict[str, float | int | None]]) -> None:
    columns = ("batches", "mean", "std", "min", "max")
    print(f"{'':<26}" + "".join(f"{column:>12}" for column in columns))
    for name, values in summary.items():
        print(f"{name:<26}" + "".join(f"{_shown(values[column]):>12}" for column in columns))


def _shown(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    purpose = "Norms and cosine of the policy gradients of the tool and the summary segment."
    parser = argparse.ArgumentParser(prog="python -m recipe_slca.evaluation.gradients", description=purpose)
    parser.add_argument("--model", required=True, help="checkpoint folder in Hugging Face format")
    parser.add_argument("--rollouts", required=True, type=Path, help="a rollout dump file, or the folder of them")
    parser.add_argument("--batch-size", type=int, default=DEFAULT_BATCH, help="least rollouts in a batch (%(default)s)")
    parser.add_argument("--batches", type=int, help="at most this many batches; all by default")
    parser.add_argument("--temperature", type=float, default=1.0, help="that of the rollouts' sampling (%(default)s)")
    parser.add_argument("--device", help="cpu or cuda; by default cuda where there is one")
    parser.add_argument("--out", type=Path, default=Path("gradients.json"), help="JSON report (%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
