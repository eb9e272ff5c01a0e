"""A watch over a run without labels: what looks wrong is said in a sentence, since nobody may be able to check.

Every threshold is set so that a run that goes well stays quiet, heterogeneous clients and few rounds among them; a
warning that comes with every run is read by nobody. A quiet watch proves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data.listing import listed
from ..data.neighbours import Nearness
from .callbacks import Callback
from .contradictions import contradictions
from .judgement_signs import Judgement, average_answers, judged_on, poor, worse_for_refining
from .loss_signs import poor_fit, sign_of_losses
from .missed_classes import missed, missed_places
from .nearness_signs import differs, supported, unlike, unsupported

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
#: From fewer samples per class no class is learnt, nor can anything here be checked.
_LEAST_PER_CLASS = 10
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
        votes: what each model of the last round named, [T, M]; None where nobody asked them.
        voters: whose models these are.
        nearness: the server's samples beside the clients' nearest; None where these are not known.
        judged: what the clients find of the models; None where nobody judges.
        found: the clients' own samples of each class, and how many the model finds, [2, C]; None where not known.
    """

    logits: Tensor
    class_names: Sequence[str]
    losses: Sequence[float] = ()
    aggregated: Tensor | None = None
    ensemble: Tensor | None = None
    counts: npt.NDArray[np.int64] | None = None
    took_part: frozenset[int] = frozenset()
    votes: Tensor | None = None
    voters: Sequence[int] = ()
    nearness: Nearness | None = None
    judged: Judgement | None = None
    found: Tensor | None = None


def signs(evidence: Evidence) -> list[str]:
    """What looks wrong, a sentence each; empty where nothing does."""
    seen = evidence.losses, len(evidence.class_names), evidence.counts
    failed = sign_of_losses(*seen)
    sentences = [
        failed or poor_fit(*seen) or poor(evidence.judged) or missed(evidence.found, evidence.class_names),
        worse_for_refining(evidence.judged),
        unlike(evidence.nearness) or unsupported(evidence.nearness),
        _untaught(evidence),
        _too_few(evidence),
    ]
    if len(evidence.logits) >= _ENOUGH_SAMPLES:
        one = _one_class(evidence)
        sentences += [one, _unlearnt(evidence), _apart_from_teachers(evidence), _apart_from_average(evidence)]
        of_one_kind = evidence.nearness is None or not differs(evidence.nearness)
        learnt = failed is None and one is None and 2 * len(missed_places(evidence.found)) < len(evidence.class_names)
        if learnt and of_one_kind:
            # On what they have not learnt models contradict each other by chance, and no client is to blame.
            labels = evidence.logits.argmax(dim=1)
            sentences += contradictions(evidence.votes, evidence.voters, labels, evidence.counts, evidence.class_names)
    return [sentence for sentence in sentences if sentence is not None]


def _one_class(evidence: Evidence) -> str | None:
    shares = _shares(evidence)
    share, place = float(shares.max()), int(shares.argmax())
    if share < _NEARLY_ALL:
        return None
    if evidence.counts is not None:
        of_clients = evidence.counts.sum(axis=0)
        if share < of_clients[place] / of_clients.sum() + _MARGIN:
            return None
    if supported(evidence.nearness):
        # A server may have one class alone; then the clients' nearest samples are of it too.
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


def _untaught(evidence: Evidence) -> str | None:
    """Classes that no client has at all: they have a name, and cannot be given."""
    if evidence.counts is None:
        return None
    absent = [evidence.class_names[place] for place in np.flatnonzero(evidence.counts.sum(axis=0) == 0)]
    if not absent:
        return None
    return (
        f"no client has a sample of {listed(repr(name) for name in absent)}: samples of that class get another's label"
    )


def _too_few(evidence: Evidence) -> str | None:
    classes = len(evidence.class_names)
    if evidence.counts is None or evidence.counts.sum() >= _LEAST_PER_CLASS * classes:
        return None
    return (
        f"the clients have {evidence.counts.sum()} labelled samples in all, for {classes} classes: too few to learn "
        "from, and to check these labels by"
    )


def _shares(evidence: Evidence) -> Tensor:
    labels = evidence.logits.argmax(dim=1).cpu()
    return torch.bincount(labels, minlength=len(evidence.class_names)).double() / len(labels)


def _agreement(one: Tensor, other: Tensor) -> float:
    return float((one.argmax(dim=1).cpu() == other.argmax(dim=1).cpu()).double().mean())


class Watch(Callback):
    """Says what looks wrong when a run ends: in the log, and in summary.json, from where the report has it."""

    def __init__(
        self,
        class_names: Sequence[str],
        counts: npt.NDArray[np.int64] | None = None,
        nearness: Callable[[Tensor], Nearness | None] = lambda given: None,
        found: Callable[[], Tensor | None] = lambda: None,
    ) -> None:
        """`nearness` of the labels that were given and `found` are asked once, at the end: they take a moment."""
        self.class_names = class_names
        self.counts = counts
        self.nearness = nearness
        self.found = found

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The whole run, those rounds before a resume among it."""
        lines = run.store.read_metrics()
        spoken: Mapping[str, Tensor] = {} if run.record is None else run.record.report.predictions
        losses = [line["local_loss"] for line in lines if line.get("local_loss") is not None]
        asked = [(client, line.get("left_out") or {}) for line in lines for client in line.get("clients") or []]
        # Of fewer clients, where a resume has made them fewer, those who are gone hold nothing.
        known = range(len(self.counts)) if self.counts is not None else range(run.settings.train.client_num_in_total)
        heard = {client for client, left_out in asked if str(client) not in left_out and client in known}
        logits = run.answer_logits()
        evidence = Evidence(
            logits=logits,
            class_names=self.class_names,
            losses=losses,
            aggregated=spoken.get("aggregated"),
            ensemble=spoken.get("ensemble"),
            counts=self.counts,
            took_part=frozenset(heard),
            votes=run.votes,
            voters=[] if run.record is None else [update.client for update in run.record.arrived.updates],
            # Who presses Ctrl-C waits for what was finished, and for no more.
            nearness=None if summary.get("interrupted") else self.nearness(logits.argmax(dim=1).cpu()),
            judged=Judgement.told_in(lines[-1] if lines else {}, run.settings.common.training_type == "simulation"),
            found=None if summary.get("interrupted") else self.found(),
        )
        sentences = signs(evidence)
        for sentence in sentences:
            _log.warning("%s", sentence)
        summary["warnings"] = sentences
        note = average_answers(evidence.judged)
        summary["notes"] = [] if note is None else [note]
        summary["estimated_on"] = judged_on(evidence.judged, evidence.nearness)
