"""The model of a finished run, which takes samples as they were given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..data.given import samples
from ..data.preprocessing import Preprocessing
from ..data.tensors import to_tensor
from ..errors import UserError
from ..models import predict_logits


class Labeller(nn.Module):
    """A network behind all that was done to the samples of its run, so that nobody can forget it.

    Attributes:
        net: the network alone, which wants the samples prepared: standardised, images channels first.
        classes: the label of each of its outputs.
    """

    def __init__(
        self, net: nn.Module, preprocessing: Preprocessing, input_shape: Sequence[int], classes: Sequence[Any]
    ) -> None:
        super().__init__()
        self.net = net.cpu().eval()
        self.classes = np.array(classes)
        self._preprocessing = preprocessing
        self._input_shape = tuple(input_shape)

    def prepared(self, x: Any) -> Tensor:
        """What the network is given for these samples [N, ...]."""
        array = samples(x, "x", self._preprocessing.features)
        is_pixels = array.dtype == np.uint8 and array.ndim >= 3
        if is_pixels != (self._preprocessing.kind == "pixels"):
            wanted = "uint8 images" if self._preprocessing.kind == "pixels" else "numbers that are no uint8 images"
            raise UserError(f"x is another kind of sample than the model was trained on; give {wanted}")
        inputs = to_tensor(array, self._preprocessing.kind == "tokens")
        if tuple(inputs.shape[1:]) != self._input_shape:
            raise UserError(
                f"a sample of x has shape {tuple(inputs.shape[1:])} but the model was trained on {self._input_shape}; "
                "give samples of the same kind"
            )
        return inputs if self._preprocessing.scale is None else self._preprocessing.scale(inputs)

    def forward(self, x: Any) -> Tensor:
        """Logits [N, C]."""
        logits: Tensor = self.net(self.prepared(x))
        return logits

    def predict_proba(self, x: Any) -> npt.NDArray[np.float32]:
        """The probability of each class, [N, C]."""
        return predict_logits(self.net, self.prepared(x)).float().softmax(dim=1).numpy()

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """The label of each sample, [N], in the caller's own values."""
        with torch.inference_mode():
            return self.classes[self.predict_proba(x).argmax(axis=1)]
