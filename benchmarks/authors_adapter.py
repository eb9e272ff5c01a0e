"""The authors' program as `authors_program.py` plays it: imported from its folder, timed, with our nets and samples."""

from __future__ import annotations

import importlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torchvision import transforms

from mrtf_fedml.algorithms import ClientUpdate


class Halves(nn.Module):
    """One of our nets as the program wants it: features and logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """h(x) [N, D] and the logits [N, C]."""
        body, head = self.net.children()
        features = body(inputs)
        return features, head(features)


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """The same samples as bytes, each made a picture, a tensor, and normalised whenever it is asked for."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.bytes = ((inputs + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
        self.labels = labels
        channels = inputs.shape[1]
        self.made = transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.ToTensor(),
                transforms.Normalize((0.5,) * channels, (0.5,) * channels),
            ]
        )

    def __len__(self) -> int:
        return len(self.bytes)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.made(self.bytes[index]), self.labels[index]


def timed_program(folder: Path, same_models: bool) -> Any:
    """The program's class, which adds up the CPU seconds of its parts in `seconds`, and keeps its ensemble."""
    sys.path.insert(0, str(folder))
    if not hasattr(_BaseDataLoaderIter, "next"):
        _BaseDataLoaderIter.next = _BaseDataLoaderIter.__next__  # type: ignore[attr-defined]
    original = importlib.import_module("mrtf").MrTF

    class Timed(original):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.seconds: defaultdict[str, float] = defaultdict(float)
            self.ensemble = np.zeros((0, 0))
            self.updates: dict[int, ClientUpdate] = {}

        def _clocked(self, part: str, work: Callable[..., Any], **given: Any) -> Any:
            began = time.process_time()
            result = work(**given)
            self.seconds[part] += time.process_time() - began
            return result

        def update_local(self, **given: Any) -> Any:
            if same_models:
                (client,) = (k for k, loader in self.train_loaders.items() if loader is given["train_loader"])
                given["model"].net.load_state_dict(self.updates[client].weights)
                return given["model"].train(), [], self.updates[client].loss
            return self._clocked("local", super().update_local, **given)

        def refine_global(self, **given: Any) -> Any:
            return self._clocked("refining", super().refine_global, **given)

        def assign_pseudo_labels(self, **given: Any) -> Any:
            return self._clocked("teachers and targets", super().assign_pseudo_labels, **given)

        def test(self, **given: Any) -> Any:
            return self._clocked("testing", super().test, **given)

        def label_refinery(self, feats: Any, probs: Any, alpha: float) -> Any:
            self.ensemble = probs
            return super().label_refinery(feats, probs, alpha)

    return Timed
