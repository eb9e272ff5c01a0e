"""`mrtf_fedml.label(x, teachers=[...])`: labels from models that the parties have already, without training them."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import MrTFSettings, RunSettings
from ..config.loader import apply_values, find_key
from ..config.schema import Config
from ..data.evaluator import SealedEvaluator
from ..data.in_memory import ARRAYS, column_names, label_values, to_array
from ..data.known_labels import KnownLabels
from ..data.preprocessing import (
    InputKind,
    Preprocessing,
    Standardizer,
    load_run_encoder,
    to_samples,
    to_tensor,
)
from ..data.sources.source import is_text
from ..diagnostics.accuracy_estimate import summarize_estimate
from ..diagnostics.checks import (
    RunEvidence,
    count_labels,
    find_warnings,
    note_given_labels,
    state_estimate,
    summarize_labels,
)
from ..encoders import Encoder
from ..errors import UserError
from ..models import MODELS, create_model, predict_logits
from ..models.checks import check_model_output
from ..models.existing import LoadedTeacher, load_teacher
from ..models.state_dict import snapshot
from ..refinery.class_lists import (
    combine_by_known_classes,
    pairwise_agreement,
    relative_entropy_weights,
    reliability,
)
from ..refinery.class_prior import balance_classes
from ..refinery.clustering import reassign_by_prototypes
from ..refinery.distillation import distill
from ..refinery.teachers import disagreement, normalized_probabilities, scale_by_disagreement
from ..report import write_report
from ..report.artifacts import AGREEMENT
from ..rng import fork_rng, torch_generator
from ..training.outputs import LabelTrust, model_header
from ..training.run_directory import RunDirectory
from .result import Classifier, Result, read_result
from .run import preserve_process_state

#: The name of the procedure in summaries and reports.
ALGORITHM = "Teachers"
#: The keys that the procedure reads.
_KEYS = (
    *("temperature", "class_balance", "cluster_temperature", "refine_steps", "refine_lr", "refine_batch_size"),
    *("random_seed", "run_dir", "hidden_size", "feature_size", "threads"),
    *("encoder", "encoder_weights", "encoder_size", "encoder_normalization", "download"),
)
_DEFAULTS: Config = {
    "common_args": {"keep_features": False},
    "data_args": {"dataset": ARRAYS},
    "mrtf_args": {"preset": "paper", "class_balance": 0.5},
}
#: The disagreement from which on classes are balanced in full, as in MrTF.
_BALANCE_FADE = 0.5
#: A teacher with less weight than this contradicts the others; it is named in a warning.
_CONTRADICTS = 0.25


@dataclass(frozen=True, eq=False)
class TeacherTargets:
    """What teachers with class lists of their own say about M samples in C classes.

    Attributes:
        ensemble: the weighted ensemble, [M, C], doubles.
        targets: after balancing and clustering, [M, C].
        predicted: the class that each teacher predicts, [K, M].
        agreement: each teacher's kappa with the others, weighted by their reliability, [K]; NaN without comparison.
        reliability: each teacher's weight factor, [K].
    """

    ensemble: Tensor
    targets: Tensor
    predicted: Tensor
    agreement: Tensor
    reliability: Tensor


def combine_existing_teachers(
    logits: Sequence[Tensor], columns: Sequence[Sequence[int]], features: Tensor | None, settings: MrTFSettings
) -> TeacherTargets:
    """Stabilize (Eq. 6), weight per sample (Eq. 10) and by reliability, combine, balance, and cluster (Eq. 11-12).

    Args:
        logits: f_k of each teacher on its own classes, [M, C_k].
        columns: the index of each of these classes among all C.
        features: h(x), [M, D]; None: no clustering.
        settings: temperature, class_balance and cluster_temperature.
    """
    classes, samples = 1 + max(max(own) for own in columns), len(logits[0])
    probabilities = torch.zeros(len(logits), samples, classes, dtype=torch.float64)
    known = torch.zeros(len(logits), classes, dtype=torch.bool)
    for index, (rows, own) in enumerate(zip(logits, columns, strict=True)):
        probabilities[index][:, list(own)] = normalized_probabilities(rows.double(), settings.temperature)
        known[index, list(own)] = True
    predicted = probabilities.argmax(dim=2)
    kappa = pairwise_agreement(predicted, known)
    factors = reliability(kappa)
    weights = relative_entropy_weights(probabilities, known) * factors.unsqueeze(1)
    ensemble = combine_by_known_classes(probabilities, known, weights)
    strength = scale_by_disagreement(
        settings.class_balance, disagreement(predicted[factors >= _CONTRADICTS]), _BALANCE_FADE
    )
    targets = balance_classes(ensemble, strength) if len(logits) > 1 else ensemble
    if features is not None:
        targets = reassign_by_prototypes(targets, features, settings.cluster_temperature)
    others = factors * ~kappa.isnan()
    agreement = (kappa.nan_to_num(0.0) * others).sum(dim=1) / others.sum(dim=1)
    return TeacherTargets(ensemble, targets, predicted, agreement, factors)


def label_with_teachers(
    x: Any,
    teachers: Iterable[Any],
    *,
    student: str | nn.Module | None = None,
    features: Any = None,
    y: Any = None,
    ids: Iterable[Any] | None = None,
    classes: Iterable[Any] | None = None,
    dataset_name: str = ARRAYS,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """The teachers' labels of the samples, as a result with a report.

    Args:
        x: the samples: an array, a tensor, a pandas table or a list of strings.
        teachers: as `mrtf_fedml.label` takes them.
        student: a model that learns the labels, and then predicts; None: the teachers predict.
        features: h(x), [M, D], for clustering; by default those of the setting `encoder`, if there is one.
        y: the true labels, if known. All of them are for scoring only. If some are missing, the samples of the others
            get them, and they correct the estimated accuracy; nothing is trained on them.
        ids: names of the samples.
        classes: all classes in the order of the columns; by default those of the teachers, sorted.
        dataset_name: for the report.
        settings: further keys.
    """
    run_settings = _make_settings(student, dict(settings or {}))
    given = list(teachers)
    if not given:
        raise UserError("teachers is empty; give at least one model")
    if not hasattr(x, "__len__") or len(x) == 0:
        raise UserError("x has no samples; give an array, a tensor or a table with one row per sample")
    with preserve_process_state(), tempfile.TemporaryDirectory(prefix="mrtf-") as scratch:
        loaded = [load_teacher(teacher, index, _to_inputs) for index, teacher in enumerate(given)]
        encoder = load_run_encoder(run_settings, "numbers")
        if encoder is not None and features is not None:
            raise UserError("features and encoder are both given, and labels are clustered by one; leave one out")
        began = time.perf_counter()
        outputs = [teacher.logits(x, len(x)) for teacher in loaded]
        labels, columns = _map_classes(loaded, [own for _, own in outputs], classes)
        evaluator, known = (None, None) if y is None else _read_labels(y, labels, len(x))
        encoded = None if encoder is None else encoder(to_samples(to_array(x, "x")))
        h = encoded if features is None else _read_features(features, len(x))
        mrtf = run_settings.algorithm_section(MrTFSettings, "mrtf_args")
        combined = combine_existing_teachers([torch.from_numpy(rows) for rows, _ in outputs], columns, h, mrtf)
        keep = run_settings.common.run_dir is not None
        path = run_settings.common.run_dir if keep else str(Path(scratch) / "run")
        names = [str(value) for value in labels]
        trained = (
            None
            if student is None
            else _train_student(student, x, encoder, encoded, combined.targets, run_settings, mrtf)
        )
        logits = combined.targets.log() if trained is None else predict_logits(trained[0], trained[1])
        directory = RunDirectory.create(path, f"{dataset_name}-{ALGORITHM}")
        directory.write_config(run_settings.to_config() | {"mrtf_args": dict(run_settings.explicit["mrtf_args"])})
        sample_ids = _sample_ids(x, ids)
        trust, final = LabelTrust.empty(logits), logits
        if known is not None:
            trust, final = trust.with_known_labels(known.labels), known.anchor(logits.softmax(dim=1)).log()
        directory.write_predictions(final.float(), sample_ids, names, trust)
        classifier = None
        if trained is not None:
            net, inputs, preprocessing = trained
            directory.write_model(
                snapshot(net), model_header(net, run_settings.model, inputs.shape[1:], names, preprocessing)
            )
            classifier = Classifier(net, preprocessing, inputs.shape[1:], labels)
        seconds = time.perf_counter() - began
        summary = _summarize(loaded, outputs, combined, logits, names, evaluator, known, seconds)
        summary["dataset"], summary["device"] = dataset_name, "cpu"
        directory.append_metrics(_metrics_line(summary, combined, evaluator, seconds, trained is not None))
        directory.write_array(AGREEMENT, (combined.predicted == logits.argmax(dim=1)).float().mean(dim=0).numpy())
        directory.write_json("summary.json", summary)
        write_report(directory, _report_inputs(x), evaluator)
        return read_result(directory, classifier, labels, sample_ids, keep)


def _make_settings(student: Any, values: dict[str, Any]) -> RunSettings:
    for key in values:
        _, target = find_key(key, _DEFAULTS, "label(): ")
        if target not in _KEYS:
            raise UserError(f"label() with teachers does not read {key}; it reads {', '.join(_KEYS)}")
    if isinstance(student, type) or not (student is None or isinstance(student, str | nn.Module)):
        raise UserError(f"student is {student!r}; give a name such as 'mlp', or an instance of a module")
    if isinstance(student, str) and student not in MODELS:
        raise UserError(f"student is {student!r}; give one of {', '.join(MODELS)}, or an instance of a module")
    if student is not None:
        name = student if isinstance(student, str) else f"{type(student).__module__}:{type(student).__qualname__}"
        values = {"model": name, **values}
    settings = RunSettings.from_config(apply_values(_DEFAULTS, values, "label()"))
    # `mrtf predict` reads the encoder's files again, from any folder.
    return replace(settings, model=settings.model.with_absolute_paths())


def _map_classes(
    teachers: Sequence[LoadedTeacher], lists: Sequence[Sequence[Any]], classes: Iterable[Any] | None
) -> tuple[list[Any], list[list[int]]]:
    """All classes, and the index of each teacher's own ones; classes with the same name are the same."""
    by_name: dict[str, Any] = {}
    for own in lists:
        for value in own:
            by_name.setdefault(str(value), value)
    if classes is None:
        values = list(by_name.values())
        try:
            values.sort(key=lambda value: (isinstance(value, str), value))
        except TypeError:
            values.sort(key=str)
    else:
        values = label_values(list(classes), "classes")
        unknown = [name for name in by_name if name not in {str(value) for value in values}]
        if unknown:
            raise UserError(f"a teacher knows the class {unknown[0]!r}, which is not in classes; add it")
        missing = [str(value) for value in values if str(value) not in by_name]
        if missing:
            raise UserError(f"no teacher knows the class {missing[0]!r}; leave it out of classes, or add a teacher")
    index = {str(value): column for column, value in enumerate(values)}
    columns = [[index[str(value)] for value in own] for own in lists]
    connected, rest = set(columns[0]), list(range(1, len(columns)))
    while joining := [number for number in rest if connected & set(columns[number])]:
        connected |= {column for number in joining for column in columns[number]}
        rest = [number for number in rest if number not in joining]
    if rest:
        names = [f"{teachers[number].name} ({', '.join(map(str, lists[number][:3]))}, ...)" for number in (0, rest[0])]
        raise UserError(
            f"the class lists of the teachers {names[0]} and {names[1]} have no class in common, so their votes cannot "
            "be compared; use the same names for the same classes, or add a teacher that knows classes of both"
        )
    return values, columns


def _read_labels(y: Any, labels: Sequence[Any], samples: int) -> tuple[SealedEvaluator | None, KnownLabels | None]:
    """The evaluator, if all labels are given; else the labels that are."""
    values = label_values(y, "server")
    if len(values) != samples:
        raise UserError(f"y_server has {len(values)} labels but there are {samples} samples; pass one per sample")
    index = {str(value): column for column, value in enumerate(labels)}
    if "-1" not in index:
        values = [None if str(value) == "-1" else value for value in values]
    unknown = sorted({str(value) for value in values if value is not None and str(value) not in index})
    if unknown:
        raise UserError(
            f"y_server has the label {unknown[0]!r}, which no teacher knows; correct it, or pass None for it"
        )
    indices = [-1 if value is None else index[str(value)] for value in values]
    if -1 in indices:
        return None, KnownLabels.from_array(np.array(indices, dtype=np.int64))
    return SealedEvaluator(torch.tensor(indices), [str(value) for value in labels]), None


def _to_inputs(x: Any) -> Tensor:
    """What modules and ONNX files read: float32, images channels first and in [-1, 1]."""
    array = to_array(x, "x")
    if is_text(array):
        raise TypeError("it reads numbers, and the samples are texts")
    return to_tensor(array)


def _read_features(features: Any, samples: int) -> Tensor:
    h = torch.from_numpy(to_array(features, "features").astype(np.float32))
    if h.dim() != 2 or len(h) != samples:
        raise UserError(f"features has shape {tuple(h.shape)} but there are {samples} samples; give one row per sample")
    return h


def _train_student(
    student: str | nn.Module,
    x: Any,
    encoder: Encoder | None,
    encoded: Tensor | None,
    targets: Tensor,
    settings: RunSettings,
    mrtf: MrTFSettings,
) -> tuple[nn.Module, Tensor, Preprocessing]:
    array, seed = to_array(x, "x"), settings.common.random_seed
    if is_text(array) and encoder is None:
        raise UserError(
            "a student reads texts only through an encoder; set encoder, for example sentence-transformers:FOLDER"
        )
    kind: InputKind = "text" if is_text(array) else "numbers"
    if array.dtype == np.uint8 and array.ndim >= 3:
        kind = "pixels"
    samples = to_samples(array)
    inputs = samples if encoded is None else encoded
    assert isinstance(inputs, Tensor)
    standardizer = Standardizer.fit([inputs]) if inputs.dim() == 2 else None
    preprocessing = Preprocessing(kind, standardizer, column_names(x), None, encoder, tuple(samples.shape[1:]))
    inputs = inputs if standardizer is None else standardizer(inputs)
    classes = targets.shape[1]
    if isinstance(student, nn.Module):
        net = copy.deepcopy(student)
    else:
        net = create_model(settings.model, tuple(inputs.shape[1:]), classes, seed)
    check_model_output(net, inputs[:2], classes, f"the student ({type(net).__name__})")
    with fork_rng(seed, "distillation dropout", 0):
        distill(net, inputs, targets.float(), mrtf, torch_generator(seed, "distillation", 0))
    return net.eval(), inputs, preprocessing


def _summarize(
    teachers: Sequence[LoadedTeacher],
    outputs: Sequence[tuple[Any, Sequence[Any]]],
    combined: TeacherTargets,
    logits: Tensor,
    names: list[str],
    evaluator: SealedEvaluator | None,
    known: KnownLabels | None,
    seconds: float,
) -> dict[str, Any]:
    descriptions = []
    for index, (teacher, (_, own)) in enumerate(zip(teachers, outputs, strict=True)):
        kappa = float(combined.agreement[index])
        descriptions.append(
            {
                "name": teacher.name.strip("'"),
                "classes": [str(value) for value in own],
                "agreement": None if np.isnan(kappa) else round(kappa, 4),
                "weight": round(float(combined.reliability[index]), 4),
                "accuracy": None if evaluator is None else evaluator.score(combined.predicted[index]),
            }
        )
    counts = count_labels(known, logits)
    evidence = RunEvidence(logits=logits, class_names=names, ensemble=combined.ensemble, labels=counts)
    stated, given = state_estimate(evidence), note_given_labels(counts)
    warnings = [*_contradictions(descriptions), *find_warnings(evidence)]
    summary: dict[str, Any] = {
        "algorithm": ALGORITHM,
        "preset": None,
        "base": None,
        "rounds": 1,
        "rounds_requested": 1,
        "interrupted": False,
        "stop_reason": None,
        "samples_labelled": len(logits),
        "classes": len(names),
        "seconds": seconds,
        "accuracy": None,
        "macro_f1": None,
        "recall": None,
        "metric_labels": {},
        "teachers": descriptions,
        "warnings": warnings,
        "notes": [_describe_teachers(descriptions), *([] if given is None else [given])],
        **summarize_estimate(stated.estimate, stated.reason, stated.condition, names),
        **summarize_labels(counts),
    }
    if evaluator is not None:
        report = evaluator.report(logits)
        summary |= {key: report[key] for key in ("accuracy", "macro_f1", "recall")}
    return summary


def _contradictions(teachers: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"the teacher {teacher['name']!r} contradicts the others (agreement beyond chance {teacher['agreement']:.2f}), "
        f"so it has the weight {teacher['weight']:.2f}; check its class list and the samples that it expects"
        for teacher in teachers
        if teacher["weight"] < _CONTRADICTS
    ]


def _describe_teachers(teachers: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for teacher in teachers:
        agreement = "not comparable" if teacher["agreement"] is None else f"agreement {teacher['agreement']:.2f}"
        parts.append(
            f"{teacher['name']} ({len(teacher['classes'])} classes, {agreement}, weight {teacher['weight']:.2f})"
        )
    return "the teachers, with their agreement with the others beyond chance: " + "; ".join(parts)


def _metrics_line(
    summary: Mapping[str, Any],
    combined: TeacherTargets,
    evaluator: SealedEvaluator | None,
    seconds: float,
    has_student: bool,
) -> dict[str, Any]:
    line: dict[str, Any] = {"round": 0, "clients": [], "excluded_clients": {}, "train_loss": None}
    if evaluator is not None:
        line |= {"acc": summary["accuracy"], "acc_ensemble": evaluator.score(combined.ensemble)}
        line |= {"acc_targets": evaluator.score(combined.targets)} if has_student else {}
    return line | {"client_seconds": 0.0, "server_seconds": seconds, "uplink_bytes": 0, "downlink_bytes": 0}


def _sample_ids(x: Any, ids: Iterable[Any] | None) -> list[str]:
    if ids is None:
        return [str(name) for name in (x.index if column_names(x) is not None else range(len(x)))]
    names = [str(name) for name in ids]
    if len(names) != len(x):
        raise UserError(f"ids has {len(names)} entries but there are {len(x)} samples; pass one per sample")
    return names


def _report_inputs(x: Any) -> Tensor | None:
    """The images that a report shows; None for other samples."""
    array = x.numpy() if isinstance(x, Tensor) else x
    return to_tensor(array) if isinstance(array, np.ndarray) and array.ndim >= 3 else None
