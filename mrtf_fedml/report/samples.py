"""The samples of lowest confidence, which a person should check first."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from .run_data import Floats, Predictions

#: Larger images are reduced to this size.
MAX_PIXELS = 96


@dataclass(frozen=True)
class Sample:
    """A sample and its prediction."""

    id: str
    label: int
    class_name: str
    confidence: float
    #: None with a single class.
    second_class: str | None
    second_confidence: float
    #: A `data:` URL of a PNG; None if the sample is not an image.
    image: str | None
    #: The fraction of the teachers that predict the sample's label; None if not known.
    agreement: float | None = None


def least_confident_samples(
    predictions: Predictions, inputs: Tensor | None, limit: int = 24, agreement: Floats | None = None
) -> list[Sample]:
    """The `limit` samples of lowest confidence, in ascending order, by index if equal."""
    confidences, labels = predictions.confidences, predictions.labels
    samples = []
    for index in predictions.least_confident[:limit].tolist():
        label = int(labels[index])
        others = predictions.probabilities[index].copy()
        others[label] = -1
        second = int(others.argmax())
        is_single = second == label
        samples.append(
            Sample(
                id=predictions.ids[index],
                label=label,
                class_name=predictions.class_names[label],
                confidence=float(confidences[index]),
                second_class=None if is_single else predictions.class_names[second],
                second_confidence=0.0 if is_single else float(others[second]),
                image=to_data_url(inputs[index * len(inputs) // len(labels)]) if inputs is not None else None,
                agreement=None if agreement is None else float(agreement[index]),
            )
        )
    return samples


def to_data_url(sample: Tensor) -> str | None:
    """A sample [1 | 3 | 4, H, W] as a `data:` URL of a PNG, black to white from its minimum to its maximum.

    A fourth channel, transparency, is not shown. None for a sample of another shape.
    """
    if sample.ndim != 3 or sample.shape[0] not in (1, 3, 4):
        return None
    values = sample.detach().cpu().double().numpy()[:3]
    low, high = values.min(), values.max()
    scaled = np.rint((values - low) * (255 / (high - low if high > low else 1))).astype(np.uint8)
    image = Image.fromarray(scaled[0] if len(scaled) == 1 else scaled.transpose(1, 2, 0))
    image.thumbnail((MAX_PIXELS, MAX_PIXELS))
    png = io.BytesIO()
    image.save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
