"""The examples of the documentation run unchanged."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import mrtf_fedml
from mrtf_fedml.algorithms import registry
from mrtf_fedml.cli import main
from mrtf_fedml.config import schema
from mrtf_fedml.training.run_directory import RunDirectory
from tests.backends.mpi.conftest import launched
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml

ROOT = Path(__file__).parent.parent
#: The components of docs/guides/extending.md, as overrides of the settings.
COMPONENTS = (
    "teacher_weighting=margin:Margin",
    "target_transforms=['stable:Stable']",
    "broadcast=agreed:Agreed",
    "predict_with=agreed:Agreed",
)
#: Of the embedded digits.
SERVER_SAMPLES = 599
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_files(page: Path) -> dict[str, str]:
    """The Python blocks of a page that start with a file name, by that name."""
    return dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", page.read_text(), flags=re.DOTALL))


def write_modules(code: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files where they can be imported; what they register is removed afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(schema, "_by_algorithm", dict(schema._by_algorithm))
    monkeypatch.setattr(schema, "_declared", {name: list(known) for name, known in schema._declared.items()})
    for name, text in code.items():
        (folder / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of README.md and docs/guides/extending.md."""
    write_modules(
        {**python_files(ROOT / "README.md"), **python_files(ROOT / "docs" / "guides" / "extending.md")},
        tmp_path,
        monkeypatch,
    )
    return tmp_path


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run directory of a preset without components, made once."""
    folder, known = tmp_path_factory.mktemp("plain"), dict[str, Path]()

    def plain_run(preset: str) -> Path:
        if preset not in known:
            known[preset] = run(folder, preset, "model=mlp", f"preset={preset}")
        return known[preset]

    return plain_run


def run(folder: Path, name: str, *changes: str) -> Path:
    """The run directory of `mrtf run` on the small digits with these overrides."""
    file = write_yaml(folder / f"{name}.yaml", small_config(comm_round=2, run_dir=str(folder / name)))
    assert main(["run", "--cf", str(file), *(word for change in changes for word in ("--set", change))]) == 0
    return folder / name


def test_extending_page_algorithm_and_callback_run(examples: Path) -> None:
    run_dir = run(
        examples,
        "sparse",
        "federated_optimizer=sparse:Sparse",
        "first_share=0.5",
        "callbacks=['enough:Enough']",
        "client_num_in_total=4",
        "client_num_per_round=4",
    )
    first, second = read_metrics(run_dir)
    for line in (first, second):
        assert line["mean_length"] > 0
        assert 0 <= line["acc_vote"] <= 1
        assert 0.1 < line["mean_confidence"] < 1
        # Weights and one extra travel both ways; the loss, a double per client, only back.
        assert line["uplink_bytes"] - line["downlink_bytes"] == 4 * 8
    state = RunDirectory.open(run_dir).load_state()
    assert state is not None
    assert state.memory == {"turns": {"0": 2, "1": 2, "2": 2, "3": 2}}
    assert mrtf_fedml.SparseTrainer.algorithm_class.__module__ == "sparse"
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["mean_confidence"] == second["mean_confidence"]
    assert summary["stop_reason"] is None


def test_extending_page_algorithm_serves_as_base_and_callback_stops_run(examples: Path) -> None:
    module: ModuleType = importlib.import_module("enough")
    module.Enough.threshold = 0.0
    run_dir = run(examples, "refined", "base=sparse:Sparse", "callbacks=['enough:Enough']")
    (line,) = read_metrics(run_dir)
    assert {"mean_length", "acc_vote", "acc_targets", "local_weight"} <= {key for key in line if line[key] is not None}
    assert "the mean confidence is" in json.loads((run_dir / "summary.json").read_text())["stop_reason"]


def test_readme_algorithm_runs(examples: Path) -> None:
    run_dir = run(examples, "cautious", "federated_optimizer=cautious:Cautious", "comm_round=1", "random_seed=1")
    (line,) = read_metrics(run_dir)
    plain = run(examples, "plain", "federated_optimizer=FedAvg", "comm_round=1", "random_seed=1")
    assert line["clients"] == read_metrics(plain)[0]["clients"]
    assert output_bytes(run_dir) != output_bytes(plain), "two of three clients are averaged, not all"


@pytest.mark.parametrize(("module", "count"), [("test_sparse", 2)])
def test_extending_page_tests_pass(examples: Path, module: str, count: int) -> None:
    tests = [test for name, test in vars(importlib.import_module(module)).items() if name.startswith("test_")]
    assert len(tests) == count
    for test in tests:
        test()


@pytest.mark.parametrize("change", COMPONENTS, ids=lambda change: change.partition("=")[0])
def test_extending_page_component_runs_and_changes_predictions(
    examples: Path, plain_runs: Callable[[str], Path], change: str
) -> None:
    run_dir = run(examples, "component", "model=mlp", change)
    assert (run_dir / "probabilities.npy").read_bytes() != (plain_runs("paper") / "probabilities.npy").read_bytes()


def test_extending_page_components_run_together_with_client_validation(
    examples: Path, plain_runs: Callable[[str], Path]
) -> None:
    run_dir = run(examples, "components", "model=mlp", "preset=tuned", *COMPONENTS)
    assert (run_dir / "probabilities.npy").read_bytes() != (plain_runs("tuned") / "probabilities.npy").read_bytes()
    assert read_metrics(run_dir)[-1]["estimated_accuracy"] is not None


def test_component_memory_is_saved_in_its_namespace(examples: Path) -> None:
    state = RunDirectory.open(run(examples, "memory", *COMPONENTS)).load_state()
    assert state is not None
    assert set(state.memory) == {
        "refinery/stable:Stable/classes",
        "refinery/broadcast/least",
        "refinery/predict_with/least",
    }
    assert len(state.memory["refinery/stable:Stable/classes"]) == SERVER_SAMPLES


def test_run_with_components_resumes_to_equal_bytes(examples: Path) -> None:
    whole = run(examples, "whole", *COMPONENTS, "comm_round=3")
    part = run(examples, "part", *COMPONENTS, "comm_round=1")
    assert main(["run", "--resume", str(part), "--set", "comm_round=3"]) == 0
    assert output_bytes(part) == output_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_components_on_three_mpi_ranks_give_equal_bytes(
    examples: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(examples))
    changes = (f"preset={preset}", *COMPONENTS)
    alone = run(examples, "alone", *changes)
    file = write_yaml(examples / "ranks.yaml", small_config(backend="MPI", run_dir=str(examples / "ranks")))
    result = launched(3, file, *(word for change in changes for word in ("--set", change)))
    assert result.returncode == 0, result.stderr
    assert output_bytes(examples / "ranks") == output_bytes(alone)


def test_links_between_pages_exist() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text()):
            file, _, heading = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page.name} links to {link}"
            if heading:
                headings = [line.lstrip("# ") for line in target.read_text().splitlines() if line.startswith("#")]
                anchors = [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in headings]
                assert heading in anchors, f"{page.name} links to {link}; {target.name} has {anchors}"


def test_files_named_on_pages_exist() -> None:
    folders = "mrtf_fedml|tests|benchmarks|launch|docs|examples|fedml_configs"
    for page in PAGES:
        for name in re.findall(rf"`((?:{folders})/[\w./]+)`", page.read_text()):
            assert (ROOT / name).exists() or "NAME" in name, f"{page.name} names {name}"


def test_test_selections_on_pages_match_a_test() -> None:
    for page in PAGES:
        for name, word in re.findall(r"pytest (?:-s )?(tests/[\w./]+) -k (\w+)", page.read_text()):
            assert re.search(rf"def test_\w*{word}", (ROOT / name).read_text()), f"{page.name}: {name} -k {word}"


def test_run_directory_page_lists_every_file_of_a_run(plain_runs: Callable[[str], Path]) -> None:
    page = (ROOT / "docs" / "reference" / "run_directory.md").read_text()
    for file in plain_runs("tuned").iterdir():
        assert f"`{file.name}{'/' if file.is_dir() else ''}`" in page, f"{file.name} is not on the page"
