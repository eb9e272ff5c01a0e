from __future__ import annotations

import re

import numpy as np

from mrtf_fedml.report.artifacts import MAX_SAMPLES, UNCERTAIN, select_samples
from mrtf_fedml.report.feature_map import embed_2d, feature_map, prototypes
from mrtf_fedml.report.run_data import Predictions


def make_predictions(samples: int, classes: int = 3) -> Predictions:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(classes, 0.3), samples)
    return Predictions([str(number) for number in range(samples)], probabilities, [f"kind {c}" for c in range(classes)])


def test_embed_2d_keeps_neighbours_and_is_deterministic() -> None:
    """Three directions of features, of any length: the nearest neighbour of a sample is of its own direction."""
    rng = np.random.default_rng(0)
    kinds = np.arange(60) % 3
    rows = (np.eye(3)[kinds] + 0.05 * rng.random((60, 3))) * rng.uniform(0.1, 10, (60, 1))
    places = embed_2d(rows)
    assert (places == embed_2d(rows)).all()
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (kinds[distances.argmin(axis=1)] == kinds).mean() > 0.95
    assert 0 <= places.min() < places.max() <= 1000


def test_prototypes_equal_hand_computed_values() -> None:
    probabilities = np.array([[0.75, 0.25], [0.25, 0.75]])
    centres, classes = prototypes(probabilities, np.array([[4.0, 0.0], [0.0, 8.0]]))
    assert classes == [0, 1]
    assert centres.tolist() == [[3.0, 2.0], [1.0, 6.0]]


def test_select_samples_limits_and_includes_least_confident() -> None:
    many = make_predictions(MAX_SAMPLES * 3)
    shown, uncertain = select_samples(many.confidences)
    assert MAX_SAMPLES <= len(shown) <= MAX_SAMPLES + UNCERTAIN
    assert uncertain.sum() == UNCERTAIN
    assert many.confidences[shown[uncertain]].max() <= np.delete(many.confidences, shown[uncertain]).min()


def test_feature_map_has_a_dot_per_sample_and_a_marker_per_class() -> None:
    few = make_predictions(40)
    picture = feature_map(few, np.random.default_rng(1).random((40, 5)))
    assert picture is not None
    coloured = re.findall(r'<path class="c\d" d="([^"]*)"', picture)
    assert sum(path.count("h0") for path in coloured) == 40
    (ring,) = re.findall(r'<path class="ring" d="([^"]*)"', picture)
    assert ring.count("h0") == UNCERTAIN
    assert picture.count("prototype of") == 3


def test_feature_map_of_indexed_features() -> None:
    many = make_predictions(200)
    known = np.arange(0, 200, 5)
    rows = np.random.default_rng(1).random((200, 5))
    picture = feature_map(many, rows[known], known)
    assert picture is not None
    coloured = re.findall(r'<path class="c\d" d="([^"]*)"', picture)
    assert sum(path.count("h0") for path in coloured) == len(known)
    (ring,) = re.findall(r'<path class="ring" d="([^"]*)"', picture)
    least = np.argsort(many.confidences, kind="stable")[:UNCERTAIN]
    assert ring.count("h0") == len(np.intersect1d(known, least)) > 0


def test_feature_map_of_constant_features_is_none() -> None:
    assert feature_map(make_predictions(40), np.ones((40, 3))) is None
    assert feature_map(make_predictions(40), np.full((40, 3), np.nan)) is None
    assert feature_map(make_predictions(3), np.random.default_rng(0).random((3, 3))) is None
