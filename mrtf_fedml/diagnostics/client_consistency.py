"""Whether the clients' models contradict each other on classes that they know: labels with different meanings do.

A client with few classes is wrong about all others, which is no contradiction. So each model is checked only on the
samples whose predicted class its client has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..data.formatting import format_list

#: A client knows a class if it has this many samples of it.
_MIN_OWN_SAMPLES = 5
#: Fractions of fewer of the server's samples, in all and of one class, are chance.
_MIN_SAMPLES, _MIN_SAMPLES_OF_CLASS = 20, 10
#: In runs that go well a model agrees with the predictions in 0.65 to 1 of the cases, and a round's median in 0.85.
_INCONSISTENT, _CONSISTENT_OTHERS, _ALL_INCONSISTENT = 0.5, 0.7, 0.6
#: Two groups on a pair of classes, of the models that know both: within a group models agree, less those that disagree,
#: on so many of the samples to which both give one of the two; each group has such a share of the models; and in either
#: direction so many of a group's predictions are the opposite of the other group's.
_AGREE, _GROUP_SIZE, _SAME_CLASS, _MIN_MODELS_ON_PAIR = 0.5, 0.3, 0.6, 4
#: Where class counts are unknown, a client is taken to know a class that its model predicts for this multiple of an
#: equal share of the samples.
_KNOWN_SHARE = 0.3
#: Its model contradicts the others' if it agrees with the targets less than this, and by the margin less than they do.
_CONTRADICTING, _MARGIN = 0.6, 0.25
#: A model that predicts one class for so many samples teaches nothing, unless the others' do so too.
_ONE_CLASS, _OTHERS_ONE_CLASS = 0.9, 0.5
#: A client is named if it is suspect in more than this fraction of its rounds, and in so many; or in so many of the
#: run's last rounds, which matter most for the model that predicts, by more than the length of its update: honest
#: updates of a client that still learns are longer than the others' at the end.
_SUSPECT_FRACTION, _MIN_SUSPECT_ROUNDS = 0.5, 2
#: More clients than this are named in one warning.
_MAX_NAMED = 5
#: With fewer models there is no majority.
_MIN_MODELS = 3


def find_suspects(teacher_labels: Tensor, clients: Sequence[int], targets: Tensor) -> dict[int, str]:
    """The clients of a round whose model contradicts the others' or predicts one class alone, each with the reason.

    For a server that does not know which classes a client has. In one round an honest client may look like this, so
    that a client is named only if it does in most of its rounds (`warn_suspects`).

    Args:
        teacher_labels: the class that each model predicts, [T, M].
        clients: of these models, T of them.
        targets: what the server makes of all models, [M, C].
    """
    predicted, classes = targets.argmax(dim=1).cpu().numpy(), targets.shape[1]
    by_teacher = teacher_labels.cpu().numpy().astype(np.int64)
    if len(clients) < _MIN_MODELS or len(by_teacher) != len(clients) or len(predicted) < _MIN_SAMPLES:
        return {}
    frequencies = np.stack([np.bincount(labels, minlength=classes) / len(labels) for labels in by_teacher])
    largest = dict(zip(clients, frequencies.max(axis=1).tolist(), strict=True))
    agreement = {}
    for index, client in enumerate(clients):
        checked = (frequencies[index] >= _KNOWN_SHARE / classes)[predicted]
        if checked.sum() >= _MIN_SAMPLES:
            agreement[client] = float((by_teacher[index][checked] == predicted[checked]).mean())
    suspects = {
        client: f"its model agrees with the targets on {fraction:.0%} of the samples"
        for client, fraction in agreement.items()
        if len(agreement) >= _MIN_MODELS
        and fraction < min(_CONTRADICTING, _median_of_others(agreement, client) - _MARGIN)
    }
    for client, fraction in largest.items():
        if fraction >= _ONE_CLASS and _median_of_others(largest, client) <= _OTHERS_ONE_CLASS:
            suspects[client] = f"its model predicts one class for {fraction:.0%} of the samples"
    return suspects


def warn_suspects(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning for each client that was suspect in most of its rounds or in the run's last ones.

    If there are many, they have one warning together.

    Args:
        metrics: the lines of metrics.jsonl.
    """
    rounds: Counter[str] = Counter()
    reasons: dict[str, list[str]] = {}
    for line in metrics:
        rounds.update(str(client) for client in line.get("clients") or [])
        for client, reason in (line.get("suspect_clients") or {}).items():
            reasons.setdefault(str(client), []).append(str(reason))
    last = [
        dict((line.get("suspect_clients") or {}).items() - (line.get("outlier_clients") or {}).items())
        for line in metrics[-_MIN_SUSPECT_ROUNDS:]
    ]
    named = {
        client: found
        for client, found in sorted(reasons.items(), key=lambda each: int(each[0]))
        if len(found) >= _MIN_SUSPECT_ROUNDS
        and (len(found) > _SUSPECT_FRACTION * rounds[client] or all(client in suspects for suspects in last))
    }
    if len(named) > _MAX_NAMED:
        return [
            f"what clients {format_list(named)} send does not fit the others' in most rounds (suspect_clients in "
            "metrics.jsonl has the reasons): the clients' data differ much, or learning_rate is too high"
        ]
    return [
        f"what client {client} sends does not fit the others' in {len(found)} of {rounds[client]} rounds "
        f"({found[-1]}): its training diverges, its data or labels differ from theirs, or it is malicious; check it, "
        "or exclude it"
        for client, found in named.items()
    ]


def warn_inconsistent_clients(
    teacher_labels: Tensor | None,
    clients: Sequence[int],
    labels: Tensor,
    counts: npt.NDArray[np.int64] | None,
    class_names: Sequence[str],
) -> list[str]:
    """Warnings about client models of the last round that contradict each other.

    Args:
        teacher_labels: the class that each model predicts, [T, M]; None if unknown.
        clients: of these models, T of them.
        labels: the run's predictions, [M].
        counts: n_{k,c} [K, C], the clients' samples per class; None if unknown.
        class_names: C of them.
    """
    if teacher_labels is None or counts is None or len(teacher_labels) != len(clients) or len(clients) < 2:
        return []
    predicted, by_teacher = labels.cpu().numpy(), teacher_labels.cpu().numpy()
    knows = counts[list(clients)] >= _MIN_OWN_SAMPLES
    agreement: dict[int, float] = {}
    for index, client in enumerate(clients):
        checked = knows[index][predicted]
        if checked.sum() >= _MIN_SAMPLES:
            agreement[client] = float((by_teacher[index][checked] == predicted[checked]).mean())
    if len(agreement) < 2:
        return []
    median = float(np.median(list(agreement.values())))
    if median < _ALL_INCONSISTENT:
        return [
            "the clients' models contradict each other: on samples of classes that a client has, its model agrees with "
            f"the predicted label in {median:.0%} of the cases only; the clients' labels may have different meanings "
            "or be wrong, so do not trust these predictions before you have checked them"
        ]
    inconsistent = [
        client
        for client, fraction in agreement.items()
        if fraction < _INCONSISTENT and _median_of_others(agreement, client) >= _CONSISTENT_OTHERS
    ]
    warnings = []
    if inconsistent:
        lowest = min(agreement[client] for client in inconsistent)
        models = (
            f"the model of client {inconsistent[0]} contradicts"
            if len(inconsistent) == 1
            else f"the models of clients {format_list(inconsistent)} contradict"
        )
        warnings.append(
            f"{models} the others' on {1 - lowest:.0%} of the samples of classes that it has: its labels may be "
            "shifted or wrong; check them, or exclude it"
        )
    consistent = [index for index, client in enumerate(clients) if client not in inconsistent]
    pairs = _find_swapped_classes(by_teacher[consistent], predicted, knows[consistent])
    if pairs:
        swaps = "; ".join(
            f"what is {class_names[one]!r} to some is {class_names[other]!r} to others" for one, other in pairs[:3]
        )
        warnings.append(
            f"two groups of clients disagree ({swaps}): these classes may be swapped at some clients; do not trust "
            "these labels before you have checked that"
        )
    return warnings


def _median_of_others(agreement: dict[int, float], client: int) -> float:
    return float(np.median([fraction for other, fraction in agreement.items() if other != client]))


def _find_swapped_classes(
    by_teacher: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], knows: npt.NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Pairs of classes that two groups of models tell apart, but name the other way round.

    The models are compared with each other and not with the predictions: where half of the clients swap two classes,
    the model that predicts may give all samples of both one label.
    """
    pairs: list[tuple[int, int]] = []
    for label in np.unique(predicted).tolist():
        alternatives = np.bincount(by_teacher[knows[:, label]][:, predicted == label].ravel(), minlength=knows.shape[1])
        alternatives[label] = 0
        other = int(alternatives.argmax())
        models = by_teacher[knows[:, label] & knows[:, other]][:, np.isin(predicted, (label, other))]
        if alternatives[other] == 0 or (other, label) in pairs or models.shape[1] < _MIN_SAMPLES_OF_CLASS:
            continue
        if _form_two_groups((models == label).astype(float) - (models == other)):
            pairs.append((label, other))
    return pairs


def _form_two_groups(votes: npt.NDArray[np.float64]) -> bool:
    """Whether models form two groups of opposite votes.

    Args:
        votes: 1 for one class, -1 for the other, 0 for a third, [T, M].
    """
    if len(votes) < _MIN_MODELS_ON_PAIR:
        return False
    agreement = votes @ votes.T / np.maximum(np.abs(votes) @ np.abs(votes).T, 1)
    reference = agreement[np.abs(agreement).mean(axis=1).argmax()]
    groups = votes[reference > _AGREE], votes[reference < -_AGREE]
    if min(map(len, groups)) < max(2, _GROUP_SIZE * len(votes)):
        return False
    # Swapped names are mistaken in both directions, a hard class in one. A server may have one of the two classes only.
    majority = np.sign(groups[0].sum(axis=0))
    directions = [direction for direction in (1, -1) if (majority == direction).any()]
    return all(
        (sign * group[:, majority == direction] == direction).mean() >= _SAME_CLASS
        for direction in directions
        for sign, group in zip((1, -1), groups, strict=True)
    )
