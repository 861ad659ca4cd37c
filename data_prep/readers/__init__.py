"""One module a published layout: columns in, `Conversation` out.

A reader module has NAME (for --layout), DESCRIPTION, COLUMNS (what it reads), DISTINCTIVE (the columns by
which it is recognised, all of which it needs) and `read(row, tool_reader)`. Adding a layout is one module and
its place in READERS.
"""

from collections.abc import Collection
from types import ModuleType

from data_prep.readers import slca_rl, slca_sft, toucan, toucan_sft

READERS: dict[str, ModuleType] = {module.NAME: module for module in (slca_rl, slca_sft, toucan, toucan_sft)}


class UnknownLayout(ValueError):
    """No reader fits the columns; the message lists what was seen and what is known."""


def recognise(columns: Collection[str]) -> str:
    """The name of the layout with these columns. Raises `UnknownLayout`."""
    for name, module in READERS.items():
        if module.DISTINCTIVE <= set(columns):
            return name
    known = "; ".join(f"{name} ({m.DESCRIPTION}): {', '.join(sorted(m.DISTINCTIVE))}" for name, m in READERS.items())
    raise UnknownLayout(f"columns seen: {', '.join(columns) or 'none'}. Layouts known, by their columns: {known}")
