"""The house's walls: what imports what, how long files are, and how text is written."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE = 450
EM_DASH = chr(0x2014)
SOURCES = sorted(path for package in ("recipe_slca", "data_prep") for path in (ROOT / package).rglob("*.py"))
METHOD_ROOMS = [
    path
    for path in SOURCES
    if path.parts[len(ROOT.parts)] == "recipe_slca"
    and path.parts[len(ROOT.parts) + 1] not in ("verl_plugin", "doctor.py", "doctor")
]
DATA_PREP = [path for path in SOURCES if path.parts[len(ROOT.parts)] == "data_prep"]


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere, inside functions too; with `from a import b`, also `a.b`."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: line {node.lineno} imports relatively; name the module in full")
        elif isinstance(node, ast.ImportFrom):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def imports_of(path: Path, *packages: str) -> list[str]:
    return sorted(m for m in imported(path) if any(m == package or m.startswith(f"{package}.") for package in packages))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", METHOD_ROOMS, ids=relative)
def test_method_rooms_know_nothing_of_verl(path: Path):
    assert imports_of(path, "verl", "ray", "recipe_slca.verl_plugin") == []


@pytest.mark.parametrize("path", [path for path in METHOD_ROOMS if "evaluation" not in path.parts], ids=relative)
def test_only_the_evaluation_uses_the_data_preparation(path: Path):
    assert imports_of(path, "data_prep") == []


@pytest.mark.parametrize("path", DATA_PREP, ids=relative)
def test_data_preparation_knows_nothing_of_the_plugin(path: Path):
    assert imports_of(path, "verl", "ray", "recipe_slca.verl_plugin") == []


@pytest.mark.parametrize("name", ["segments.py", "advantage.py", "tool_calls.py", "settings.py"])
def test_arrows_go_down_only(name: str):
    rooms = [path.stem for path in METHOD_ROOMS if path.stem not in ("segments", "advantage", "tool_calls", "settings")]
    above = {f"recipe_slca.{room}" for room in rooms if room != "__init__"}
    above |= {f"recipe_slca.{room}" for room in ("hierr", "sgls", "report", "evaluation")}
    assert imports_of(ROOT / "recipe_slca" / name, *above) == []


def test_method_rooms_load_without_verl():
    """Also what they import in turn: none brings verl or Ray in."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in METHOD_ROOMS]
    light = [name for name in names if not name.endswith("__main__") and ".evaluation" not in name]
    code = f"""
import importlib, sys
for name in {light!r}:
    importlib.import_module(name)
print(sorted(module for module in sys.modules if module.split(".")[0] in ("verl", "ray")))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_file_is_long(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_the_long_dash_is_not_used():
    found = []
    for path in repository_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # not a text file
        found += [f"{relative(path)}:{number}" for number, line in enumerate(lines, 1) if EM_DASH in line]
    assert found == []
