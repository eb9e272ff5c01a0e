"""The rules of the house, read from the source: who imports whom, and how large a file may grow."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mrtf_fedml"
SOURCES = sorted(PACKAGE.rglob("*.py"))

#: What each room may import of the others. Leaves of the package come first.
LEAVES = {"errors", "phases", "settings", "randomness", "version"}
ROOMS = {
    "settings": {"errors"},
    "process": {"errors"},
    "refinery": {"errors", "phases", "settings"},
    "models": LEAVES,
    "data": LEAVES,
    "algorithms": LEAVES | {"refinery", "models"},
    "privacy": LEAVES | {"algorithms"},
    "rounds": LEAVES | {"algorithms", "models", "data", "privacy"},
    "report": LEAVES | {"data", "rounds"},
    "fedml_bridge": LEAVES | {"refinery", "models", "algorithms", "data", "privacy", "rounds", "process", "report"},
    "experiments": LEAVES | {"refinery", "models", "data", "algorithms", "rounds", "report"},
    "calls": LEAVES | {"models", "algorithms", "data", "rounds", "process", "fedml_bridge"},
    "speed": LEAVES | {"refinery", "models", "algorithms", "data", "rounds", "process", "fedml_bridge"},
    "commands": LEAVES | {"algorithms", "data", "rounds", "process", "report", "experiments", "speed", "fedml_bridge"},
}
#: What stands at the top of the package, beside the rooms.
HALL = {"__init__.py", "cli.py", "errors.py", "phases.py", "randomness.py", "version.py"}


def imports(file: Path) -> set[str]:
    """Absolute names of all that a file imports, wherever in it."""
    package = file.relative_to(ROOT).with_suffix("").parts[:-1]
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def test_every_room_is_guarded_and_the_hall_is_empty() -> None:
    rooms = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert rooms == set(ROOMS)
    assert {file.name for file in PACKAGE.glob("*.py")} == HALL


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_design_allows(room: str) -> None:
    for file in sorted((PACKAGE / room).rglob("*.py")):
        for name in imports(file):
            if name.startswith("mrtf_fedml."):
                neighbour = name.split(".")[1]
                assert neighbour == room or neighbour in ROOMS[room], f"{file.name} imports {name}"


def test_only_the_bridge_knows_fedml() -> None:
    knowing = {file for file in SOURCES if any(name.split(".")[0] == "fedml" for name in imports(file))}
    assert knowing, "the bridge must be among those that are read"
    assert [str(file.relative_to(ROOT)) for file in sorted(knowing) if "fedml_bridge" not in file.parts] == []


def test_no_file_grows_past_one_reason_to_exist() -> None:
    lines = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in SOURCES}
    assert {file: number for file, number in lines.items() if number > 250} == {}


def test_no_package_gives_a_function_the_name_of_its_module() -> None:
    for package in [folder for folder in PACKAGE.rglob("*") if (folder / "__init__.py").exists()]:
        modules = {file.stem for file in package.glob("*.py")}
        for node in ast.parse((package / "__init__.py").read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.asname or alias.name for alias in node.names}
                assert not names & modules, f"{package.name} hides its own {names & modules}"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, mrtf_fedml, mrtf_fedml.cli; mrtf_fedml.cli._parser().format_help();"
        "print([m for m in ('torch', 'fedml', 'numpy', 'pydantic', 'matplotlib') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_mathematics_and_data_load_without_fedml() -> None:
    code = (
        "import sys, mrtf_fedml.refinery, mrtf_fedml.algorithms, mrtf_fedml.data, mrtf_fedml.rounds.store;"
        "print('fedml' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_every_package_is_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split()) - {"mrtf_fedml.example_configs"}
    there = {".".join(file.parent.relative_to(ROOT).parts) for file in PACKAGE.rglob("__init__.py")}
    assert listed == there
