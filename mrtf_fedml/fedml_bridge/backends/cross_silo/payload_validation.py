"""Validation of received weights: their names, shapes and types are checked before anything else reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ....models.group import ACTIVE, member_names, own_keys, trained_member
from ....models.state_dict import size_in_bytes
from ...messages import DEVIATION, LOSS, MEAN, PAYLOAD, RESERVED, SAMPLES
from .protocol import MAX_SAMPLES, InvalidPayload
from .transports.codec import UnreadableMessage

#: Largest message: algorithms send a few times the model, and a small model has headers.
_MODEL_MULTIPLE, _HEADER_BYTES = 8, 2**24
#: No mean cross-entropy is larger, and a sum of several such losses is still finite.
_MAX_LOSS = 1e30
#: Types of an algorithm's payload, all of which support arithmetic, and its largest number of dimensions.
_PAYLOAD_TYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
_PAYLOAD_TYPES |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_MAX_DIMENSIONS = 16


class PayloadSchema:
    """The names, shapes and types of the model's weights; an algorithm's payload may have so many more bytes."""

    def __init__(self, weights: Mapping[str, Tensor], payload_bytes: int = 0) -> None:
        self._expected = {key: (tensor.shape, tensor.dtype) for key, tensor in weights.items()}
        #: Size of the largest message that is accepted.
        self.max_message_bytes = _HEADER_BYTES + _MODEL_MULTIPLE * size_in_bytes(weights) + payload_bytes

    def validate(self, received: Any) -> None:
        """Check weights with their reserved entries (loss, sample count, feature scale, the algorithm's payload).

        Raises:
            InvalidPayload: what is wrong.
        """
        if received is None:
            raise InvalidPayload("it carries no weights")
        if isinstance(received, UnreadableMessage):
            raise InvalidPayload(str(received))
        if not isinstance(received, Mapping):
            raise InvalidPayload(f"its weights are a {type(received).__name__}")
        for key, tensor in received.items():
            if not isinstance(key, str) or not isinstance(tensor, Tensor):
                raise InvalidPayload(f"its weights contain {_shorten(key)}, which is not a named tensor")
            self._validate_entry(key, tensor)
        if (MEAN in received) != (DEVIATION in received):
            raise InvalidPayload("its feature scale lacks the mean or the deviation")
        missing = [key for key in self._required_keys(received) if key not in received]
        if missing:
            raise InvalidPayload(f"its weights lack {_shorten(missing[0])}")

    def _required_keys(self, received: Mapping[str, Tensor]) -> Iterable[str]:
        """All weights; of a group of models those of the one that was trained."""
        index = trained_member(received) if ACTIVE in self._expected else None
        members = len(member_names(self._expected))
        return self._expected if index is None or not 0 <= index < members else own_keys(self._expected, index)

    def _validate_entry(self, key: str, tensor: Tensor) -> None:
        if key not in self._expected and (tensor.dtype not in _PAYLOAD_TYPES or tensor.ndim > _MAX_DIMENSIONS):
            raise InvalidPayload(f"its {_shorten(key)} is {tensor.dtype} with {tensor.ndim} dimensions")
        if key == LOSS:
            if tensor.numel() != 1 or not tensor.is_floating_point():
                raise InvalidPayload(f"its loss is not a scalar ({tensor.dtype} of shape {tuple(tensor.shape)})")
            # A loss that is not finite is handled with the update, on every backend.
            if _MAX_LOSS < abs(float(tensor)) < float("inf"):
                raise InvalidPayload(f"its loss is {float(tensor):.6g}")
        elif key == SAMPLES:
            if tensor.numel() != 1 or not 1 <= float(tensor) <= MAX_SAMPLES:
                raise InvalidPayload("its sample count is not a positive integer")
        elif key in (MEAN, DEVIATION):
            if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise InvalidPayload(f"its feature scale is not finite ({_shorten(key)})")
        elif key.startswith(PAYLOAD):
            self._validate_payload_entry(key[len(PAYLOAD) :], tensor)
        elif key not in self._expected:
            kind = "reserved" if key.startswith(RESERVED) else "unknown"
            raise InvalidPayload(f"its weights contain the {kind} {_shorten(key)}")
        elif (tensor.shape, tensor.dtype) != self._expected[key]:
            shape, dtype = self._expected[key]
            actual = f"{tensor.dtype} of shape {_shorten(tuple(tensor.shape))}"
            raise InvalidPayload(f"its {_shorten(key)} is {actual}, not {dtype} of {tuple(shape)}")

    def _validate_payload_entry(self, name: str, tensor: Tensor) -> None:
        # A payload entry `weight` or `prefix/weight` belongs to that weight, as a control variate does, and has its
        # shape. The algorithm itself validates all other entries.
        weight = name.rpartition("/")[2]
        if weight in self._expected and tensor.shape != self._expected[weight][0]:
            shape = tuple(self._expected[weight][0])
            raise InvalidPayload(f"its payload {_shorten(name)} has shape {_shorten(tuple(tensor.shape))}, not {shape}")


def _shorten(value: Any) -> str:
    """A received value for a log line, at most 60 characters."""
    return repr(value)[:60]
