"""Whether the server's samples are of one class or of several, by what the local models say of them (`shares_fade`)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from mrtf_fedml.refinery import distillation_targets
from mrtf_fedml.refinery.rectify import class_balanced
from mrtf_fedml.refinery.shares import floored_shares, information, named_shares, one_kinds_shares, tie
from mrtf_fedml.refinery.teachers import disagreement, votes_of
from mrtf_fedml.settings import MrTFSettings

from .test_trust import rng_logits

TUNED = MrTFSettings(class_balance=0.5, class_shares="estimated", shares_fade=0.25, cluster_refinery=False)
BEFORE = replace(TUNED, shares_fade=0.0)


def test_the_tie_by_hand() -> None:
    # P: (0, 2) 1/2, (1, 2) 1/4, (1, 3) 1/4, |P|^2 = 6/16. Alone: [1/2, 1/2], |p|^2 = 1/2, and [3/4, 1/4], 10/16.
    # P times the product, summed: 1/2 * 3/8 + 1/4 * 3/8 + 1/4 * 1/8 = 5/16, which is the product's own size.
    # So the distance is 6/16 - 10/16 + 5/16 = 1/16; chance has (1 - 6/16) / 100 of it; T^2 = (1/16 - 1/160) / (5/16).
    votes = torch.tensor([[0, 0, 1, 1], [2, 2, 2, 3]], dtype=torch.uint8).repeat(1, 25)
    assert tie(votes) == pytest.approx(math.sqrt(0.18), abs=1e-12)
    assert tie(votes[:, :4]) == 0.0, "four samples prove nothing"


@pytest.mark.parametrize("clients", [2, 3, 5])
def test_the_tie_agrees_with_a_second_reading(clients: int) -> None:
    votes = votes_of(rng_logits(clients, clients=clients, samples=200))
    votes[1] = torch.where(torch.arange(200) % 3 > 0, votes[0], votes[1])
    squares = []
    for first in range(clients):
        for second in range(first):
            table = np.zeros((5, 5))
            for one, other in zip(votes[first].tolist(), votes[second].tolist(), strict=True):
                table[one, other] += 1 / 200
            product = np.outer(table.sum(axis=1), table.sum(axis=0))
            beyond = ((table - product) ** 2).sum() - (1 - (table**2).sum()) / 200
            squares.append(max(0.0, beyond) / (product**2).sum())
    assert tie(votes) == pytest.approx(math.sqrt(np.mean(squares)), abs=1e-12)
    assert tie(votes) > 0.1


def test_the_tie_at_its_ends() -> None:
    labels = torch.arange(6000)
    for classes in (1, 2, 3, 10):
        alike = (labels % classes).expand(4, -1)
        assert tie(alike) == pytest.approx(math.sqrt(classes - 1), rel=0.02), classes
    # Models that never name the same class, but tell the same samples apart.
    assert tie(torch.stack([labels % 2, 2 + labels % 2])) == pytest.approx(1.0, abs=0.01)
    assert tie(torch.zeros(1, 9, dtype=torch.uint8)) == 1.0, "one alone is tied to nobody"


def test_what_models_tell_by_a_sample() -> None:
    # Of two samples: always [1/4, 3/4] tells nothing; first one class, then the other, tells log 2.
    parts = torch.tensor([[[0.25, 0.75], [0.25, 0.75]], [[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    assert information([parts[:1]]) == pytest.approx(0.0, abs=1e-9)
    assert information([parts]) == pytest.approx(math.log(2) / 2, abs=1e-9)
    probabilities = rng_logits(2, samples=50).softmax(dim=-1)
    assert information([probabilities]) == information(probabilities.split(7, dim=1)), "to the last bit"


def test_towards_what_is_named_by_hand() -> None:
    q = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.4, 0.3, 0.3]], dtype=torch.float64)
    assert named_shares(q).tolist() == [0.75, 0.25, 0.0]
    # (1 - 1/2) [.2, .3, .5] + 1/2 [.75, .25, 0]
    towards = one_kinds_shares(torch.tensor([0.2, 0.3, 0.5]), q, 0.5)
    np.testing.assert_allclose(towards.numpy(), [0.475, 0.275, 0.25], atol=1e-7)
    first = one_kinds_shares(None, q, 1.0)
    assert first.tolist() == [0.75, 0.25, 0.0]


def scene(
    classes: int, clear: float = 1.5, varying: float = 1.0, rounds: int = 5
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Labels of 300 samples, and what four models of three classes each say of them in each round, [4, 300, 10]."""
    labels = np.random.default_rng(1).integers(0, classes, size=300)
    said = []
    for t in range(rounds):
        rng = np.random.default_rng(10 + t)
        # Each knows the first class: a server of that class alone is known to all.
        own = np.stack([[0, *rng.choice(np.arange(1, 10), 2, replace=False)] for _ in range(4)])
        logits = varying * rng.normal(size=(4, 300, 10))
        for k, has in enumerate(own):
            logits[k][:, has] += [3.2, 3.1, 3.0]
            for c in range(classes):
                # What a model does not know it takes for one of its own, always the same.
                logits[k][labels == c, c if c in has else rng.choice(has)] += clear * varying
        said.append(torch.from_numpy(logits))
    return torch.from_numpy(labels), said


def curve(labels: torch.Tensor, said: list[torch.Tensor], settings: MrTFSettings) -> tuple[float, list[torch.Tensor]]:
    shares, made = None, []
    for logits in said:
        votes = votes_of(logits)
        given = distillation_targets(
            logits, None, None, 0.5, settings, shares=shares, unlike=disagreement(votes), tied=tie(votes)
        )
        shares = given.shares
        made.append(given.probabilities)
    return float(np.mean([float((one.argmax(dim=1) == labels).double().mean()) for one in made])), made


def test_a_server_of_one_class_is_not_given_others() -> None:
    labels, said = scene(classes=1)
    assert max(tie(votes_of(one)) for one in said) < 0.15
    before, now = curve(labels, said, BEFORE)[0], curve(labels, said, TUNED)[0]
    assert now > before + 0.1, (before, now)


def test_a_server_of_all_classes_is_left_as_it_is() -> None:
    labels, said = scene(classes=10, clear=2.5)
    assert min(tie(votes_of(one)) for one in said) > 0.25
    for one, other in zip(curve(labels, said, BEFORE)[1], curve(labels, said, TUNED)[1], strict=True):
        assert torch.equal(one, other)


def test_models_that_know_nothing_yet_do_not_make_it_one_class() -> None:
    labels, said = scene(classes=10, varying=0.02)
    assert max(tie(votes_of(one)) for one in said) < 0.25
    for one, other in zip(curve(labels, said, BEFORE)[1], curve(labels, said, TUNED)[1], strict=True):
        torch.testing.assert_close(one, other, atol=0.01, rtol=0)


def test_where_all_are_one_class_the_ensemble_goes_towards_what_it_names() -> None:
    _, said = scene(classes=1)
    plain = distillation_targets(said[0], None, None, 0.5, replace(TUNED, class_balance=0.0)).probabilities
    assert float(named_shares(plain).max()) > 0.6
    given = distillation_targets(said[0], None, None, 0.5, TUNED, tied=0.1).probabilities
    wanted = class_balanced(plain, 0.5, floored_shares(named_shares(plain), 10))
    torch.testing.assert_close(given, wanted)
    assert torch.equal(given, distillation_targets(said[0], None, None, 0.5, TUNED, tied=0.1, rows=64).probabilities)
    # Half way between 0.6 of the bound and the bound, half of the way.
    half = distillation_targets(said[0], None, None, 0.5, TUNED, tied=0.2).probabilities
    towards = one_kinds_shares(None, plain, 0.5)
    torch.testing.assert_close(half, class_balanced(plain, 0.5, floored_shares(towards, 10)))


def test_equal_shares_stay_equal() -> None:
    _, said = scene(classes=1)
    equal = replace(TUNED, class_shares="equal")
    given = distillation_targets(said[0], None, None, 0.5, equal, tied=0.0).probabilities
    assert torch.equal(given, distillation_targets(said[0], None, None, 0.5, equal, tied=1.0).probabilities)
