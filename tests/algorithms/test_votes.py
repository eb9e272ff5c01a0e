"""What a client tells of the models that it judges, also weighed by the server's classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, algorithm_of
from mrtf_fedml.algorithms.votes import VOTES, class_weights, unusable_votes, votes_on
from mrtf_fedml.algorithms.witnesses import WITNESSES
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings

ALWAYS = {
    name: {"weight": torch.zeros(2, 1), "bias": torch.tensor(bias)}
    for name, bias in (("zero", [1.0, 0.0]), ("one", [0.0, 1.0]))
}


def told(labels: list[int], shares: list[float] | None) -> list[float]:
    """By a client with these samples, of a model that says 0 always and one that says 1."""
    data = [(torch.zeros(1, 1), torch.tensor([label])) for label in labels]
    weighed = None if shares is None else torch.tensor(shares, dtype=torch.float64)
    return votes_on(nn.Linear(1, 2), [ALWAYS["zero"], ALWAYS["one"]], data, weighed).tolist()


def test_weighed_votes_by_hand() -> None:
    mine = [0, 0, 1, 0]
    assert told(mine, None) == [3, 1, 4]
    same = told(mine, [0.75, 0.25])
    assert same[:6] == [3, 1, 4, 3, 1, 4], "the server's classes are the client's: nothing is weighed"
    # A zero counts 0.5 * 4 / 3 and the one 0.5 * 4 / 1: both classes have the same say.
    assert told(mine, [0.5, 0.5])[:6] == pytest.approx([3, 1, 4, 2, 2, 4])
    assert told(mine, [1.0, 0.0])[:6] == pytest.approx([3, 1, 4, 4, 0, 4])
    # Who has half of the server's classes has half of its samples' say, and who has none of them has no say.
    assert told([0, 0, 0, 0], [0.5, 0.5])[:6] == pytest.approx([4, 0, 4, 2, 0, 2])
    assert told([1, 1], [1.0, 0.0])[:6] == [0, 2, 2, 0, 0, 0]


def test_how_far_samples_are_named_as_the_servers_are() -> None:
    # The refined model names all four a one. A server whose samples are named so too: all four are alike.
    assert told([0, 0, 1, 0], [0.0, 1.0])[6] == 4
    assert told([0, 0, 1, 0], [1.0, 0.0])[6] == 0
    assert told([0, 0, 1, 0], [0.75, 0.25])[6] == pytest.approx(4 * 0.25 / (0.75**2 + 0.25**2))


def test_one_sample_does_not_speak_for_its_class() -> None:
    # Half of an equal share of 20 samples are 5: the single one counts 0.5 * 20 / 5, not 0.5 * 20 / 1.
    assert told([0] * 19 + [1], [0.5, 0.5])[:6] == pytest.approx([19, 1, 20, 10, 2, 12])
    assert class_weights(torch.zeros(3), torch.ones(3) / 3).tolist() == [0, 0, 0], "who has nothing to judge with"


def test_labels_that_are_no_class_are_asked_for_and_never_weighed() -> None:
    assert told([0, 1, -1, 7], [0.5, 0.5])[:6] == [1, 1, 4, 1, 1, 2]


def test_votes_at_positions_are_weighed_by_each_position_s_class() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bias[None, :, None].expand(len(x), 2, 4)

    data = [(torch.zeros(1, 4), torch.tensor([[0, 0, 0, 1]]))]
    votes = votes_on(Positions(), [{"bias": torch.tensor([1.0, 0.0])}], data, torch.tensor([0.5, 0.5]))
    assert votes.tolist() == pytest.approx([3, 4, 2, 4, 4])


@pytest.mark.parametrize(
    ("votes", "usable"),
    [
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 6.0], True),
        ([3.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0], True),
        ([3.0, 4.0, 5.0, 2.0, 4.5, 4.0, 5.0], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 6.0, 5.0], False),
        ([3.0, 4.0, 5.0, -2.0, 3.0, 4.0, 5.0], False),
        ([6.0, 4.0, 5.0, 2.0, 3.0, 4.0, 5.0], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0, -1.0], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 1e300], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0], False),
        ([], False),
    ],
)
def test_weighed_votes_that_no_client_can_have_are_refused(votes: list[float], usable: bool) -> None:
    update = ClientUpdate(0, 9, {}, None, {VOTES: torch.tensor(votes, dtype=torch.float64)})
    assert (unusable_votes(update) is None) == usable


@pytest.mark.parametrize(
    ("witnesses", "usable"),
    [
        ([1.0, 2.0, 2.0], True),
        ([0.0, 0.0, 0.0], True),
        ([3.0, 2.0, 2.0], False),
        ([1.0, 2.0, 6.0], False),
        ([-1.0, 2.0, 2.0], False),
        ([1.0, 2.0], False),
    ],
)
def test_witnesses_that_no_client_can_have_are_refused(witnesses: list[float], usable: bool) -> None:
    told = {VOTES: torch.tensor([3.0, 4.0, 5.0]), WITNESSES: torch.tensor(witnesses)}
    assert (unusable_votes(ClientUpdate(0, 9, {}, None, told)) is None) == usable


def test_a_client_that_is_told_the_classes_tells_seven_numbers_and_trains_the_same() -> None:
    algorithm = algorithm_of(small_settings(preset="tuned"))
    model, start = nn.Linear(1, 2), {name: value.clone() for name, value in nn.Linear(1, 2).state_dict().items()}
    data = [(torch.ones(4, 1), torch.tensor([0, 0, 1, 0]))]
    models = {f"refinery/refined/{name}": value for name, value in start.items()}
    classes = {"refinery/classes": torch.tensor([0.5, 0.5], dtype=torch.float64)}
    plain, weighed = (
        algorithm.train_client(model, ClientTask(4, 1, start, data, 4, extra)) for extra in (models, models | classes)
    )
    assert plain.extra[VOTES].shape == (3,)
    assert weighed.extra[VOTES].shape == (7,)
    assert torch.equal(weighed.extra[VOTES][:3], plain.extra[VOTES])
    assert all(torch.equal(weighed.weights[name], value) for name, value in plain.weights.items())


def test_whose_classes_the_estimate_is_of_is_the_users_to_say() -> None:
    def settled(**changes: Any) -> str:
        return str(algorithm_of(small_settings(**changes)).own.estimate_classes)

    assert settled(preset="tuned") == "server"
    assert settled(preset="tuned", estimate_classes="clients") == "clients"
    assert settled(client_judgement=True) == settled() == "clients"
    assert settled(preset="tuned", clip=1.0, sigma=1.0) == "clients", "nobody judges"
    with pytest.raises(UserError, match="estimate_classes is 'server' but no client judges; set client_judgement"):
        settled(estimate_classes="server")
