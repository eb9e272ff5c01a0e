from __future__ import annotations

from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError
from mrtf_fedml.report import write_multi_run_report
from mrtf_fedml.training.run_directory import RunDirectory

from .page_reader import read
from .runs import line, write_run


def config(**train: object) -> dict[str, dict[str, object]]:
    return {"data_args": {"dataset": "digits"}, "train_args": {"federated_optimizer": "MrTF", **train}}


@pytest.fixture
def directories(tmp_path: Path) -> list[RunDirectory]:
    changes = {"one": {"learning_rate": 0.1, "wandb_key": "abc"}, "two": {"learning_rate": 0.05, "wandb_key": "def"}}
    runs = [write_run(tmp_path / name, config=config(**own))[0] for name, own in changes.items()]
    return [*runs, write_run(tmp_path / "unfinished", ended=False, metrics=[line(0)], config=config())[0]]


def test_multi_run_report_shows_all_runs(directories: list[RunDirectory], tmp_path: Path) -> None:
    reader = read(write_multi_run_report(directories, tmp_path / "all.html"))
    assert "3 runs on digits" in reader.text
    assert "train_args.learning_rate 0.1 0.05 not set" in reader.text
    assert "train_args.federated_optimizer" not in reader.text, "it does not differ"
    assert "abc" not in reader.text
    assert "one 1.000 1.000" in reader.text, "the two that came to their end give equal labels"
    assert reader.tags.count("svg") == 4


def test_multi_run_report_with_equal_settings(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name)[0] for name in ("a", "b")]
    assert "The settings are the same" in read(write_multi_run_report(runs, tmp_path / "all.html")).text


def test_report_command_writes_to_default_or_given_file(
    directories: list[RunDirectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(directory.path) for directory in directories]
    assert main(["report", *folders]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "side_by_side.html")
    assert main(["report", *folders, "-o", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").read_bytes() == (tmp_path / "side_by_side.html").read_bytes()
    assert main(["report", folders[0], str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_unwritable_report_file_raises(directories: list[RunDirectory], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written .* use another file with -o"):
        write_multi_run_report(directories, tmp_path / "no" / "such" / "place.html")


def test_report_command_without_data_omits_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = {**config(), "data_args": {"dataset": "npz", "data_file": str(tmp_path / "gone.npz")}}
    directory, _ = write_run(tmp_path / "run", config=gone)
    assert main(["report", str(directory.path)]) == 0
    captured = capsys.readouterr()
    assert "without pictures" in captured.err
    assert "gone.npz" in captured.err
    assert "Least certain" in read(Path(captured.out.strip())).text
