"""Every number that the paper states, with its place in the paper. Curves and bars without numbers are not listed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperNumber:
    """One number.

    Attributes:
        experiment: its name on the command line.
        what: the name of the number, as in `experiment.Number`.
        value: as the paper prints it: a percentage or a count.
        place: its place in the paper.
    """

    experiment: str
    what: str
    value: float
    place: str


_DEMO = "Sect. 5.1, Demo Analysis"
_TABLE = "Table data"
_CROSS = "Table cross-domain"
_NOISE = "Table dp"

_LOGI = (
    ("local model 1", 17.6, f"{_DEMO}, 2nd paragraph"),
    ("local model 2", 19.2, f"{_DEMO}, 2nd paragraph"),
    ("local model 3", 20.4, f"{_DEMO}, 2nd paragraph"),
    ("AvgLogi, uniform", 33.1, f"{_DEMO}, 2nd paragraph"),
    ("AvgProb, uniform", 44.0, f"{_DEMO}, 2nd paragraph"),
    ("AvgLogi, with the aggregated models", 39.4, f"{_DEMO}, 3rd paragraph"),
    ("AvgProb, with the aggregated models", 79.9, f"{_DEMO}, 3rd paragraph"),
)

#: N, M, C, K, mean N_k, mean C_k by label (C-bar 3) and by Dirichlet (0.1).
_STATISTICS = {
    "MNIST": (55000, 10000, 10, 100, 550, 3.0, 3.6),
    "MNISTm": (55000, 10000, 10, 100, 550, 3.0, 3.6),
    "SVHN": (73000, 26000, 10, 100, 730, 3.0, 3.9),
    "CIFAR10": (50000, 10000, 10, 100, 500, 3.0, 3.6),
    "CIFAR100": (50000, 10000, 100, 100, 500, 30.0, 17.5),
    "FeMnist": (85000, 16000, 62, 359, 236, 15.3, 14.4),
    "Shakespeare": (437000, 84000, 80, 112, 3900, 28.7, 29.2),
}
STATISTICS_COLUMNS = ("N", "M", "C", "K", "mean N_k", "mean C_k by label", "mean C_k by dirichlet")

_CROSS_DOMAIN = {
    "FedAvg": (40.26, 34.52, 32.09, 31.06),
    "FedDF": (41.90, 35.91, 33.06, 28.84),
    "MrTF": (44.78, 41.70, 35.32, 34.55),
}
_CROSS_COLUMNS = ("SVHN→MNISTm, α=1.0", "SVHN→MNISTm, α=0.1", "MNISTm→SVHN, α=1.0", "MNISTm→SVHN, α=0.1")

_PRIVACY = {"FedAvg": (79.46, 76.98, 69.08, 38.27), "MrTF": (82.31, 81.76, 76.54, 47.11)}
_PRIVACY_COLUMNS = ("σ=0.0", "σ=0.001", "σ=0.01", "σ=0.1")

PAPER_NUMBERS = (
    *(PaperNumber("logi", what, value, place) for what, value, place in _LOGI),
    *(
        PaperNumber("table-data", f"{name}, {column}", float(value), _TABLE)
        for name, values in _STATISTICS.items()
        for column, value in zip(STATISTICS_COLUMNS, values, strict=True)
    ),
    *(
        PaperNumber("cross-domain", f"{column}, {name}", value, _CROSS)
        for name, values in _CROSS_DOMAIN.items()
        for column, value in zip(_CROSS_COLUMNS, values, strict=True)
    ),
    *(
        PaperNumber("dp", f"{column}, {name}", value, _NOISE)
        for name, values in _PRIVACY.items()
        for column, value in zip(_PRIVACY_COLUMNS, values, strict=True)
    ),
)
_BY_NAME = {(number.experiment, number.what): number for number in PAPER_NUMBERS}


def paper_number(experiment: str, what: str) -> PaperNumber | None:
    """The paper's number, or None.

    >>> paper_number("logi", "AvgProb, uniform").value
    44.0
    """
    return _BY_NAME.get((experiment, what))
