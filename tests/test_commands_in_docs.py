"""Every command that the documentation gives: its words, its file, its settings and its algorithms are ones that exist.

What the commands do is tested where they are at home; this finds the one that a page still gives and nobody can type.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml import cli
from mrtf_fedml.algorithms import algorithm_of
from mrtf_fedml.commands.compare import ALL
from mrtf_fedml.commands.configuration import configured
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import ABLATION, import_labelled, planned
from mrtf_fedml.experiments.reproduce.catalogue import presets_named, scene_named
from mrtf_fedml.settings import RunSettings
from tests.test_docs import PAGES, ROOT, blocks, own_modules

EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
CONFIGS = sorted((ROOT / "fedml_configs").glob("*.yaml"))
#: Scripts that take a configuration after so many words of their own, and pass the rest on to `mrtf run`.
SCRIPTS = {"launch/mpirun.sh": 1, "launch/cross_silo.sh": 0, "launch/cross_device.sh": 0}


def commands(page: Path) -> Iterator[list[str]]:
    """The commands of a page's shell blocks, each as its words."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL):
        text = re.sub(r"<<'(\w+)'\n.*?\n\1\n", "\n", block, flags=re.DOTALL).replace("\\\n", " ")
        for line in text.splitlines():
            for part in line.split(" && "):
                if words := shlex.split(part, comments=True):
                    yield words


def as_mrtf(words: list[str]) -> list[str] | None:
    """What `mrtf` is given by a command, through mpirun or a script of launch/ too; None where it is given nothing."""
    if words[0] == "bash" and words[1] in SCRIPTS:
        rest = words[2 + SCRIPTS[words[1]] :]
        return ["run", *(rest if rest[0].startswith("-") else ["--cf", *rest])]
    return words[words.index("mrtf") + 1 :] if "mrtf" in words else None


def file_of(name: str) -> str:
    """A configuration as a page names it: in the clone, or as `mrtf example` has written it."""
    (found,) = [place for place in (ROOT / name, ROOT / "fedml_configs" / name) if place.is_file()]
    return str(found)


def check(options: argparse.Namespace) -> None:
    """What `mrtf` finds out before it reads any data."""
    if options.command in ("run", "data", "compare") and options.cf:
        labels = []
        if options.command == "compare":
            labels = list(ABLATION) if options.ablation else (options.algorithms or ",".join(ALL)).split(",")
            if not options.ablation:
                import_labelled(labels)
        config = configured(file_of(options.cf), options.set)
        algorithm_of(RunSettings.from_config(config))
        for trial in planned(config, labels, 1, options.grid, options.ablation, options.vary) if labels else []:
            algorithm_of(RunSettings.from_config(trial.config))
    if options.command == "reproduce" and options.scene:
        scene_named(options.scene)
        presets_named(options.preset)
    if options.command == "example" and options.name:
        assert (ROOT / "fedml_configs" / f"{options.name}.yaml").is_file()


def test_commands_are_found_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    assert sum(as_mrtf(words) is not None for page in PAGES for words in commands(page)) > 40
    page = tmp_path / "page.md"
    page.write_text("```bash\nA=1 mpirun -n 2 mrtf run --cf mpi.yaml \\\n  --set refine_step=3   # so\n```\n")
    (words,) = commands(page)
    assert as_mrtf(words) == ["run", "--cf", "mpi.yaml", "--set", "refine_step=3"]
    with pytest.raises(UserError, match="refine_steps"):
        check(cli._parser().parse_args(as_mrtf(words)))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_can_be_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_modules({name: code for one in PAGES for name, code in blocks(one).items()}, tmp_path, monkeypatch)
    for words in commands(page):
        if words[0] in ("bash", "sh") and not words[1].startswith("-"):
            assert any((folder / words[1]).is_file() for folder in (ROOT, page.parent)), words
        if words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).is_file(), words
        given = as_mrtf(words)
        if given is not None:
            check(cli._parser().parse_args(given))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES, *CONFIGS], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_have_options_that_exist(page: Path) -> None:
    """A sentence may name a part of a command, so only its words are looked at."""
    known = {action.dest: action for action in cli._parser()._actions}["command"].choices
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
