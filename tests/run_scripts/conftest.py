"""Dry runs of the launchers."""

import os
from pathlib import Path

import pytest
from launching import run_script

os.environ.setdefault("VERL_PLATFORM", "cpu")


@pytest.fixture(scope="session")
def print_arguments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program to take Python's place: it prints its arguments, one a line."""
    program = tmp_path_factory.mktemp("bin") / "print_arguments"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def launch(print_arguments: Path, tmp_path: Path):
    """launch(script, *arguments, **variables) -> the arguments of Python in a dry run."""

    def start(script: str, *arguments: str, **variables: str) -> list[str]:
        settings = {"DRY_RUN": "1", "PYTHON": str(print_arguments), "OUTPUTS": str(tmp_path), **variables}
        done = run_script(script, *arguments, **settings)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return start
