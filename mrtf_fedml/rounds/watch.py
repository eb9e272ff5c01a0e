"""A watch over a run without labels: what looks wrong is said in a sentence, since nobody may be able to check.

Every threshold is set so that a run that goes well stays quiet, heterogeneous clients and few rounds among them; a
warning that comes with every run is read by nobody. A quiet watch proves nothing.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .callbacks import Callback

if TYPE_CHECKING:
    from .loop import Run

_log = logging.getLogger(__name__)

#: Shares of fewer samples are chance.
_ENOUGH_SAMPLES = 20
#: One class for so many of the samples: rarer than that are server's sets that truly are so. Where the clients' own
#: samples are known, they must have that class less often by the margin too: a rare disease stays rare at the server.
_NEARLY_ALL, _MARGIN = 0.95, 0.1
#: The student is as sure as one who knows, and follows its teachers on fewer samples than it leaves them.
_CONFIDENT, _AGREEING = 0.8, 0.5
#: A plain average of heterogeneous clients is often poor, and the refinery there to mend it; mending two samples of
#: three is another model.
_DISAGREEING = 2 / 3
#: log C is the loss of guessing. Clients that meet a model trained on other classes start above it; five times it, as
#: a mean over a client's whole round, is a step that overshoots.
_OVERSHOOTING = 5.0
#: The middle of three rounds against the middle of three: single rounds differ by who took part. Small losses may
#: double without meaning; half of guessing is no longer small.
_ROUNDS, _GROWN, _NOT_SMALL = 3, 2.0, 0.5
#: Fewer samples than this share of a class that nobody has taught are single mistakes.
_FEW = 0.02


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a server knows at the end of a run.

    Attributes:
        logits: of the model that answers, [M, C].
        class_names: C of them.
        losses: the mean local loss of each round that has one.
        aggregated: what the plain average said in the last round, [M, C]; None where it is the answer or not known.
        ensemble: what the teachers said together, the same.
        counts: n_{k,c} [K, C], the clients' samples per class; None where this process does not know them.
        took_part: the clients that were heard.
    """

    logits: Tensor
    class_names: Sequence[str]
    losses: Sequence[float] = ()
    aggregated: Tensor | None = None
    ensemble: Tensor | None = None
    counts: npt.NDArray[np.int64] | None = None
    took_part: frozenset[int] = frozenset()


def signs(evidence: Evidence) -> list[str]:
    """What looks wrong, a sentence each; empty where nothing does."""
    told = [_growing_loss(evidence)]
    if len(evidence.logits) >= _ENOUGH_SAMPLES:
        told += [
            _one_class(evidence),
            _unlearnt(evidence),
            _apart_from_teachers(evidence),
            _apart_from_average(evidence),
        ]
    return [sentence for sentence in told if sentence is not None]


def _one_class(evidence: Evidence) -> str | None:
    shares = _shares(evidence)
    share, place = float(shares.max()), int(shares.argmax())
    if share < _NEARLY_ALL:
        return None
    if evidence.counts is not None:
        of_clients = evidence.counts.sum(axis=0)
        if share < of_clients[place] / of_clients.sum() + _MARGIN:
            return None
    return (
        f"{share:.0%} of the samples are labelled {evidence.class_names[place]!r}: the model may tell nothing apart; "
        "unless you expect that, do not use these labels, and check the features' scale and learning_rate"
    )


def _unlearnt(evidence: Evidence) -> str | None:
    """Classes that no client which took part has, and that are given all the same."""
    if evidence.counts is None or not evidence.took_part:
        return None
    held = evidence.counts[sorted(evidence.took_part)].sum(axis=0) > 0
    shares = _shares(evidence)
    places = [place for place in range(len(shares)) if not held[place] and shares[place] >= _FEW]
    if not places:
        return None
    names = ", ".join(repr(evidence.class_names[place]) for place in places)
    share = float(sum(shares[place] for place in places))
    return (
        f"{share:.0%} of the samples are labelled {names}, of which no client that took part has a sample; more rounds "
        "or more clients per round may bring one, until then those labels are guesses"
    )


def _apart_from_teachers(evidence: Evidence) -> str | None:
    if evidence.ensemble is None:
        return None
    confidence = float(evidence.logits.float().softmax(dim=1).max(dim=1).values.mean())
    agreement = _agreement(evidence.logits, evidence.ensemble)
    if confidence < _CONFIDENT or agreement > _AGREEING:
        return None
    return (
        f"the model is sure of its labels (confidence {confidence:.2f} on average), yet gives the label of the "
        f"clients' models together for {agreement:.0%} of the samples only: its confidence means little"
    )


def _apart_from_average(evidence: Evidence) -> str | None:
    if evidence.aggregated is None:
        return None
    apart = 1 - _agreement(evidence.logits, evidence.aggregated)
    if apart < _DISAGREEING:
        return None
    return (
        f"refining has changed the label of {apart:.0%} of the samples against the clients' plain average: one of the "
        "two is wrong on most of them; compare with federated_optimizer FedAvg, or train for more rounds"
    )


def _growing_loss(evidence: Evidence) -> str | None:
    losses, guessing = evidence.losses, math.log(max(len(evidence.class_names), 2))
    late = losses[len(losses) // 2 :]
    if late and max(late) > _OVERSHOOTING * guessing:
        return (
            f"the clients' training loss reached {max(late):.3g}, where guessing has {guessing:.2f}: training "
            "overshoots; lower learning_rate, or bring the features to one scale (data_args.standardize)"
        )
    if len(losses) < 2 * _ROUNDS:
        return None
    before = min(statistics.median(losses[i : i + _ROUNDS]) for i in range(len(losses) - 2 * _ROUNDS + 1))
    now = statistics.median(losses[-_ROUNDS:])
    if now < _GROWN * before or now < _NOT_SMALL * guessing:
        return None
    return (
        f"the clients' training loss grows (from {before:.3g} to {now:.3g}): the rounds make the model worse; lower "
        "learning_rate or epochs"
    )


def _shares(evidence: Evidence) -> Tensor:
    labels = evidence.logits.argmax(dim=1).cpu()
    return torch.bincount(labels, minlength=len(evidence.class_names)).double() / len(labels)


def _agreement(one: Tensor, other: Tensor) -> float:
    return float((one.argmax(dim=1).cpu() == other.argmax(dim=1).cpu()).double().mean())


class Watch(Callback):
    """Says what looks wrong when a run ends: in the log, and in summary.json, from where the report has it."""

    def __init__(self, class_names: Sequence[str], counts: npt.NDArray[np.int64] | None = None) -> None:
        self.class_names = class_names
        self.counts = counts

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The whole run, those rounds before a resume among it."""
        lines = run.store.read_metrics()
        spoken: Mapping[str, Tensor] = {} if run.record is None else run.record.report.predictions
        losses = [line["local_loss"] for line in lines if line.get("local_loss") is not None]
        asked = [(client, line.get("left_out") or {}) for line in lines for client in line.get("clients") or []]
        # Of fewer clients, where a resume has made them fewer, those who are gone hold nothing.
        known = range(len(self.counts)) if self.counts is not None else range(run.settings.train.client_num_in_total)
        heard = {client for client, left_out in asked if str(client) not in left_out and client in known}
        evidence = Evidence(
            logits=run.answer_logits(),
            class_names=self.class_names,
            losses=losses,
            aggregated=spoken.get("aggregated"),
            ensemble=spoken.get("ensemble"),
            counts=self.counts,
            took_part=frozenset(heard),
        )
        told = signs(evidence)
        for sentence in told:
            _log.warning("%s", sentence)
        summary["warnings"] = told
