"""Calibrated probabilities, prediction sets and decisions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms.evaluation import LOGIT_EDGES, EvaluationCounts, evaluate
from mrtf_fedml.diagnostics.accuracy_estimate import estimate_accuracy
from mrtf_fedml.diagnostics.label_trust import Calibration, fit_confidence, summarize_trust
from mrtf_fedml.training.outputs import ABSTAIN, LabelTrust, format_predictions


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x


def draw(samples: int, seed: int, sharpness: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits of an overconfident model, and labels: the true probabilities are those of the logits over 3."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, 4, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
    return logits * sharpness, labels


def evaluations(clients: int = 10, samples: int = 100) -> dict[int, EvaluationCounts]:
    model = Fixed()
    return {
        client: evaluate(model, model.state_dict(), [draw(samples, seed=client)], classes=4)
        for client in range(clients)
    }


@pytest.fixture(scope="module")
def trust() -> tuple[LabelTrust, Tensor, Tensor]:
    reported = evaluations()
    logits, labels = draw(2000, seed=99)
    estimate = estimate_accuracy(reported, logits.argmax(dim=1))
    assert estimate is not None
    return Calibration.fit(reported, 0.9, None).assess(logits.softmax(dim=1), estimate.accuracy), logits, labels


def test_probabilities_of_an_overconfident_model_are_calibrated(trust: tuple[LabelTrust, Tensor, Tensor]) -> None:
    assessed, logits, labels = trust
    correct = (logits.argmax(dim=1) == labels).double()
    parts = np.array_split(assessed.probability_correct.argsort().numpy(), 10)
    error = np.mean([abs(float(assessed.probability_correct[part].mean() - correct[part].mean())) for part in parts])
    confidence = logits.softmax(dim=1).max(dim=1).values
    raw = np.mean([abs(float(confidence[part].mean() - correct[part].mean())) for part in parts])
    assert error < 0.05 < raw


def test_prediction_sets_contain_the_truth_as_often_as_asked(trust: tuple[LabelTrust, Tensor, Tensor]) -> None:
    assessed, logits, labels = trust
    covered = float(assessed.prediction_sets.gather(1, labels[:, None]).double().mean())
    assert 0.87 <= covered <= 0.95
    assert assessed.prediction_sets.gather(1, logits.argmax(dim=1)[:, None]).all(), "the label is in its own set"
    assert torch.equal(assessed.is_accepted, assessed.prediction_sets.sum(dim=1) == 1)


def test_accept_gives_only_labels_that_are_right_often_enough() -> None:
    reported = evaluations()
    logits, labels = draw(2000, seed=98)
    estimate = estimate_accuracy(reported, logits.argmax(dim=1))
    assert estimate is not None
    assessed = Calibration.fit(reported, 0.9, 0.8).assess(logits.softmax(dim=1), estimate.accuracy)
    right = (logits.argmax(dim=1) == labels)[assessed.is_accepted].double()
    assert 100 < len(right) < 2000
    assert float(right.mean()) >= 0.8
    summary = summarize_trust(assessed, 0.9)
    assert summary["samples_accepted"] == len(right)
    assert summary["accepted_accuracy"] == pytest.approx(float(right.mean()), abs=0.05)


def test_few_held_out_samples_give_sets_of_all_classes() -> None:
    reported = evaluations(clients=2, samples=4)
    logits, _ = draw(50, seed=97)
    estimate = estimate_accuracy(reported, logits.argmax(dim=1))
    assert estimate is not None
    assessed = Calibration.fit(reported, 0.95, None).assess(logits.softmax(dim=1), estimate.accuracy)
    assert assessed.prediction_sets.all()
    assert not assessed.is_accepted.any()


def test_without_an_estimate_probabilities_are_empty_and_accept_abstains() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    given = format_predictions(probabilities, ["a", "b"], ["x", "y"], LabelTrust.empty(probabilities)).splitlines()
    assert given[1] == "0,a,0,x,0.900000,,,x"
    withheld = LabelTrust.empty(probabilities, accept=0.9)
    assert format_predictions(probabilities, ["a", "b"], ["x", "y"], withheld).count(ABSTAIN) == 2
    assert summarize_trust(withheld, 0.9)["samples_accepted"] == 0
    assert summarize_trust(withheld, 0.9)["acceptable"] is None


def test_predictions_file_has_probability_set_and_decision() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.45, 0.55], [0.8, 0.2]])
    sets = torch.tensor([[True, False], [True, True], [True, False]])
    is_unknown = torch.tensor([False, False, True])
    known = LabelTrust(torch.tensor([0.97, 0.5, 0.9]), sets, sets.sum(dim=1) == 1, torch.zeros_like(is_unknown))
    known = known.with_unknown_samples(torch.tensor([1.0, 1.0, 0.25]), is_unknown)
    lines = format_predictions(probabilities, ["a", "b", "c"], ["x", "y"], known).splitlines()
    assert lines[1:] == [
        "0,a,0,x,0.900000,0.970000,x,x",
        "1,b,1,y,0.550000,0.500000,x | y,abstain",
        "2,c,0,x,0.800000,0.225000,x,unknown",
    ]
    assert summarize_trust(known, 0.9)["samples_unknown"] == 1
    labelled = known.with_known_labels(torch.tensor([-1, -1, 1]))
    assert labelled.decisions(["x", "y", "y"]) == ["x", "abstain", "y"], "a sample with a label is of a known class"


def test_stored_calibration_gives_the_same_trust_to_more_samples() -> None:
    fitted = Calibration.fit(evaluations(), coverage=0.9, accept=0.8)
    stored = Calibration.from_json(json.loads(json.dumps(fitted.to_json())))
    assert stored == fitted
    logits, labels = draw(4000, seed=99)
    trust = stored.assess(logits.softmax(dim=1))
    right = logits.argmax(dim=1) == labels
    # Like the clients' samples: their histogram needs no correction.
    assert float(trust.probability_correct.mean()) == pytest.approx(float(right.double().mean()), abs=0.03)
    assert float(right[trust.is_accepted].double().mean()) > 0.8
    assert Calibration.from_json({}) is None
    assert Calibration.from_json({**fitted.to_json(), "slope": "steep"}) is None


def test_calibration_without_an_error_trusts_unsure_labels_less() -> None:
    logits = torch.tensor([[2.0, 0.0], [4.0, 0.0], [6.0, 0.0]]).repeat(27, 1)
    model = Fixed()
    reported = {0: evaluate(model, model.state_dict(), [(logits, torch.zeros(81, dtype=torch.int64))], classes=2)}
    unsure, sure = torch.tensor([[0.55, 0.45]]).repeat(10, 1), torch.tensor([[0.99, 0.01]]).repeat(90, 1)
    assessed = Calibration.fit(reported, 0.9, None).assess(torch.cat([unsure, sure]), accuracy=0.999)
    assert float(assessed.probability_correct[:10].max()) < 0.95 < float(assessed.probability_correct[10:].min())
    assert float(assessed.probability_correct.mean()) == pytest.approx((0.999 * 81 + 1) / 83)


def test_a_class_that_is_often_wrong_gets_a_lower_probability() -> None:
    """Class 1 is predicted with the same confidence as class 0, and is right half as often."""
    histogram = np.zeros((3, 2, len(LOGIT_EDGES) + 1))
    histogram[0, :, 30], histogram[1, :, 30] = (5, 95), (50, 50)
    slope, intercepts = fit_confidence(histogram)
    score = slope * (LOGIT_EDGES[29] + LOGIT_EDGES[30]) / 2
    right = [1 / (1 + np.exp(-score - each)) for each in intercepts]
    assert right[0] == pytest.approx(0.95, abs=0.02)
    assert right[1] == pytest.approx(0.5, abs=0.03)
    assert right[1] < right[2] < right[0], "a class that was never predicted is between the others"
