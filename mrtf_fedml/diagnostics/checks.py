"""Checks of a run without labels. Each warning says what was measured and what to do.

Thresholds are set so that a run that goes well gives no warning, also with heterogeneous clients and few rounds: a
warning in every run would not be read. No warning does not prove that the labels are right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..callbacks.base import Callback
from ..data.formatting import format_list, name_clients
from ..data.known_labels import KnownLabels
from ..models.inference import predict_logits
from ..training.outputs import LabelTrust
from .accuracy_estimate import (
    LOW_ACCURACY,
    AccuracyEstimate,
    LabelCounts,
    RefiningGain,
    correct_estimate,
    estimate_accuracy,
    note_aggregated_predicts,
    summarize_estimate,
    warn_contradicting_clients,
    warn_low_accuracy,
    warn_refining_hurts,
)
from .client_consistency import find_suspects, warn_inconsistent_clients, warn_suspects
from .label_trust import CALIBRATION_FILE, Calibration, summarize_trust
from .shift import (
    NeighbourStatistics,
    is_shifted,
    supports_predictions,
    warn_contradicted_labels,
    warn_novel_samples,
)
from .training_curves import warn_poor_fit, warn_training_failed
from .unknown_classes import CELLS_FILE, CellComparison, compare_samples, note_unknown, warn_shift

if TYPE_CHECKING:
    from ..training.loop import Run
    from ..training.round import RoundRecord

_log = logging.getLogger(__name__)

#: Fractions of fewer samples are chance.
_MIN_SAMPLES = 20
#: One class for this fraction of the samples: server sets that truly are so are rarer. If the clients' class
#: frequencies are known, they must be lower by the margin too: a rare disease is rare on the server as well.
_COLLAPSED, _COLLAPSED_MARGIN = 0.95, 0.1
#: The model is confident, and agrees with its teachers on fewer samples than it disagrees.
_CONFIDENT, _AGREEMENT = 0.8, 0.5
#: An aggregated model of heterogeneous clients is often poor, and refining is there to mend it. Other labels for two
#: samples of three are too many.
_DISAGREEMENT = 2 / 3
#: With fewer samples per class no class is learnt, and nothing can be checked.
_MIN_SAMPLES_PER_CLASS = 10
#: A smaller fraction of predictions of a class that was not trained are single mistakes.
_FEW = 0.02
#: A class is missed if its recall is below this, beyond chance. In runs that went well it was 0.7 or more.
_MISSED_RECALL, _RECALL_STDERRS = 0.25, 2.0
#: An estimate that exceeds by this much what the features allow is not stated. Without a shift it never did so in 120
#: runs (docs/lab/estimates.md).
_CONTRADICTED_ESTIMATE = 0.05
#: With a wider interval no number is stated, since it may be off by more than 0.15. On 21 setups the calibration error
#: was 0.15 or more with a wider one, and at most 0.115 with a narrower one (docs/lab/estimates.md).
_WIDEST_INTERVAL = 0.3
#: With fewer samples of a class its recall is chance.
_MIN_SAMPLES_FOR_RECALL = 10


@dataclass(frozen=True, eq=False)
class RunEvidence:
    """What the server knows at the end of a run.

    Attributes:
        logits: the predictions, [M, C].
        class_names: C of them.
        train_losses: the mean training loss of each round that has one.
        aggregated: the aggregated model's predictions in the last round, [M, C]; None if it predicts, or is unknown.
        ensemble: those of the teachers' ensemble, the same.
        class_counts: n_{k,c} [K, C], the clients' samples per class; None if this process does not know them.
        participants: the clients whose updates were used in any round.
        teacher_labels: the class that each model of the last round predicts, [T, M]; None if unknown.
        teacher_clients: the clients of these models.
        neighbours: the server's samples compared with the clients' nearest ones; None if unknown.
        estimate: the accuracy estimate from the clients' held-out samples; None if there is none.
        labels: the server's own labels of some samples; None if there are none.
        cells: the server's samples compared with the clients' by counts; None if clients have not counted.
        labels_are_marked: whether it is known which of them were drawn at random.
        gain: what the clients found of the refined model in the last rounds; None if nothing.
        class_recall: the clients' samples of each class, and how many the model predicts right, [2, C]; None if
            unknown.
    """

    logits: Tensor
    class_names: Sequence[str]
    train_losses: Sequence[float] = ()
    aggregated: Tensor | None = None
    ensemble: Tensor | None = None
    class_counts: npt.NDArray[np.int64] | None = None
    participants: frozenset[int] = frozenset()
    teacher_labels: Tensor | None = None
    teacher_clients: Sequence[int] = ()
    neighbours: NeighbourStatistics | None = None
    estimate: AccuracyEstimate | None = None
    labels: LabelCounts | None = None
    cells: CellComparison | None = None
    labels_are_marked: bool = False
    gain: RefiningGain | None = None
    class_recall: Tensor | None = None


class RunChecks(Callback):
    """Writes warnings about a run to the log and to summary.json, from which the report reads them."""

    def __init__(
        self,
        class_names: Sequence[str],
        class_counts: npt.NDArray[np.int64] | None = None,
        client_names: Sequence[str] | None = None,
        compare_neighbours: Callable[[Tensor], NeighbourStatistics | None] = lambda labels: None,
        count_recall: Callable[[], Tensor | None] = lambda: None,
    ) -> None:
        """The functions take a moment and are called once, at the end; the first gets the predicted labels [M]."""
        self.class_names = class_names
        self.class_counts = class_counts
        self.client_names = client_names
        self.compare_neighbours = compare_neighbours
        self.count_recall = count_recall

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Note the clients that do not fit the others: what they sent, and what their models predict."""
        if run.record is None:
            return
        suspects = self._find_suspects(run.record)
        if suspects:
            line["suspect_clients"] = {str(client): reason for client, reason in sorted(suspects.items())}

    def _find_suspects(self, record: RoundRecord) -> dict[int, str]:
        replies, report = record.replies, record.report
        suspects = {**replies.outlier_clients, **replies.opposed_clients}
        invalid = {
            client: f"excluded: {reason}"
            for client, reason in replies.excluded_clients.items()
            if client not in replies.missing_clients
        }
        if 2 * len(invalid) < len(replies.clients):
            # If most updates are invalid, the settings are the reason.
            suspects |= invalid
        targets = report.predictions.get("targets")
        if self.class_counts is None and report.teacher_labels is not None and targets is not None:
            # Where nothing else is known of the clients' classes.
            clients = [update.client for update in replies.updates]
            suspects |= find_suspects(report.teacher_labels, clients, targets)
        return suspects

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Check the whole run, also the rounds before a resume."""
        metrics = run.directory.read_metrics()
        evidence = self._collect(run, metrics, is_interrupted=bool(summary.get("interrupted")))
        stated = state_estimate(evidence)
        found = [*find_warnings(evidence), *warn_suspects(metrics), *([stated.warning] if stated.warning else [])]
        warnings = [name_clients(warning, self.client_names) for warning in found]
        for warning in warnings:
            _log.warning("%s", warning)
        summary["warnings"] = warnings
        notes = [
            note_aggregated_predicts(evidence.gain),
            note_given_labels(evidence.labels),
            note_unknown(evidence.cells),
        ]
        summary["notes"] = [note for note in notes if note is not None]
        summary.update(summarize_estimate(stated.estimate, stated.reason, stated.condition, self.class_names))
        summary.update(summarize_labels(evidence.labels))
        run.label_trust = self._assess_labels(run, evidence, stated)
        summary.update(summarize_trust(run.label_trust, run.settings.common.coverage))

    @staticmethod
    def _assess_labels(run: Run, evidence: RunEvidence, stated: StatedEstimate) -> LabelTrust:
        common, probabilities = run.settings.common, evidence.logits.double().softmax(dim=1).cpu()
        known = None if run.known_labels is None else run.known_labels.labels
        others = torch.ones(len(probabilities), dtype=torch.bool) if known is None else known < 0
        trust, calibration = LabelTrust.empty(probabilities, common.accept), None
        if stated.accuracy_of_others is not None and bool(others.any()):
            calibration = Calibration.fit(run.evaluations, common.coverage, common.accept)
            assessed = calibration.assess(probabilities[others], stated.accuracy_of_others)
            for name in ("probability_correct", "prediction_sets", "is_accepted"):
                getattr(trust, name)[others] = getattr(assessed, name)
        # A resumed run may have no calibration where it had one before.
        run.directory.write_json(CALIBRATION_FILE, {} if calibration is None else calibration.to_json())
        cells = {} if evidence.cells is None else evidence.cells.to_tensors()
        if cells or run.directory.read_tensors(CELLS_FILE):
            run.directory.write_tensors(CELLS_FILE, cells)
        if evidence.cells is not None:
            trust = trust.with_unknown_samples(evidence.cells.probability_known, evidence.cells.is_unknown)
        return trust if known is None else trust.with_known_labels(known)

    def _collect(self, run: Run, metrics: Sequence[Mapping[str, Any]], is_interrupted: bool) -> RunEvidence:
        counts, record, logits = self.class_counts, run.record, run.prediction_logits()
        predictions: Mapping[str, Tensor] = {} if record is None else record.report.predictions
        # A resume with fewer clients leaves higher numbers in earlier rounds.
        known = range(run.settings.train.client_num_in_total if counts is None else len(counts))
        participants = {
            client
            for line in metrics
            for client in line.get("clients") or []
            if str(client) not in (line.get("excluded_clients") or {}) and client in known
        }
        return RunEvidence(
            logits=logits,
            class_names=self.class_names,
            train_losses=[line["train_loss"] for line in metrics if line.get("train_loss") is not None],
            aggregated=predictions.get("aggregated"),
            ensemble=predictions.get("ensemble"),
            class_counts=counts,
            participants=frozenset(participants),
            teacher_labels=None if record is None else record.report.teacher_labels,
            teacher_clients=[] if record is None else [update.client for update in record.replies.updates],
            # After Ctrl-C the user waits only for results of finished rounds.
            neighbours=None if is_interrupted else self.compare_neighbours(logits.argmax(dim=1).cpu()),
            estimate=estimate_accuracy(run.evaluations, logits.argmax(dim=1)),
            labels=count_labels(run.known_labels, run.logits_before_labels()),
            cells=compare_samples(run.evaluations, run.context.inputs, logits.argmax(dim=1)),
            labels_are_marked=run.known_labels is not None and run.known_labels.has_reasons,
            gain=RefiningGain.from_metrics(
                metrics[-1] if metrics else {}, allows_holdout=run.settings.common.training_type == "simulation"
            ),
            class_recall=None if is_interrupted else self.count_recall(),
        )


def find_warnings(evidence: RunEvidence) -> list[str]:
    """One warning per problem; empty if there is none."""
    curves = evidence.train_losses, len(evidence.class_names), evidence.class_counts
    failed = warn_training_failed(*curves)
    warnings = [
        failed
        or warn_poor_fit(*curves)
        or warn_low_accuracy(evidence.estimate)
        or warn_missed_classes(evidence.class_recall, evidence.class_names),
        warn_contradicting_clients(evidence.estimate),
        warn_refining_hurts(evidence.gain),
        warn_novel_samples(evidence.neighbours)
        or warn_contradicted_labels(evidence.neighbours)
        or warn_shift(evidence.cells),
        _warn_absent_classes(evidence),
        _warn_too_few_samples(evidence),
    ]
    if len(evidence.logits) >= _MIN_SAMPLES:
        collapsed = _warn_collapsed(evidence)
        warnings += [
            collapsed,
            _warn_untrained_classes(evidence),
            _warn_disagreement_with_teachers(evidence),
            _warn_disagreement_with_aggregated(evidence),
        ]
        has_shift = evidence.neighbours is not None and is_shifted(evidence.neighbours)
        misses_most = 2 * len(find_missed_classes(evidence.class_recall)) >= len(evidence.class_names)
        if failed is None and collapsed is None and not misses_most and not has_shift:
            # Models that have not learnt the task contradict each other by chance.
            warnings += warn_inconsistent_clients(
                evidence.teacher_labels,
                evidence.teacher_clients,
                evidence.logits.argmax(dim=1),
                evidence.class_counts,
                evidence.class_names,
            )
    return [warning for warning in warnings if warning is not None]


@dataclass(frozen=True)
class StatedEstimate:
    """The estimate of a run that is stated.

    Attributes:
        estimate: None if none is stated.
        reason: why none is stated; None if one is, or none was to be expected.
        condition: under which it holds; None without one.
        accuracy_of_others: the accuracy of the samples without a known label, where it agrees with the clients'
            evaluation, so that confidences can be calibrated with it; else None.
        warning: that the server's labels contradict the clients' estimate; else None.
    """

    estimate: AccuracyEstimate | None
    reason: str | None
    condition: str | None
    accuracy_of_others: float | None
    warning: str | None = None


def state_estimate(evidence: RunEvidence) -> StatedEstimate:
    """The clients' estimate, unless something speaks against it, corrected by the server's own labels.

    No number is stated with a wide interval.
    """
    stated = _correct_by_labels(evidence)
    estimate = stated.estimate
    if estimate is None or estimate.high - estimate.low <= _WIDEST_INTERVAL:
        return stated
    labels = "" if evidence.labels is None else f", {evidence.labels.random} labels drawn at random"
    reason = (
        f"too few samples ({estimate.samples} held out by clients{labels}, {len(evidence.logits)} of the server): the "
        f"accuracy is between {estimate.low:.2f} and {estimate.high:.2f} with 95% confidence"
    )
    return replace(stated, estimate=None, reason=reason, accuracy_of_others=None)


def _correct_by_labels(evidence: RunEvidence) -> StatedEstimate:
    reason, condition = find_estimate_obstacle(evidence), describe_condition(evidence)
    clients = None if reason is not None else evidence.estimate
    labels = evidence.labels
    if labels is None:
        return StatedEstimate(clients, reason, condition, None if clients is None else clients.accuracy)
    estimate = correct_estimate(clients, labels)
    assumption = None if evidence.labels_are_marked else "assumes that the labelled samples were drawn at random"
    counted = f"the model predicts {labels.correct} of {labels.random} given labels"
    if clients is not None and labels.contradicts(clients):
        contradiction = f"the clients' held-out samples give {clients.accuracy:.2f}, but {counted}"
        warning = (
            f"{contradiction}: the server's samples differ from the clients', or the given labels are no random "
            "subset; check both"
        )
        return StatedEstimate(estimate, None if estimate else contradiction, assumption, None, warning)
    if clients is None:
        few = f"{labels.random} labels drawn at random are too few; `mrtf ask RUN_DIR --n 40 --random` selects more"
        reason = None if estimate else f"{reason}; {few}" if reason else few
        return StatedEstimate(estimate, reason, assumption, None)
    conditions = [each for each in (condition, assumption if labels.random else None) if each is not None]
    assert estimate is not None
    others = (estimate.accuracy * labels.samples - labels.given) / max(labels.samples - labels.given, 1)
    return StatedEstimate(estimate, None, "; ".join(conditions) or None, others)


def count_labels(known: KnownLabels | None, logits: Tensor) -> LabelCounts | None:
    """The server's own labels, and those that logits [M, C] of a model that has not learnt them predict."""
    if known is None:
        return None
    is_right = logits.argmax(dim=1).cpu() == known.labels
    return LabelCounts(
        len(known.labels), known.count, int(known.is_random.sum()), int((is_right & known.is_random).sum())
    )


def note_given_labels(labels: LabelCounts | None) -> str | None:
    """A note on the server's own labels."""
    if labels is None:
        return None
    return f"{labels.given} of the {labels.samples} samples have the label that was given for them"


def summarize_labels(labels: LabelCounts | None) -> dict[str, Any]:
    """The entries of summary.json on the server's own labels."""
    if labels is None:
        return {}
    return {"labels_given": labels.given, "labels_random": labels.random, "labels_random_correct": labels.correct}


def find_estimate_obstacle(evidence: RunEvidence) -> str | None:
    """Why no estimated accuracy is stated; None if one may be, or none was to be expected."""
    estimate, cells = evidence.estimate, evidence.cells
    if estimate is None:
        return None
    shift = None if cells is None else cells.describe_shift()
    if shift is not None:
        return f"the server's samples differ from the clients' ({shift})"
    if estimate.classes_differ and estimate.accuracy < LOW_ACCURACY:
        return (
            "the server's class frequencies differ from the clients', and the model confuses too many classes to tell "
            "how"
        )
    if len(evidence.logits) < _MIN_SAMPLES:
        return f"the server has fewer than {_MIN_SAMPLES} samples, too few to compare with the clients'"
    most = None if cells is None else cells.most_correct
    if most is not None and estimate.accuracy > most + _CONTRADICTED_ESTIMATE:
        return (
            f"the clients' held-out samples give {estimate.accuracy:.2f}, but the features of samples with the same "
            f"label are so different from the clients' that at most {most:.2f} of the labels are right"
        )
    return None


def describe_condition(evidence: RunEvidence) -> str | None:
    """Under which condition the stated estimate holds that nobody could check; None if it was checked."""
    if evidence.estimate is None or evidence.cells is not None:
        return None
    return "valid only if the server's samples are like the clients', which could not be compared here"


def count_recalled(model: nn.Module, inputs: Tensor, labels: Tensor, classes: int) -> Tensor | None:
    """How many samples each class has, and how many of them the model predicts right, [2, C].

    None if the model does not give one prediction per sample, or a label is not one of the classes.
    """
    predicted = predict_logits(model, inputs).argmax(dim=1).cpu()
    if predicted.shape != labels.shape or not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        return None
    correct = labels[predicted == labels]
    return torch.stack([torch.bincount(part.long(), minlength=classes) for part in (labels, correct)])


def warn_missed_classes(class_recall: Tensor | None, class_names: Sequence[str]) -> str | None:
    """A warning about classes that the model misses even among the clients' own samples.

    >>> warn_missed_classes(torch.tensor([[90, 30], [90, 2]]), ["well", "ill"])
    "the model finds 7% of the clients' own samples of 'ill': the server's samples of that class, if any, get another \
label; train for more rounds, or give the clients more samples of it"
    >>> warn_missed_classes(torch.tensor([[90, 30], [90, 20]]), ["well", "ill"])
    """
    missed = find_missed_classes(class_recall)
    if class_recall is None or not missed:
        return None
    samples, correct = class_recall[:, missed].sum(dim=1).tolist()
    return (
        f"the model finds {correct / samples:.0%} of the clients' own samples of "
        f"{format_list(repr(class_names[label]) for label in missed)}: the server's samples of that class, if any, get "
        "another label; train for more rounds, or give the clients more samples of it"
    )


def find_missed_classes(class_recall: Tensor | None) -> list[int]:
    """The classes whose recall is too low, beyond chance."""
    if class_recall is None:
        return []
    samples, correct = class_recall[0].double().clamp_min(1), class_recall[1].double()
    recall = correct / samples
    stderr = (recall * (1 - recall) / samples).sqrt()
    is_enough = class_recall[0].ge(_MIN_SAMPLES_FOR_RECALL)
    return (is_enough & (recall + _RECALL_STDERRS * stderr).lt(_MISSED_RECALL)).nonzero().flatten().tolist()


def _warn_collapsed(evidence: RunEvidence) -> str | None:
    frequencies = _class_frequencies(evidence)
    largest, label = float(frequencies.max()), int(frequencies.argmax())
    if largest < _COLLAPSED:
        return None
    if evidence.class_counts is not None:
        of_clients = evidence.class_counts.sum(axis=0)
        if largest < of_clients[label] / of_clients.sum() + _COLLAPSED_MARGIN:
            return None
    if supports_predictions(evidence.neighbours):
        # The server may have one class only; then the clients' nearest samples are of that class too.
        return None
    return (
        f"{largest:.0%} of the samples are labelled {evidence.class_names[label]!r}: the model may have collapsed; "
        "unless you expect that, do not use these labels, and check the features' scale and learning_rate"
    )


def _warn_untrained_classes(evidence: RunEvidence) -> str | None:
    """Classes that are predicted although no participating client has a sample of them."""
    if evidence.class_counts is None or not evidence.participants:
        return None
    is_trained = evidence.class_counts[sorted(evidence.participants)].sum(axis=0) > 0
    frequencies = _class_frequencies(evidence)
    untrained = [label for label, share in enumerate(frequencies) if not is_trained[label] and share >= _FEW]
    if not untrained:
        return None
    names = ", ".join(repr(evidence.class_names[label]) for label in untrained)
    total = float(sum(frequencies[label] for label in untrained))
    return (
        f"{total:.0%} of the samples are labelled {names}, of which no participating client has a sample; these labels "
        "are guesses until more rounds or more clients per round include one"
    )


def _warn_disagreement_with_teachers(evidence: RunEvidence) -> str | None:
    if evidence.ensemble is None:
        return None
    confidence = float(evidence.logits.float().softmax(dim=1).max(dim=1).values.mean())
    agreement = _agreement(evidence.logits, evidence.ensemble)
    if confidence < _CONFIDENT or agreement > _AGREEMENT:
        return None
    return (
        f"the model is confident ({confidence:.2f} on average) but agrees with the ensemble of the clients' models on "
        f"{agreement:.0%} of the samples only: do not rely on its confidences"
    )


def _warn_disagreement_with_aggregated(evidence: RunEvidence) -> str | None:
    if evidence.aggregated is None:
        return None
    disagreement = 1 - _agreement(evidence.logits, evidence.aggregated)
    if disagreement < _DISAGREEMENT:
        return None
    return (
        f"refining has changed the label of {disagreement:.0%} of the samples: the refined or the aggregated model is "
        "wrong on most of them; compare with federated_optimizer FedAvg, or train for more rounds"
    )


def _warn_absent_classes(evidence: RunEvidence) -> str | None:
    """Classes that no client has: they cannot be predicted."""
    if evidence.class_counts is None:
        return None
    absent = [evidence.class_names[label] for label in np.flatnonzero(evidence.class_counts.sum(axis=0) == 0)]
    if not absent:
        return None
    names = format_list(repr(name) for name in absent)
    return f"no client has a sample of {names}: samples of that class get another label"


def _warn_too_few_samples(evidence: RunEvidence) -> str | None:
    classes = len(evidence.class_names)
    if evidence.class_counts is None or evidence.class_counts.sum() >= _MIN_SAMPLES_PER_CLASS * classes:
        return None
    return (
        f"the clients have {evidence.class_counts.sum()} labelled samples in all, for {classes} classes: too few to "
        "train on, and to check these labels with"
    )


def _class_frequencies(evidence: RunEvidence) -> Tensor:
    labels = evidence.logits.argmax(dim=1).cpu()
    return torch.bincount(labels, minlength=len(evidence.class_names)).double() / len(labels)


def _agreement(one: Tensor, other: Tensor) -> float:
    return float((one.argmax(dim=1).cpu() == other.argmax(dim=1).cpu()).double().mean())
