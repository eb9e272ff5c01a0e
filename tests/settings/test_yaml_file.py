"""Configurations from files and from `--set`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.settings.yaml_file import read_config, warn_of_near_misses, with_changes


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no file"),
        ("a: [1,", "not valid YAML at line"),
        ("", "holds no sections"),
        ("just words", "holds no sections"),
        ("train_args: 3", "section 'train_args' must hold"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: str | None, sentence: str) -> None:
    file = tmp_path / "config.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=sentence) as told:
        read_config(file)
    assert "\n" not in str(told.value)


def test_a_section_left_empty_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("tracking_args:\ntrain_args:\n  epochs: 2\n")
    assert read_config(file) == {"tracking_args": {}, "train_args": {"epochs": 2}}


def test_changes_find_their_section_and_are_read_as_yaml() -> None:
    config = {"train_args": {"epochs": 1, "client_id_list": "[]"}, "comm_args": {"backend": "sp"}}
    changed = with_changes(
        config,
        [
            "epochs=4",
            "backend=MPI",
            "mrtf_args.self_teaching=false",
            "client_id_list='[1]'",
            "learning_rate=1e-2",
        ],
    )
    assert changed["train_args"] == {"epochs": 4, "client_id_list": "[1]", "learning_rate": "1e-2"}
    assert changed["comm_args"] == {"backend": "MPI"}
    assert changed["mrtf_args"] == {"self_teaching": False}
    assert config["train_args"]["epochs"] == 1, "the caller's configuration is the caller's"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("epochs", "takes \\[section.\\]key=value"),
        ("epohcs=3", "did you mean 'epochs'"),
        ("mrtf_args.temprature=3", "did you mean 'temperature'"),
        ("mrtfargs.temperature=3", "there is no section 'mrtfargs'"),
        ("epochs=[1", "not valid YAML"),
    ],
)
def test_a_wrong_change_is_one_sentence(change: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        with_changes({"train_args": {"epochs": 1}}, [change])


def test_a_near_miss_in_fedmls_sections_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_near_misses({"data_args": {"clases_per_client": 3, "data_cache_dir": "x", "anything": 1}})
    assert "did you mean 'classes_per_client'" in caplog.text
    assert caplog.text.count("did you mean") == 1
