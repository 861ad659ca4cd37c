"""A rollout step with `slca_tool_agent` against verl's own `tool_agent`: `python tests/benchmarks/bench_rollout.py`.

Both run in one `AgentLoopManager` of verl's on Ray, with one worker and one transformers rollout server, in turns.
The tiny model is trained here, in seconds, to call a tool twice and then reply. Decoding is greedy, verl's function
tool returns at once, and the simulator replays the same texts, so that both loops must write the same tokens; the
benchmark fails when they do not. Rewards are left out: verl's loop has none.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OURS, PEER = "slca_tool_agent", "tool_agent"
CITIES = ("Oslo", "Lima", "Cairo", "Quito")
DAYS = ("today", "tomorrow")
ROLLOUTS_OF_A_CITY = 8
TURNS = len(DAYS) + 1
REPEATS = 11
MEASURED = ("time", "CPU of worker and server", "CPU of the worker")
TRAINING_STEPS = 800
FUNCTION_TOOL = '''
from verl.tools.function_tool import function_tool


@function_tool
async def weather(city: str, day: str) -> str:
    """Weather of a city.

    Args:
        city: Name of the city.
        day: The day asked for.
    """
    return f"{city} {day}: mild"
'''


def run() -> list[dict[str, Any]]:
    """Medians of a step, in a process of its own that ends Ray with it."""
    environment = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "RAY_worker_niceness": "0",  # Ray's workers would wait for whatever else runs on the machine
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, folder], env=environment, stdout=sys.stderr, check=True)
        return json.loads((Path(folder) / "rows.json").read_text())


def measure(folder: Path) -> list[dict[str, Any]]:
    """Train the model in `folder`, start Ray, and measure."""
    import psutil
    import ray

    (folder / "tools.py").write_text(FUNCTION_TOOL)
    schema = train(folder)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        manager, server = start(folder)
        actors = (manager.agent_loop_workers[0], server)
        processes = [psutil.Process(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))) for actor in actors]

        def now() -> list[float]:
            cpu_of_worker, cpu_of_server = (sum(process.cpu_times()[:2]) for process in processes)
            return [perf_counter(), cpu_of_worker + cpu_of_server, cpu_of_worker]

        seconds = {OURS: [], PEER: []}
        written = {}
        for repeat in range(-1, REPEATS):  # the first of each is not counted: imports, caches
            for name in (OURS, PEER) if repeat % 2 else (PEER, OURS):
                rows = prompts(name, schema)
                begin = now()
                output = manager.generate_sequences(rows)
                spent = [end - start for start, end in zip(begin, now(), strict=True)]
                written[name] = check(output)
                if repeat >= 0:
                    seconds[name].append(spent)
    finally:
        ray.shutdown()
    if written[OURS] != written[PEER]:
        raise RuntimeError("the two loops wrote different tokens, so their times do not compare")
    rollouts = len(CITIES) * ROLLOUTS_OF_A_CITY
    tokens = sum(map(sum, (mask for _, mask in written[OURS])))
    step = f"a step of {rollouts} rollouts, {TURNS} turns, {tokens} tokens"
    medians = {name: [median(values) for values in zip(*repeats, strict=True)] for name, repeats in seconds.items()}
    return [
        {"what": f"{step}: {what}", "ours": ours, "peer": peer, "ratio": ours / peer, "unit": "s"}
        for what, ours, peer in zip(MEASURED, medians[OURS], medians[PEER], strict=True)
    ]


def train(folder: Path) -> dict[str, Any]:
    """Save a model and its tokenizer that know the conversations by heart; returns the tool's schema."""
    import torch
    from verl.tools.function_tool import load_function_tools_from_path

    from data_prep.demo_model import make_model, make_tokenizer

    (tool,) = load_function_tools_from_path(str(folder / "tools.py"))
    schema = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
    conversations = [conversation(city) for city in CITIES]
    texts = [message["content"] for messages in conversations for message in messages]
    tokenizer = make_tokenizer([*texts, json.dumps(schema)] * 4, [], 700)
    model = make_model(tokenizer, seed=0)
    samples = [tokenizer.apply_chat_template(messages, tools=[schema], tokenize=False) for messages in conversations]
    batch = tokenizer(samples, padding=True, padding_side="right", return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, messages in enumerate(conversations):
        question = tokenizer.apply_chat_template(messages[:1], tools=[schema], add_generation_prompt=True)["input_ids"]
        labels[row, : len(question)] = -100  # of which nothing can tell the city
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    for _ in range(TRAINING_STEPS):
        outcome = model(**batch, labels=labels)
        if not ((outcome.logits[:, :-1].argmax(-1) != labels[:, 1:]) & (labels[:, 1:] >= 0)).any():
            break  # every token that decoding takes is the right one
        optimizer.zero_grad()
        outcome.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return schema


def conversation(city: str) -> list[dict[str, str]]:
    """A question, a call and its response for each day, and the reply."""
    messages = [{"role": "user", "content": f"How is the weather in {city}?"}]
    for recorded in recorded_calls(city):
        call = {"name": recorded["name"], "arguments": recorded["arguments"]}
        messages.append({"role": "assistant", "content": f"<tool_call>\n{json.dumps(call)}\n</tool_call>"})
        messages.append({"role": "tool", "content": recorded["response"]})
    reply = f"In {city} it is mild today, and it will be just as mild tomorrow. Take a light coat with you."
    return [*messages, {"role": "assistant", "content": reply}]


def recorded_calls(city: str) -> list[dict[str, Any]]:
    """The calls of the conversation, with what verl's function tool returns to each."""
    return [
        {"name": "weather", "arguments": {"city": city, "day": day}, "response": f"{city} {day}: mild"} for day in DAYS
    ]


def start(folder: Path) -> tuple[Any, Any]:
    """verl's agent loop manager, and the rollout server behind it."""
    import hydra
    import ray
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import get_router_handle

    from recipe_slca.verl_plugin.cpu.generation_server import GenerationServer
    from recipe_slca.verl_plugin.monitor import open_monitor

    overrides = [
        f"actor_rollout_ref.model.path={folder}",
        f"actor_rollout_ref.rollout.multi_turn.function_tool_path={folder}/tools.py",
        "actor_rollout_ref.rollout.multi_turn.format=hermes",
        "+slca.stop_at_tool_call=false",  # verl's parser for this format does not stop there either
        "slca.simulator.responders=[replay]",
        "data.max_prompt_length=512",
        "data.max_response_length=256",
    ]
    with hydra.initialize_config_module("recipe_slca.config", version_base=None):
        config = hydra.compose("slca_cpu", overrides)
    OmegaConf.set_struct(config, False)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    server = ray.remote(GenerationServer).options(num_cpus=0, max_concurrency=1000).remote(str(folder), rollout)
    client = LLMServerClient(config=config, load_balancer_handle=get_router_handle(servers={"server": server}))
    manager = AgentLoopManager.create(config=config, llm_client=client)
    # As in a training run, where rollouts report to it. It lives as long as its handle.
    manager.monitor = open_monitor(max_dumped=0, rollouts_per_group=ROLLOUTS_OF_A_CITY)
    return manager, server


def prompts(agent: str, schema: dict[str, Any]) -> Any:
    """A step's rows for the agent loop of that name."""
    import numpy as np
    from verl import DataProto

    cities = [city for city in CITIES for _ in range(ROLLOUTS_OF_A_CITY)]
    columns = {
        "raw_prompt": [conversation(city)[:1] for city in cities],
        "tools": [json.dumps([schema])] * len(cities),
        "extra_info": [{"recorded_calls": recorded_calls(city)} for city in cities],
        "uid": cities,
        "agent_name": [agent] * len(cities),
    }
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(len(values), dtype=object)
        arrays[name][:] = values
    return DataProto(non_tensor_batch=arrays, meta_info={"validate": True, "global_steps": 1})


def check(output: Any) -> list[tuple[list[int], list[int]]]:
    """Each rollout's response tokens and mask. Raises `RuntimeError` when a rollout is not the whole conversation."""
    turns = set(output.non_tensor_batch["__num_turns__"].tolist())
    if turns != {2 * TURNS}:
        raise RuntimeError(f"the model did not learn its conversations: rollouts of {sorted(turns)} turns")
    responses, masks = output.batch["responses"].tolist(), output.batch["response_mask"].tolist()
    return list(zip(responses, masks, strict=True))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
        (target / "rows.json").write_text(json.dumps(measure(target)))
    else:
        for row in run():
            print(f"{row['what']:<72} {row['ours']:>7.3f} {row['peer']:>7.3f} {row['unit']}  x{row['ratio']:.3f}")
