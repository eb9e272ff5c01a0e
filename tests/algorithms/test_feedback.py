"""What the next clients receive: how far the refined model is sent back, on bases of either kind."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from mrtf_fedml.algorithms import Algorithm, ClientUpdate, FedAvg, Scaffold
from mrtf_fedml.algorithms.feedback import between, next_start
from mrtf_fedml.algorithms.verdict import Verdict
from mrtf_fedml.algorithms.votes import VOTES
from mrtf_fedml.refinery.refine import RefinedRound

from .test_server_rules import settings

REFINED, AGGREGATED = OrderedDict(w=torch.tensor([1.0])), OrderedDict(w=torch.tensor([0.0]))
#: Targets that tell samples apart, and such that say the same of all.
APART, ALIKE = torch.eye(4), torch.tensor([[0.5, 0.25, 0.125, 0.125]]).expand(4, 4)


def found(gain: int) -> Verdict:
    """Two clients of a hundred samples who agree by how many the refined model has more right."""
    told = [torch.tensor([40.0, 40.0 + gain, 100.0]), torch.tensor([20.0, 20.0 + gain, 100.0])]
    updates = [ClientUpdate(client, 100, {}, None, {VOTES: votes}) for client, votes in enumerate(told)]
    return Verdict.after([], updates, "judged")


def a_round(targets: torch.Tensor) -> RefinedRound:
    return RefinedRound(
        weights=REFINED,
        targets=targets,
        ensemble=targets,
        aggregated_logits=targets,
        local_weight=1.0,
        loss=0.0,
        votes=targets.argmax(dim=1)[None],
        shares=None,
    )


def sent_back(
    feedback: str, base: type[Algorithm], gain: int, relative: float = 0.5, targets: torch.Tensor = APART
) -> float:
    start = next_start(feedback, a_round(targets), AGGREGATED, relative, found(gain), base(settings()))
    return float(start["w"])


def test_a_share_of_nothing_or_of_all_is_the_model_itself() -> None:
    assert between(REFINED, AGGREGATED, 0.0) is AGGREGATED
    assert between(REFINED, AGGREGATED, 1.0) is REFINED
    assert float(between(REFINED, AGGREGATED, 0.25)["w"]) == 0.25


@pytest.mark.parametrize(
    ("gain", "plain", "with_state"),
    [(-10, 0.0, 0.0), (0, 0.0, 0.0), (10, 0.25, 0.0), (15, 0.375, 0.25), (20, 0.5, 0.5), (60, 0.5, 0.5)],
)
def test_clients_that_keep_state_are_sent_only_what_is_better_by_more_than_a_tenth(
    gain: int, plain: float, with_state: float
) -> None:
    assert sent_back("judged", FedAvg, gain) == pytest.approx(plain)
    assert sent_back("judged", Scaffold, gain) == pytest.approx(with_state)


def test_what_says_the_same_of_every_sample_is_not_sent_back_however_right_it_is() -> None:
    assert sent_back("judged", FedAvg, gain=60, targets=ALIKE) == 0.0
    # A hundredth of the samples told apart: I = H(0.01) = 0.056 nats of the 0.5 that would be enough.
    few = torch.eye(2)[(torch.arange(100) == 0).long()]
    assert sent_back("judged", FedAvg, gain=60, targets=few) == pytest.approx(0.5 * 0.056 / 0.5, rel=1e-2)
    assert sent_back("always", FedAvg, gain=60, targets=ALIKE) == 1.0
    assert sent_back("adaptive", FedAvg, gain=60, targets=ALIKE) == 0.5


def test_other_words_do_not_ask_the_clients() -> None:
    for base in (FedAvg, Scaffold):
        assert sent_back("always", base, gain=0) == 1.0
        assert sent_back("never", base, gain=60) == 0.0
        assert sent_back("adaptive", base, gain=0, relative=0.25) == 0.25
