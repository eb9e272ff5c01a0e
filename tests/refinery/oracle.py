"""The paper's equations a second time: NumPy, float64, one sample and one class after another.

Written from the paper alone, in plain loops, so that a reader can hold each function against its equation.
Nothing here is shared with the package: agreement of the two is the evidence. Shapes: K clients, M samples,
C classes, D features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class Targets(NamedTuple):
    targets: Array
    ensemble: Array
    local_weight: float


def _array(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def softmax(scores: ArrayLike) -> Array:
    """sigma(.) of one vector."""
    scores = _array(scores)
    powers = np.array([math.exp(score - scores.max()) for score in scores])
    return powers / powers.sum()


def softmax_rows(scores: ArrayLike) -> Array:
    return np.stack([softmax(row) for row in _array(scores)])


def standard_deviation(values: ArrayLike) -> float:
    """The population's: divided by the number of values."""
    values = _array(values).ravel()
    mean = values.sum() / values.size
    return math.sqrt(sum((value - mean) ** 2 for value in values) / values.size)


def normalised_probabilities(logits: ArrayLike, temperature: float) -> Array:
    """Eq. 6 for one model: [M, C] -> [M, C]. Constant logits say nothing, hence uniform rows."""
    logits = _array(logits)
    if logits.min() == logits.max():
        return np.full(logits.shape, 1.0 / logits.shape[1])
    return softmax_rows(temperature * logits / standard_deviation(logits))


def _weighted_sum(values: ArrayLike, weights: ArrayLike) -> Array:
    """sum_k w_k(x) / (sum_j w_j(x)) values_k(x), with weights [K] or [K, M]."""
    values, weights = _array(values), _array(weights)
    clients, samples, _ = values.shape
    total = np.zeros(values.shape[1:])
    for sample in range(samples):
        here = [weights[k] if weights.ndim == 1 else weights[k, sample] for k in range(clients)]
        for k in range(clients):
            total[sample] += here[k] / sum(here) * values[k, sample]
    return total


def average_probabilities(probabilities: ArrayLike, weights: ArrayLike) -> Array:
    """Eq. 4 and 7."""
    return _weighted_sum(probabilities, weights)


def average_logits(logits: ArrayLike, weights: ArrayLike) -> Array:
    """Eq. 3: a plain softmax, neither std nor temperature."""
    return softmax_rows(_weighted_sum(logits, weights))


def entropy(probabilities: ArrayLike) -> Array:
    """e_k(x) = - sum_c q log q, where 0 log 0 = 0: [K, M, C] -> [K, M]."""
    probabilities = _array(probabilities)
    entropies = np.zeros(probabilities.shape[:2])
    for place in np.ndindex(*entropies.shape):
        entropies[place] = -sum(p * math.log(p) for p in probabilities[place] if p > 0)
    return entropies


def confidence_weights(entropies: ArrayLike) -> Array:
    """w_k(x) = sigma(-e_k(x)) over the clients: [K, M] -> [K, M]."""
    entropies = _array(entropies)
    return np.stack([softmax(-entropies[:, sample]) for sample in range(entropies.shape[1])], axis=1)


def local_weight(train_loss: float, classes: int) -> float:
    """u_t, held in [0.25, 1]."""
    return min(1.0, max(0.25, 0.25 + 0.75 * train_loss / math.log(classes)))


def self_taught(local: ArrayLike, global_probabilities: ArrayLike, weight: float) -> Array:
    """Eq. 10, given its three parts."""
    initial, aggregated = _array(global_probabilities)
    return weight * _array(local) + (1 - weight) / 2 * (initial + aggregated)


def disagreement(logits: ArrayLike) -> float:
    """The fraction of pairs of models that predict different classes; 1 for one model."""
    logits = _array(logits)
    clients, samples, _ = logits.shape
    if clients == 1:
        return 1.0
    differing, pairs = 0, 0
    for m in range(samples):
        predicted = [int(np.argmax(logits[k, m])) for k in range(clients)]
        for j in range(clients):
            for k in range(j):
                differing += predicted[j] != predicted[k]
                pairs += 1
    return differing / pairs


def class_balanced(probabilities: ArrayLike, balance: float) -> Array:
    """Beyond the paper: each class divided by a power of its mean, then rows that sum to one again."""
    probabilities = _array(probabilities)
    samples, classes = probabilities.shape
    evened = np.zeros((samples, classes))
    for c in range(classes):
        mass = sum(probabilities[:, c]) / samples
        for m in range(samples):
            evened[m, c] = probabilities[m, c] / mass**balance if mass > 0 else 0.0
    return np.stack([row / sum(row) for row in evened])


def prototypes(probabilities: ArrayLike, features: ArrayLike) -> Array:
    """Eq. 11: v_c, [C, D]; zero for a class without mass."""
    probabilities, features = _array(probabilities), _array(features)
    means = np.zeros((probabilities.shape[1], features.shape[1]))
    for c in range(len(means)):
        mass = sum(probabilities[:, c])
        if mass > 0:
            means[c] = sum(q * h for q, h in zip(probabilities[:, c], features, strict=True)) / mass
    return means


def cosine_distances(features: ArrayLike, centres: ArrayLike) -> Array:
    """D_f(h, v) = 1 - h.v / (|h| |v|), [M, C]; 1 where either is the zero vector."""
    features, centres = _array(features), _array(centres)
    distances = np.ones((len(features), len(centres)))
    for m, h in enumerate(features):
        for c, v in enumerate(centres):
            if h.any() and v.any():
                distances[m, c] = 1 - float(h @ v) / (math.sqrt(h @ h) * math.sqrt(v @ v))
    return distances


def reassigned_probabilities(probabilities: ArrayLike, features: ArrayLike, temperature: float, steps: int) -> Array:
    """Eq. 11 and 12 in turn, `steps` times."""
    current = _array(probabilities)
    for _ in range(steps):
        current = softmax_rows(-temperature * cosine_distances(features, prototypes(current, features)))
    return current


def distillation_targets(
    local_logits: ArrayLike,
    global_logits: ArrayLike | None,
    features: ArrayLike | None,
    train_loss: float,
    switches: Mapping[str, Any],
) -> Targets:
    """Sect. 4.4, steps (2) to (4), with each part under its switch."""
    local_logits = _array(local_logits)
    clients, samples, classes = local_logits.shape
    temperature = switches["temperature"]
    local = np.stack([normalised_probabilities(logits, temperature) for logits in local_logits])
    weights = np.ones((clients, samples))
    if switches["teacher_weighting"] == "entropy":
        weights = confidence_weights(entropy(local))
    if switches["teacher"] == "avg_prob":
        ensemble = average_probabilities(local, weights)
    else:
        ensemble = average_logits(local_logits, weights)
    share = 1.0
    if switches["self_teaching"] and global_logits is not None:
        share = local_weight(train_loss, classes)
        taught = [normalised_probabilities(logits, temperature) for logits in _array(global_logits)]
        ensemble = self_taught(ensemble, np.stack(taught), share)
    # Beyond the paper: less is balanced where the models agree.
    balance = switches["class_balance"] * min(1.0, disagreement(local_logits) / 0.5)
    ensemble = class_balanced(ensemble, balance)
    refined = ensemble
    if switches["cluster_refinery"] and features is not None:
        refined = reassigned_probabilities(ensemble, features, switches["cluster_temperature"], 1)
    return Targets(refined, ensemble, share)


def distillation_loss(student_logits: ArrayLike, targets: ArrayLike) -> float:
    """Eq. 8: the mean over samples of - sum_c target_c log q_g(c)."""
    rows = zip(_array(student_logits), _array(targets), strict=True)
    losses = [-sum(t * (z - _log_sum_exp(row)) for t, z in zip(target, row, strict=True)) for row, target in rows]
    return sum(losses) / len(losses)


def _log_sum_exp(scores: Array) -> float:
    return float(scores.max()) + math.log(sum(math.exp(score - scores.max()) for score in scores))


def adam_on_linear_student(
    weight: ArrayLike, inputs: ArrayLike, targets: ArrayLike, learning_rate: float, steps: int
) -> Array:
    """Adam (0.9, 0.999, 1e-8) on Eq. 8 for f(x) = W x, all samples in every step; W after `steps`.

    The gradient with respect to the logits of a sample is softmax(W x) - target.
    """
    weight, inputs, targets = _array(weight).copy(), _array(inputs), _array(targets)
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step in range(1, steps + 1):
        gradient = (softmax_rows(inputs @ weight.T) - targets).T @ inputs / len(inputs)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        unbiased_first, unbiased_second = first / (1 - 0.9**step), second / (1 - 0.999**step)
        weight -= learning_rate * unbiased_first / (np.sqrt(unbiased_second) + 1e-8)
    return weight
