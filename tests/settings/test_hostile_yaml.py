"""Configurations that would fill the memory or the screen; `tests/data/corpus/yaml` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtf_fedml.errors import UserError
from mrtf_fedml.settings.bounded_yaml import DEEPEST, LARGEST
from mrtf_fedml.settings.yaml_file import read_config
from tests.data.sources.hostility import FEW


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("data_args: &a\n  dataset: *a\n", "refers to itself by an anchor"),
        ("a: &a [x, x]\n" + "b: [" + "*a, " * 30_000 + "]\n", f"has more than {LARGEST} bytes"),
        ("a: &a " + "x" * 9000 + "\nb: [*a, *a, *a, *a, *a, *a]\n", f"grows to more than {LARGEST} letters"),
        ("a:\n  b: " + "[" * DEEPEST + "]" * DEEPEST, f"nests deeper than {DEEPEST} levels"),
        ("train_args: &a [1, [*b, 2]]\n", "not valid YAML at line 1"),
        ("a: &a [1, 2]\ntrain_args: *a\n", "section 'a' must hold `key: value` lines, not one list"),
        ("data_args:\n  1: a\n", "1 is no name of a section or a key; put it in quotes"),
        ("data_args:\n  partition_seed: " + "7" * 5000, "a number of 5000 digits, too many"),
        ("data_args:\n  partition_seed: 0x" + "f" * 5000, "a number of 5002 digits, too many"),
        ("data_args:\n  dataset: npz\n  dataset: csv\n", "has the key 'dataset' twice, again at line 3; mend it"),
        (
            "data_args:\n  dataset: npz\ndata_args:\n  seed: 1\n",
            "the key 'data_args' twice, again at line 3",
        ),
        ("data_args:\n  dataset: 2024-13-45\n", "not valid YAML"),
    ],
    ids=lambda text: text[:20].split("\n")[0],
)
def test_what_no_person_would_write_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=sentence) as told:
        read_config(file)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


def test_anchors_that_a_person_would_write_are_read(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("train_args: &all {epochs: 2}\nother_args: {<<: *all, batch_size: 4}\n")
    assert read_config(file) == {"train_args": {"epochs": 2}, "other_args": {"epochs": 2, "batch_size": 4}}


YAML = st.text(st.sampled_from("ab:-?&*<![]{},'\"|>#%\n 01.~\t\\\0é\x85"), max_size=40)


@FEW
@given(YAML | st.binary(max_size=40))
def test_any_text_is_a_configuration_or_one_sentence(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    told, config = "a configuration", {}
    try:
        config = read_config(file)
    except UserError as error:
        told = str(error)
    assert len(told.splitlines()) == 1
    assert all(isinstance(key, str) for section in config.values() for key in section)
