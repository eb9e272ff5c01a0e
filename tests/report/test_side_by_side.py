from __future__ import annotations

from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError
from mrtf_fedml.report import write_side_by_side
from mrtf_fedml.rounds.store import RunStore

from .page_reader import read
from .runs import line, write_run


def config(**train: object) -> dict[str, dict[str, object]]:
    return {"data_args": {"dataset": "digits"}, "train_args": {"federated_optimizer": "MrTF", **train}}


@pytest.fixture
def stores(tmp_path: Path) -> list[RunStore]:
    changes = {"one": {"learning_rate": 0.1, "wandb_key": "abc"}, "two": {"learning_rate": 0.05, "wandb_key": "def"}}
    runs = [write_run(tmp_path / name, config=config(**own))[0] for name, own in changes.items()]
    return [*runs, write_run(tmp_path / "unfinished", ended=False, metrics=[line(0)], config=config())[0]]


def test_the_page_tells_of_all_runs(stores: list[RunStore], tmp_path: Path) -> None:
    reader = read(write_side_by_side(stores, tmp_path / "all.html"))
    assert "3 runs on digits, side by side" in reader.text
    assert "train_args.learning_rate 0.1 0.05 not set" in reader.text
    assert "train_args.federated_optimizer" not in reader.text, "it does not differ"
    assert "abc" not in reader.text
    assert "one 1.000 1.000" in reader.text, "the two that came to their end give equal labels"
    assert reader.tags.count("svg") == 4


def test_equal_settings_are_said_to_be_equal(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name)[0] for name in ("a", "b")]
    assert "the settings are the same" in read(write_side_by_side(runs, tmp_path / "all.html")).text


def test_the_command_writes_beside_the_first_run_or_where_it_is_told(
    stores: list[RunStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(store.path) for store in stores]
    assert main(["report", *folders]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "side_by_side.html")
    assert main(["report", *folders, "-o", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").read_bytes() == (tmp_path / "side_by_side.html").read_bytes()
    assert main(["report", folders[0], str(tmp_path)]) == 2
    assert "is not the folder of a run" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named(stores: list[RunStore], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written .* name another file with -o"):
        write_side_by_side(stores, tmp_path / "no" / "such" / "place.html")


def test_one_runs_report_does_without_the_data_where_they_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {**config(), "data_args": {"dataset": "npz", "data_file": str(tmp_path / "gone.npz")}}
    store, _ = write_run(tmp_path / "run", config=gone)
    assert main(["report", str(store.path)]) == 0
    told = capsys.readouterr()
    assert "without pictures" in told.err
    assert "gone.npz" in told.err
    assert "Least certain" in read(Path(told.out.strip())).text
