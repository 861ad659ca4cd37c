"""Agent loop `slca_tool_agent`: verl's tool agent loop with per-row tools behind the simulator.

One loop object is one rollout. It adds to verl's loop: tools from the row's own schemas, observations for
malformed and invalid calls, limits on calls, observations cut by tokens, a `Trajectory` that says why the
rollout ended, and the segment rewards in the output.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.tool_agent_loop import AgentData, AgentState, ToolAgentLoop
from verl.utils.profiler import simple_timer

from recipe_slca import segments, task, tool_calls
from recipe_slca.settings import Settings, read_settings
from recipe_slca.sgls import Simulator, parse_recorded
from recipe_slca.sgls.observation import error_observation
from recipe_slca.sgls.validation import malformed_call
from recipe_slca.trajectory import CallRecord, Ending, Trajectory, TurnRecord
from recipe_slca.verl_plugin import monitor, segment_output, tool_parser
from recipe_slca.verl_plugin.cache_actor import shared_store
from recipe_slca.verl_plugin.chat_tokens import cut_middle, end_of_turn_token, policy_text
from recipe_slca.verl_plugin.run_config import plain


@dataclass
class _Worker:
    """What all rollouts of one agent loop worker share."""

    config: Any
    settings: Settings
    simulator: Simulator
    end_of_turn: int


_worker: _Worker | None = None


def _shared(config: Any, tokenizer: Any) -> _Worker:
    global _worker
    if _worker is None or _worker.config is not config:
        settings = read_settings(plain(config.get("slca")))
        simulator = Simulator(settings.simulator, shared_store(settings.simulator.cache, "simulator"))
        _worker = _Worker(config, settings, simulator, end_of_turn_token(tokenizer))
    return _worker


@register("slca_tool_agent")
class SlcaToolAgentLoop(ToolAgentLoop):
    """One rollout of a tool-calling policy against the simulator."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        worker = _shared(self.config, self.tokenizer)
        self.settings, self.simulator, self.end_of_turn = worker.settings, worker.simulator, worker.end_of_turn
        # Always our grammar, whatever multi_turn.format says: a call that runs must be one that is rewarded.
        self.tool_parser = tool_parser.ToucanToolParser(self.tokenizer, self.settings.stop_at_tool_call)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Roll out one row. A row that cannot be used, or a simulator that is down, is told to the run's
        monitor, since verl itself only logs it and goes on without the rollout."""
        try:
            self.row_tools = self.simulator.read_tools(task.tool_schemas(row))
            self.recorded = parse_recorded(task.recorded_calls(row))
            embedded = self.settings.tool_prompt == "embedded" or (
                self.settings.tool_prompt == "auto" and task.shows_tools(row["raw_prompt"])
            )
            self.tools = {}
            self.tool_schemas = [] if embedded else task.tool_schemas(row)
            self.trajectory = Trajectory(task.question(row))
            output = await super().run(sampling_params, **row)
        except Exception as error:
            await monitor.report_failed_rollout(row.get("uid"), error)
            raise
        await monitor.report_service("sgls", self.simulator.metrics())
        return self._finish(output)

    async def _handle_generating_state(
        self, agent_data: AgentData, sampling_params: dict[str, Any], ignore_termination: bool = False
    ) -> AgentState:
        # No longer than what is left of the response: anything beyond would be cut off.
        left = self.response_length - len(agent_data.response_mask)
        # The template's end of a turn need not be the model's own end token (base models).
        stop = {*(sampling_params.get("stop_token_ids") or []), self.end_of_turn}
        sampling_params = {**sampling_params, "max_tokens": left, "stop_token_ids": sorted(stop)}
        state = await super()._handle_generating_state(agent_data, sampling_params, ignore_termination)
        if not agent_data.response_ids:
            self.trajectory.ended = "aborted"
            return AgentState.TERMINATED
        self.trajectory.turns.append(TurnRecord(policy_text(self.tokenizer, agent_data.response_ids)))
        if state == AgentState.TERMINATED:
            self.trajectory.ended = self._why_generation_ended(agent_data)
        return state

    def _why_generation_ended(self, agent_data: AgentData) -> Ending:
        calls_nothing = not tool_calls.parse(self.trajectory.turns[-1].text).blocks
        complete = agent_data.response_ids[-1] in (self.end_of_turn, self.tokenizer.eos_token_id)
        fits = len(agent_data.response_mask) <= self.response_length
        if len(agent_data.response_mask) >= self.response_length and not (complete and fits and calls_nothing):
            return "response_full"
        return "replied" if calls_nothing else "turn_limit"

    async def _handle_processing_tools_state(self, agent_data: AgentData) -> AgentState:
        turn = self.trajectory.turns[-1]
        if len(self.trajectory.calls) >= self.settings.limits.max_calls:
            self.trajectory.ended = "call_limit"
            return AgentState.TERMINATED
        with simple_timer("tool_calls", agent_data.metrics):
            turn.calls = await self._answer(turn.text)
        observations = [{"role": "tool", "content": call.observation} for call in turn.calls]
        return await self._append(agent_data, observations)

    async def _answer(self, text: str) -> list[CallRecord]:
        """Answer all blocks of a turn concurrently, in the order written."""
        history = self.trajectory.calls
        limits = self.settings.limits
        left = min(limits.max_calls_per_turn, limits.max_calls - len(history))

        async def answer(call: tool_calls.ToolCall | None, reason: str, position: int) -> CallRecord:
            if position >= left:
                limit = {"type": "call_limit", "expected": f"at most {left} calls"}
                observation = error_observation(limit, "validation")
            elif call is None:
                observation = malformed_call(reason)
            else:
                observation = await self.simulator.respond(self.row_tools, call, history, self.recorded)
            shown = cut_middle(self.tokenizer, observation.text, limits.max_observation_tokens)
            name, arguments = (call.name, call.arguments) if call else ("", {})
            return CallRecord(name, arguments, shown, observation.status, observation.source)

        blocks = tool_calls.parse(text).blocks
        requests = [(call, block.error or "") for block in blocks for call in block.calls or (None,)]
        return list(await asyncio.gather(*(answer(*request, i) for i, request in enumerate(requests))))

    async def _append(self, agent_data: AgentData, observations: list[dict[str, str]]) -> AgentState:
        """Append observations as the chat template renders them; end when no room is left to go on."""
        before = list(agent_data.messages)
        agent_data.messages.extend(observations)
        tokens, mask, log_probs = agent_data.prompt_ids, agent_data.response_mask, agent_data.response_logprobs
        if tokens[-1] != self.end_of_turn:
            # A turn that was stopped at </tool_call> lacks the token with which the template closes a turn.
            tokens, mask = tokens + [self.end_of_turn], mask + [0]
            log_probs = log_probs + [0.0] if log_probs else log_probs
        merged, mask, log_probs = await self.ct_merge_context_msg(
            before, agent_data.messages, tokens, mask, log_probs or None, tools=self.tool_schemas
        )
        if len(mask) >= self.response_length:
            self.trajectory.ended = "response_full"
            return AgentState.TERMINATED
        agent_data.prompt_ids, agent_data.response_mask = merged.token_ids, mask
        agent_data.response_logprobs = log_probs or []
        agent_data.user_turns += 1
        return AgentState.GENERATING

    def _build_assistant_message(self, content: str, agent_data: AgentData) -> dict[str, Any]:
        return {"role": "assistant", "content": policy_text(self.tokenizer, agent_data.response_ids)}

    def _finish(self, output: AgentLoopOutput) -> AgentLoopOutput:
        if not output.response_mask:
            # Nothing was generated. verl cannot hold an empty response: give it one token of no segment.
            output.prompt_ids, output.response_ids = output.response_ids or output.prompt_ids, [self.end_of_turn]
            output.response_mask = [0]
            output.response_logprobs = [0.0] if output.response_logprobs is not None else None
        runs = segments.find_runs(torch.tensor([output.response_mask]))
        output.extra_fields["trajectory"] = self.trajectory.to_dict()
        output.extra_fields["turn_spans"] = torch.stack((runs.start, runs.end), dim=1).tolist()
        return segment_output.SegmentRewardOutput(**{name: getattr(output, name) for name in output.model_fields_set})
