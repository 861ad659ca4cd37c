"""The transformers rollout against transformers itself."""

import asyncio
from types import SimpleNamespace

import pytest
import torch

from data_prep.demo_model import make_model, make_tokenizer
from recipe_slca.verl_plugin.cpu.generation_server import GenerationServer

GREEDY = {"temperature": 0.0}
CONFIG = SimpleNamespace(prompt_length=64, response_length=48, max_num_seqs=4, seed=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer(["some words to learn tokens from"] * 3, [], 400)
    tokenizer.save_pretrained(folder)
    make_model(tokenizer, seed=3).save_pretrained(folder)
    return folder


@pytest.fixture
def server(folder):
    return GenerationServer(str(folder), CONFIG)


def together(server, *requests):
    async def all_of_them():
        return await asyncio.gather(
            *(server.generate("id", prompt_ids=prompt, sampling_params=sampling) for prompt, sampling in requests),
            return_exceptions=True,
        )

    return asyncio.run(asyncio.wait_for(all_of_them(), 120))


def prompts(count):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(10, 250, (5 + 3 * i,), generator=generator).tolist() for i in range(count)]


def test_batched_greedy_generation_is_that_of_transformers_alone(server):
    outputs = together(server, *((prompt, GREEDY | {"max_tokens": 12 + i}) for i, prompt in enumerate(prompts(6))))
    for i, (prompt, output) in enumerate(zip(prompts(6), outputs, strict=True)):
        alone = server._model.generate(torch.tensor([prompt]), max_new_tokens=12 + i, do_sample=False)
        expected = alone[0, len(prompt) :].tolist()
        assert output.token_ids == expected


def test_requests_that_come_later_join_and_change_nothing(folder):
    config = SimpleNamespace(**{**vars(CONFIG), "max_num_seqs": 6})
    server = GenerationServer(str(folder), config)
    steps = []
    forward = server._model.forward
    server._model.forward = lambda **inputs: steps.append(len(inputs["input_ids"])) or forward(**inputs)
    budgets = [40, 5, 30, 8, 20, 12, 25, 3]

    async def staggered():
        async def ask(number, prompt):
            while len(steps) < 3 * number:
                await asyncio.sleep(0)
            return await server.generate("id", prompt, GREEDY | {"max_tokens": budgets[number]})

        return await asyncio.gather(*(ask(number, prompt) for number, prompt in enumerate(prompts(8))))

    outputs = asyncio.run(asyncio.wait_for(staggered(), 120))
    assert max(steps) > 3
    assert len(steps) < sum(budgets) / 2
    del server._model.forward
    for prompt, output, budget in zip(prompts(8), outputs, budgets, strict=True):
        alone = server._model.generate(torch.tensor([prompt]), max_new_tokens=budget, do_sample=False)
        assert output.token_ids == alone[0, len(prompt) :].tolist()
        logits = server._model(torch.tensor([prompt + output.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(output.token_ids).unsqueeze(1)).squeeze(1)
        assert output.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_log_probs_are_those_of_the_sampled_tokens(server):
    prompt = prompts(1)[0]
    (output,) = together(server, (prompt, {"temperature": 0.7, "top_p": 1.0, "max_tokens": 10}))
    logits = server._model(torch.tensor([prompt + output.token_ids])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits / 0.7, -1).gather(1, torch.tensor(output.token_ids).unsqueeze(1)).squeeze(1)
    assert output.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_generation_stops_at_its_own_stop_token_and_keeps_it(folder, server):
    prompt = prompts(1)[0]
    (free,) = together(GenerationServer(str(folder), CONFIG), (prompt, GREEDY | {"max_tokens": 10}))
    stop = free.token_ids[4]
    first = free.token_ids.index(stop)
    stopped, other = together(
        server, (prompt, GREEDY | {"stop_token_ids": [stop], "max_tokens": 10}), (prompt, GREEDY | {"max_tokens": 10})
    )
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert other.token_ids == free.token_ids


def test_response_budget_holds_without_an_explicit_limit(server):
    (output,) = together(server, (prompts(1)[0], GREEDY))
    assert len(output.token_ids) <= CONFIG.response_length


def test_top_p_close_to_zero_is_greedy(server):
    prompt = prompts(1)[0]
    nucleus, greedy = together(
        server, (prompt, {"temperature": 1.0, "top_p": 1e-6, "max_tokens": 8}), (prompt, GREEDY | {"max_tokens": 8})
    )
    assert nucleus.token_ids == greedy.token_ids


def test_same_seed_samples_the_same(folder):
    request = (prompts(1)[0], {"temperature": 1.0, "max_tokens": 16})
    first, second = (together(GenerationServer(str(folder), CONFIG), request)[0].token_ids for _ in range(2))
    assert first == second


def test_failed_generation_is_told_to_its_callers_and_the_server_goes_on(server):
    outputs = together(server, ([10**9], GREEDY), ([11, 12], GREEDY | {"temperature": 1.0, "max_tokens": 3}))
    assert isinstance(outputs[0], IndexError)
    assert len(outputs[1].token_ids) <= 3


def test_weights_that_do_not_fit_are_refused(server):
    with pytest.raises(ValueError, match="weights do not fit"):
        asyncio.run(server.update_weights({"nonsense": torch.zeros(1)}, 1))


def test_updated_weights_are_used(server):
    prompt = prompts(1)[0]
    named = {name: torch.zeros_like(tensor) for name, tensor in server._model.state_dict().items()}
    asyncio.run(server.update_weights(named, 5))
    (output,) = together(server, (prompt, GREEDY | {"max_tokens": 4}))
    assert set(output.token_ids) == {0}
    assert output.extra_fields["global_steps"] == 5
