"""What a program may get wrong is a UserError with a sentence, before FedML is imported or anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import mrtf_fedml
from mrtf_fedml import UserError
from tests.api.client_arrays import SERVER, X, Y, clients
from tests.conftest import small_config

ONE = clients()[0]
NAN = X.copy()
NAN[3, 1] = np.nan

MISUSES: dict[str, tuple[dict[str, Any], str]] = {
    "no clients": ({"clients": []}, "clients is empty"),
    "none at all": ({"clients": None}, "label() needs clients"),
    "one pair": ({"clients": (X, Y)}, "clients is one pair"),
    "x alone": ({"clients": [X]}, "clients[0] is a ndarray"),
    "lengths": ({"clients": [ONE, (X[:5], Y[:4])]}, "clients[1] has 5 samples but 4 labels"),
    "an empty client": ({"clients": [ONE, (X[:0], Y[:0])]}, "clients[1]'s x is empty"),
    "an empty loader": ({"clients": [ONE, iter(())]}, "clients[1] has no samples"),
    "NaN": ({"clients": [ONE, (NAN[:9], Y[:9])]}, "clients[1]'s x holds NaN or infinite values (first in sample 3)"),
    "NaN at the server": ({"x_server": NAN}, "x_server holds NaN"),
    "widths": ({"clients": [ONE, (X[:5, :2], Y[:5])]}, "a sample of clients[1] has shape (2,) but one of clients[0]"),
    "server's width": ({"x_server": X[:, :2]}, "a sample of x_server has shape (2,)"),
    "server's nothing": ({"x_server": None}, "x_server is None"),
    "an empty server": ({"x_server": X[:0]}, "x_server is empty"),
    "ragged": ({"x_server": [[1, 2], [3]]}, "x_server is not an array"),
    "texts as features": ({"x_server": [["a", "b"]]}, "x_server holds strings"),
    "a text column": (
        {"x_server": pandas.DataFrame({"a": [1.0], "colour": ["red"]})},
        "(column 'colour')",
    ),
    "a missing column": (
        {
            "clients": [(pandas.DataFrame(X[:9], columns=list("abc")), Y[:9])],
            "x_server": pandas.DataFrame(X[:9], columns=list("abd")),
        },
        "x_server lacks the column c",
    ),
    "bytes and floats": ({"x_server": X[SERVER].astype(np.uint8)}, "x_server holds uint8 but clients[0] float64"),
    "no label": (
        {"clients": [ONE, (X[:3], ["low", None, "high"])]},
        "clients[1]'s y: the label of sample 1 is missing",
    ),
    "an empty label": ({"clients": [(X[:3], ["low", "high", ""])]}, "the label of sample 2 is missing"),
    "labels NaN": ({"clients": [(X[:3], [0.0, np.nan, 1.0])]}, "the label of sample 1 is missing"),
    "minus one": ({"clients": [(X[:3], [0, -1, 1])]}, "the label -1"),
    "one class": ({"clients": [(X[:3], ["low"] * 3)]}, "all clients have the single label 'low'"),
    "targets": ({"clients": [(X[:3], [0.5, 1.5, 2.5])]}, "the label of sample 0 is 0.5"),
    "one-hot": ({"clients": [(X[:3], np.eye(3))]}, "np.argmax"),
    "round": ({"round": 15}, "did you mean 'rounds'"),
    "model in capitals": ({"model": "MLP"}, "did you mean 'mlp'"),
    "unlisted": ({"classes": ["low"]}, "the clients have the label 'high'"),
    "server's labels": ({"y_server": ["low"]}, "y_server has 1 labels but x_server 30 samples"),
    "strange labels": ({"y_server": ["other"] * 30}, "y_server has the label other, which no client has"),
    "ids": ({"ids": ["a"]}, "ids has 1 entries but x_test has 30"),
    "unknown setting": ({"learning_rat": 0.1}, "label(): learning_rat: there is no such key; did you mean"),
    "no setting at all": ({"colour": "red"}, "label(): colour: there is no such key"),
    "the data twice": ({"data_file": "own.npz"}, "data_file"),
    "the clients twice": ({"num_clients": 5}, "num_clients"),
    "another process": ({"backend": "MPI"}, "backend"),
    "a wrong value": ({"lr": -1}, "train_args.learning_rate is -1"),
    "more than there are": ({"clients_per_round": 9}, "client_num_per_round is 9 but there are only 3 clients"),
    "no rounds": ({"rounds": 0}, "train_args.comm_round is 0"),
    "rounds as a string": ({"rounds": "many"}, "rounds is 'many'"),
    "an algorithm": ({"algorithm": "FedAwg"}, "FedAwg"),
    "a class": ({"model": nn.Linear}, "model is the class Linear"),
    "no model": ({"model": None}, "model is a NoneType"),
    "eight and clients": ({"x_server": (1, 2, None, [], {}, {}, {}, 2)}, "leave clients out"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_label_misuse_raises_one_sentence(misuse: str) -> None:
    changes, message = MISUSES[misuse]
    arguments: dict[str, Any] = {"x_server": X[SERVER], "clients": clients(), **changes}
    with pytest.raises(UserError) as error:
        mrtf_fedml.label(**arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_label_with_unsuitable_model_is_refused() -> None:
    for model, message in (
        (nn.Linear(3, 5), "the model (Linear) gives 5 logits but the data have 2 classes"),
        (nn.Linear(4, 2), "the model (Linear) cannot take samples of shape 3"),
        ("no_such", "model_args.model 'no_such' is unknown"),
    ):
        with pytest.raises(UserError) as error:
            mrtf_fedml.label(X[SERVER], clients(), model, rounds=1, progress=False)
        assert message in str(error.value)


def test_run_refuses_configurations_of_other_backends() -> None:
    for config, message in (
        (7, "run() takes a mapping of sections or the path"),
        ("no.yaml", "there is no file 'no.yaml'"),
        ({"comm_round": 3}, "'comm_round'"),
        (small_config(backend="MPI"), "use `mrtf run`"),
        (small_config(training_type="cross_silo"), "use `mrtf run`"),
        (small_config(dataset="digitz"), "did you mean 'digits'?"),
    ):
        with pytest.raises(UserError) as error:
            mrtf_fedml.run(config)  # type: ignore[arg-type]
        assert message in str(error.value)
    with pytest.raises(UserError, match="run\\(\\): roundz: there is no such key"):
        mrtf_fedml.run(small_config(), roundz=3)


def test_label_keeps_the_type_of_labels() -> None:
    from mrtf_fedml.data.in_memory import from_arrays
    from tests.conftest import small_settings

    settings = small_settings(dataset="arrays", partition_method="user", client_num_in_total=1, client_num_per_round=1)
    for labels, classes in (
        (["b", "a"], ["a", "b"]),
        ([10, 2], [2, 10]),
        (torch.tensor([1, 0]), [0, 1]),
        ([True, False], [False, True]),
        ([-1, 1], [-1, 1]),
        ([1.0, 2.0], [1, 2]),
        (np.array([b"x", b"y"]), ["x", "y"]),
    ):
        dataset, found = from_arrays(X[:2], [(X[:2], labels)], settings)
        assert found == classes
        assert dataset.class_names == [str(value) for value in classes]
