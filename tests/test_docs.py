"""The examples of the documentation, run as they stand."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mrtf_fedml
from mrtf_fedml.algorithms import registry
from mrtf_fedml.cli import main
from mrtf_fedml.rounds.store import RunStore
from mrtf_fedml.settings import sections
from tests.conftest import answer, metrics, small_config, write_yaml

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> dict[str, str]:
    """The Python blocks of a page that begin with a file's name, by that name."""
    return dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", page.read_text(), flags=re.DOTALL))


def own_modules(code: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a reader's files where they can be imported; what they register is forgotten afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(sections, "_declared", {name: list(known) for name, known in sections._declared.items()})
    for name, text in code.items():
        (folder / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of README.md and docs/extending.md."""
    own_modules({**blocks(ROOT / "README.md"), **blocks(ROOT / "docs" / "extending.md")}, tmp_path, monkeypatch)
    return tmp_path


def run(folder: Path, name: str, *changes: str) -> Path:
    """`mrtf run` of the small digits, with these changes."""
    file = write_yaml(folder / f"{name}.yaml", small_config(comm_round=2, run_dir=str(folder / name)))
    assert main(["run", "--cf", str(file), *(word for change in changes for word in ("--set", change))]) == 0
    return folder / name


def test_the_algorithm_and_the_callback_of_the_page_run(examples: Path) -> None:
    run_dir = run(
        examples,
        "sparse",
        "federated_optimizer=sparse:Sparse",
        "first_share=0.5",
        "callbacks=['enough:Enough']",
        "client_num_in_total=4",
        "client_num_per_round=4",
    )
    first, second = metrics(run_dir)
    for line in (first, second):
        assert line["mean_length"] > 0
        assert 0 <= line["acc_vote"] <= 1
        assert 0.1 < line["mean_confidence"] < 1
        # Weights and one extra travel both ways; the loss, a double per client, only back.
        assert line["bytes_up"] - line["bytes_down"] == 4 * 8
    state = RunStore.open(run_dir).load_state()
    assert state is not None
    assert state.memory == {"turns": {"0": 2, "1": 2, "2": 2, "3": 2}}
    assert mrtf_fedml.SparseTrainer.algorithm_class.__module__ == "sparse"
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["mean_confidence"] == second["mean_confidence"]
    assert summary["stopped"] is None


def test_the_refinery_stands_on_the_pages_algorithm_and_its_callback_stops_a_run(examples: Path) -> None:
    module: ModuleType = importlib.import_module("enough")
    module.Enough.threshold = 0.0
    run_dir = run(examples, "refined", "base=sparse:Sparse", "callbacks=['enough:Enough']")
    (line,) = metrics(run_dir)
    assert {"mean_length", "acc_vote", "acc_targets", "local_weight"} <= {key for key in line if line[key] is not None}
    assert "the mean confidence is" in json.loads((run_dir / "summary.json").read_text())["stopped"]


def test_the_ten_lines_of_the_readme_run(examples: Path) -> None:
    run_dir = run(examples, "cautious", "federated_optimizer=cautious:Cautious", "comm_round=1", "random_seed=1")
    (line,) = metrics(run_dir)
    plain = run(examples, "plain", "federated_optimizer=FedAvg", "comm_round=1", "random_seed=1")
    assert line["clients"] == metrics(plain)[0]["clients"]
    assert answer(run_dir) != answer(plain), "two of three clients are averaged, not all"


def test_the_tests_of_the_page_pass(examples: Path) -> None:
    module = importlib.import_module("test_sparse")
    tests = [test for name, test in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text()):
            file, _, heading = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page.name} links to {link}"
            if heading:
                headings = [line.lstrip("# ") for line in target.read_text().splitlines() if line.startswith("#")]
                anchors = [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in headings]
                assert heading in anchors, f"{page.name} links to {link}; {target.name} has {anchors}"
