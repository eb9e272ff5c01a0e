from __future__ import annotations

import re

import numpy as np

from mrtf_fedml.report.facts import Answer
from mrtf_fedml.report.landscape import MOST_SAMPLES, UNCERTAIN, chosen_of, embedded, landscape, prototypes


def answer(samples: int, classes: int = 3) -> Answer:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(classes, 0.3), samples)
    return Answer([str(number) for number in range(samples)], probabilities, [f"kind {c}" for c in range(classes)])


def test_samples_that_are_alike_lie_together_and_the_picture_is_always_the_same() -> None:
    """Three directions of features, of any length: the nearest neighbour of a sample is of its own direction."""
    rng = np.random.default_rng(0)
    kinds = np.arange(60) % 3
    rows = (np.eye(3)[kinds] + 0.05 * rng.random((60, 3))) * rng.uniform(0.1, 10, (60, 1))
    places = embedded(rows)
    assert (places == embedded(rows)).all()
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (kinds[distances.argmin(axis=1)] == kinds).mean() > 0.95
    assert 0 <= places.min() < places.max() <= 1000


def test_prototypes_by_hand() -> None:
    probabilities = np.array([[0.75, 0.25], [0.25, 0.75]])
    centres, classes = prototypes(probabilities, np.array([[4.0, 0.0], [0.0, 8.0]]))
    assert classes == [0, 1]
    assert centres.tolist() == [[3.0, 2.0], [1.0, 6.0]]


def test_of_many_samples_some_are_drawn_and_the_least_certain_among_them() -> None:
    many = answer(MOST_SAMPLES * 3)
    shown, uncertain = chosen_of(many.confidences)
    assert MOST_SAMPLES <= len(shown) <= MOST_SAMPLES + UNCERTAIN
    assert uncertain.sum() == UNCERTAIN
    assert many.confidences[shown[uncertain]].max() <= np.delete(many.confidences, shown[uncertain]).min()


def test_each_sample_is_a_dot_and_each_predicted_class_has_its_prototype() -> None:
    few = answer(40)
    picture = landscape(few, np.random.default_rng(1).random((40, 5)))
    assert picture is not None
    coloured = re.findall(r'<path class="c\d" d="([^"]*)"', picture)
    assert sum(path.count("h0") for path in coloured) == 40
    (ring,) = re.findall(r'<path class="ring" d="([^"]*)"', picture)
    assert ring.count("h0") == UNCERTAIN
    assert picture.count("prototype of") == 3


def test_features_of_some_samples_are_drawn_for_these() -> None:
    many = answer(200)
    known = np.arange(0, 200, 5)
    rows = np.random.default_rng(1).random((200, 5))
    picture = landscape(many, rows[known], known)
    assert picture is not None
    coloured = re.findall(r'<path class="c\d" d="([^"]*)"', picture)
    assert sum(path.count("h0") for path in coloured) == len(known)
    (ring,) = re.findall(r'<path class="ring" d="([^"]*)"', picture)
    least = np.argsort(many.confidences, kind="stable")[:UNCERTAIN]
    assert ring.count("h0") == len(np.intersect1d(known, least)) > 0


def test_features_that_tell_nothing_have_no_picture() -> None:
    assert landscape(answer(40), np.ones((40, 3))) is None
    assert landscape(answer(40), np.full((40, 3), np.nan)) is None
    assert landscape(answer(3), np.random.default_rng(0).random((3, 3))) is None
