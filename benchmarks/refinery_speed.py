"""What four decisions of the refinery are worth, as ratios of one run: `python benchmarks/refinery_speed.py`.

Each line times the way that was not taken and the way that was, on the same work, and checks that both give the same.
The best of several repeats counts, so that another process on the machine disturbs little.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.data import TensorShard, to_tensor
from mrtf_fedml.models import create_model, predict_logits
from mrtf_fedml.models.state_dict import size_in_bytes, snapshot
from mrtf_fedml.refinery.clustering import prototypes, reassign_by_prototypes

SHAPE, CLASSES = (1, 28, 28), 10


class Result:
    """One comparison: seconds of the way not taken, seconds of ours, and what else is to be said."""

    def __init__(self, name: str, other: float, ours: float, note: str) -> None:
        self.name, self.other, self.ours, self.note = name, other, ours, note

    def __str__(self) -> str:
        ratio = self.other / self.ours
        return f"{self.name:<50} {self.other * 1e3:9.1f} ms {self.ours * 1e3:9.1f} ms   {ratio:6.1f} x   {self.note}"


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of several runs, after one that is not timed."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def teachers(repeats: int) -> Result:
    """(a) Ten teachers look at 200 samples: a copy of the model each, or one model into which weights are swapped."""
    model = create_model(ModelSettings(model="convnet"), SHAPE, CLASSES, seed=0)
    weights = [snapshot(model) for _ in range(10)]
    inputs = torch.randn(200, *SHAPE)

    def copies() -> list[Tensor]:
        models = []
        for given in weights:
            models.append(copy.deepcopy(model))
            models[-1].load_state_dict(given)
        return [predict_logits(one, inputs) for one in models]

    def swapped() -> list[Tensor]:
        logits = []
        for given in weights:
            model.load_state_dict(given)
            logits.append(predict_logits(model, inputs))
        return logits

    assert all(torch.equal(a, b) for a, b in zip(copies(), swapped(), strict=True))
    held = size_in_bytes(weights[0]) / 1e6
    note = f"and {held * 10:.0f} MB of models becomes {held:.0f} MB"
    return Result(
        "one model, weights swapped in / a copy a teacher", seconds(copies, repeats), seconds(swapped, repeats), note
    )


def clustering(repeats: int) -> Result:
    """(b) Prototypes and cosine distances for 2000 samples, 62 classes, 512 features: broadcast, or products."""
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(2000, 62, generator=generator, dtype=torch.float64).softmax(1)
    features = torch.randn(2000, 512, generator=generator, dtype=torch.float64)

    def broadcast() -> Tensor:
        weighted = probabilities[:, :, None] * features[:, None, :]
        means = weighted.sum(0) / probabilities.sum(0)[:, None]
        similarity = nn.functional.cosine_similarity(features[:, None, :], means[None], dim=2)
        return torch.softmax(-4.0 * (1 - similarity), dim=1)

    def products() -> Tensor:
        return reassign_by_prototypes(probabilities, features, temperature=4.0, steps=1)

    torch.testing.assert_close(broadcast(), products())
    made = probabilities.numel() * features.shape[1] * 8 / 1e6
    largest = max(probabilities.numel(), features.numel(), prototypes(probabilities, features).numel()) * 8 / 1e6
    note = f"and the largest tensor falls from {made:.0f} to {largest:.0f} MB"
    return Result(
        "matrix products / broadcast M x C x D", seconds(broadcast, repeats), seconds(products, repeats), note
    )


def adam(repeats: int) -> Result:
    """(c) Twenty steps of Adam on MLPNet with fixed gradients: plain, or fused."""
    model = create_model(ModelSettings(model="mlp"), SHAPE, CLASSES, seed=0)
    start = snapshot(model)

    def steps(fused: bool) -> dict[str, Tensor]:
        model.load_state_dict(start)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=fused)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.01)
        for _ in range(20):
            optimizer.step()
        return snapshot(model)

    for key, value in steps(False).items():
        torch.testing.assert_close(value, steps(True)[key])
    note = "the optimiser alone, without forward and backward"
    plain, fused = seconds(lambda: steps(False), repeats), seconds(lambda: steps(True), repeats)
    return Result("fused Adam / plain Adam", plain, fused, note)


class PerSample(Dataset[tuple[Tensor, int]]):
    """Images as bytes, made a tensor and normalised each time one is asked for, as image datasets often are."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.images[index]).float().div_(255).sub_(0.5).div_(0.5)
        return image.unsqueeze(0), int(self.labels[index])


def batches(repeats: int) -> Result:
    """(d) Three passes over 5000 images in batches of 64: a DataLoader over samples, or tensors made once."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (5000, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, 5000)
    loader = DataLoader(PerSample(images, labels), batch_size=64)

    def per_sample() -> Tensor:
        return sum((x.sum() for _ in range(3) for x, _ in loader), torch.zeros(()))

    def once() -> Tensor:
        shard = TensorShard(to_tensor(images), torch.from_numpy(labels), np.arange(5000), batch_size=64)
        return sum((x.sum() for _ in range(3) for x, _ in shard), torch.zeros(()))

    torch.testing.assert_close(per_sample(), once(), rtol=1e-4, atol=10.0)
    note = "making the tensors included"
    return Result(
        "tensors made once / DataLoader by the sample", seconds(per_sample, repeats), seconds(once, repeats), note
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, best of {repeats}")
    print(f"{'ours / the other way':<50} {'other':>12} {'ours':>12} {'faster':>10}")
    for comparison in (teachers, clustering, adam, batches):
        print(comparison(repeats), flush=True)


if __name__ == "__main__":
    main()
