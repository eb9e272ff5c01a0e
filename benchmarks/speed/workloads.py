"""Generated data and models of the paper's sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.data import TensorShard, TransductiveDataset
from mrtf_fedml.models import create_model


@dataclass(frozen=True)
class Workload:
    """A model with M server samples of a shape, C classes, K teachers, and a number of refinement steps."""

    name: str
    model: str
    shape: tuple[int, ...]
    samples: int
    classes: int
    teachers: int = 10
    steps: int = 500

    def make_model(self, seed: int = 0) -> nn.Module:
        """The model with its initial weights."""
        settings = ModelSettings(model=self.model, vocabulary=self.classes if self.model == "charlstm" else None)
        return create_model(settings, self.shape, self.classes, seed)

    def inputs(self, samples: int) -> Tensor:
        """Normal images, or random characters."""
        generator = torch.Generator().manual_seed(0)
        if self.model == "charlstm":
            return torch.randint(self.classes, (samples, *self.shape), generator=generator)
        return torch.randn(samples, *self.shape, generator=generator)


#: The setups of the paper, by size.
PAPER_WORKLOADS = (
    Workload("mlp, M=10k, C=10", "mlp", (1, 28, 28), 10_000, 10),
    Workload("convnet, M=26k, C=10", "convnet", (3, 32, 32), 26_000, 10),
    Workload("vgg8, M=10k, C=100", "vgg8", (3, 32, 32), 10_000, 100),
    Workload("charlstm, M=84k, C=80", "charlstm", (80,), 84_000, 80),
)
SMALL_WORKLOADS = (Workload("mlp, small", "mlp", (1, 8, 8), 64, 10, teachers=2, steps=2),)


def make_federation(
    clients: int, samples_per_client: int, server_samples: int, shape: tuple[int, ...], classes: int, batch_size: int
) -> TransductiveDataset:
    """Clients of equal size with samples in one tensor of at most 60,000 rows, and separated classes."""
    generator = torch.Generator().manual_seed(0)
    rows = min(60_000, clients * samples_per_client)
    centres = torch.randn(classes, *shape, generator=generator)

    def drawn(number: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(classes, (number,), generator=generator)
        return centres[labels] + 3 * torch.randn(number, *shape, generator=generator), labels

    inputs, labels = drawn(rows)
    own = np.arange(samples_per_client)
    shards = {
        client: TensorShard(inputs, labels, (client * samples_per_client + own) % rows, batch_size)
        for client in range(clients)
    }
    return TransductiveDataset(
        train_num=clients * samples_per_client,
        train_global=None,
        train_local_num_dict=dict.fromkeys(shards, samples_per_client),
        train_local_dict=shards,
        test_local_dict=shards,
        server_inputs=drawn(server_samples)[0],
        evaluator=None,
        ids=[str(index) for index in range(server_samples)],
        class_names=[str(index) for index in range(classes)],
        batch_size=batch_size,
    )
