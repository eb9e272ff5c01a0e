"""The structure of the package: import directions, dependency on FedML, import cost, and installed packages."""

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

#: Modules that every package may import.
COMMON = {"errors", "phases", "config", "rng", "version"}
#: Package -> the other packages that it may import.
ALLOWED_IMPORTS = {
    "config": {"errors"},
    "process": {"errors"},
    "refinery": {"errors", "phases", "config", "rng"},
    "models": COMMON,
    "encoders": COMMON | {"models"},
    "data": COMMON | {"encoders"},
    "algorithms": COMMON | {"refinery", "models"},
    "privacy": COMMON | {"algorithms"},
    "training": COMMON | {"algorithms", "models", "data", "callbacks"},
    "callbacks": COMMON | {"algorithms", "models", "data", "privacy", "training", "diagnostics", "report"},
    "diagnostics": COMMON | {"algorithms", "models", "data", "training", "callbacks"},
    "report": COMMON | {"data", "training"},
    "watch": COMMON | {"callbacks", "report", "training"},
}
_ALL_BELOW_BRIDGE = COMMON | set(ALLOWED_IMPORTS)
ALLOWED_IMPORTS |= {
    "fedml_bridge": _ALL_BELOW_BRIDGE,
    "experiments": COMMON | {"refinery", "models", "data", "algorithms", "training", "report"},
    "api": _ALL_BELOW_BRIDGE | {"fedml_bridge"},
    "commands": _ALL_BELOW_BRIDGE | {"fedml_bridge", "experiments", "api"},
}
TOP_LEVEL_MODULES = {"__init__.py", "cli.py", "errors.py", "phases.py", "rng.py", "version.py"}


def imported_names(file: Path) -> set[str]:
    """Absolute names of everything that a file imports, at any place in it."""
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


def test_import_rules_cover_every_package_and_top_level_module() -> None:
    packages = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert packages == set(ALLOWED_IMPORTS)
    assert {file.name for file in PACKAGE.glob("*.py")} == TOP_LEVEL_MODULES


@pytest.mark.parametrize("package", ALLOWED_IMPORTS)
def test_package_imports_only_allowed_packages(package: str) -> None:
    for file in sorted((PACKAGE / package).rglob("*.py")):
        for name in imported_names(file):
            if name.startswith("mrtf_fedml."):
                target = name.split(".")[1]
                assert target == package or target in ALLOWED_IMPORTS[package], f"{file.name} imports {name}"


def test_only_fedml_bridge_imports_fedml() -> None:
    importing = {file for file in SOURCES if any(name.split(".")[0] == "fedml" for name in imported_names(file))}
    assert importing, "fedml_bridge must be among the files that are read"
    assert [str(file.relative_to(ROOT)) for file in sorted(importing) if "fedml_bridge" not in file.parts] == []


def test_no_package_exports_a_name_that_hides_one_of_its_modules() -> None:
    for package in [folder for folder in PACKAGE.rglob("*") if (folder / "__init__.py").exists()]:
        modules = {file.stem for file in package.glob("*.py")}
        for node in ast.parse((package / "__init__.py").read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.asname or alias.name for alias in node.names}
                assert not names & modules, f"{package.name} hides its own {names & modules}"


def test_importing_the_package_and_cli_imports_no_heavy_library() -> None:
    code = (
        "import sys, mrtf_fedml, mrtf_fedml.cli; mrtf_fedml.cli.build_parser().format_help();"
        "print([m for m in ('torch', 'fedml', 'numpy', 'pydantic', 'matplotlib') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_packages_below_fedml_bridge_load_without_fedml() -> None:
    packages = ", ".join(f"mrtf_fedml.{package}" for package in ("refinery", "algorithms", "data", "training"))
    code = f"import sys, {packages}; print('fedml' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_setup_lists_every_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split()) - {"mrtf_fedml.example_configs"}
    existing = {".".join(file.parent.relative_to(ROOT).parts) for file in PACKAGE.rglob("__init__.py")}
    assert listed == existing
