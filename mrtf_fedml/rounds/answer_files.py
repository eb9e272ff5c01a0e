"""The files that hold a run's answer: the table of predictions, and the model with what is needed to use it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ..algorithms.exchange import Weights
from ..errors import UserError
from .state_files import plain

#: The one entry of the model's metadata: safetensors writes several in an order that differs from file to file.
_FACTS = "mrtf"


def predictions_table(probabilities: Tensor, ids: list[str], class_names: list[str]) -> str:
    """predictions.csv: a row per sample, with the class of the highest probability and that probability."""
    confidences, labels = probabilities.max(dim=1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["index", "id", "label", "class_name", "confidence"])
    rows = zip(ids, labels.tolist(), confidences.tolist(), strict=True)
    writer.writerows(
        (index, name, label, class_names[label], f"{confidence:.6f}")
        for index, (name, label, confidence) in enumerate(rows)
    )
    return text.getvalue()


def model_file(weights: Weights, facts: Mapping[str, Any]) -> bytes:
    """model.safetensors: the weights, and the facts in its header."""
    return save(plain(weights), metadata={_FACTS: json.dumps(facts, sort_keys=True)})


def read_model_file(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the facts again."""
    try:
        with safe_open(file, framework="pt") as opened:
            facts = (opened.metadata() or {}).get(_FACTS)
        if facts is not None:
            return load_file(file), dict(json.loads(facts))
    except (OSError, SafetensorError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{str(file)!r} cannot be read ({error}); resume the run to write it anew") from None
    raise UserError(f"{str(file)!r} does not tell how to use it; run its configuration again")
