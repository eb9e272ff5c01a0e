from pathlib import Path

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.models.users_model import users_model

FILE = """
from torch import nn
from torch.nn import Linear

class Net(nn.Module):
    def __init__(self, in_features, num_classes, hidden=7, **others):
        super().__init__()
        self.sizes = (in_features, hidden, num_classes)

class Images(nn.Module):
    def __init__(self, input_shape, channels, classes, vocab_size=3):
        super().__init__()
        self.told = (input_shape, channels, classes, vocab_size)

def make(n_classes):
    return nn.Linear(4, n_classes)

def plain():
    return nn.Linear(4, 2)

def wants(depth, num_classes):
    return nn.Linear(depth, num_classes)

def fails(num_classes):
    raise RuntimeError("no such\\nlayer")

def number():
    return 5

ready = nn.Linear(4, 2)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_nets", raising=False)


def make(name):
    return users_model(name, (1, 2, 3), classes=5, vocabulary=9)


def test_a_constructor_gets_what_it_asks_for_and_keeps_its_defaults():
    assert make("my_nets:Net").sizes == (6, 7, 5)
    assert make("my_nets:Images").told == ((1, 2, 3), 1, 5, 9)


def test_functions_and_what_the_module_imported_serve_too():
    assert make("my_nets:make").out_features == 5
    assert make("my_nets:plain").out_features == 2
    assert make("my_nets:nn.Linear").in_features == 6


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_nets:wants", "wants 'depth', which the data do not tell; give it a default, or name a function"),
        ("my_nets:fails", r"calling it with \(num_classes=5\) fails with RuntimeError \(no such layer\)"),
        ("my_nets:number", "makes a int; it must make a torch.nn.Module"),
        ("my_nets:ready", "is a Linear; name a class, or a function"),
        ("my_nets:Nett", "my_nets has no 'Nett'; did you mean 'Net'"),
        ("my_netz:Net", "there is no module 'my_netz'; run from the folder that holds it"),
        ("my_nets:", "write it as package.module:Name"),
    ],
)
def test_what_goes_wrong_gets_a_sentence(name, sentence):
    with pytest.raises(UserError, match=sentence):
        make(name)
