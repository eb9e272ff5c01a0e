from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.cli import main
from mrtf_fedml.commands.example import describe_examples, list_examples, write_example
from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load
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


CLIENTS = """Unnamed: 0,patient_id,age,ward,note,weight,dose,hospital,diagnosis
""" + "".join(
    f"{row},P{row},{20 + row},{'AB'[row % 2]},text {row},{'' if row == 3 else 50 + row},{'low' if row == 9 else row},"
    f"{['North', 'South'][row % 2]},{['ill', 'well'][row % 3 == 0]}\n"
    for row in range(40)
)
SERVER = """patient_id,age,ward,note,weight,dose,price
""" + "".join(f"Q{row},{row},A,other {row},70,3,{row}\n" for row in range(12))


def write_tables(folder: Path) -> list[str]:
    (folder / "clients.csv").write_text(CLIENTS)
    (folder / "server.csv").write_text(SERVER)
    return [str(folder / "clients.csv"), str(folder / "server.csv")]


def test_example_from_two_files_finds_columns_and_can_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "own.yaml"
    assert main(["example", "own_csv", "--from", *write_tables(tmp_path), "-o", str(target)]) == 0
    settings = RunSettings.from_config(yaml.safe_load(target.read_text()))
    data = settings.data
    assert (data.label_column, data.id_column, data.user_column) == ("diagnosis", "patient_id", "hospital")
    assert data.ignore_columns == ["Unnamed: 0", "note", "dose", "price"]
    assert data.fill_missing
    dataset = load(settings)
    assert dataset.client_num == 2
    assert dataset.class_names == ["ill", "well"]
    assert dataset.preprocessing.features == ["age", "ward=A", "ward=B", "weight"]
    assert dataset.ids[0] == "Q0"
    assert "'low' (line 11 of the clients' file)" in target.read_text()
    assert "40 labelled and 12 unlabelled samples, 4 features, 2 classes" in capsys.readouterr().out


def test_example_from_files_without_a_certain_label_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_tables(tmp_path)
    for file in files:
        text = Path(file).read_text().replace("diagnosis", "group")
        Path(file).write_text(text.replace("ward", "squad"))
    (tmp_path / "server.csv").write_text((tmp_path / "clients.csv").read_text())
    target = str(tmp_path / "own.yaml")
    assert main(["example", "own_csv", "--from", *files, "-o", target]) == 2
    assert "--label" in capsys.readouterr().err
    assert main(["example", "own_csv", "--from", *files, "--label", "group", "-o", target]) == 0
    assert yaml.safe_load(Path(target).read_text())["data_args"]["label_column"] == "group"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["quickstart", "--from", "a.csv", "b.csv"], "own_csv"),
        (["own_csv", "--from", "missing.csv", "b.csv"], "missing.csv"),
    ],
)
def test_example_from_invalid_arguments_names_them(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["example", *arguments]) == 2
    assert named in capsys.readouterr().err
