"""The form that weights must have when they arrive: what another party sends is checked before anything reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...algorithms.judging import REFINERY
from ...models.weights import size_in_bytes
from ..messages import DEVIATION, EXTRA, LOSS, MEAN, RESERVED, SAMPLES
from .transports.codec import UnreadableMessage

#: What a message may be at most: algorithms send a few times the model, and a small one has its headers.
_TIMES, _BESIDE = 8, 2**24
#: Nobody has more samples than that; larger numbers would make floats of sums.
MOST_SAMPLES = 2**53
#: No mean cross-entropy is larger; a few of such size still have a sum.
_LARGEST_LOSS = 1e30
#: What goes beside the weights is of these types, which all arithmetic knows, and of no more dimensions.
_PLAIN = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
_PLAIN |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_MOST_DIMENSIONS = 16


class Malformed(ValueError):
    """A message that breaks what was agreed; the text says how."""


class ExpectedWeights:
    """The names, shapes and types of the agreed model."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._wanted = {key: (tensor.shape, tensor.dtype) for key, tensor in weights.items()}
        #: Bytes of the largest message that can be meant seriously.
        self.longest = _BESIDE + _TIMES * size_in_bytes(weights)

    def check(self, payload: Any) -> None:
        """Refuse a payload that is not weights of the agreed form, with what may travel beside them.

        Raises:
            Malformed: what is wrong with it.
        """
        if payload is None:
            raise Malformed("it carries no weights")
        if isinstance(payload, UnreadableMessage):
            raise Malformed(str(payload))
        if not isinstance(payload, Mapping):
            raise Malformed(f"its weights are a {type(payload).__name__}")
        for key, tensor in payload.items():
            if not isinstance(key, str) or not isinstance(tensor, Tensor):
                raise Malformed(f"its weights hold {_short(key)}, which is no tensor with a name")
            self._check_entry(key, tensor)
        if (MEAN in payload) != (DEVIATION in payload):
            raise Malformed("its scale of features is one half of one")
        missing = [key for key in self._wanted if key not in payload]
        if missing:
            raise Malformed(f"its weights lack {_short(missing[0])}")

    def _check_entry(self, key: str, tensor: Tensor) -> None:
        if key not in self._wanted and (tensor.dtype not in _PLAIN or tensor.ndim > _MOST_DIMENSIONS):
            raise Malformed(f"its {_short(key)} is {tensor.dtype} of {tensor.ndim} dimensions")
        if key == LOSS:
            if tensor.numel() != 1 or not tensor.is_floating_point():
                raise Malformed(f"its loss is no single number ({tensor.dtype} of shape {tuple(tensor.shape)})")
            # What is not finite has a reason of its own, on every backend.
            if _LARGEST_LOSS < abs(float(tensor)) < float("inf"):
                raise Malformed(f"its loss is {float(tensor):.6g}")
        elif key == SAMPLES:
            if tensor.numel() != 1 or not 1 <= float(tensor) <= MOST_SAMPLES:
                raise Malformed("its count of samples is no number")
        elif key in (MEAN, DEVIATION):
            if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise Malformed(f"its scale of features is no list of numbers ({_short(key)})")
        elif key.startswith(EXTRA):
            self._check_extra(key[len(EXTRA) :], tensor)
        elif key not in self._wanted:
            kind = "reserved" if key.startswith(RESERVED) else "unknown"
            raise Malformed(f"its weights hold the {kind} {_short(key)}")
        elif (tensor.shape, tensor.dtype) != self._wanted[key]:
            shape, dtype = self._wanted[key]
            given = f"{tensor.dtype} of shape {_short(tuple(tensor.shape))}"
            raise Malformed(f"its {_short(key)} is {given}, not {dtype} of {tuple(shape)}")

    def _check_extra(self, name: str, tensor: Tensor) -> None:
        # What goes by the name of a weight belongs to it, as a variate does, or a model to judge; what else there is,
        # its algorithm knows.
        weight = name.rpartition("/")[2] if name.startswith(REFINERY) else name
        if weight in self._wanted and tensor.shape != self._wanted[weight][0]:
            shape = tuple(self._wanted[weight][0])
            raise Malformed(
                f"what it sends beside {_short(weight)} is of shape {_short(tuple(tensor.shape))}, not {shape}"
            )


def _short(value: Any) -> str:
    """A stranger's text, no longer than a log can bear."""
    return repr(value)[:60]
