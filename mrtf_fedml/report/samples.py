"""The samples of which the model is least certain: the first that a person should look at."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from .facts import Answer, Floats

#: Larger pictures are made smaller, so that the page stays small.
MOST_PIXELS = 96


@dataclass(frozen=True)
class Sample:
    """A sample and what the model makes of it."""

    id: str
    label: int
    class_name: str
    confidence: float
    #: None where there is but one class.
    runner_up: str | None
    runner_up_confidence: float
    #: A `data:` address of a PNG; None where the sample is no image.
    picture: str | None
    #: The share of the teachers that name the sample's class; None where it is not known.
    agreement: float | None = None


def least_certain(
    answer: Answer, inputs: Tensor | None, most: int = 24, agreement: Floats | None = None
) -> list[Sample]:
    """The `most` samples of lowest confidence, the least certain first, the earlier of equals first."""
    confidences, labels = answer.confidences, answer.labels
    samples = []
    for index in np.argsort(confidences, kind="stable")[:most].tolist():
        label = int(labels[index])
        others = answer.probabilities[index].copy()
        others[label] = -1
        second = int(others.argmax())
        alone = second == label
        samples.append(
            Sample(
                id=answer.ids[index],
                label=label,
                class_name=answer.class_names[label],
                confidence=float(confidences[index]),
                runner_up=None if alone else answer.class_names[second],
                runner_up_confidence=0.0 if alone else float(others[second]),
                picture=picture_of(inputs[index * len(inputs) // len(labels)]) if inputs is not None else None,
                agreement=None if agreement is None else float(agreement[index]),
            )
        )
    return samples


def picture_of(sample: Tensor) -> str | None:
    """A sample [1 | 3 | 4, H, W] as the address of a PNG, black to white from its least to its largest value.

    A fourth channel, transparency, is not shown. None for a sample of another shape.
    """
    if sample.ndim != 3 or sample.shape[0] not in (1, 3, 4):
        return None
    values = sample.detach().cpu().double().numpy()[:3]
    low, high = values.min(), values.max()
    scaled = np.rint((values - low) * (255 / (high - low if high > low else 1))).astype(np.uint8)
    image = Image.fromarray(scaled[0] if len(scaled) == 1 else scaled.transpose(1, 2, 0))
    image.thumbnail((MOST_PIXELS, MOST_PIXELS))
    png = io.BytesIO()
    image.save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
