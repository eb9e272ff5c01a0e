"""Reading YAML configurations and overriding keys; `tests/data/corpus/yaml` has more hostile files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtf_fedml.config.loader import (
    MAX_CONFIG_SIZE,
    MAX_YAML_DEPTH,
    apply_overrides,
    read_config,
    warn_about_similar_keys,
)
from mrtf_fedml.errors import UserError
from tests.data.sources.hostility import FEW


@pytest.mark.parametrize(
    ("content", "message_part"),
    [
        (None, "there is no file"),
        ("a: [1,", "not valid YAML at line"),
        ("", "has no sections"),
        ("just words", "has no sections"),
        ("train_args: 3", "section 'train_args' must have"),
    ],
)
def test_read_config_of_unreadable_file_raises_one_sentence(
    tmp_path: Path, content: str | None, message_part: str
) -> None:
    file = tmp_path / "config.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=message_part) as raised:
        read_config(file)
    assert "\n" not in str(raised.value)


def test_read_config_accepts_empty_section(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("tracking_args:\ntrain_args:\n  epochs: 2\n")
    assert read_config(file) == {"tracking_args": {}, "train_args": {"epochs": 2}}


def test_apply_overrides_finds_section_and_parses_yaml() -> None:
    config = {"train_args": {"epochs": 1, "client_id_list": "[]"}, "comm_args": {"backend": "sp"}}
    changed = apply_overrides(
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
    assert config["train_args"]["epochs"] == 1, "the caller's configuration is unchanged"


@pytest.mark.parametrize(
    ("change", "message_part"),
    [
        ("epochs", "takes \\[section.\\]key=value"),
        ("epohcs=3", "did you mean 'epochs'"),
        ("mrtf_args.temprature=3", "did you mean 'temperature'"),
        ("mrtfargs.temperature=3", "there is no section 'mrtfargs'"),
        ("epochs=[1", "not valid YAML"),
    ],
)
def test_apply_overrides_rejects_wrong_override(change: str, message_part: str) -> None:
    with pytest.raises(UserError, match=message_part):
        apply_overrides({"train_args": {"epochs": 1}}, [change])


def test_warn_about_similar_keys_names_misspelt_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_about_similar_keys({"data_args": {"clases_per_client": 3, "data_cache_dir": "x", "anything": 1}})
    assert "did you mean 'classes_per_client'" in caplog.text
    assert caplog.text.count("did you mean") == 1


@pytest.mark.parametrize(
    ("content", "message_part"),
    [
        ("data_args: &a\n  dataset: *a\n", "refers to itself by an anchor"),
        ("a: &a [x, x]\n" + "b: [" + "*a, " * 30_000 + "]\n", f"has more than {MAX_CONFIG_SIZE} bytes"),
        (
            "a: &a " + "x" * 9000 + "\nb: [*a, *a, *a, *a, *a, *a]\n",
            f"expands to more than {MAX_CONFIG_SIZE} characters",
        ),
        ("a:\n  b: " + "[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH, f"nests deeper than {MAX_YAML_DEPTH} levels"),
        ("train_args: &a [1, [*b, 2]]\n", "not valid YAML at line 1"),
        ("a: &a [1, 2]\ntrain_args: *a\n", "section 'a' must have `key: value` lines, not one list"),
        ("data_args:\n  1: a\n", "1 is not the name of a section or a key"),
        ("data_args:\n  partition_seed: " + "7" * 5000, "a number of 5000 digits, too many"),
        ("data_args:\n  partition_seed: 0x" + "f" * 5000, "a number of 5002 digits, too many"),
        ("data_args:\n  dataset: npz\n  dataset: csv\n", "has the key 'dataset' twice, again at line 3"),
        (
            "data_args:\n  dataset: npz\ndata_args:\n  seed: 1\n",
            "the key 'data_args' twice, again at line 3",
        ),
        ("data_args:\n  dataset: 2024-13-45\n", "not valid YAML"),
    ],
    ids=lambda text: text[:20].split("\n")[0],
)
def test_read_config_rejects_hostile_yaml_in_one_sentence(tmp_path: Path, content: str, message_part: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=message_part) as raised:
        read_config(file)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_read_config_expands_small_anchors(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("train_args: &all {epochs: 2}\nother_args: {<<: *all, batch_size: 4}\n")
    assert read_config(file) == {"train_args": {"epochs": 2}, "other_args": {"epochs": 2, "batch_size": 4}}


YAML = st.text(st.sampled_from("ab:-?&*<![]{},'\"|>#%\n 01.~\t\\\0é\x85"), max_size=40)


@FEW
@given(YAML | st.binary(max_size=40))
def test_read_config_of_random_text_gives_config_or_one_line_error(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    message, config = "a configuration", {}
    try:
        config = read_config(file)
    except UserError as error:
        message = str(error)
    assert len(message.splitlines()) == 1
    assert all(isinstance(key, str) for section in config.values() for key in section)
