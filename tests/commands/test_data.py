"""`mrtf data`, and the user's own data from files to predictions."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mrtf_fedml.algorithms import build_algorithm
from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.config.loader import read_config
from mrtf_fedml.data import SOURCES
from tests.conftest import small_config, write_yaml
from tests.data.sources.formats import write_femnist, write_image

CONFIGS = Path(__file__).parents[2] / "fedml_configs"
PAPERS = ("mnist", "mnistm", "svhn", "cifar10", "cifar100", "femnist", "shakespeare")


def test_data_prints_the_statistics_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "config.yaml", small_config())
    assert main(["data", "--cf", str(file), "--set", "classes_per_client=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["dataset", "N", "M", "C", "K", "mean", "N_k", "mean", "C_k"]
    assert lines[1].split() == ["digits", "1198", "599", "10", "8", "149.8", "2.0"]
    assert any("by label, 2 classes per client, seed 3" in line for line in lines)


def test_data_of_users_is_described_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_femnist(tmp_path / "femnist")
    picture = tmp_path / "split.png"
    words = ["data", "--cf", str(CONFIGS / "femnist.yaml"), "--plot", str(picture)]
    for change in (f"data_cache_dir={tmp_path}", "dset_ratio=0.5", "client_num_per_round=2"):
        words += ["--set", change]
    assert main(words) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[1].split() == ["femnist", "60", "20", "62", "5", "12.0", "0.0"]
    assert "by user, 50% of the users, seed 0" in output
    assert "no client has" in output
    assert picture.stat().st_size > 5000


def test_data_with_a_mistake_exits_with_2_and_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "config.yaml", small_config(dataset="svhn", data_cache_dir=str(tmp_path)))
    assert main(["data", "--cf", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mrtf: dataset svhn needs train_32x32.mat")
    assert len(error.splitlines()) == 1
    write_femnist(tmp_path / "femnist")
    changes = ["--set", f"data_cache_dir={tmp_path}"]
    assert main(["data", "--cf", str(CONFIGS / "femnist.yaml"), *changes]) == 2
    assert "client_num_per_round is 10 but there are only 1 clients; lower it" in capsys.readouterr().err


@pytest.mark.parametrize("name", PAPERS)
def test_paper_configurations_have_the_numbers_of_the_paper(name: str) -> None:
    settings = RunSettings.from_config(read_config(CONFIGS / f"{name}.yaml"))
    assert settings.data.dataset == name
    assert build_algorithm(settings).hparams.preset == "paper"
    assert (settings.train.momentum, settings.train.client_num_per_round) == (0.9, 10)
    by_user = name in ("femnist", "shakespeare")
    assert settings.train.batch_size == (10 if by_user else 64)
    if by_user:
        assert (settings.data.partition_method, settings.data.dset_ratio) == ("user", 0.1)
        assert settings.train.learning_rate == {"femnist": 0.004, "shakespeare": 1.47}[name]
    else:
        assert settings.train.client_num_in_total == 100
        rounds = {"cifar10": 1500, "cifar100": 500}.get(name, 200)
        assert (settings.train.comm_round, settings.train.epochs) == (rounds, 20 if name == "cifar100" else 3)


def test_every_configuration_names_a_known_dataset() -> None:
    for path in CONFIGS.glob("*.yaml"):
        assert RunSettings.from_config(read_config(path)).data.dataset in SOURCES


def run_own(name: str, folder: Path, *changes: str) -> list[dict[str, str]]:
    """One short run of a packaged configuration; returns the lines of predictions.csv."""
    short = ("comm_round=1", "epochs=1", "refine_steps=5", "threads=1", f"run_dir={folder / 'run'}")
    words = ["run", "--cf", str(CONFIGS / f"own_{name}.yaml")]
    for change in (*short, *changes):
        words += ["--set", change]
    assert main(words) == 0
    with (folder / "run" / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_run_on_an_image_folder_writes_predictions_with_file_names(tmp_path: Path) -> None:
    digits = load_digits()
    images = np.rint(digits.images * 15.9).astype(np.uint8)
    for number in range(300):
        write_image(tmp_path / "clients" / f"digit {digits.target[number]}" / f"{number}.png", images[number])
    names = [f"scan-{number:03d}.png" for number in range(40)]
    for number, name in enumerate(names):
        write_image(tmp_path / "server" / name, images[300 + number])
    lines = run_own("images", tmp_path, f"data_file={tmp_path / 'clients'}", f"server_file={tmp_path / 'server'}")
    assert [line["id"] for line in lines] == names
    assert {line["class_name"] for line in lines} <= {f"digit {digit}" for digit in range(10)}


def test_run_on_a_table_by_owner_writes_predictions_with_ids(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(200, 3)), generator.integers(0, 2, 200)
    with (tmp_path / "clients.csv").open("w") as file:
        file.write("a,b,c,label,hospital\n")
        for number, (row, label) in enumerate(zip(features, labels, strict=True)):
            file.write(",".join(map(str, row)) + f",{'ill' if label else 'well'},{'NSWE'[number % 4]}\n")
    with (tmp_path / "server.csv").open("w") as file:
        file.write("id,c,b,a\n")
        file.writelines(f"patient {number},0.1,{number},-1\n" for number in range(9))
    changes = (f"data_file={tmp_path / 'clients.csv'}", f"server_file={tmp_path / 'server.csv'}")
    by_owner = ("partition_method=user", "user_column=hospital", "client_num_per_round=4")
    lines = run_own("csv", tmp_path, *changes, *by_owner)
    assert [line["id"] for line in lines] == [f"patient {number}" for number in range(9)]
    assert read_config(tmp_path / "run" / "config.yaml")["train_args"]["client_num_in_total"] == 4
