"""Who answers (`mrtf_args.answer`), and what is kept so that the next clients can judge both models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from mrtf_fedml.algorithms import ClientUpdate, MrTF, RoundReport, ServerState
from mrtf_fedml.algorithms.judging import sent_candidates
from mrtf_fedml.algorithms.votes import VOTES
from mrtf_fedml.models.weights import mix
from mrtf_fedml.refinery.propagation import propagated

from .test_server_rules import equal, scene, settings

FOUND_BETTER = {"base": (9.0, 2.0, 10.0), "refined": (2.0, 9.0, 10.0), "neither": (5.0, 5.0, 10.0)}


def judged_round(better: str | None = None, **refinery: Any) -> tuple[ServerState, RoundReport, Any]:
    """A round that follows one in which all clients found the same model better, and its average."""
    bench, updates, state = scene()
    if better is not None:
        updates = [_with_votes(update, FOUND_BETTER[better]) for update in updates]
    mrtf = MrTF(settings(**refinery))
    aggregated = mrtf.aggregate(updates)
    after, report = mrtf.finish_round(state, updates, aggregated, bench)
    return after, report, aggregated


def _with_votes(update: ClientUpdate, votes: tuple[float, float, float]) -> ClientUpdate:
    return replace(update, extra={**update.extra, VOTES: torch.tensor(votes)})


def test_the_answer_is_the_model_that_the_clients_find_better() -> None:
    judging = {"client_judgement": True, "answer": "judged", "feedback": "never"}
    refined = judged_round(feedback="never")[0].answer
    for better in ("base", "refined"):
        after, report, aggregated = judged_round(better, **judging)
        assert equal(after.answer, aggregated if better == "base" else refined)
        assert report.metrics["estimated_accuracy"] == 0.9, "the one that answers is the one that is estimated"
        assert report.metrics["estimated_gain"] == (-0.7 if better == "base" else 0.7)
        assert report.metrics["refined_answers"] == (better == "refined")
        # Whoever answers, the next clients judge both: the start is the base's, the refined model is sent beside it.
        sent = sent_candidates(after)
        assert equal({name.removeprefix("refinery/refined/"): value for name, value in sent.items()}, refined)
        assert ("refined" in report.predictions) == (better == "base"), "what does not answer is scored all the same"


def test_halfway_between_both_is_the_answer_where_the_clients_find_them_level() -> None:
    refined = judged_round(feedback="never")[0].answer
    after, report, aggregated = judged_round("neither", client_judgement=True, answer="judged", feedback="never")
    assert equal(after.answer, mix(refined, aggregated, 0.5))
    assert not equal(after.answer, refined)
    assert equal(after.weights, aggregated), "what is sent back is another question"
    assert report.metrics["refined_share"] == 0.5
    assert "refined" in report.predictions, "what does not answer alone is scored all the same"
    sent = sent_candidates(after)
    assert equal({name.removeprefix("refinery/refined/"): value for name, value in sent.items()}, refined)


def test_the_aggregated_model_answers_where_that_is_asked_for() -> None:
    after, report, aggregated = judged_round(answer="aggregated", feedback="always")
    assert equal(after.answer, aggregated)
    assert not equal(after.weights, aggregated), "what is sent back is another question"
    assert "estimated_accuracy" not in report.metrics


def test_a_propagated_answer_is_corrected_and_the_model_stays_the_refined_one() -> None:
    bench, updates, state = scene()
    plain, corrected = (MrTF(settings(answer=answer)) for answer in ("refined", "propagated"))
    after, _ = plain.finish_round(state, updates, plain.aggregate(updates), bench)
    same, _ = corrected.finish_round(state, updates, corrected.aggregate(updates), bench)
    assert equal(same.answer, after.answer)
    said = plain.answer_logits(after, bench).softmax(dim=1)
    expected = propagated(said, bench.features(after.answer, torch.arange(len(bench.inputs))))
    torch.testing.assert_close(corrected.answer_logits(same, bench).softmax(dim=1), expected)
    assert (expected - said).abs().max() > 1e-3
