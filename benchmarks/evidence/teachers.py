"""Finished models as teachers on scikit-learn's tables: the figures of docs/lab/existing_models.md.

    python benchmarks/evidence/teachers.py

Three teachers are trained on a fifth of the samples each: a PyTorch module, an ONNX file (logistic regression) and a
skops file (random forest). The last fifth is labelled. In turn, one of the three is replaced by a wrong one of the same
kind, trained on the fourth fifth with every class called by the next one's name, or with permuted labels. Mean over
nine splits. Tests use none of the first three tables.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import skops.io
import torch
from onnx import helper, numpy_helper
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_gaussian_quantiles,
)
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from mrtf_fedml import Teacher, label

SPLITS = 9
COLUMNS = (
    "best of the two good",
    "two good",
    "three good",
    "two and one with wrong class names",
    "two and one trained on permuted labels",
    "the wrong one is named",
    "a good one is named",
    "each lacks a third of the classes: majority vote",
    "each lacks a third: label()",
)
Table = tuple[np.ndarray, np.ndarray]


def diabetes_in_thirds() -> Table:
    """Three noisy classes: the lower, middle and upper third of the progression."""
    x, y = load_diabetes(return_X_y=True)
    return x, np.searchsorted(np.quantile(y, [1 / 3, 2 / 3]), y)


TABLES: dict[str, Callable[[], Table]] = {
    "iris (3 classes)": lambda: load_iris(return_X_y=True),
    "diabetes in thirds (3)": diabetes_in_thirds,
    "Gaussian quantiles (4)": lambda: make_gaussian_quantiles(
        n_samples=1000, n_features=6, n_classes=4, random_state=0
    ),
    "wine (3)": lambda: load_wine(return_X_y=True),
    "breast cancer (2)": lambda: load_breast_cancer(return_X_y=True),
    "digits (10)": lambda: load_digits(return_X_y=True),
}


def train_module(x: np.ndarray, y: np.ndarray, name: str, folder: Path) -> Teacher:
    """A network with one hidden layer, in memory."""
    classes, labels = np.unique(y, return_inverse=True)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.BatchNorm1d(x.shape[1], momentum=None, affine=False),
        nn.Linear(x.shape[1], 32),
        nn.ReLU(),
        nn.Linear(32, len(classes)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(torch.from_numpy(x).float()), torch.from_numpy(labels)).backward()
        optimizer.step()
    return Teacher(network.eval(), classes, name)


def train_onnx(x: np.ndarray, y: np.ndarray, name: str, folder: Path) -> Teacher:
    """A logistic regression as an .onnx file, the scale of the columns included."""
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(max_iter=500).fit(scaler.transform(x), y)
    rows = model.coef_ if len(model.classes_) > 2 else np.vstack([-model.coef_, model.coef_]) / 2
    bias = model.intercept_ if len(model.classes_) > 2 else np.concatenate([-model.intercept_, model.intercept_]) / 2
    weights = {"w": rows / scaler.scale_, "b": bias - rows @ (scaler.mean_ / scaler.scale_)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["logits"], transB=1)],
        "teacher",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", x.shape[1]])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", len(rows)])],
        [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()],
    )
    file = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(file))
    return Teacher(file, model.classes_, name)


def train_skops(x: np.ndarray, y: np.ndarray, name: str, folder: Path) -> Teacher:
    """A random forest as a .skops file."""
    file = folder / f"{name}.skops"
    skops.io.dump(RandomForestClassifier(50, random_state=0).fit(x, y), file)
    return Teacher(file, name=name)


KINDS = (train_module, train_onnx, train_skops)


def measure(x: np.ndarray, y: np.ndarray, split: int, folder: Path) -> list[float]:
    """The figures of one split, in the order of `COLUMNS`."""
    order, size, classes = np.random.default_rng(split).permutation(len(x)), len(x) // 5, int(y.max()) + 1
    parts, server = [order[index * size : (index + 1) * size] for index in range(4)], order[4 * size :]
    good = [
        train(x[rows], y[rows], f"good{index}", folder)
        for index, (train, rows) in enumerate(zip(KINDS, parts, strict=False))
    ]
    train, rows = KINDS[split % 3], parts[3]
    renamed = train(x[rows], (y[rows] + 1) % classes, "wrong", folder)
    rest = [teacher for index, teacher in enumerate(good) if index != split % 3]

    def run(teachers: Sequence[Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return label(x[server], teachers=teachers, y_server=y[server])

    results = [run(rest), run(good), run([*rest, renamed])]
    # The file has the same name.
    permuted = train(x[rows], np.random.default_rng(split).permutation(y[rows]), "wrong", folder)
    results.append(run([*rest, permuted]))
    few = []
    for index, (train, rows) in enumerate(zip(KINDS, parts, strict=False)):
        kept = rows[y[rows] % 3 != index] if classes > 2 else rows
        few.append(train(x[kept], y[kept], f"few{index}", folder))
    votes = np.mean([np.eye(classes)[label(x[server], teachers=[one]).labels.astype(int)] for one in few], axis=0)
    named = [" ".join(result.warnings) for result in results]
    return [
        max(run([teacher]).accuracy for teacher in rest),
        *(result.accuracy for result in results),
        float(np.mean(["'wrong'" in text for text in named[2:]])),
        float(np.mean(["'good" in text for text in named])),
        float(np.mean(votes.argmax(axis=1) == y[server])),
        run(few).accuracy,
    ]


if __name__ == "__main__":
    print("table", *COLUMNS, sep=" | ")
    for name, load in TABLES.items():
        with tempfile.TemporaryDirectory() as folder:
            values = np.array([measure(*load(), split, Path(folder)) for split in range(SPLITS)])
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        cells = [f"{one:.3f} ± {other:.3f}" for one, other in zip(mean, deviation, strict=True)]
        print(name, *cells, sep=" | ", flush=True)
