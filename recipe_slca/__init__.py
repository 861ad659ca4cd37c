"""SLCA-GRPO: segment-locked credit for tool-calling agents, as a plugin for stock verl.

The method (`segments`, `advantage`, `tool_calls`, `hierr`, `sgls`) imports no trainer; `verl_plugin` holds
the adapters that connect it to verl.
"""
