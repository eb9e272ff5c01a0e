"""The files that hold a run's predictions and its model, and predictions with a saved model."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from ..algorithms.types import Weights
from ..config import ModelSettings
from ..config.schema import field_values
from ..data.formatting import escape_formula
from ..data.preprocessing import Preprocessing
from ..errors import UserError
from ..models import MODELS, apply_layout, create_model, predict_logits
from ..models.outputs import row_ids
from ..models.state_dict import load_weights
from ..version import __version__
from .checkpoints import normalize_tensors

#: One metadata entry holds all: safetensors writes several in an order that differs from file to file.
_HEADER = "mrtf"

PREDICTION_COLUMNS = (
    "index",
    "id",
    "label",
    "class_name",
    "confidence",
    "probability_correct",
    "prediction_set",
    "decision",
)
#: The decision for a sample whose label is too uncertain, and for one that looks like no class of any client.
ABSTAIN, UNKNOWN = "abstain", "unknown"

#: Makes a model that is not in `MODELS`: its settings, the shape of a sample, the number of classes, a seed.
ModelFactory = Callable[[ModelSettings, list[int], int, int], nn.Module]


@dataclass(frozen=True, eq=False)
class LabelTrust:
    """How far each label can be trusted.

    Attributes:
        probability_correct: of each label, calibrated, [M]; NaN where it is not known.
        prediction_sets: the classes that contain the true one with the run's `coverage`, [M, C]; empty if not known.
        is_accepted: whether the label is given, [M]; else the decision is `abstain` or `unknown`.
        is_unknown: whether the sample looks like no class of any client, [M].
    """

    probability_correct: Tensor
    prediction_sets: Tensor
    is_accepted: Tensor
    is_unknown: Tensor

    @classmethod
    def empty(cls, probabilities: Tensor, accept: float | None = None) -> LabelTrust:
        """Where nothing is known of the labels of these probabilities [M, C]; with `accept`, none is given."""
        samples = len(probabilities)
        sets = torch.zeros(probabilities.shape, dtype=torch.bool)
        nothing = torch.full((samples,), math.nan, dtype=torch.float64)
        return cls(nothing, sets, torch.full((samples,), accept is None), torch.zeros(samples, dtype=torch.bool))

    def with_unknown_samples(self, probability_known: Tensor, is_unknown: Tensor) -> LabelTrust:
        """The same, where samples [M] are of no client's class, each with its probability of being of one, [M]."""
        return LabelTrust(
            torch.where(is_unknown, self.probability_correct * probability_known, self.probability_correct),
            self.prediction_sets,
            self.is_accepted & ~is_unknown,
            is_unknown,
        )

    def format_sets(self, class_names: Sequence[str]) -> list[str]:
        """The classes of each prediction set, separated by ` | `; empty if not known."""
        return [
            " | ".join(class_names[label] for label in classes.nonzero().flatten().tolist())
            for classes in self.prediction_sets
        ]

    def with_known_labels(self, labels: Tensor) -> LabelTrust:
        """The same, where `labels` [M] has the known label of a sample, or -1: a known label is right."""
        is_known = labels >= 0
        sets = torch.nn.functional.one_hot(labels.clamp_min(0), self.prediction_sets.shape[1]).bool()
        return LabelTrust(
            torch.where(is_known, 1.0, self.probability_correct),
            torch.where(is_known[:, None], sets, self.prediction_sets),
            self.is_accepted | is_known,
            self.is_unknown & ~is_known,
        )

    def decisions(self, labels: Sequence[str]) -> list[str]:
        """The label of each sample, or `abstain`, or `unknown`."""
        flags = zip(labels, self.is_accepted.tolist(), self.is_unknown.tolist(), strict=True)
        return [
            label if is_accepted else UNKNOWN if is_unknown else ABSTAIN for label, is_accepted, is_unknown in flags
        ]


def format_predictions(
    probabilities: Tensor, ids: list[str], class_names: list[str], trust: LabelTrust | None = None
) -> str:
    """predictions.csv: one row per sample with its most probable class and how far it can be trusted.

    An id or a class name that a spreadsheet would execute as a formula has an apostrophe in front. The classes of a
    prediction set are separated by ` | `.

    Args:
        probabilities: [M, C].
        ids: M of them.
        class_names: C of them.
        trust: of the labels; nothing is known where it is None.
    """
    trust = LabelTrust.empty(probabilities) if trust is None else trust
    correct = ["" if math.isnan(each) else f"{each:.6f}" for each in trust.probability_correct.tolist()]
    sets = trust.format_sets(class_names)
    confidences, labels = probabilities.max(dim=1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PREDICTION_COLUMNS)
    decisions = trust.decisions([class_names[label] for label in labels.tolist()])
    rows = zip(ids, labels.tolist(), confidences.tolist(), correct, sets, decisions, strict=True)
    for index, (sample_id, label, confidence, probability, names, decision) in enumerate(rows):
        name = escape_formula(class_names[label])
        cells = [index, escape_formula(sample_id), label, name, f"{confidence:.6f}"]
        writer.writerow([*cells, probability, escape_formula(names), escape_formula(decision)])
    return text.getvalue()


def encode_model(weights: Weights, header: Mapping[str, Any]) -> bytes:
    """model.safetensors: the weights, and the header as JSON in its metadata."""
    return save(normalize_tensors(weights), metadata={_HEADER: json.dumps(header, sort_keys=True)})


def read_model_file(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the header of a model file."""
    try:
        with safe_open(file, framework="pt") as opened:
            header = (opened.metadata() or {}).get(_HEADER)
        if header is not None:
            return load_file(file), dict(json.loads(header))
    except (OSError, SafetensorError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{str(file)!r} cannot be read ({error}); resume the run to write it anew") from None
    raise UserError(f"{str(file)!r} has no header that says how to use it; run its configuration again")


def model_header(
    model: nn.Module,
    settings: ModelSettings,
    input_shape: Sequence[int],
    class_names: Sequence[str],
    preprocessing: Preprocessing,
) -> dict[str, Any]:
    """What is needed to use the model: class names, sample shape, preprocessing, the model and its settings, version.

    It has no time, path or score, so that equal models make equal files.
    """
    # The preprocessing has the encoder, without the folders of its files.
    values = {**field_values(settings), "initial_weights": None, "encoder": None, "encoder_weights": None}
    # Who trained which model is not needed to use them.
    values["client_models"] = None
    # If the number of characters was read from the data, it is the size of the embedding.
    embeddings = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    if embeddings and values["vocabulary"] is None:
        values["vocabulary"] = embeddings[0]
    return {
        "class_names": list(class_names),
        "input_shape": list(input_shape),
        "model": values,
        "preprocessing": preprocessing.to_json(),
        "version": __version__,
    }


def restore_model(
    weights: Mapping[str, Tensor], header: Mapping[str, Any], make_other_model: ModelFactory
) -> nn.Module:
    """The network of a saved model, with its weights."""
    settings, shape, classes = ModelSettings(**header["model"]), header["input_shape"], len(header["class_names"])
    # The seed does not matter: the initial weights are overwritten.
    is_ours = settings.model in MODELS and settings.models is None
    model = (create_model if is_ours else make_other_model)(settings, shape, classes, 0)
    load_weights(model, weights)
    return model


def predict_with_saved_model(
    weights: Mapping[str, Tensor], header: Mapping[str, Any], inputs: Tensor, make_other_model: ModelFactory
) -> Tensor:
    """The logits of a saved model for these inputs [N, ...]: [N, C], or one row per position of each sample."""
    model = restore_model(weights, header, make_other_model)
    # The memory layout of the run's server, so that equal samples give equal bytes.
    apply_layout(model)
    return predict_logits(model, inputs)


def predictions_csv(logits: Tensor, ids: list[str], class_names: list[str], trust: LabelTrust | None = None) -> str:
    """predictions.csv of these logits: one row per id, or one per position of each sample."""
    positions = len(logits) // len(ids)
    names = row_ids(ids, None if positions == 1 else positions)
    return format_predictions(logits.softmax(dim=1), names, class_names, trust)
