from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.commands.example import describe_examples, list_examples, write_example
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError


def test_every_example_is_listed_and_is_a_valid_configuration(tmp_path: Path) -> None:
    names = list_examples()
    assert "quickstart" in names
    assert names == sorted(names)
    for name in names:
        written = write_example(name, tmp_path / f"{name}.yaml")
        RunSettings.from_config(yaml.safe_load(written.read_text()))


@pytest.mark.parametrize("name", ["quickstart", "quickstart.yaml"])
def test_write_example_defaults_to_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_example(name, None) == Path("quickstart.yaml")
    assert (tmp_path / "quickstart.yaml").read_text()


def test_write_example_writes_the_gpu_mapping(tmp_path: Path) -> None:
    assert "gpus" not in list_examples()
    mappings = yaml.safe_load(write_example("gpus", tmp_path).read_text())
    config = yaml.safe_load(write_example("mpi_gpu", tmp_path).read_text())
    assert config["device_args"]["gpu_mapping_key"] in mappings


def test_write_example_into_a_folder(tmp_path: Path) -> None:
    assert write_example("quickstart", tmp_path) == tmp_path / "quickstart.yaml"


def test_write_example_overwrites_only_with_force(tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    target.write_text("mine")
    with pytest.raises(UserError, match="exists"):
        write_example("quickstart", target)
    assert target.read_text() == "mine"
    write_example("quickstart", target, force=True)
    assert target.read_text() != "mine"


def test_write_example_with_unknown_name_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'quickstart'"):
        write_example("quickstrat", tmp_path / "x.yaml")
    assert not (tmp_path / "x.yaml").exists()


def test_write_example_names_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_example("quickstart", tmp_path / "nowhere" / "x.yaml")


def test_examples_for_own_data_use_the_tuned_preset(tmp_path: Path) -> None:
    for name in ("own_npz", "own_images", "own_csv"):
        assert yaml.safe_load(write_example(name, tmp_path).read_text())["mrtf_args"]["preset"] == "tuned"


def test_describe_examples_has_one_sentence_per_example() -> None:
    lines = describe_examples().splitlines()
    for name in list_examples():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert line.endswith("."), f"{name} has a sentence"
        assert len(line.split()) > 4
