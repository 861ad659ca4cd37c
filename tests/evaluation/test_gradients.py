"""The gradient diagnostic, on a tiny transformers model and hand-made rollouts."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from recipe_slca.evaluation import gradients
from recipe_slca.evaluation.gradients import Rollout, UnusableRollouts, in_batches, measure, read_rollouts, summarise

PAD = 0
MASK = [1, 1, 1, 0, 0, 1, 1]
TOOL = [1, 1, 1, 0, 0, 0, 0]
SUMMARY = [0, 0, 0, 0, 0, 1, 1]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=PAD,
    )
    return Qwen2ForCausalLM(config).eval()


def rollout(seed=0, tool=1.0, summary=-0.5, group="a", padding=0):
    tokens = torch.randint(1, 40, (12,), generator=torch.Generator().manual_seed(seed)).tolist()
    advantages = [tool * t + summary * s for t, s in zip(TOOL, SUMMARY, strict=True)]
    return Rollout(group, [PAD] * padding + tokens[:5], tokens[5:], MASK, advantages)


def record(one, **changes):
    """The rollout as a line of the dump, with padding after its response."""
    runs = [
        {"kind": "tool", "tokens": 3, "text": "", "advantage": one.advantages[0]},
        {"kind": "observation", "tokens": 2, "text": "", "advantage": None},
        {"kind": "summary", "tokens": 2, "text": "", "advantage": one.advantages[-1]},
        {"kind": "observation", "tokens": 4, "text": "", "advantage": None},
    ]
    return {
        "format": "slca-rollouts/1",
        "group": one.group,
        "runs": runs,
        "prompt_ids": one.prompt_ids,
        "response_ids": one.response_ids + [PAD] * 4,
        "response_mask": one.mask + [0] * 4,
        **changes,
    }


def write(path, *records):
    path.write_text("".join(json.dumps(line) + "\n" for line in records), encoding="utf-8")
    return path


def whole_gradient(model, rollouts, temperature=1.0):
    """The gradient of the usual token-mean policy loss over all segments, by plain backward."""
    model.zero_grad()
    tokens = sum(sum(one.mask) for one in rollouts)
    for one in rollouts:
        ids = torch.tensor([one.prompt_ids + one.response_ids])
        log_probs = torch.log_softmax(model(ids).logits[0] / temperature, -1)
        for place, (token, learnable, advantage) in enumerate(
            zip(one.response_ids, one.mask, one.advantages, strict=True)
        ):
            if learnable:
                (-advantage * log_probs[len(one.prompt_ids) + place - 1, token] / tokens).backward(retain_graph=True)
    parts = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return parts


class TestSegmentGradients:
    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_the_two_add_up_to_the_whole_loss(self, model, temperature):
        rollouts = [rollout(0), rollout(1, tool=-0.3, summary=1.1)]
        parts = gradients.segment_gradients(model, rollouts, temperature)
        for tool, summary, whole in zip(
            parts["tool"], parts["summary"], whole_gradient(model, rollouts, temperature), strict=True
        ):
            torch.testing.assert_close(tool + summary, whole, atol=1e-6, rtol=1e-4)

    def test_padding_of_the_prompt_does_not_count(self, model):
        plain, padded = (gradients.segment_gradients(model, [rollout(padding=n)]) for n in (0, 3))
        for one, other in zip(plain["tool"], padded["tool"], strict=True):
            torch.testing.assert_close(one, other)

    def test_a_segment_without_advantage_has_no_gradient(self, model):
        parts = gradients.segment_gradients(model, [rollout(summary=0.0)])
        assert any(part.any() for part in parts["tool"])
        assert not any(part.any() for part in parts["summary"])


class TestMeasure:
    def test_norms_scale_and_cosines_do_not(self, model):
        [once] = measure(model, [[rollout(tool=1.0, summary=-0.5)]])
        [thrice] = measure(model, [[rollout(tool=3.0, summary=-1.5)]])
        assert thrice.norm_tool == pytest.approx(3 * once.norm_tool, rel=1e-4)
        assert thrice.norm_summary == pytest.approx(3 * once.norm_summary, rel=1e-4)
        assert thrice.cosine == pytest.approx(once.cosine, abs=1e-5)
        assert -1 <= once.cosine <= 1

    def test_flipping_one_segment_flips_the_cosine(self, model):
        [one] = measure(model, [[rollout(summary=0.5)]])
        [flipped] = measure(model, [[rollout(summary=-0.5)]])
        assert flipped.cosine == pytest.approx(-one.cosine, abs=1e-5)

    def test_the_same_batch_again_points_the_same_way(self, model):
        first, second = measure(model, [[rollout()], [rollout()]])
        assert (first.cosine_tool_next_batch, first.cosine_summary_next_batch) == (None, None)
        assert second.cosine_tool_next_batch == pytest.approx(1, abs=1e-6)
        assert second.cosine_summary_next_batch == pytest.approx(1, abs=1e-6)

    def test_a_zero_gradient_has_no_cosine(self, model):
        measured = list(measure(model, [[rollout(tool=0.0)], [rollout(1)]]))
        assert (measured[0].norm_tool, measured[0].cosine) == (0, None)
        summary = summarise(measured)
        assert summary["cosine"]["batches"] == 1
        assert summary["cosine"]["std"] is None
        assert summary["norm_tool"]["batches"] == 2


class TestReading:
    def test_a_file(self, tmp_path):
        assert read_rollouts(write(tmp_path / "3.jsonl", record(rollout()))) == [rollout()]

    def test_a_folder_in_order_of_step_without_validation(self, tmp_path):
        for name, group in (("10", "b"), ("9", "a"), ("val_9", "c")):
            write(tmp_path / f"{name}.jsonl", record(rollout(group=group)))
        assert [one.group for one in read_rollouts(tmp_path)] == ["a", "b"]

    def test_rollouts_without_advantages_are_left_out(self, tmp_path):
        without = record(rollout())
        without["runs"][0]["advantage"] = None
        assert read_rollouts(write(tmp_path / "1.jsonl", without, record(rollout(1)))) == [rollout(1)]
        with pytest.raises(UnusableRollouts, match="no rollout with advantages"):
            read_rollouts(write(tmp_path / "1.jsonl", without))

    @pytest.mark.parametrize(
        "changes", [{"format": "other/1"}, {"response_mask": [1]}, {"runs": [{"kind": "tool"}]}, {"runs": 3}]
    )
    def test_a_broken_line_is_named(self, tmp_path, changes):
        path = write(tmp_path / "1.jsonl", record(rollout()), record(rollout(), **changes))
        with pytest.raises(UnusableRollouts, match=r"1\.jsonl, line 2"):
            read_rollouts(path)


@pytest.mark.parametrize(("size", "sizes"), [(1, [2, 3, 1]), (2, [2, 4]), (3, [6]), (5, [6]), (50, [6])])
def test_batches_hold_whole_groups(size, sizes):
    groups = "aabbbc"
    batches = in_batches([rollout(group=group) for group in groups], size)
    assert [len(batch) for batch in batches] == sizes
    assert [one.group for batch in batches for one in batch] == list(groups)


class TestCommand:
    def run(self, tmp_path, model, *options):
        model.save_pretrained(tmp_path / "model")
        write(tmp_path / "1.jsonl", *(record(rollout(seed, group=str(seed // 2))) for seed in range(6)))
        out = tmp_path / "report.json"
        arguments = ["--model", str(tmp_path / "model"), "--rollouts", str(tmp_path), "--batch-size", "2"]
        assert gradients.main([*arguments, "--device", "cpu", "--out", str(out), *options]) == 0
        return json.loads(out.read_text())

    def test_table_and_report(self, tmp_path, model, capsys):
        report = self.run(tmp_path, model)
        assert [batch["rollouts"] for batch in report["batches"]] == [2, 2, 2]
        cosines = [batch["cosine"] for batch in report["batches"]]
        assert report["summary"]["cosine"]["mean"] == pytest.approx(sum(cosines) / 3)
        assert (report["summary"]["cosine"]["min"], report["summary"]["cosine"]["max"]) == (min(cosines), max(cosines))
        assert report["summary"]["cosine_tool_next_batch"]["batches"] == 2
        shown = capsys.readouterr().out
        assert f"{report['summary']['cosine']['mean']:.4g}" in shown
        assert all(name in shown for name in gradients.MEASURES)

    def test_runs_repeat_exactly_and_can_be_shortened(self, tmp_path, model):
        whole = self.run(tmp_path, model)
        assert self.run(tmp_path, model) == whole
        assert self.run(tmp_path, model, "--batches", "1")["batches"] == whole["batches"][:1]

    def test_the_checkpoint_is_left_alone(self, tmp_path, model):
        self.run(tmp_path, model)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
        for one, other in zip(model.parameters(), loaded.parameters(), strict=True):
            assert torch.equal(one, other)

    def test_a_missing_dump_is_a_plain_error(self, tmp_path, capsys):
        assert gradients.main(["--model", "m", "--rollouts", str(tmp_path / "nowhere")]) == 1
        assert "nowhere" in capsys.readouterr().err
