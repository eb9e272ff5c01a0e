"""Distribution shift between the clients' samples and the server's: statistics without labels, and warnings.

Two-sample tests ask whether a classifier can separate the two sets. Nearest neighbours ask whether the server's samples
are near the clients' and whether neighbours have the same label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Rows = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

#: The minimum number of samples for a statistic, and the maximum that is used.
MIN_SAMPLES, _MAX_SAMPLES = 20, 1000
#: Samples per side of the two-sample tests within classes.
_TEST_SAMPLES = 300
#: The number of principal components that the two-sample test uses.
_COMPONENTS = 50
#: `shifted_features` names features whose means differ by at least this many standard deviations.
_MIN_SHIFT = 0.5

#: A feature has shifted if its mean is outside by this many of its deviations, and by this many standard errors.
_SHIFT_DEVIATIONS, _SHIFT_ERRORS = 0.5, 4.0

#: Wider samples are projected to this many dimensions before distances are computed.
_MAX_WIDTH = 512
#: The quantile of the distances between the clients' samples beyond which a sample is novel.
_NOVEL_QUANTILE = 0.95
#: This fraction of the mean variance is added to every direction before whitening: smaller variances are noise.
_VARIANCE_FLOOR = 0.05
#: The number of standard errors within which a difference of fractions is random.
_MARGIN_ERRORS = 4.0

#: An excess of novel samples from which on the server's data are of another kind. A smaller one, beyond chance, means
#: that some samples are.
_NOVEL_EXCESS = 0.25
#: The fraction of shifted features that neither chance nor a single instrument explains.
_SHIFTED_FEATURES = 0.25
#: If predictions agree with neighbours less often by g than expected, a fraction of at least g is wrong. With the true
#: labels of sets without shift g was 0.18 at most.
_CONTRADICTED = 0.25
#: The separability of sets with a shift; without one it was 0.75 at most.
_SEPARABLE = 0.8
#: With a shift neighbours are less reliable, and a smaller g is enough for a warning; it was 0.13 at most without one.
_CONTRADICTED_IF_SHIFTED = 0.15
#: Neighbours support the predictions if they are right this often, and agree with the predictions nearly as often.
_RELIABLE, _NEARLY = 0.8, 0.1


@dataclass(frozen=True)
class NeighbourStatistics:
    """The server's samples compared with their nearest neighbours among the clients' samples.

    Attributes:
        novel: the fraction of the server's samples farther from the clients' than these are from each other.
        expected_novel: the fraction without a shift: 0.05, or more if clients' samples of the same classes have more.
        novel_margin: the random difference between the two.
        agreement: the fraction of the predicted labels equal to the label of the nearest client sample; None if not
            known.
        expected_agreement: the same among clients' samples of the same classes.
        shifted: the fraction of a table's features whose mean no mixture of the clients' classes can have.
        separability: the AUC of a classifier between server and client samples of the same class, 0.5 for chance; None
            if not known.
    """

    novel: float
    expected_novel: float
    novel_margin: float
    agreement: float | None = None
    expected_agreement: float | None = None
    shifted: float = 0.0
    separability: float | None = None


def two_sample_auc(one: Tensor, other: Tensor) -> float | None:
    """The AUC of a classifier between the samples [N, ...] of two sets, by five-fold cross-validation.

    0.5 is chance: the sets are alike. 1 means that they are always distinguished. The features are the principal
    components of the samples and their squares. None for too few samples or samples of indices.
    """
    if min(len(one), len(other)) < MIN_SAMPLES or not one.is_floating_point():
        return None
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.preprocessing import StandardScaler

    parts = [subsample(one), subsample(other)]
    samples, side = np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
    with np.errstate(all="ignore"):
        scaled = StandardScaler().fit_transform(samples)
    if not np.isfinite(scaled).all():
        # The squares of very large numbers overflow.
        return None
    if not scaled.any():
        return 0.5
    components = min(_COMPONENTS, scaled.shape[1], len(scaled) // 4)
    main = PCA(components, whiten=True, random_state=0).fit_transform(scaled)
    classifier = LogisticRegression(C=0.1, max_iter=500, class_weight="balanced")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_predict(classifier, np.hstack([main, main**2]), side, cv=folds, method="decision_function")
    return float(roc_auc_score(side, scores))


def two_sample_auc_within_classes(one: Rows, one_labels: Labels, other: Rows, other_labels: Labels) -> float | None:
    """`two_sample_auc` of rows [N, D] and [M, D], if a difference of class frequencies does not explain it.

    The minimum of two values: one with the same number of each class from both sides, so that class frequencies have
    no effect, and one of all rows, so that wrong labels have no effect.

    >>> rows, classes = np.random.default_rng(0).normal(size=(400, 2)), np.arange(400) % 2
    >>> two_sample_auc_within_classes(rows[:200], classes[:200], rows[200:], classes[200:]) < 0.7
    True
    >>> two_sample_auc_within_classes(rows[:200], classes[:200], rows[200:] + 9, classes[200:])
    1.0
    """
    # A duplicate would be recognized.
    _, first = np.unique(other, axis=0, return_index=True)
    other, other_labels = other[first], other_labels[first]
    generator, chosen = np.random.default_rng(0), []
    for label in np.unique(other_labels):
        both = [generator.permutation(np.flatnonzero(side == label)) for side in (one_labels, other_labels)]
        count = min(len(rows) for rows in both)
        chosen.append([rows[:count] for rows in both])
    one_rows, other_rows = (np.concatenate(rows) for rows in zip(*chosen, strict=True))
    selection = generator.permutation(len(one_rows))[:_TEST_SAMPLES]
    pairs = (
        (one[one_rows[selection]], other[other_rows[selection]]),
        tuple(rows[generator.permutation(len(rows))[:_TEST_SAMPLES]] for rows in (one, other)),
    )
    areas = [two_sample_auc(*map(torch.from_numpy, pair)) for pair in pairs]
    known = [area for area in areas if area is not None]
    return min(known) if len(known) == len(areas) else None


def shifted_features(
    one: Tensor, other: Tensor, names: Sequence[str] | None, limit: int = 3
) -> list[tuple[str, float]]:
    """The features of a table whose means differ most, with the difference in deviations of the first set."""
    if one.ndim != 2 or not one.is_floating_point():
        return []
    deviation = one.double().std(dim=0).clamp_min(1e-12)
    shift = (one.double().mean(dim=0) - other.double().mean(dim=0)).abs() / deviation
    order = [int(index) for index in shift.argsort(descending=True)[:limit] if float(shift[index]) >= _MIN_SHIFT]
    return [(names[index] if names else f"feature {index}", float(shift[index])) for index in order]


def shifted_feature_fraction(clients: Rows, labels: Labels, server: Rows) -> float:
    """The fraction of the features whose mean has shifted as no mixture of the clients' classes can shift it.

    For any class frequencies, the mean of a feature is between the minimum and the maximum of its class means. Other
    units or another instrument move it beyond.

    >>> clients, labels = np.array([[0.0, 0.0], [1.0, 4.0]] * 50), np.array([0, 1] * 50)
    >>> shifted_feature_fraction(clients, labels, clients[1:10:2])
    0.0
    >>> shifted_feature_fraction(clients, labels, np.array([[0.5, 9.0]] * 100))
    0.5

    Args:
        clients: the clients' samples, [N, D].
        labels: their labels, [N].
        server: the server's samples, [M, D].
    """
    means = np.stack([clients[labels == label].mean(axis=0) for label in np.unique(labels)])
    fewest = min(np.unique(labels, return_counts=True)[1].min(), len(server))
    deviation = np.maximum(clients.std(axis=0), server.std(axis=0))
    excess = np.maximum(means.min(axis=0) - server.mean(axis=0), server.mean(axis=0) - means.max(axis=0))
    return float((excess > deviation * max(_SHIFT_DEVIATIONS, _SHIFT_ERRORS / np.sqrt(fewest)) + 1e-12).mean())


def compare_with_neighbours(
    clients: Tensor, labels: Tensor | None, server: Tensor, predicted: Tensor
) -> NeighbourStatistics | None:
    """Compare the server's samples with the clients'. None for too few samples or samples of indices.

    Half of the clients' samples are queries like the server's, so that both search neighbours in the other half. The
    expected values are weighted by the predicted classes, since the server may have more of a widely spread class.
    Permuted columns may keep the spread of each feature and break correlations, so distances are computed twice: with
    scaled features, and with decorrelated ones.

    Args:
        clients: the clients' samples, [N, ...].
        labels: their labels, [N]; None if there is not one per sample.
        server: the server's samples, [M, ...].
        predicted: the labels predicted for them, [M].
    """
    if min(len(clients) // 2, len(server)) < MIN_SAMPLES or not clients.is_floating_point():
        return None
    server_rows, server_labels = subsample(server), _subsample_labels(predicted)
    client_rows = subsample(clients.cpu())
    client_labels = None if labels is None or labels.ndim != 1 else _subsample_labels(labels)
    if client_labels is None or len(predicted) != len(server):
        client_labels, server_labels = np.zeros(len(client_rows), np.int64), np.zeros(len(server_rows), np.int64)
    # At random, since samples may alternate by class.
    reference, queries = np.array_split(np.random.default_rng(0).permutation(len(client_rows)), 2)
    spaces = _feature_spaces(client_rows[reference], client_rows[queries], server_rows, clients.ndim == 2)
    results = [
        _compare_in_space(*rows, client_labels[reference], client_labels[queries], server_labels) for rows in spaces
    ]
    most_novel = max(results, key=lambda result: result.novel - result.expected_novel)
    # The space whose neighbours predict classes better is the better reference for labels.
    most_predictive = max(results, key=lambda result: result.expected_agreement or 0.0)
    is_single_class = len(np.unique(client_labels)) < 2
    return NeighbourStatistics(
        most_novel.novel,
        most_novel.expected_novel,
        most_novel.novel_margin,
        None if is_single_class else most_predictive.agreement,
        None if is_single_class else most_predictive.expected_agreement,
        0.0
        if is_single_class or clients.ndim != 2
        else shifted_feature_fraction(client_rows, client_labels, server_rows),
        None
        if is_single_class
        else two_sample_auc_within_classes(client_rows, client_labels, server_rows, server_labels),
    )


def warn_novel_samples(neighbours: NeighbourStatistics | None) -> str | None:
    """A warning if the server's samples are of another kind than the clients'."""
    if neighbours is None:
        return None
    excess = neighbours.novel - neighbours.expected_novel
    measured = (
        f"{neighbours.novel:.0%} of the server's samples are unlike all of the clients' "
        f"({neighbours.expected_novel:.0%} is usual)"
    )
    if excess >= _NOVEL_EXCESS:
        return (
            f"{measured}: they are of another kind or of classes that no client has; check scale, units and the order "
            "of columns, and do not use these labels unchecked"
        )
    if neighbours.shifted >= _SHIFTED_FEATURES:
        return (
            f"{neighbours.shifted:.0%} of the features have a mean on the server that no mixture of the clients' "
            "classes has: units, instrument or calibration may differ; check them, and do not use these labels "
            "unchecked"
        )
    if excess < neighbours.novel_margin:
        return None
    return f"{measured}: some may be of a kind or a class that no client has, and get another label; check these"


def warn_contradicted_labels(neighbours: NeighbourStatistics | None) -> str | None:
    """A warning if the clients' nearest samples have other labels than the predicted ones."""
    if neighbours is None or neighbours.agreement is None or neighbours.expected_agreement is None:
        return None
    measured = (
        f"the clients' nearest sample has the predicted label in {neighbours.agreement:.0%} of the cases "
        f"({neighbours.expected_agreement:.0%} among the clients' own samples)"
    )
    is_contradicted = neighbours.expected_agreement - neighbours.agreement >= _CONTRADICTED_IF_SHIFTED
    if is_shifted(neighbours) and is_contradicted:
        return (
            "the server's samples differ from the clients' of the same class, and "
            f"{measured}; do not use these labels unchecked"
        )
    if min_wrong_fraction(neighbours) == 0.0:
        return None
    return (
        f"{measured}: {min_wrong_fraction(neighbours):.0%} of these labels or more are likely to be wrong; train for "
        "more rounds, or try another learning_rate"
    )


def is_shifted(neighbours: NeighbourStatistics) -> bool:
    """Whether the server's samples are of another kind than the clients'. The predictions may still be right."""
    is_separable = neighbours.separability is not None and neighbours.separability >= _SEPARABLE
    return is_separable or warn_novel_samples(neighbours) is not None


def min_wrong_fraction(neighbours: NeighbourStatistics) -> float:
    """A lower bound of the fraction of wrong predictions, from the neighbours' labels; 0 if within chance."""
    if neighbours.agreement is None or neighbours.expected_agreement is None:
        return 0.0
    difference = neighbours.expected_agreement - neighbours.agreement
    return difference if difference >= _CONTRADICTED else 0.0


def supports_predictions(neighbours: NeighbourStatistics | None) -> bool:
    """Whether the clients' nearest samples reliably have the predicted labels."""
    if neighbours is None or neighbours.agreement is None or neighbours.expected_agreement is None:
        return False
    if warn_novel_samples(neighbours) is not None or neighbours.expected_agreement < _RELIABLE:
        return False
    return neighbours.agreement >= neighbours.expected_agreement - _NEARLY


def _feature_spaces(reference: Rows, queries: Rows, server: Rows, is_table: bool) -> Iterator[tuple[Rows, Rows, Rows]]:
    """The three sets of samples, scaled, and then decorrelated, by the statistics of `reference`."""
    mean, deviation = reference.mean(axis=0), reference.std(axis=0)
    # A constant feature keeps its scale, so that any other value is far away.
    scale = np.where(deviation > 1e-6, deviation, 1.0) if is_table else max(float(deviation.mean()), 1e-6)
    reference, queries, server = (project((rows - mean) / scale) for rows in (reference, queries, server))
    yield reference, queries, server
    variances, directions = np.linalg.eigh(reference.T @ reference / len(reference))
    # The second maximum is for variances that are all 0.
    whitening = directions / np.sqrt(np.maximum(variances, 0) + max(_VARIANCE_FLOOR * float(variances.mean()), 1e-12))
    yield reference @ whitening, queries @ whitening, server @ whitening


def _compare_in_space(
    reference: Rows,
    queries: Rows,
    server: Rows,
    reference_labels: Labels,
    query_labels: Labels,
    server_labels: Labels,
) -> NeighbourStatistics:
    distances, neighbours = _nearest(queries, reference)
    is_far = distances > np.quantile(distances, _NOVEL_QUANTILE)
    server_distances, server_neighbours = _nearest(server, reference)
    is_novel = server_distances > np.quantile(distances, _NOVEL_QUANTILE)
    # Not less than for all classes together, so that wrong predictions make no sample novel.
    expected_novel = max(1 - _NOVEL_QUANTILE, _class_weighted_mean(is_far, query_labels, server_labels))
    # Duplicates do not reduce the error.
    distinct = len(np.unique(server, axis=0))
    variance = expected_novel * (1 / len(queries) + 1 / distinct)
    return NeighbourStatistics(
        float(is_novel.mean()),
        expected_novel,
        _MARGIN_ERRORS * math.sqrt(variance),
        float((reference_labels[server_neighbours] == server_labels).mean()),
        _class_weighted_mean(reference_labels[neighbours] == query_labels, query_labels, server_labels),
    )


def _class_weighted_mean(values: npt.NDArray[np.bool_], labels: Labels, target_labels: Labels) -> float:
    """The mean of `values`, with the classes as frequent as in `target_labels`."""
    class_means = {label: float(values[labels == label].mean()) for label in np.unique(labels)}
    total_mean = float(values.mean())
    return float(np.mean([class_means.get(label, total_mean) for label in target_labels]))


def subsample(samples: Tensor) -> Rows:
    """Evenly spaced samples, one row each."""
    rows = np.linspace(0, len(samples) - 1, min(len(samples), _MAX_SAMPLES)).astype(np.int64)
    return samples[rows].flatten(1).double().cpu().numpy()


def _subsample_labels(labels: Tensor) -> Labels:
    return subsample(labels[:, None]).ravel().astype(np.int64)


def _nearest(points: Rows, reference: Rows) -> tuple[Rows, Labels]:
    """The distance of each point to its nearest neighbour, and the neighbour's index."""
    squares = (points**2).sum(axis=1)[:, None] + (reference**2).sum(axis=1)[None] - 2 * points @ reference.T
    return np.sqrt(np.maximum(squares.min(axis=1), 0)), squares.argmin(axis=1)


def project(rows: Rows) -> Rows:
    """Wide samples by a random projection, which preserves distances approximately."""
    if rows.shape[1] <= _MAX_WIDTH:
        return rows
    projection = np.random.default_rng(0).normal(size=(rows.shape[1], _MAX_WIDTH)) / np.sqrt(_MAX_WIDTH)
    return rows @ projection
