"""SGLS, the schema-guided simulator that stands in for real APIs in rollouts. METHOD 4.

`simulator` answers calls: `validation` rejects an invalid one with a typed error, then the `responders` are
asked in order; what the LLM answered is kept in a `store`.
"""

from recipe_slca.sgls.health import SimulatorDown
from recipe_slca.sgls.observation import Observation
from recipe_slca.sgls.responders import RecordedCall, parse_recorded
from recipe_slca.sgls.simulator import Simulator
from recipe_slca.sgls.single_flight import CacheMiss
from recipe_slca.sgls.tools import Tools
from recipe_slca.sgls.validation import malformed_call

__all__ = [
    "CacheMiss",
    "Observation",
    "RecordedCall",
    "Simulator",
    "SimulatorDown",
    "Tools",
    "malformed_call",
    "parse_recorded",
]
