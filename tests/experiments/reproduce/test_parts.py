"""The parts of a reproduction: the paper's numbers, the budget, the data on the shelf, the estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mrtf_fedml.data import load
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import planned
from mrtf_fedml.experiments.progress import ComparisonProgress
from mrtf_fedml.experiments.reproduce.catalogue import SCENES, presets_named, scene_named
from mrtf_fedml.experiments.reproduce.choosing import datasets_named
from mrtf_fedml.experiments.reproduce.comparison import _same_domain
from mrtf_fedml.experiments.reproduce.datasets import DATASETS, is_there
from mrtf_fedml.experiments.reproduce.federated import _COMPARE, _CROSS_DOMAIN, _OTHER
from mrtf_fedml.experiments.reproduce.paper_numbers import PAPER_NUMBERS
from mrtf_fedml.experiments.reproduce.parameters import Budget, Parameters, Split, configuration
from mrtf_fedml.experiments.reproduce.pieces import Arrays, Pieces
from mrtf_fedml.experiments.reproduce.scene import Number, Request, rows_of_numbers
from mrtf_fedml.experiments.reproduce.shelf import Shelf
from mrtf_fedml.settings import PRESETS, RunSettings
from tests.data.sources.formats import (
    write_cifar10,
    write_cifar100_archive,
    write_femnist,
    write_leaf,
    write_mnist,
    write_svhn,
)


def test_every_number_of_the_paper_belongs_to_a_scene_and_says_where_it_stands() -> None:
    assert {number.scene for number in PAPER_NUMBERS} == {"logi", "table-data", "cross-domain", "dp"}
    assert len({(number.scene, number.what) for number in PAPER_NUMBERS}) == len(PAPER_NUMBERS) == 7 + 49 + 12 + 8
    assert all(number.scene in SCENES and number.place for number in PAPER_NUMBERS)
    columns = {f"{panel.title}, {name}" for panel in _CROSS_DOMAIN.panels for name in _CROSS_DOMAIN.algorithms}
    assert columns == {number.what for number in PAPER_NUMBERS if number.scene == "cross-domain"}


def test_the_papers_number_stands_beside_ours() -> None:
    (row, other) = rows_of_numbers("logi", [Number("AvgProb, uniform", 45.25), Number("of ours alone", 1.0)])
    assert row[2:5] == ["44", "45.2", "+1.2"]
    assert row[5].startswith("Sect. 5.1")
    assert other[2:] == ["", "1.0", "", ""]


def test_words_that_name_nothing_are_refused_with_what_was_meant() -> None:
    assert presets_named("all") == tuple(PRESETS)
    for call, told in (
        (lambda: scene_named("logit"), "did you mean 'logi'"),
        (lambda: presets_named("tunned"), "did you mean 'tuned'"),
        (lambda: datasets_named("cifar", SCENES["dp"]), "did you mean 'cifar10'"),
        (lambda: Budget(0), "--budget is 0"),
        (lambda: Budget(1.5), "at most 1"),
        (lambda: Budget(float("nan")), "--budget is nan"),
        (lambda: Shelf(Path(), ["mnst="]), "did you mean 'mnist'"),
        (lambda: Shelf(Path(), ["no_such.npz"]), "neither a file"),
    ):
        with pytest.raises(UserError, match=told):
            call()


def test_a_budget_lowers_what_it_says_and_nothing_else() -> None:
    asked = Parameters("cifar10", Split("label", 3), clients=1000, rounds=1500, epochs=50)
    assert Budget(1).on(asked) == asked
    fewer = Budget(0.1).on(asked)
    assert (fewer.clients, fewer.chosen, fewer.rounds, fewer.refine_steps) == (100, 4, 150, 100)
    assert (fewer.epochs, fewer.split) == (50, asked.split)
    assert Budget(1).sentence() == ""
    for word in ("rounds", "clients", "server samples", "refining steps"):
        assert word in Budget(0.1).sentence()
    least = Budget(0.001).on(asked)
    assert (least.clients, least.chosen, least.rounds, least.refine_steps) == (20, 2, 2, 20)
    assert "0.02 of each client's samples (at least 40, and 4 of each class)" in Budget(0.001).sentence()
    assert "each client's samples" not in Budget(0.05).sentence()


def test_below_a_twentieth_each_client_keeps_fewer_samples(tmp_path: Path) -> None:
    x, y = np.zeros((10000, 8, 8), np.uint8), np.arange(10000) % 10
    np.savez(tmp_path / "svhn.npz", x_train=x, y_train=y, x_test=x[:500], y_test=y[:500])
    asked = Parameters("svhn", Split("label", 3))
    for share, clients, samples, server in ((0.05, 20, 2000, 500), (0.03, 20, 1200, 300), (0.001, 20, 800, 100)):
        args = configuration(asked, Budget(share), Shelf(tmp_path).data("svhn"))["data_args"]
        assert (args["client_samples"], args["server_samples"]) == (samples, server)
        assert Budget(share).on(asked).clients == clients
    # Of a hundred classes a client holds thirty: none may have fewer samples than clients that hold it.
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=np.arange(10000) % 100, x_test=x[:500], y_test=y[:500])
    config = configuration(Parameters("cifar100", Split("label", 30)), Budget(0.001), Shelf(tmp_path).data("cifar100"))
    assert config["data_args"]["client_samples"] == 20 * 4 * 30
    assert load(RunSettings.from_config(config)).client_num == 20


def test_data_are_found_or_named_file_by_file(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    assert shelf.missing(DATASETS) == list(DATASETS)
    with pytest.raises(UserError) as refused:
        shelf.require(["mnist", "svhn"], "data")
    for file in (*DATASETS["mnist"].files, *DATASETS["svhn"].files):
        assert str(tmp_path / file) in str(refused.value)
    assert str(tmp_path / "svhn.npz") in str(refused.value)
    assert "--stand-in" in str(refused.value)
    write_mnist(tmp_path / "MNIST" / "raw")
    write_svhn(tmp_path)
    write_femnist(tmp_path / "femnist")
    assert [name for name in DATASETS if is_there(name, tmp_path)] == ["mnist", "svhn", "femnist"]
    assert shelf.missing(["mnist", "svhn", "femnist"]) == []
    arrays = {"x_train": np.zeros((9, 8, 8), np.uint8), "y_train": np.arange(9) % 3}
    np.savez(tmp_path / "cifar100.npz", **arrays, x_test=arrays["x_train"], y_test=arrays["y_train"])
    data = Shelf(tmp_path).data("cifar100")
    assert (data.sizes, data.stands_in, data.args["dataset"]) == ((9, 9, 3), "", "npz")


def test_the_folder_may_be_the_datasets_own(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100_archive(tmp_path / "CIFAR100")
    write_femnist(tmp_path / "leaf" / "data" / "femnist" / "data")
    for part in ("train", "test"):
        write_leaf(tmp_path / "plays", part, 0, {"HAMLET": (["to be or " * 9] * 3, ["n"] * 3)})
    for folder, found in (
        (tmp_path, ["cifar10", "cifar100", "femnist"]),
        (tmp_path / "cifar-10-batches-py", ["cifar10"]),
        (tmp_path / "CIFAR100", ["cifar100"]),
        # LEAF calls all its files alike: what is in them tells writing from letters.
        (tmp_path / "leaf" / "data" / "femnist", ["femnist"]),
        (tmp_path / "plays", ["shakespeare"]),
    ):
        assert [name for name in DATASETS if is_there(name, folder)] == found
        assert all(Shelf(folder).data(name).source.class_num == DATASETS[name].classes for name in found)


def test_clients_and_server_of_two_files_keep_their_own(tmp_path: Path) -> None:
    for value, name in ((0, "svhn"), (255, "mnistm")):
        x = np.full((600, 8, 8), value, np.uint8)
        np.savez(
            tmp_path / f"own_{name}.npz", x_train=x, y_train=np.arange(600) % 10, x_test=x, y_test=np.arange(600) % 10
        )
    given = [f"{name}={tmp_path / f'own_{name}.npz'}" for name in ("svhn", "mnistm")]
    shelf, asked = Shelf(tmp_path, given), _CROSS_DOMAIN.panels[0].parameters
    config = configuration(asked, Budget(0.05), shelf.data("svhn"), shelf.data("mnistm"))
    dataset = load(RunSettings.from_config(config))
    assert (len(dataset.server_inputs), dataset.client_num) == (500, 20)
    assert float(dataset.server_inputs.min()) > float(dataset[2].inputs.max())


def test_of_few_users_as_many_take_part_as_a_round_asks_for(tmp_path: Path) -> None:
    for number, clients, chosen in ((3, 3, 3), (12, 4, 4), (300, 6, 4)):
        u = np.repeat(np.arange(number), 10)
        x, y = np.zeros((len(u), 28, 28), np.uint8), np.arange(len(u)) % 62
        np.savez(tmp_path / "femnist.npz", x_train=x, y_train=y, u_train=u, x_test=x, y_test=y, u_test=u)
        config = configuration(_OTHER.panels[0].parameters, Budget(0.05), Shelf(tmp_path).data("femnist"))
        settings = RunSettings.from_config(config)
        assert (load(settings).client_num, settings.train.client_num_per_round) == (clients, chosen)


def test_below_a_twentieth_users_keep_fewer_samples_and_those_who_keep_none_are_not_counted(tmp_path: Path) -> None:
    # Five users of 200 samples, and one whose single sample is not among those that are kept.
    u = np.append(np.repeat(np.arange(5), 200), 5)
    x, y = np.zeros((len(u), 28, 28), np.uint8), np.arange(len(u)) % 62
    np.savez(tmp_path / "femnist.npz", x_train=x, y_train=y, u_train=u, x_test=x, y_test=y, u_test=u)
    data = Shelf(tmp_path).data("femnist")
    assert data.thinned(Budget(0.05).of_client) == (None, 6)
    kept, users = data.thinned(Budget(0.001).of_client)
    assert (kept, users) == (1001 * 40 // 166, 5)
    config = configuration(_OTHER.panels[0].parameters, Budget(0.001), data)
    dataset = load(RunSettings.from_config(config))
    assert dataset.client_num == 2
    assert set(dataset[4].values()) <= {48, 49}, "of 200, as many as of all"


def test_one_stand_in_for_both_domains_crosses_none() -> None:
    panels = _CROSS_DOMAIN.panels
    assert "no domain is crossed" in _same_domain(panels, Request(Shelf(Path("nowhere"), [""]), Path()))
    two = Shelf(Path("nowhere"), ["svhn=digits", "mnistm=usps"])
    assert _same_domain(panels, Request(two, Path())) == ""
    assert _same_domain(_COMPARE.panels, Request(Shelf(Path("nowhere"), [""]), Path())) == ""


def test_what_stands_in_says_so_and_fits_the_network() -> None:
    shelf = Shelf(Path("nowhere"), [""])
    assert shelf.missing(DATASETS) == []
    data = shelf.data("shakespeare")
    assert (data.title, data.model, data.by_user) == ("Shakespeare (scikit-learn digits)", "mlp", False)
    assert data.rate == DATASETS["mnist"].rate
    assert shelf.data("cifar10").fitting("resnet8") == "resnet8"
    only = Shelf(Path("nowhere"), ["svhn=digits"])
    assert only.missing(["svhn", "mnist"]) == ["mnist"]


def test_every_panel_is_a_configuration_that_a_run_accepts() -> None:
    shelf, budget = Shelf(Path("nowhere"), [""]), Budget(0.05)
    for panel in _COMPARE.panels:
        config = configuration(panel.parameters, budget, shelf.data(panel.parameters.dataset))
        train = RunSettings.from_config(config).train
        assert (train.client_num_per_round, train.epochs) == (4, 3)
        assert train.comm_round == (75 if panel.row == "CIFAR10" else 10)
    labels = _COMPARE.labels(("paper", "tuned"))
    assert labels[-2:] == ["MrTF:paper", "MrTF:tuned"]
    assert len(planned(config, labels, 2)) == 16


def test_a_piece_is_made_once_and_again_where_it_was_cut_off(tmp_path: Path) -> None:
    made = []

    def make() -> Arrays:
        made.append(len(made))
        return {"answer": np.arange(3)}

    shelf = Shelf(Path("nowhere"), [""])
    pieces = Pieces(tmp_path, "obser", ComparisonProgress(), 4)
    for name in ("mnist", "mnist", "svhn"):
        assert pieces.get(shelf.data(name), {"seed": 0}, make)["answer"].tolist() == [0, 1, 2]
    assert len(made) == 2, "what stands in for two datasets is two pieces"
    assert pieces.seconds > 0
    for file in (tmp_path / "pieces").iterdir():
        file.write_bytes(file.read_bytes()[:40])
    pieces.get(shelf.data("svhn"), {"seed": 0}, make)
    assert len(made) == 3
