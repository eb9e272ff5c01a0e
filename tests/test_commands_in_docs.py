"""The commands of the documentation are valid: options, files, settings and algorithms exist.

Other tests check what the commands do.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.paper import cli as paper_cli
from benchmarks.paper.catalogue import find_experiment, parse_presets
from benchmarks.speed import cli as speed_cli
from mrtf_fedml import cli
from mrtf_fedml.algorithms import build_algorithm
from mrtf_fedml.commands.compare import DEFAULT_ALGORITHMS
from mrtf_fedml.commands.configuration import load_configuration
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import ABLATION, import_algorithms, plan_trials
from tests.test_docs import PAGES, ROOT, python_files, write_modules

EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
CONFIGS = sorted((ROOT / "fedml_configs").glob("*.yaml"))
#: Script -> number of its own arguments before the configuration; the rest is passed to `mrtf run`.
SCRIPTS = {"launch/mpirun.sh": 1, "launch/cross_silo.sh": 0, "launch/cross_device.sh": 0}


def commands(page: Path) -> Iterator[list[str]]:
    """The commands of a page's shell blocks, each as a list of arguments."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL):
        text = re.sub(r"<<'(\w+)'\n.*?\n\1\n", "\n", block, flags=re.DOTALL).replace("\\\n", " ")
        for line in text.splitlines():
            for part in line.split(" && "):
                if words := shlex.split(part, comments=True):
                    yield words


def mrtf_arguments(words: list[str]) -> list[str] | None:
    """The arguments of `mrtf` in a command, also through mpirun or a script of launch/; None if there is none."""
    if words[0] == "bash" and words[1] in SCRIPTS:
        rest = words[2 + SCRIPTS[words[1]] :]
        return ["run", *(rest if rest[0].startswith("-") else ["--cf", *rest])]
    return words[words.index("mrtf") + 1 :] if "mrtf" in words else None


def find_config(name: str) -> str:
    """The file of a configuration that a page names: in the clone, or written by `mrtf example`."""
    (file,) = [path for path in (ROOT / name, ROOT / "fedml_configs" / name) if path.is_file()]
    return str(file)


def check_options(options: argparse.Namespace) -> None:
    """The checks that `mrtf` makes before it reads data."""
    if options.command in ("run", "data", "compare") and options.cf:
        labels = []
        if options.command == "compare":
            names = options.algorithms or ",".join(DEFAULT_ALGORITHMS)
            labels = list(ABLATION) if options.ablation else names.split(",")
            if not options.ablation:
                import_algorithms(labels)
        config = load_configuration(find_config(options.cf), options.set)
        build_algorithm(RunSettings.from_config(config))
        for trial in plan_trials(config, labels, 1, options.grid, options.ablation, options.vary) if labels else []:
            build_algorithm(RunSettings.from_config(trial.config))
    if options.command == "example" and options.name:
        assert (ROOT / "fedml_configs" / f"{options.name}.yaml").is_file()


def test_commands_of_pages_are_found_and_wrong_option_is_rejected(tmp_path: Path) -> None:
    assert sum(mrtf_arguments(words) is not None for page in PAGES for words in commands(page)) > 40
    page = tmp_path / "page.md"
    page.write_text("```bash\nA=1 mpirun -n 2 mrtf run --cf mpi.yaml \\\n  --set refine_step=3   # so\n```\n")
    (words,) = commands(page)
    assert mrtf_arguments(words) == ["run", "--cf", "mpi.yaml", "--set", "refine_step=3"]
    with pytest.raises(UserError, match="refine_steps"):
        check_options(cli.build_parser().parse_args(mrtf_arguments(words)))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_page_are_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules({name: code for one in PAGES for name, code in python_files(one).items()}, tmp_path, monkeypatch)
    for words in commands(page):
        # start.sh is in the folders that `mrtf invite` writes.
        if words[0] in ("bash", "sh") and not words[1].startswith("-") and words[1] != "start.sh":
            assert any((folder / words[1]).is_file() for folder in (ROOT, page.parent)), words
        if words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).exists(), words
        if words[:2] == ["python", "benchmarks/paper"]:
            options = paper_cli.build_parser().parse_args(words[2:])
            parse_presets(options.preset)
            if options.experiment:
                find_experiment(options.experiment)
        if words[:2] == ["python", "benchmarks/speed"]:
            options = speed_cli.build_parser().parse_args(words[2:])
            speed_cli.select_benchmarks(options.names, options.precision)
        arguments = mrtf_arguments(words)
        if arguments is not None:
            check_options(cli.build_parser().parse_args(arguments))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES, *CONFIGS], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_have_existing_options(page: Path) -> None:
    """A sentence may name a part of a command, so only its options are checked."""
    known = {action.dest: action for action in cli.build_parser()._actions}["command"].choices
    assert isinstance(known, dict)
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"`mrtf\s([^`]*)`", text) + re.findall(r"^#.*?\bmrtf (\w+ --.*)$", text, flags=re.MULTILINE)
    for given in found:
        name, *words = given.split()
        if name.islower() and name.isalpha():
            assert name in known, f"mrtf {given}"
            options = known[name]._option_string_actions
            for word in words:
                if word.startswith("--"):
                    assert word.split("=")[0] in options, f"mrtf {given}"
