"""`python benchmarks/paper` on the embedded digits: listed, refused, run, killed and started again."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paper import fig_obser
from benchmarks.paper.catalogue import EXPERIMENTS
from benchmarks.paper.cli import main
from benchmarks.paper.comparison import Comparison, Panel
from benchmarks.paper.datasets import DataFolder
from benchmarks.paper.experiment import Budget, Outcome, Parameters, Request, Split
from benchmarks.paper.federated import check_mrtf_best
from benchmarks.paper.figures import draw_curves
from mrtf_fedml.experiments.runner import ComparisonProgress


def words(folder: Path, *more: str) -> list[str]:
    return [*more, "--data", str(folder / "none"), "--out", str(folder / "out")]


def result(folder: Path, name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "out" / name / "result.json").read_text())
    return content


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduced")
    assert main(words(folder, "logi", "--stand-in", "--preset", "all", "--seeds", "1")) == 0
    return folder


def test_logi_writes_the_papers_numbers_and_ours(demo: Path) -> None:
    output = result(demo, "logi-stand-in")
    rows = {(what, variant): float(ours) for what, variant, _, ours, _, _ in output["numbers"]}  # type: ignore[attr-defined]
    papers = [row[2] for row in output["numbers"] if row[2]]  # type: ignore[attr-defined]
    assert papers[:6] == ["17.6", "19.2", "20.4", "33.1", "44", "39.4"]
    assert rows["AvgProb, uniform", ""] > rows["AvgLogi, uniform", ""]
    assert rows["AvgLogi, with the aggregated models", ""] > rows["AvgLogi, uniform", ""]
    assert rows["AvgProb, with the aggregated models", "Eq. 4"] > rows["AvgProb, uniform", ""]
    assert output["stand_ins"] == ["scikit-learn digits for MNIST"]
    folder = demo / "out" / "logi-stand-in"
    assert {"figure.pdf", "figure.png", "figure.svg", "numbers.csv", "numbers.md"} <= {p.name for p in folder.iterdir()}
    assert "STAND-IN DATA" in (folder / "figure.svg").read_text()


def test_finished_runs_are_not_repeated(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (piece,) = (demo / "out" / "pieces").iterdir()
    figure = (demo / "out" / "logi-stand-in" / "figure.png").read_bytes()
    stamp = piece.stat().st_mtime_ns
    again = words(demo, "logi", "--stand-in", "--preset", "all", "--seeds", "1")
    assert main(again) == 0
    assert piece.stat().st_mtime_ns == stamp
    assert (demo / "out" / "logi-stand-in" / "figure.png").read_bytes() == figure
    output = capsys.readouterr().out
    assert "33.1" in output
    assert "holds" in output


def test_page_shows_all_finished_experiments(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The option before the experiment takes no value from it.
    assert main(words(demo, "--stand-in", "data")) == 0
    assert main(words(demo, "--page")) == 0
    page = (demo / "out" / "reproduction.html").read_text()
    assert page.index("Fig. data") < page.index("Fig. logi"), "in the paper's order"
    assert page.count("data:image/png;base64,") == 2
    assert "Stand-in data: scikit-learn digits for SVHN" in page
    assert "Table dp" in page, "what is not run yet is named"
    assert str(demo / "out" / "reproduction.html") in capsys.readouterr().out


def test_list_names_every_experiment_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path, "--list")) == 0
    output = capsys.readouterr().out
    assert [line.split(":")[0] for line in output.splitlines() if line.split(":")[0] in EXPERIMENTS] == list(
        EXPERIMENTS
    )
    assert len(EXPERIMENTS) == 12
    for file in ("train-images-idx3-ubyte", "test_32x32.mat", "cifar-100-python.tar.gz", "femnist/train/*.json"):
        assert file in output
    assert "K=1000, 10 clients per round, T=200, E=100, 500 refining steps" in output
    assert output.count("takes one core here") + output.count("takes here") == 12
    # What the runs share: the clients', the algorithms', the refinery's, each preset's; and the networks.
    for word in ("momentum 0.9", "FedProx's mu 0.01", "Adam 0.0003, 500 steps", "MrTF (released): ", "MrTF (tuned): "):
        assert word in output
    assert "MNIST mlp, rate 0.1 or 0.05 or 0.01 (here 0.05), batch 64; MNISTm lenet" in output
    assert "Shakespeare charlstm, rate 1.47, batch 10" in output


def test_mistakes_exit_with_one_sentence_before_any_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, message in (
        (["logit"], "did you mean 'logi'?"),
        (["dp", "--budget", "0"], "--budget is 0"),
        (["dp", "--stand-in", "--seeds", "0"], "--seeds is 0"),
        (["dp", "--stand-in", "--jobs", "0"], "--jobs is 0"),
        (["dp", "--preset", "papers"], "did you mean 'paper'?"),
        (["dp", "--only", "mnist"], "'mnist' is no dataset of the"),
        (["dp", "--panel", "sigma=1"], "it has sigma=0, sigma=0.001"),
        (["logi", "--stand-in", "--set", "epochs=1"], "--set is for federated runs"),
        (["logi", "--stand-in", "--grid"], "--grid is for federated runs"),
        (["dp"], "cifar-10-python.tar.gz"),
        ([], "name an experiment"),
        (["--page"], "no experiment is finished"),
    ):
        assert main(words(tmp_path, *more)) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_unwritable_output_folder_is_refused_before_any_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["dp", "--stand-in", "--data", str(tmp_path), "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert f"--out: {str(out)!r} cannot be written" in error
        assert len(error.splitlines()) == 1


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_interrupted_experiment_prints_the_command_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):

        def interrupted(request: Request, number: signal.Signals = number) -> Outcome:
            signal.raise_signal(number)
            raise AssertionError("the signal was not handled")

        monkeypatch.setitem(EXPERIMENTS, "data", replace(EXPERIMENTS["data"], run=interrupted))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert main(words(tmp_path, "data", "--stand-in")) == code
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith("mrtf: interrupted; finished parts are kept in ")
        assert "continue with: python benchmarks/paper data" in error


def test_obser_measures_one_shot_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig_obser, "FEW_PRETRAININGS", (0, 3, 6))
    monkeypatch.setattr(fig_obser, "MIN_STEPS", 2)
    monkeypatch.setattr(fig_obser, "DRAWN_SAMPLES", 60)
    assert main(words(tmp_path, "obser", "--stand-in", "--budget", "0.01")) == 0
    output = result(tmp_path, "obser-stand-in-budget-0.01")
    rows = {row[0]: float(row[3]) for row in output["numbers"]}  # type: ignore[attr-defined]
    for name in ("MNIST (stand-in), weight divergence, α=0.1", "SVHN (stand-in), gradient variance, C̄=3"):
        assert rows[name] > 0
    assert len(output["checks"]) == 8  # type: ignore[arg-type]


def test_comparison_runs_each_trial_once_and_draws_a_figure(tmp_path: Path) -> None:
    panel = Panel("MNIST", "C̄=3", Parameters("mnist", Split("label", 3)))
    own = Comparison((panel,), ("FedAvg", "MrTF"), draw_curves, check_mrtf_best)
    request = Request(
        DataFolder(tmp_path, [""]), tmp_path / "out", budget=Budget(0.01), jobs=2,
        changes=["refine_steps=2", "epochs=1", "comm_round=1", "threads=1"], progress=ComparisonProgress(),
    )  # fmt: skip
    outcome = own.run("compare", request)
    assert [number.what for number in outcome.numbers] == ["MNIST, C̄=3, FedAvg", "MNIST, C̄=3, MrTF"]
    assert outcome.seconds > 0
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").glob("*/summary.json")}
    assert len(done) == 2
    assert own.run("compare", request).numbers == outcome.numbers
    assert {path: path.stat().st_mtime_ns for path in done} == done
