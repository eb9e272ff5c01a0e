"""The command line: a wrong word, file or setting is one sentence and exit code 2, before anything is written."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.cli import main, run_command
from mrtf_fedml.version import __version__
from tests.conftest import small_config, write_yaml


def arrays(path: Path, **changes: Any) -> str:
    """A small npz of features; a change of None leaves an array out."""
    generator = np.random.default_rng(0)
    held: dict[str, Any] = {
        "x_train": generator.normal(size=(60, 5)).astype(np.float32),
        "y_train": np.arange(60) % 4,
        "x_test": generator.normal(size=(12, 5)).astype(np.float32),
        "y_test": np.arange(12) % 4,
        **changes,
    }
    np.savez(path, **{name: value for name, value in held.items() if value is not None})
    return str(path)


def run_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], *words: str) -> str:
    """The error message of `mrtf run` for a configuration that it refuses."""
    run_dir = tmp_path / "run"
    config["common_args"]["run_dir"] = str(run_dir)
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config)), *words]) == 2
    assert not run_dir.exists(), "nothing is written for a run that cannot start"
    captured = capsys.readouterr()
    assert captured.out == ""
    # The first run of a process says what takes so long.
    sentence = captured.err.removeprefix("loading FedML ...\n")
    assert sentence.count("\n") == 1
    return sentence


NAN = np.full((60, 5), np.nan, np.float32)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y_train": np.arange(60) - 1}, "y_train"),
        ({"y_test": np.full(12, 4)}, "y_test"),
        ({"y_train": np.linspace(0, 3, 60)}, "y_train"),
        ({"x_train": np.zeros((0, 5), np.float32), "y_train": np.zeros(0, int)}, "empty"),
        ({"x_test": np.zeros((0, 5), np.float32), "y_test": None}, "empty"),
        ({"y_train": np.arange(59) % 4}, "59"),
        ({"x_train": NAN}, "NaN"),
        ({"x_test": np.zeros((12, 6), np.float32)}, "x_test"),
        ({"y_train": None}, "y_train"),
    ],
)
def test_run_with_wrong_arrays_exits_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], sentence: str
) -> None:
    file = arrays(tmp_path / "a.npz", **changes)
    config = small_config(dataset="npz", data_file=file, model="mlp", client_num_in_total=4, client_num_per_round=2)
    assert sentence.lower() in run_error(tmp_path, capsys, config).lower()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": "npz", "data_file": "nowhere.npz"}, "nowhere.npz"),
        ({"dataset": "npz", "data_file": "x" * 5000}, "is no path that can be opened (File name too long)"),
        ({"dataset": "npz"}, "data_file"),
        ({"data_file": "mine.npz"}, "set data_args.dataset to npz, csv or images"),
        ({"server_file": "mine.csv"}, "data_args.server_file is 'mine.csv' but data_args.dataset is 'digits'"),
        ({"dataset": "digitz"}, "did you mean 'digits'"),
        ({"classes_per_client": 11}, "classes_per_client"),
        ({"partition_method": "iid", "client_num_in_total": 5000}, "client_num_in_total"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"backend": "GRPC"}, "comm_args.backend is 'GRPC'"),
        ({"federated_optimizer": "FedAvgg"}, "did you mean 'FedAvg'"),
        ({"model": "lenett"}, "did you mean 'lenet'"),
        ({"holdout": 2}, "data_args.holdout is 2"),
    ],
)
def test_run_with_wrong_settings_exits_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], sentence: str
) -> None:
    assert sentence in run_error(tmp_path, capsys, small_config(**changes))


def test_run_with_unknown_keys_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config()
    config["mrtf_args"]["temprature"] = 3
    assert "did you mean 'temperature'" in run_error(tmp_path, capsys, config)
    assert "did you mean 'comm_round'" in run_error(tmp_path, capsys, small_config(), "--set", "comm_rounds=3")
    # Short words serve, and reach the same check.
    assert "train_args.learning_rate is -1" in run_error(tmp_path, capsys, small_config(), "--set", "lr=-1")
    assert "train_args.comm_round is 0" in run_error(tmp_path, capsys, small_config(), "--set", "train_args.rounds=0")


def test_run_of_an_image_model_on_a_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"dataset": "npz", "data_file": arrays(tmp_path / "a.npz"), "client_num_in_total": 4}
    for model in ("cnn", "lenet", "resnet56"):
        assert "use `model: mlp`" in run_error(tmp_path, capsys, small_config(**own, model=model))


def test_run_without_configuration_or_run_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--cf", str(tmp_path / "no.yaml")]) == 2
    assert "mrtf example" in capsys.readouterr().err
    assert main(["run", "--resume", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert main(["run"]) == 2
    assert "--cf" in capsys.readouterr().err


def test_run_does_not_overwrite_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("train_args: {}\n")
    file = write_yaml(tmp_path / "c.yaml", small_config(run_dir=str(run_dir)))
    assert main(["run", "--cf", str(file)]) == 2
    assert str(run_dir) in capsys.readouterr().err
    assert (run_dir / "config.yaml").read_text() == "train_args: {}\n"


def test_installed_command_runs_a_users_features(tmp_path: Path) -> None:
    command = str(Path(sys.executable).with_name("mrtf"))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run([command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert call("--version").stdout == f"mrtf {__version__}\n"
    assert "run a configuration" in call("--help").stdout
    file = arrays(tmp_path / "a.npz", y_test=None, ids=np.array([f"row-{i}" for i in range(12)]))
    config = small_config(dataset="npz", data_file=file, model="mlp", comm_round=1, client_num_in_total=4)
    ended = call("run", "--cf", str(write_yaml(tmp_path / "c.yaml", config)))
    assert ended.returncode == 0, ended.stderr
    assert "has no labels" in ended.stdout
    assert "Warning" not in ended.stderr, "FedML's noise stays out unless --verbose asks for it"
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert run_dir.name.startswith("a-MrTF-"), "the run is called by the user's file"
    assert ended.stderr.startswith("loading FedML ...\n")
    rows = (run_dir / "predictions.csv").read_text().splitlines()
    assert rows[1].startswith("0,row-0,")
    again = call("report", str(run_dir))
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip().endswith("report.html")


def test_closed_pipe_is_no_error() -> None:
    # The pipe's other end is closed before anything is written, as `| head` closes it sooner or later.
    there, here = os.pipe()
    os.close(there)
    try:
        ended = subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", "example"], stdout=here, stderr=subprocess.PIPE)
    finally:
        os.close(here)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_failed_import_points_to_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(options: argparse.Namespace) -> int:
        raise ImportError("No module named 'pkg_resources'")

    assert run_command(fail, argparse.Namespace(), "interrupted") != 0
    printed = capsys.readouterr().err
    assert "pkg_resources" in printed
    assert "mrtf doctor" in printed


def test_home_that_fedml_cannot_write_names_the_variable(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(options: argparse.Namespace) -> int:
        raise PermissionError(13, "Permission denied", "/home/me/.fedml/data")

    assert run_command(fail, argparse.Namespace(), "interrupted") == 2
    printed = capsys.readouterr().err
    assert "/home/me/.fedml/data" in printed
    assert "HOME=" in printed


def test_second_setting_without_its_own_option_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--cf", "a.yaml", "--set", "comm_round=1", "threads=1"])
    assert ended.value.code == 2
    assert "--set threads=1" in capsys.readouterr().err
