"""Which weights are broadcast and which predict."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
import torch

from mrtf_fedml.algorithms import MrTF, RoundReport, ServerState
from mrtf_fedml.algorithms.mrtf.client_validation import COUNTS, CandidateCounts, ValidationSummary
from mrtf_fedml.algorithms.mrtf.components import RoundContext
from mrtf_fedml.algorithms.mrtf.model_selection import BROADCASTS, interpolate
from mrtf_fedml.algorithms.server_context import ModelPredictions
from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.models.state_dict import mix

from ..test_server_rules import equal, server_setup, settings

REFINED, AGGREGATED = OrderedDict(w=torch.tensor([1.0])), OrderedDict(w=torch.tensor([0.0]))
#: Targets that differ between samples, and targets that are equal for all.
DIFFERENT, SAME = torch.eye(4), torch.tensor([[0.5, 0.25, 0.125, 0.125]]).expand(4, 4)
FOUND_BETTER = {"base": (10, 9, 2), "refined": (10, 2, 9), "neither": (10, 5, 5)}
VALIDATED = {"client_validation": True, "predict_with": "client_validated", "broadcast": "aggregated"}


def broadcast_share(
    rule: str, gain: int, relative: float = 0.5, targets: torch.Tensor = DIFFERENT, keeps_client_state: bool = False
) -> float:
    """What is broadcast after two clients of a hundred samples agree by how many the refined model has more right."""
    counts = [CandidateCounts(100, base, base + gain) for base in (40, 20)]
    logits = targets.unsqueeze(0)
    context = RoundContext(
        round=3,
        train_loss=relative * float(torch.log(torch.tensor(4.0))),
        classes=4,
        predictions=ModelPredictions(logits, logits.argmax(dim=2), targets),
        disagreement=1.0,
        temperature=4.0,
        targets=targets,
        validation=ValidationSummary([counts]),
        base_keeps_client_state=keeps_client_state,
    )
    selection = BROADCASTS[rule](MrTFSettings())
    return float(selection.select(REFINED, AGGREGATED, context, {})["w"])


def test_interpolate_with_zero_or_one_returns_the_same_object() -> None:
    assert interpolate(REFINED, AGGREGATED, 0.0) is AGGREGATED
    assert interpolate(REFINED, AGGREGATED, 1.0) is REFINED
    assert float(interpolate(REFINED, AGGREGATED, 0.25)["w"]) == 0.25


@pytest.mark.parametrize(
    ("gain", "plain", "with_state"),
    [(-10, 0.0, 0.0), (0, 0.0, 0.0), (10, 0.25, 0.0), (15, 0.375, 0.25), (20, 0.5, 0.5), (60, 0.5, 0.5)],
)
def test_client_validated_broadcast_needs_a_gain_of_a_tenth_where_clients_keep_state(
    gain: int, plain: float, with_state: float
) -> None:
    assert broadcast_share("client_validated", gain) == pytest.approx(plain)
    assert broadcast_share("client_validated", gain, keeps_client_state=True) == pytest.approx(with_state)


def test_uninformative_targets_are_not_broadcast_however_right_they_are() -> None:
    assert broadcast_share("client_validated", gain=60, targets=SAME) == 0.0
    # A hundredth of the samples separated: I = H(0.01) = 0.056 nats of the 0.5 that would be enough.
    few = torch.eye(4)[(torch.arange(100) == 0).long()]
    assert broadcast_share("client_validated", gain=60, targets=few) == pytest.approx(0.5 * 0.056 / 0.5, rel=1e-2)
    assert broadcast_share("refined", gain=60, targets=SAME) == 1.0
    assert broadcast_share("loss_interpolated", gain=60, targets=SAME) == pytest.approx(0.5)


def test_other_rules_do_not_read_the_validation() -> None:
    assert broadcast_share("refined", gain=0) == 1.0
    assert broadcast_share("aggregated", gain=60) == 0.0
    assert broadcast_share("loss_interpolated", gain=0, relative=0.25) == pytest.approx(0.25)


def validated_round(better: str | None = None, **refinery: Any) -> tuple[MrTF, ServerState, RoundReport, Any]:
    """A round that follows one in which all clients found the same model better, and its average."""
    server, updates, state = server_setup()
    if better is not None:
        counts = torch.tensor(FOUND_BETTER[better])
        updates = [replace(update, payload={**update.payload, COUNTS: counts}) for update in updates]
    mrtf = MrTF(settings(**refinery))
    aggregated = mrtf.aggregate(updates)
    after, report = mrtf.server_update(state, updates, aggregated, server)
    return mrtf, after, report, aggregated


def sent_refined(mrtf: MrTF, after: ServerState) -> dict[str, Any]:
    prefix = "validation/refined/"
    payload = mrtf.client_payload(after, 4)
    return {name.removeprefix(prefix): value for name, value in payload.items() if name.startswith(prefix)}


@pytest.mark.parametrize("better", ["base", "refined"])
def test_model_with_better_client_validation_predicts(better: str) -> None:
    refined = validated_round(broadcast="aggregated")[1].prediction_weights
    mrtf, after, report, aggregated = validated_round(better, **VALIDATED)
    assert equal(after.prediction_weights, aggregated if better == "base" else refined)
    assert report.metrics["estimated_accuracy"] == 0.9, "of the model that predicts"
    assert report.metrics["estimated_gain"] == (-0.7 if better == "base" else 0.7)
    assert (report.metrics["refined_share"] > 0) == (better == "refined")
    # Whichever predicts, the next clients evaluate both.
    assert equal(sent_refined(mrtf, after), refined)
    assert ("refined" in report.predictions) == (better == "base"), "the refined model is scored in any case"


def test_mean_of_both_models_predicts_if_validation_is_equal() -> None:
    refined = validated_round(broadcast="aggregated")[1].prediction_weights
    mrtf, after, report, aggregated = validated_round("neither", **VALIDATED)
    assert equal(after.prediction_weights, mix(refined, aggregated, 0.5))
    assert not equal(after.prediction_weights, refined)
    assert equal(after.weights, aggregated), "what is broadcast is another question"
    assert report.metrics["refined_share"] == 0.5
    assert "refined" in report.predictions, "the refined model is scored in any case"
    assert equal(sent_refined(mrtf, after), refined)


def test_predict_with_aggregated_uses_the_aggregated_model() -> None:
    _, after, report, aggregated = validated_round(predict_with="aggregated", broadcast="refined")
    assert equal(after.prediction_weights, aggregated)
    assert not equal(after.weights, aggregated), "what is broadcast is another question"
    assert "estimated_accuracy" not in report.metrics


def test_average_of_the_rounds_predicts_and_what_is_broadcast_does_not_change() -> None:
    """t = 1, 2, 3: the newest model's share is 33/33, 33/34, 33/35."""
    server, updates, state = server_setup()
    plain, averaging = MrTF(settings()), MrTF(settings(average_rounds=True))
    newest = averaged = replace(state, round=0)
    expected = None
    for share in (1.0, 33 / 34, 33 / 35):
        newest, _ = plain.server_update(newest, updates, plain.aggregate(updates), server)
        averaged, report = averaging.server_update(averaged, updates, averaging.aggregate(updates), server)
        selected = newest.prediction_weights
        expected = selected if expected is None else mix(selected, expected, share)
        assert equal(averaged.weights, newest.weights)
        assert equal(averaged.prediction_weights, expected)
    assert not equal(averaged.prediction_weights, newest.prediction_weights)
    assert "refined" in report.predictions, "the refined model is scored in any case"
