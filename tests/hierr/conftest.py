"""What the tests of this room share."""

import sys
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parents[1]))  # the scripted server
hypothesis.settings.register_profile("untimed", deadline=None)  # the first example pays for imports
hypothesis.settings.load_profile("untimed")
