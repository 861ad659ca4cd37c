"""The client and the simulator against a real model server: `transformers serve` with a tiny model."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

from recipe_slca.llm_client import ChatClient
from recipe_slca.settings import EndpointSettings, SimulatorSettings
from recipe_slca.sgls import Simulator, Tools
from recipe_slca.tool_calls import ToolCall

START_S = 150
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("transformers") is None, reason="transformers[serving] is not installed"),
]


def make_model(folder) -> None:
    """A two-layer model with random weights and a byte-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    bytes_of_text = Tokenizer(models.BPE())
    bytes_of_text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_of_text.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bytes_of_text.train_from_iterator(
        [], trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_of_text, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The base URL and the name of the model."""
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["transformers", "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_HOME": str(folder / "home")}
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail("transformers serve did not start:\n" + (folder / "log").read_text()[-2000:])
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        server.terminate()
        server.wait(timeout=30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


def test_the_client_gets_text_from_a_real_model(served):
    url, model = served

    async def run():
        endpoint = EndpointSettings(base_urls=[url], model=model, max_tokens=8, timeout_s=60, temperature=0.7)
        client = ChatClient(endpoint, "judge")
        texts = await asyncio.gather(*(client.ask([{"role": "user", "content": f"say {n}"}], str) for n in range(3)))
        metrics = client.metrics()
        await client.close()
        return texts, metrics

    texts, metrics = asyncio.run(run())
    assert all(isinstance(text, str) for text in texts)
    assert (metrics["requests"], metrics["failures"]) == (3, 0)
    assert metrics["prompt_tokens"] > 0 and metrics["completion_tokens"] > 0


def test_the_simulator_lets_a_real_model_answer(served):
    url, model = served
    tools = Tools.from_schemas([{"name": "poem-write", "outputSchema": {"type": "string"}}, {"name": "weather-get"}])
    endpoint = {"base_urls": [url], "model": model, "max_tokens": 12, "timeout_s": 60, "retries": 1}

    async def run():
        simulator = Simulator(SimulatorSettings(responders=["llm"], endpoint=endpoint, max_failure_rate=1.0))
        calls = [ToolCall("poem-write"), ToolCall("poem-write"), ToolCall("weather-get")]
        observations = [await simulator.respond(tools, call) for call in calls]
        metrics = simulator.metrics()
        await simulator.close()
        return observations, metrics

    (poem, again, weather), metrics = asyncio.run(run())
    assert (poem.status, poem.source) == ("ok", "llm") and poem.text
    assert (again.text, again.source) == (poem.text, "cache")
    # Random weights write no JSON: that is an unusable answer, asked for again and then told as such.
    assert weather.status == "service_unavailable"
    assert metrics["slca/sgls/llm_unusable_answers"] == 2
