"""Makes the scripted server importable from the tests of this room."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
