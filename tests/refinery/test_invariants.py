"""What holds of the targets whatever the numbers, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from .cases import SWITCHES, TOLERANCE, Case, complete_case, every_dtype, random_case, targets_of


def close(actual: torch.Tensor, expected: object, tolerance: float = 1e-6, where: object = "") -> None:
    given, wanted = actual.double().numpy(), np.asarray(expected)
    np.testing.assert_allclose(given, wanted, rtol=0, atol=tolerance, err_msg=str(where))


def check_distributions(rows: torch.Tensor, shape: tuple[int, ...], where: object = "") -> None:
    assert rows.shape == shape, where
    assert torch.isfinite(rows).all(), where
    assert (rows >= 0).all(), where
    close(rows.double().sum(dim=-1), np.ones(len(rows)), where=where)


@every_dtype
def test_rows_are_distributions(dtype: torch.dtype) -> None:
    for switches in SWITCHES:
        rng = np.random.default_rng(31)
        for _ in range(6):
            case = random_case(rng, dtype)
            result = targets_of(case, **switches)
            check_distributions(result.ensemble, case.local_logits.shape[1:], switches)
            check_distributions(result.targets, case.local_logits.shape[1:], switches)
            assert 0.25 <= result.local_weight <= 1, switches


@every_dtype
def test_order_of_clients_does_not_matter(dtype: torch.dtype) -> None:
    case = complete_case(32, dtype)
    for switches in SWITCHES:
        expected = targets_of(case, **switches).targets.double()
        for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
            shuffled = Case(case.local_logits[order], case.global_logits, case.features, case.train_loss)
            close(targets_of(shuffled, **switches).targets, expected, where=(order, switches))


def test_samples_and_classes_have_no_order_either() -> None:
    case = complete_case(33)
    rng = np.random.default_rng(33)
    rows, columns = (rng.permutation(size) for size in case.local_logits.shape[1:])
    shuffled = Case(
        case.local_logits[:, rows][:, :, columns],
        case.global_logits[:, rows][:, :, columns],
        case.features[rows],
        case.train_loss,
    )
    for switches in SWITCHES:
        expected = targets_of(case, **switches).targets
        close(targets_of(shuffled, **switches).targets, expected[rows][:, columns], where=switches)


def test_inputs_and_random_state_are_left_alone() -> None:
    case = complete_case(34)
    before = [tensor.clone() for tensor in case.tensors()]
    state = torch.get_rng_state()
    for switches in SWITCHES:
        result = targets_of(case, **switches)
        result.targets.add_(1)
        for tensor, old in zip(case.tensors(), before, strict=True):
            assert torch.equal(tensor, old), switches
        assert torch.equal(torch.get_rng_state(), state), switches


@every_dtype
def test_magnitude_of_one_client(dtype: torch.dtype) -> None:
    case = complete_case(35, dtype)
    by_logit = {"teacher": "avg_logit"}
    for client, factor in itertools.product((0, 3), (100.0, 0.01)):
        where = f"client {client}, factor {factor}"
        scaled = Case(case.local_logits.clone(), case.global_logits, case.features, case.train_loss)
        scaled.local_logits[client] *= factor
        close(targets_of(scaled).targets, targets_of(case).targets.double(), where=where)
        moved = targets_of(scaled, **by_logit).ensemble - targets_of(case, **by_logit).ensemble
        assert moved.abs().max() > 0.01, where


@every_dtype
def test_constant_models_give_uniform_targets(dtype: torch.dtype) -> None:
    local = torch.tensor([0.1, -3.0, 7.7], dtype=dtype).reshape(3, 1, 1).expand(3, 5, 4)
    case = Case(local, torch.full((2, 5, 4), 0.3, dtype=dtype), None, 0.2)
    for switches in SWITCHES:
        close(targets_of(case, **switches).targets, np.full((5, 4), 0.25), 1e-7, switches)


@every_dtype
@pytest.mark.parametrize("size", [1e30, 1e-30], ids=["huge", "tiny"])
def test_huge_and_tiny_numbers(size: float, dtype: torch.dtype) -> None:
    case = complete_case(36, dtype)
    case = Case(case.local_logits * size, case.global_logits * size, case.features * size, case.train_loss)
    for switches in SWITCHES:
        result, expected = targets_of(case, **switches), case.expected(switches)
        check_distributions(result.targets, case.local_logits.shape[1:], switches)
        close(result.ensemble, expected.ensemble, TOLERANCE[dtype], switches)
        close(result.targets, expected.targets, TOLERANCE[dtype], switches)


@pytest.mark.parametrize(
    "shape", [(1, 9, 3, 2), (4, 1, 3, 2), (1, 1, 2, 1)], ids=["one client", "one sample", "one of each"]
)
def test_one_client_or_one_sample(shape: tuple[int, ...]) -> None:
    case = complete_case(37, shape=shape)
    for switches in SWITCHES:
        expected = case.expected(switches).targets
        close(targets_of(case, **switches).targets, expected, 1e-10, switches)


def test_all_zero_features_give_uniform_rows() -> None:
    case = complete_case(38)
    case.features = torch.zeros_like(case.features)
    close(targets_of(case).targets, np.full((11, 6), 1 / 6))


@every_dtype
def test_class_without_mass_agrees_with_the_oracle(dtype: torch.dtype) -> None:
    # At logits of 1e4 a plain softmax underflows to exactly zero in the last class.
    case = complete_case(39, dtype)
    case.local_logits[:, :, -1] = -1e4
    case.global_logits = None
    result = targets_of(case, teacher="avg_logit")
    assert (result.ensemble[:, -1] == 0).all()
    check_distributions(result.targets, (11, 6))
    expected = case.expected({**SWITCHES[0], "teacher": "avg_logit"})
    close(result.targets, expected.targets, TOLERANCE[dtype])


def test_loss_of_nan_is_refused() -> None:
    case = complete_case(40)
    case.train_loss = float("nan")
    with pytest.raises(ValueError, match="loss"):
        targets_of(case)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("local_logits", (11, 6)),
        ("local_logits", (0, 11, 6)),
        ("local_logits", (5, 0, 6)),
        ("global_logits", (3, 11, 6)),
        ("global_logits", (2, 10, 6)),
        ("global_logits", (2, 11, 5)),
        ("global_logits", (11, 6)),
        ("features", (10, 4)),
        ("features", (11,)),
        ("features", (11, 2, 2)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name: str, shape: tuple[int, ...]) -> None:
    case = complete_case(41)
    setattr(case, name, torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ValueError, match=name):
        targets_of(case)
