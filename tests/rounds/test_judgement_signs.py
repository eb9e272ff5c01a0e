"""What the clients' judgement is told as: by which model, by how much, and on what."""

from __future__ import annotations

from dataclasses import replace

from mrtf_fedml.data.neighbours import Nearness
from mrtf_fedml.rounds.judgement_signs import Judgement, average_answers, estimate_told, judged_on, poor

JUDGED = Judgement(0.82, 0.03, gain=-0.05, gain_error=0.01, refined_answers=False)
ALIKE = Nearness(novel=0.05, usual=0.05, chance=0.06, agreeing=0.9, expected=0.95, apart=0.5)


def test_it_is_read_from_a_round_s_line() -> None:
    line = {"round": 3, "estimated_accuracy": 0.82, "estimated_error": 0.03}
    assert Judgement.told_in(line) == Judgement(0.82, 0.03)
    compared = {"estimated_gain": -0.05, "estimated_gain_error": 0.01, "refined_answers": 0}
    assert Judgement.told_in({**line, **compared}) == JUDGED
    weighed = {"estimated_unweighed": 0.7, "estimated_unweighed_error": 0.02}
    assert Judgement.told_in({**line, **weighed}) == Judgement(0.82, 0.03, unweighed=(0.7, 0.02))
    assert Judgement.told_in({"round": 0, "estimated_accuracy": None, "estimated_error": None}) is None
    assert Judgement.told_in({"round": 0}) is None


def test_an_estimate_by_samples_that_are_known_by_heart_says_so() -> None:
    line = {"round": 3, "estimated_accuracy": 0.99, "estimated_error": 0.01, "local_loss": 0.02}
    told = judged_on(Judgement.told_in(line), ALIKE)
    assert told == "samples of their own, which they know by heart, so rather too good"
    for other in ({"local_loss": 0.5}, {"local_loss": None}, {"estimated_flattery": 0.0}):
        assert judged_on(Judgement.told_in({**line, **other}), ALIKE) == "samples of their own"


def test_who_answers_in_the_refined_model_s_place_is_told() -> None:
    told = average_answers(JUDGED)
    assert told is not None
    assert "refining may not help here" in told
    assert "by 0.050 ± 0.010" in told
    assert "mrtf compare --rehearse 0.2" in told
    across = average_answers(replace(JUDGED, rehearsable=False))
    assert across is not None
    assert "rehearse" not in across, "across silos nobody can"
    assert average_answers(replace(JUDGED, refined_answers=True)) is None
    assert average_answers(replace(JUDGED, gain=0.1)) is None, "whoever asked for the average knows it"
    assert average_answers(None) is None


def test_an_estimate_is_told_with_what_it_is_of() -> None:
    assert judged_on(JUDGED, ALIKE) == "samples of their own"
    for other in ({"novel": 0.6}, {"apart": 0.99}, {"moved": 0.5}):
        assert judged_on(JUDGED, replace(ALIKE, **other)) == "samples of their own, which differ from yours", other
    told = judged_on(JUDGED, replace(ALIKE, agreeing=0.5))
    assert told == "samples of their own; the nearest say 0.55 at most", "0.95 among their own, and 0.5 here"
    low = replace(JUDGED, accuracy=0.5)
    assert judged_on(low, replace(ALIKE, agreeing=0.5)) == "samples of their own", "the neighbours say the same"
    assert judged_on(JUDGED, None) == "samples of their own, which nobody has compared with yours"
    assert judged_on(None, ALIKE) is None
    weighed = replace(JUDGED, unweighed=(0.7, 0.02))
    assert judged_on(weighed, ALIKE) == "samples of their own, weighed by your classes (0.70 without)"
    assert judged_on(replace(JUDGED, unweighed=(0.8, 0.02)), ALIKE) == "samples of their own", "that is the same"
    summary = {"estimated_accuracy": 0.816, "estimated_error": 0.028, "estimated_on": judged_on(JUDGED, None)}
    assert estimate_told(summary) == (
        "0.82 ± 0.03 (by the clients, on samples of their own, which nobody has compared with yours)"
    )
    assert estimate_told({"estimated_accuracy": None}) is None


def test_names_are_believed_as_far_as_they_are_right() -> None:
    assert poor(Judgement(0.58, 0.04)) is not None
    assert poor(Judgement(0.80, 0.10, unweighed=(0.58, 0.04))) is None, "the server has classes that are learnt already"
    told = poor(Judgement(1.0, 0.81, unweighed=(0.1, 0.03)))
    assert told is not None, "who names one class always finds all of it"
    assert "find 10% of this model's labels of their own samples right" in told
