"""Three parties train models of their own on handwritten digits, each with the digits that it has.

    python parties.py FOLDER

writes what the parties hand over: north.onnx (a PyTorch network for the digits 0 to 6), south.skops (scikit-learn's
random forest for 3 to 9), west.npy (the probabilities of a model that stays at home, for all digits), and digits.npz,
the samples to be labelled. `y_test` in it is used for scoring only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import skops.io
import torch
from onnx import helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression


def train_network(x: np.ndarray, y: np.ndarray) -> torch.nn.Sequential:
    """North's network: one hidden layer."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, int(y.max()) + 1))
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()
    return network


def write_onnx(network: torch.nn.Sequential, classes: list[str], file: Path) -> None:
    """The network as an ONNX graph, with its classes in the file's metadata."""
    first, last = network[0], network[2]
    weights = {"w1": first.weight, "b1": first.bias, "w2": last.weight, "b2": last.bias}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], transB=1),
            helper.make_node("Relu", ["a"], ["h"]),
            helper.make_node("Gemm", ["h", "w2", "b2"], ["logits"], transB=1),
        ],
        "north",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", len(classes)])],
        [numpy_helper.from_array(value.detach().numpy(), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, {"class_names": str(classes).replace("'", '"')})
    onnx.save(model, str(file))


def main(folder: str) -> None:
    """Write the four files."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    north, south, west, server = np.array_split(np.random.default_rng(0).permutation(len(x)), 4)
    north, south = north[y[north] <= 6], south[y[south] >= 3]
    write_onnx(train_network(x[north], y[north]), [str(digit) for digit in range(7)], out / "north.onnx")
    skops.io.dump(RandomForestClassifier(100, random_state=0).fit(x[south], y[south]), out / "south.skops")
    stays_at_home = LogisticRegression(max_iter=500).fit(x[west], y[west])
    np.save(out / "west.npy", stays_at_home.predict_proba(x[server]))
    np.savez(out / "digits.npz", x_test=x[server], y_test=y[server])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
