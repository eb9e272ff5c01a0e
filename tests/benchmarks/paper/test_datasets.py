"""The parts of a reproduction: the paper's numbers, the budget, the data on the data_folder, the estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper import datasets
from benchmarks.paper.catalogue import EXPERIMENTS, find_experiment, parse_presets
from benchmarks.paper.comparison import _same_domain_note
from benchmarks.paper.datasets import DATASETS, DataFolder, has_dataset
from benchmarks.paper.experiment import (
    Budget,
    Number,
    Parameters,
    Request,
    Split,
    configuration,
    format_numbers,
    parse_only,
)
from benchmarks.paper.federated import _COMPARE, _CROSS_DOMAIN, _OTHER
from benchmarks.paper.one_shot import Arrays, ResultCache
from benchmarks.paper.paper_numbers import PAPER_NUMBERS
from mrtf_fedml.config import PRESETS, RunSettings
from mrtf_fedml.data import load
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import plan_trials
from mrtf_fedml.experiments.runner import ComparisonProgress
from tests.data.sources.formats import (
    write_cifar10,
    write_cifar100_archive,
    write_femnist,
    write_leaf,
    write_mnist,
    write_svhn,
)


def test_paper_numbers_belong_to_experiments_and_have_a_place() -> None:
    assert {number.experiment for number in PAPER_NUMBERS} == {"logi", "table-data", "cross-domain", "dp"}
    assert len({(number.experiment, number.what) for number in PAPER_NUMBERS}) == len(PAPER_NUMBERS) == 7 + 49 + 12 + 8
    assert all(number.experiment in EXPERIMENTS and number.place for number in PAPER_NUMBERS)
    columns = {f"{panel.title}, {name}" for panel in _CROSS_DOMAIN.panels for name in _CROSS_DOMAIN.algorithms}
    assert columns == {number.what for number in PAPER_NUMBERS if number.experiment == "cross-domain"}


def test_format_numbers_shows_the_papers_number_and_the_difference() -> None:
    (row, other) = format_numbers("logi", [Number("AvgProb, uniform", 45.25), Number("of ours alone", 1.0)])
    assert row[2:5] == ["44", "45.2", "+1.2"]
    assert row[5].startswith("Sect. 5.1")
    assert other[2:] == ["", "1.0", "", ""]


def test_unknown_names_are_refused_with_the_nearest() -> None:
    assert parse_presets("all") == (*PRESETS, "released")
    for call, message in (
        (lambda: find_experiment("logit"), "did you mean 'logi'"),
        (lambda: parse_presets("tunned"), "did you mean 'tuned'"),
        (lambda: parse_only("cifar", EXPERIMENTS["dp"]), "did you mean 'cifar10'"),
        (lambda: Budget(0), "--budget is 0"),
        (lambda: Budget(1.5), "at most 1"),
        (lambda: Budget(float("nan")), "--budget is nan"),
        (lambda: DataFolder(Path(), ["mnst="]), "did you mean 'mnist'"),
        (lambda: DataFolder(Path(), ["no_such.npz"]), "neither a file"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_budget_reduces_only_what_it_names() -> None:
    parameters = Parameters("cifar10", Split("label", 3), clients=1000, rounds=1500, epochs=50)
    assert Budget(1).apply(parameters) == parameters
    fewer = Budget(0.1).apply(parameters)
    assert (fewer.clients, fewer.chosen, fewer.rounds, fewer.refine_steps) == (100, 4, 150, 100)
    assert (fewer.epochs, fewer.split) == (50, parameters.split)
    assert Budget(1).describe() == ""
    for word in ("rounds", "clients", "server samples", "refining steps"):
        assert word in Budget(0.1).describe()
    least = Budget(0.001).apply(parameters)
    assert (least.clients, least.chosen, least.rounds, least.refine_steps) == (20, 2, 2, 20)
    assert "0.02 of each client's samples (at least 40, and 4 of each class)" in Budget(0.001).describe()
    assert "each client's samples" not in Budget(0.05).describe()


def test_small_budget_reduces_the_samples_of_each_client(tmp_path: Path) -> None:
    x, y = np.zeros((10000, 8, 8), np.uint8), np.arange(10000) % 10
    np.savez(tmp_path / "svhn.npz", x_train=x, y_train=y, x_test=x[:500], y_test=y[:500])
    parameters = Parameters("svhn", Split("label", 3))
    for share, clients, samples, server in ((0.05, 20, 2000, 500), (0.03, 20, 1200, 300), (0.001, 20, 800, 100)):
        args = configuration(parameters, Budget(share), DataFolder(tmp_path).data("svhn"))["data_args"]
        assert (args["client_samples"], args["server_samples"]) == (samples, server)
        assert Budget(share).apply(parameters).clients == clients
    # Of a hundred classes a client holds thirty: none may have fewer samples than clients that hold it.
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=np.arange(10000) % 100, x_test=x[:500], y_test=y[:500])
    config = configuration(
        Parameters("cifar100", Split("label", 30)), Budget(0.001), DataFolder(tmp_path).data("cifar100")
    )
    assert config["data_args"]["client_samples"] == 20 * 4 * 30
    assert load(RunSettings.from_config(config)).client_num == 20


def test_data_folder_finds_datasets_or_names_the_missing_files(tmp_path: Path) -> None:
    data_folder = DataFolder(tmp_path)
    assert data_folder.missing(DATASETS) == list(DATASETS)
    with pytest.raises(UserError) as refused:
        data_folder.require(["mnist", "svhn"], "data")
    for file in (*DATASETS["mnist"].files, *DATASETS["svhn"].files):
        assert str(tmp_path / file) in str(refused.value)
    assert str(tmp_path / "svhn.npz") in str(refused.value)
    assert "--stand-in" in str(refused.value)
    assert "MNIST, SVHN with --download" in str(refused.value)
    with pytest.raises(UserError) as other:
        data_folder.require(["mnistm"], "data")
    assert "--download" not in str(other.value), "nobody offers that file to programs"
    write_mnist(tmp_path / "MNIST" / "raw")
    write_svhn(tmp_path)
    write_femnist(tmp_path / "femnist")
    assert [name for name in DATASETS if has_dataset(name, tmp_path)] == ["mnist", "svhn", "femnist"]
    assert data_folder.missing(["mnist", "svhn", "femnist"]) == []
    arrays = {"x_train": np.zeros((9, 8, 8), np.uint8), "y_train": np.arange(9) % 3}
    np.savez(tmp_path / "cifar100.npz", **arrays, x_test=arrays["x_train"], y_test=arrays["y_train"])
    data = DataFolder(tmp_path).data("cifar100")
    assert (data.sizes, data.stand_in, data.args["dataset"]) == ((9, 9, 3), "", "npz")


def test_download_fetches_only_missing_datasets_that_can_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    fetched: list[str] = []

    def fetch(name: str, folder: Path) -> None:
        fetched.append(name)
        write_svhn(folder)

    monkeypatch.setattr(datasets, "download_dataset", fetch)
    data_folder = DataFolder(tmp_path)
    data_folder.download(["mnist", "svhn", "mnistm"])
    assert fetched == ["svhn"]
    assert data_folder.missing(["mnist", "svhn", "mnistm"]) == ["mnistm"]


def test_has_dataset_accepts_the_datasets_own_folder(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100_archive(tmp_path / "CIFAR100")
    write_femnist(tmp_path / "leaf" / "data" / "femnist" / "data")
    for part in ("train", "test"):
        write_leaf(tmp_path / "plays", part, 0, {"HAMLET": (["to be or " * 9] * 3, ["n"] * 3)})
    for folder, found in (
        (tmp_path, ["cifar10", "cifar100", "femnist"]),
        (tmp_path / "cifar-10-batches-py", ["cifar10"]),
        (tmp_path / "CIFAR100", ["cifar100"]),
        # LEAF's files have equal names: their content distinguishes text from images.
        (tmp_path / "leaf" / "data" / "femnist", ["femnist"]),
        (tmp_path / "plays", ["shakespeare"]),
    ):
        assert [name for name in DATASETS if has_dataset(name, folder)] == found
        assert all(DataFolder(folder).data(name).source.class_num == DATASETS[name].classes for name in found)


def test_configuration_with_two_files_keeps_both(tmp_path: Path) -> None:
    for value, name in ((0, "svhn"), (255, "mnistm")):
        x = np.full((600, 8, 8), value, np.uint8)
        np.savez(
            tmp_path / f"own_{name}.npz", x_train=x, y_train=np.arange(600) % 10, x_test=x, y_test=np.arange(600) % 10
        )
    given = [f"{name}={tmp_path / f'own_{name}.npz'}" for name in ("svhn", "mnistm")]
    data_folder, parameters = DataFolder(tmp_path, given), _CROSS_DOMAIN.panels[0].parameters
    config = configuration(parameters, Budget(0.05), data_folder.data("svhn"), data_folder.data("mnistm"))
    dataset = load(RunSettings.from_config(config))
    assert (len(dataset.server_inputs), dataset.client_num) == (500, 20)
    assert float(dataset.server_inputs.min()) > float(dataset[2].inputs.max())


def test_configuration_with_few_users_uses_enough_for_a_round(tmp_path: Path) -> None:
    for number, clients, chosen in ((3, 3, 3), (12, 4, 4), (300, 6, 4)):
        u = np.repeat(np.arange(number), 10)
        x, y = np.zeros((len(u), 28, 28), np.uint8), np.arange(len(u)) % 62
        np.savez(tmp_path / "femnist.npz", x_train=x, y_train=y, u_train=u, x_test=x, y_test=y, u_test=u)
        config = configuration(_OTHER.panels[0].parameters, Budget(0.05), DataFolder(tmp_path).data("femnist"))
        settings = RunSettings.from_config(config)
        assert (load(settings).client_num, settings.train.client_num_per_round) == (clients, chosen)


def test_small_budget_reduces_the_samples_of_users(tmp_path: Path) -> None:
    # Five users of 200 samples, and one whose single sample is not among those that are kept.
    u = np.append(np.repeat(np.arange(5), 200), 5)
    x, y = np.zeros((len(u), 28, 28), np.uint8), np.arange(len(u)) % 62
    np.savez(tmp_path / "femnist.npz", x_train=x, y_train=y, u_train=u, x_test=x, y_test=y, u_test=u)
    data = DataFolder(tmp_path).data("femnist")
    assert data.subsample_users(Budget(0.05).scale_client) == (None, 6)
    samples, users = data.subsample_users(Budget(0.001).scale_client)
    assert (samples, users) == (1001 * 40 // 166, 5)
    config = configuration(_OTHER.panels[0].parameters, Budget(0.001), data)
    dataset = load(RunSettings.from_config(config))
    assert dataset.client_num == 2
    assert set(dataset[4].values()) <= {48, 49}, "of 200, as many as of all"


def test_same_stand_in_for_both_domains_gives_a_note() -> None:
    panels = _CROSS_DOMAIN.panels
    assert "no domain is crossed" in _same_domain_note(panels, Request(DataFolder(Path("nowhere"), [""]), Path()))
    two = DataFolder(Path("nowhere"), ["svhn=digits", "mnistm=usps"])
    assert _same_domain_note(panels, Request(two, Path())) == ""
    assert _same_domain_note(_COMPARE.panels, Request(DataFolder(Path("nowhere"), [""]), Path())) == ""


def test_stand_in_is_named_and_gets_a_suitable_network() -> None:
    data_folder = DataFolder(Path("nowhere"), [""])
    assert data_folder.missing(DATASETS) == []
    data = data_folder.data("shakespeare")
    assert (data.title, data.model, data.by_user) == ("Shakespeare (scikit-learn digits)", "mlp", False)
    assert data.rate == DATASETS["mnist"].rate
    assert data_folder.data("cifar10").suitable_model("resnet8") == "resnet8"
    only = DataFolder(Path("nowhere"), ["svhn=digits"])
    assert only.missing(["svhn", "mnist"]) == ["mnist"]


def test_every_panel_gives_a_valid_configuration() -> None:
    data_folder, budget = DataFolder(Path("nowhere"), [""]), Budget(0.05)
    for panel in _COMPARE.panels:
        config = configuration(panel.parameters, budget, data_folder.data(panel.parameters.dataset))
        train = RunSettings.from_config(config).train
        assert (train.client_num_per_round, train.epochs) == (4, 3)
        assert train.comm_round == (75 if panel.row == "CIFAR10" else 10)
    labels = _COMPARE.labels(("paper", "tuned"))
    assert labels[-2:] == ["MrTF:paper", "MrTF:tuned"]
    assert len(plan_trials(config, labels, 2)) == 16


def test_result_cache_computes_once_and_again_after_a_truncated_file(tmp_path: Path) -> None:
    made = []

    def make() -> Arrays:
        made.append(len(made))
        return {"answer": np.arange(3)}

    data_folder = DataFolder(Path("nowhere"), [""])
    cache = ResultCache(tmp_path, "obser", ComparisonProgress(), 4)
    for name in ("mnist", "mnist", "svhn"):
        assert cache.get(data_folder.data(name), {"seed": 0}, make)["answer"].tolist() == [0, 1, 2]
    assert len(made) == 2, "two datasets with one stand-in have two results"
    assert cache.seconds > 0
    for file in (tmp_path / "pieces").iterdir():
        file.write_bytes(file.read_bytes()[:40])
    cache.get(data_folder.data("svhn"), {"seed": 0}, make)
    assert len(made) == 3
