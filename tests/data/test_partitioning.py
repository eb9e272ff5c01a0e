"""Partitions: hand-computed examples, and properties over many seeds."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mrtf_fedml.config import DataSettings, RunSettings
from mrtf_fedml.data import from_fedml, load, load_for_rank
from mrtf_fedml.data.partitioning import partition_by_dirichlet, partition_by_label, partition_iid, partition_samples
from mrtf_fedml.errors import UserError

SEEDS = range(30)
METHODS = [
    DataSettings(partition_method="label", classes_per_client=3),
    DataSettings(partition_method="dirichlet", partition_alpha=0.1, min_samples=2),
    DataSettings(partition_method="dirichlet", partition_alpha=1e-3),
    DataSettings(partition_method="dirichlet", partition_alpha=100.0),
    DataSettings(partition_method="iid"),
]


def some_labels(seed: int, samples: int = 700, classes: int = 10) -> np.ndarray:
    return np.random.default_rng([seed, 7]).integers(0, classes, samples)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_each_sample_once(parts: list[np.ndarray], samples: int, where: str = "") -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(samples)), where


def classes_of_clients(parts: list[np.ndarray], labels: np.ndarray) -> list[list[int]]:
    return [np.unique(labels[part]).tolist() for part in parts]


@pytest.mark.parametrize("settings", METHODS, ids=lambda s: f"{s.partition_method}-{s.partition_alpha}")
def test_every_partition_is_complete_disjoint_sorted_and_nonempty(settings: DataSettings) -> None:
    floor = settings.min_samples if settings.partition_method == "dirichlet" else 1
    for seed in SEEDS:
        labels = some_labels(seed)
        parts = partition_samples(labels, 20, 10, settings, seed)
        assert len(parts) == 20, f"seed {seed}"
        assert min(map(len, parts)) >= floor, f"seed {seed}"
        assert_each_sample_once(parts, len(labels), f"seed {seed}")
        assert all((np.diff(part) > 0).all() for part in parts), f"seed {seed}"


@pytest.mark.parametrize("settings", METHODS, ids=lambda s: f"{s.partition_method}-{s.partition_alpha}")
def test_partition_depends_only_on_the_seed(settings: DataSettings) -> None:
    labels = some_labels(0)
    kept = labels.copy()
    np.random.seed(1)
    torch.manual_seed(1)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    first = partition_samples(labels, 20, 10, settings, 5)
    assert (np.random.get_state()[1] == numpy_state).all()
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.random.seed(2)
    torch.manual_seed(2)
    again, other = partition_samples(labels, 20, 10, settings, 5), partition_samples(labels, 20, 10, settings, 6)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert (labels == kept).all()


@pytest.mark.parametrize(
    ("clients", "each"),
    [(20, 3), (7, 2), (4, 10), (5, 2), (13, 1)],
    ids=["every class shared", "unevenly", "all classes each", "one holder a class", "one class each"],
)
def test_partition_by_label_gives_c_bar_classes_in_balance(clients: int, each: int) -> None:
    for seed in SEEDS:
        labels = some_labels(seed)
        parts = partition_by_label(labels, clients, 10, each, rng(seed))
        held = classes_of_clients(parts, labels)
        assert {len(classes) for classes in held} == {each}, f"seed {seed}"
        holders = np.bincount(np.concatenate(held), minlength=10)
        assert holders.max() - holders.min() <= 1, f"seed {seed}"
        assert holders.sum() == clients * each, f"seed {seed}"
        for label in range(10):
            shares = [int((labels[part] == label).sum()) for part in parts if (labels[part] == label).any()]
            assert max(shares) - min(shares) <= 1, f"seed {seed}, class {label}"
            assert sum(shares) == (labels == label).sum(), f"seed {seed}, class {label}"


def test_partition_by_label_equals_hand_computed_values() -> None:
    """Four clients of one class each, over two classes: two holders a class, three and two samples each."""
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    parts = partition_by_label(labels, 4, 2, 1, rng())
    assert sorted(len(part) for part in parts) == [2, 2, 2, 3]
    assert sorted(classes[0] for classes in classes_of_clients(parts, labels)) == [0, 0, 1, 1]
    assert_each_sample_once(parts, 9)


def test_partition_by_label_with_all_classes_per_client() -> None:
    labels = np.repeat([0, 1], 6)
    for part in partition_by_label(labels, 3, 2, 2, rng()):
        assert np.bincount(labels[part]).tolist() == [2, 2]


def test_partition_by_label_depends_on_the_seed() -> None:
    labels = some_labels(0)
    deals = {str(classes_of_clients(partition_by_label(labels, 5, 10, 2, rng(seed)), labels)) for seed in SEEDS}
    assert len(deals) > 20


def test_classes_without_holder_are_excluded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    labels = np.repeat(np.arange(10), 5)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        parts = partition_by_label(labels, 3, 10, 2, rng())
    held = set(np.concatenate(classes_of_clients(parts, labels)).tolist())
    assert len(held) == 6
    without_holder = ", ".join(str(label) for label in range(10) if label not in held)
    assert caplog.messages == [
        f"3 clients of 2 classes each cannot hold all classes: the samples of class {without_holder} are excluded"
    ]
    assert sorted(np.concatenate(parts).tolist()) == np.flatnonzero(np.isin(labels, list(held))).tolist()


def test_no_warning_if_every_class_has_a_holder(caplog: pytest.LogCaptureFixture) -> None:
    partition_by_label(np.repeat(np.arange(10), 5), 5, 10, 2, rng())
    assert not caplog.messages


def test_partition_by_label_uses_only_classes_with_samples() -> None:
    labels = np.repeat([0, 2, 9], 8)
    parts = partition_by_label(labels, 6, 10, 2, rng())
    assert {len(classes) for classes in classes_of_clients(parts, labels)} == {2}
    assert_each_sample_once(parts, len(labels))


def test_invalid_partition_by_label_raises() -> None:
    labels = np.repeat(np.arange(3), 4)
    with pytest.raises(UserError, match="classes_per_client is 4 but the data has only 3 classes; lower it"):
        partition_by_label(labels, 2, 3, 4, rng())
    with pytest.raises(UserError, match="classes_per_client is 4 but only 3 classes have training samples"):
        partition_by_label(labels, 2, 10, 4, rng())
    with pytest.raises(UserError, match=r"class 0 has 4 training samples for the 5 clients .* lower train_args"):
        partition_by_label(labels, 5, 3, 3, rng())


@pytest.mark.parametrize("settings", METHODS, ids=lambda s: f"{s.partition_method}-{s.partition_alpha}")
def test_more_clients_than_samples_raises(settings: DataSettings) -> None:
    with pytest.raises(UserError, match=r"client_num_in_total asks for 11 clients.* only 10 training samples; lower"):
        partition_samples(np.arange(10), 11, 10, settings, 0)


def test_min_samples_beyond_the_data_raises() -> None:
    labels = some_labels(0, samples=100)
    assert [len(part) for part in partition_by_dirichlet(labels, 10, 10, 0.1, 10, rng())] == [10] * 10
    with pytest.raises(UserError, match=r"10 clients of at least 11 samples \(data_args.min_samples\) but .* 100"):
        partition_by_dirichlet(labels, 10, 10, 0.1, 11, rng())


def test_dirichlet_uses_every_sample_and_min_samples_for_any_alpha() -> None:
    for alpha, seed in itertools.product([1e-300, 1e-12, 1e-3, 0.1, 1.0, 1e6], SEEDS):
        labels = some_labels(seed, samples=200)
        parts = partition_by_dirichlet(labels, 15, 10, alpha, 5, rng(seed))
        assert min(map(len, parts)) >= 5, f"alpha {alpha}, seed {seed}"
        assert_each_sample_once(parts, 200, f"alpha {alpha}, seed {seed}")


def test_dirichlet_alpha_controls_the_skew() -> None:
    labels = np.repeat(np.arange(10), 200)
    for part in partition_by_dirichlet(labels, 10, 10, 1e6, 1, rng()):
        assert np.abs(np.bincount(labels[part], minlength=10) - 20).max() <= 1

    def mean_classes(alpha: float) -> float:
        parts = partition_by_dirichlet(labels, 100, 10, alpha, 1, rng())
        return float(np.mean([len(classes) for classes in classes_of_clients(parts, labels)]))

    assert mean_classes(1e-3) < 1.5 < mean_classes(0.1) < 6 < mean_classes(10.0)


def test_dirichlet_proportions_have_the_mean_and_variance_of_the_distribution() -> None:
    """Shares of two clients against p_1 / (p_1 + p_2) of NumPy's own Dirichlet draws.

    The correlation between classes shows that p_k sums to one over classes, and not over clients.
    """
    labels = np.repeat(np.arange(4), 1000)
    shares = []
    for seed in range(300):
        part = partition_by_dirichlet(labels, 2, 4, 1.0, 1, rng(seed))[0]
        shares.append(np.bincount(labels[part], minlength=4) / 1000)
    p = np.random.default_rng(1).dirichlet(np.ones(4), size=(20000, 2))
    expected = p[:, 0] / p.sum(axis=1)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
    assert np.std(shares) == pytest.approx(expected.std(), abs=0.02)
    first, second = np.array(shares)[:, 0], np.array(shares)[:, 1]
    correlation = np.corrcoef(expected[:, 0], expected[:, 1])[0, 1]
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(correlation, abs=0.15)


def test_dirichlet_ignores_absent_classes() -> None:
    labels = np.repeat([1, 5], 20)
    assert_each_sample_once(partition_by_dirichlet(labels, 4, 10, 0.5, 1, rng()), 40)


def test_min_samples_moves_samples_from_the_largest_clients() -> None:
    for seed in SEEDS:
        labels = some_labels(seed, samples=300)
        before, after = (
            np.array([len(part) for part in partition_by_dirichlet(labels, 20, 10, 0.01, floor, rng(seed))])
            for floor in (0, 13)
        )
        needy, gave = before < 13, after < before
        assert needy.any(), f"seed {seed}"
        assert gave.any(), f"seed {seed}"
        assert (after[needy] == 13).all(), f"seed {seed}"
        assert (after[gave] >= after.max() - 1).all(), f"seed {seed}"
        assert (after == before)[~needy & ~gave].all(), f"seed {seed}"


def test_iid_sizes_differ_by_at_most_one() -> None:
    for samples, clients in ((10, 3), (10, 10), (9, 1), (1000, 7)):
        sizes = [len(part) for part in partition_iid(np.zeros(samples, int), clients, rng())]
        assert max(sizes) - min(sizes) <= 1, f"{samples} samples, {clients} clients"
        assert sum(sizes) == samples, f"{samples} samples, {clients} clients"


def test_iid_mixes_the_classes() -> None:
    labels = np.repeat(np.arange(10), 100)
    for part in partition_iid(labels, 4, rng()):
        assert np.bincount(labels[part], minlength=10).min() > 10


@pytest.mark.parametrize("settings", METHODS, ids=lambda s: f"{s.partition_method}-{s.partition_alpha}")
def test_partition_of_thousand_clients_is_fast(settings: DataSettings) -> None:
    labels = some_labels(0, samples=50_000)
    parts = partition_samples(labels, 1000, 10, settings, 0)
    assert len(parts) == 1000
    assert min(map(len, parts)) >= 1
    assert_each_sample_once(parts, 50_000)


def test_clients_with_a_single_sample_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, u_train=["a", "b", "c", "c"])
    np.savez(tmp_path / "silo1.npz", x_train=x[:1], y_train=y[:1], class_names=["no", "yes"])
    data = DataSettings(dataset="npz", data_file=str(tmp_path / "own.npz"), partition_method="user")
    eight = (3, 2, None, [(x, y)], {0: 1, 1: 2}, {}, {}, 2)
    silo = RunSettings(data=replace(data, own_data_file=str(tmp_path / "silo{rank}.npz")))
    for loaded, clients in (
        (lambda: load(RunSettings(data=data)), "0, 1"),
        (lambda: from_fedml(eight), "0"),
        (lambda: load_for_rank(silo, 1), "0"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
            loaded()
        assert f"client {clients} has a single sample" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(RunSettings(data=replace(data, min_samples=2)))
    assert "single sample" not in caplog.text
