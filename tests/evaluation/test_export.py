"""Export: checkpoints as verl writes them become folders that transformers loads, with template and card."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from conftest import REPOSITORY, environment

from recipe_slca.evaluation.chat_template import MARK
from recipe_slca.evaluation.export import ExportError, export, find_checkpoint, merge_adapter
from recipe_slca.evaluation.model_card import NOT_RECORDED, find_run_folder, model_card

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model():
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    return transformers.Qwen2ForCausalLM(config)


def write_tokenizer(folder, template=TEMPLATE):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(["<pad>", "<|im_end|>", *"abcdefgh"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<pad>"
    )
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)


def write_checkpoint(shards, model, state):
    """A checkpoint of one rank, in the layout of verl's FSDP checkpoint manager."""
    shards.mkdir(parents=True)
    (shards / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    torch.save(state, shards / "model_world_size_1_rank_0.pt")
    model.config.architectures = ["Qwen2ForCausalLM"]
    model.config.save_pretrained(shards / "huggingface")
    write_tokenizer(shards / "huggingface")


@pytest.fixture
def run_folder(tmp_path):
    """A run with a checkpoint of step 3, its config and its results."""
    model = tiny_model()
    write_checkpoint(tmp_path / "run/checkpoints/global_step_3/actor", model, model.state_dict())
    (tmp_path / "run/checkpoints/latest_checkpointed_iteration.txt").write_text("3")
    return tmp_path / "run"


def export_model(checkpoint, output, *arguments):
    command = ["bash", str(REPOSITORY / "run_scripts/export_model.sh"), str(checkpoint), str(output), *arguments]
    return subprocess.run(command, env=environment(OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=300)


def test_the_newest_checkpoint_is_exported_whole(run_folder, tmp_path):
    pytest.importorskip("verl")
    done = export_model(run_folder / "checkpoints", tmp_path / "exports/model")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "exports").iterdir()] == ["model"]
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exports/model")
    expected = tiny_model().to(torch.bfloat16).state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exports/model")
    assert tokenizer.chat_template == f"{MARK}{tokenizer.chat_template[len(MARK) :]}"
    tools = [{"type": "function", "function": {"name": "weather"}}]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tools=tools, tokenize=False)
    assert "<tools>" in prompt and '"name":"weather"' in prompt
    assert (tmp_path / "exports/model/generation_config.json").is_file()
    assert "global_step_3" in (tmp_path / "exports/model/README.md").read_text()


def test_an_existing_folder_is_left_alone(run_folder):
    with pytest.raises(ExportError, match="checkpoints exists"):
        export(find_checkpoint(run_folder / "checkpoints"), run_folder / "checkpoints", "embedded", None, [])


def test_lora_weights_are_merged_into_the_model(tmp_path):
    pytest.importorskip("verl")
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(tiny_model(), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    shards = tmp_path / "global_step_1"
    write_checkpoint(shards, model.base_model.model, model.state_dict())
    (shards / "lora_train_meta.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM"}))
    done = export_model(shards, tmp_path / "model", "--tool-prompt", "template")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "model/lora_adapter").exists()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    expected = model.merge_and_unload().state_dict()
    assert loaded.keys() == expected.keys()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.allclose(expected[name], tiny_model().state_dict()[name], atol=0.1)
    for name, value in loaded.items():
        torch.testing.assert_close(value.float(), expected[name].float(), atol=0.03, rtol=0.03)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.chat_template == TEMPLATE


def test_an_adapter_without_its_scale_is_refused(tmp_path):
    (tmp_path / "lora_adapter").mkdir()
    (tmp_path / "lora_adapter/adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 0}))
    with pytest.raises(ExportError, match="no lora_alpha"):
        merge_adapter(tmp_path)


def test_a_broken_checkpoint_leaves_nothing_behind(run_folder, tmp_path):
    pytest.importorskip("verl")
    shards = run_folder / "checkpoints/global_step_3/actor"
    (shards / "model_world_size_1_rank_0.pt").write_bytes(b"cut off")
    (tmp_path / "exports").mkdir()
    done = export_model(run_folder / "checkpoints", tmp_path / "exports/model")
    assert done.returncode == 1
    assert "verl's model merger failed" in done.stderr
    assert list((tmp_path / "exports").iterdir()) == []


def test_a_checkpoint_is_found_by_any_of_its_names(run_folder):
    step = run_folder / "checkpoints/global_step_3"
    for path in (step.parent, step, step / "actor"):
        found = find_checkpoint(path)
        assert (found.step_folder, found.shards) == (step, step / "actor")


def test_what_a_checkpoint_lacks_is_named(run_folder, tmp_path):
    with pytest.raises(ExportError, match="is no folder"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ExportError, match="no FSDP checkpoint"):
        find_checkpoint(run_folder)
    step = run_folder / "checkpoints/global_step_3"
    shutil.rmtree(step / "actor/huggingface")
    with pytest.raises(ExportError, match="has no config.json"):
        find_checkpoint(step)
    (step / "actor/model_world_size_1_rank_0.pt").unlink()
    with pytest.raises(ExportError, match="lacks model_world_size_1_rank_0.pt"):
        find_checkpoint(step)
    shutil.rmtree(step)
    with pytest.raises(ExportError, match="names step 3, but"):
        find_checkpoint(step.parent)


@pytest.fixture
def exported(tmp_path):
    (tmp_path / "export").mkdir()
    (tmp_path / "export/config.json").write_text(json.dumps({"dtype": "bfloat16"}))
    return tmp_path / "export"


def test_the_card_holds_what_the_run_recorded(run_folder, exported, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": ["a", "b"]}), tmp_path / "rl.parquet")
    config = {
        "algorithm": {"adv_estimator": "slca", "slca": {"tool_weight": 0.7}},
        "data": {"train_files": [str(tmp_path / "rl.parquet")], "val_files": "gone.parquet"},
        "actor_rollout_ref": {"model": {"path": "Qwen/Qwen2.5-7B-Instruct"}},
        "slca": {"simulator": {"endpoint": {"model": "/models/simulator", "base_urls": ["http://10.1.2.3/v1"]}}},
    }
    (run_folder / ".hydra").mkdir()
    (run_folder / ".hydra/config.yaml").write_text(yaml.safe_dump(config))
    (run_folder / "commit.txt").write_text("0123abc\n")
    (run_folder / "eval").mkdir()
    (run_folder / "eval/results.json").write_text(json.dumps({"success": {"mean": 0.79134}, "note": "a | <b>"}))
    step = run_folder / "checkpoints/global_step_3"
    assert find_run_folder(step) == run_folder
    card = model_card("model", exported, step, "embedded", run_folder, [])
    assert yaml.safe_load(card.split("---")[1])["base_model"] == "Qwen/Qwen2.5-7B-Instruct"
    for line in (
        "- `data.train_files`: rl.parquet, 2 rows",
        "- `data.val_files`: gone.parquet",
        '| `algorithm.slca` | {"tool_weight": 0.7} |',
        '| `slca.simulator.endpoint.model` | "simulator" |',
        "- trained at `0123abc`",
        "### eval/results.json",
        "| success.mean | 0.7913 |",
        "| note | a \\| &lt;b> |",
    ):
        assert line in card.splitlines()
    assert "10.1.2.3" not in card and str(tmp_path) not in card


def test_the_card_says_what_is_not_on_record(exported, tmp_path):
    card = model_card("model", exported, tmp_path / "global_step_3", "embedded", None, [])
    assert card.count(NOT_RECORDED) == 3


def test_help_is_light():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "recipe_slca.evaluation.export", "--help"],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert not {"torch", "transformers", "pyarrow"} & {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
