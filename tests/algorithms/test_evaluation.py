"""What a client counts when it evaluates the model that predicts."""

from __future__ import annotations

import torch
from torch import nn

from mrtf_fedml.algorithms.evaluation import LOGIT_EDGES, EvaluationCounts, evaluate, weight_caps
from mrtf_fedml.algorithms.input_cells import InputCells


class Fixed(nn.Module):
    """Returns its inputs as logits."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_evaluate_counts_by_hand() -> None:
    model = Fixed()
    # Probabilities of class 0: 0.9, 0.9, 0.1; the third label is no class.
    logits = torch.logit(torch.tensor([[0.9], [0.9], [0.1], [0.5]]))
    data = [(torch.cat([logits, torch.zeros(4, 1)], dim=1), torch.tensor([0, 1, 1, 7]))]
    counts = evaluate(model, model.state_dict(), data, classes=2)
    assert counts.confusion.tolist() == [[1, 0], [1, 1]]
    assert counts.samples == 3
    high, low = (
        int((torch.logit(torch.tensor(p, dtype=torch.float64)).item() >= LOGIT_EDGES).sum()) for p in (0.9, 0.1)
    )
    assert counts.confidence[:, :, high].tolist() == [[1, 1], [0, 1]], "predicted 0, once wrong; predicted 1"
    assert (counts.true_class[high], counts.true_class[low]) == (2, 1)
    assert counts.confidence.sum() == counts.true_class.sum() == 3


def test_evaluate_counts_each_position_of_a_sample() -> None:
    model = Fixed()
    logits = torch.tensor([[[2.0, 2.0, -2.0], [0.0, 0.0, 0.0]]])  # [N, C, T]
    counts = evaluate(model, model.state_dict(), [(logits, torch.tensor([[0, 1, 1]]))], classes=2)
    assert counts.confusion.tolist() == [[1, 0], [1, 1]]
    assert counts.samples == 3


def test_counts_survive_payload_and_json() -> None:
    model = Fixed()
    data = [(torch.randn(9, 3), torch.arange(9) % 3)]
    cells = InputCells.fit(torch.randn(30, 3), classes=3)
    counts = evaluate(model, model.state_dict(), data, 3, data, cells)
    assert counts.cells.sum() == 9 * len(counts.cells)
    received = EvaluationCounts.from_payload(counts.to_payload())
    assert received is not None
    assert received.to_json() == EvaluationCounts.from_json(counts.to_json()).to_json() == counts.to_json()
    assert received.is_possible(classes=3, most=9, input_cells=cells)
    assert not received.is_possible(classes=3, most=8, input_cells=cells)
    empty = EvaluationCounts.zeros(3)
    assert EvaluationCounts.from_json(empty.to_json()).to_json() == empty.to_json(), "a client without samples"


def test_weight_caps_bound_a_claimed_number_of_samples() -> None:
    assert weight_caps([10, 10, 10, 10, 100000]) == [1, 1, 1, 1, 20 / 100000]
    assert weight_caps([]) == []
