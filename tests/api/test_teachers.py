"""`label(x, teachers=[...])` and `mrtf label`: finished models of every kind label samples."""

from __future__ import annotations

import importlib.util
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas
import pytest
import skops.io
import torch
from PIL import Image
from sklearn.datasets import load_wine
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from mrtf_fedml import Teacher, label
from mrtf_fedml.cli import main
from mrtf_fedml.data import to_tensor
from mrtf_fedml.errors import UserError
from tests.encoders.tiny import pooled

NAMES = np.array(["barolo", "grignolino", "barbera"])
EXAMPLE = Path(__file__).parents[2] / "examples" / "label_with_teachers"


def split() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
    """Three parties' rows of the wine table with class names, and the server's."""
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    parts = np.array_split(order, 4)
    return [(x[rows], NAMES[y[rows]]) for rows in parts[:3]], x[parts[3]], NAMES[y[parts[3]]]


PARTIES, X, Y = split()


def estimators() -> list[Any]:
    makers: list[Callable[[], Any]] = [
        lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        GaussianNB,
        lambda: make_pipeline(StandardScaler(), LinearSVC()),
    ]
    return [maker().fit(*party) for maker, party in zip(makers, PARTIES, strict=True)]


def test_three_estimators_label_by_class_names() -> None:
    result = label(X, teachers=estimators(), y_server=Y, ids=[f"bottle {row}" for row in range(len(X))])
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    assert set(result.labels) <= set(NAMES)
    assert (result.labels == Y).mean() == pytest.approx(result.accuracy)
    np.testing.assert_allclose(result.probabilities.sum(axis=1), 1, atol=1e-5)
    assert result.ids[0] == "bottle 0"
    assert result.warnings == []
    assert "barolo" in result.report.html
    assert all(teacher["weight"] > 0.8 for teacher in result.summary["teachers"])
    with pytest.raises(UserError, match="student"):
        result.predict(X)


def test_wrong_teacher_is_named_and_hardly_counts() -> None:
    good = estimators()
    confused = Teacher(lambda x: np.roll(good[1].predict_proba(x), 1, axis=1), good[1].classes_, "confused")
    result = label(X, teachers=[good[0], good[2], confused], y_server=Y)
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    (warning,) = result.warnings
    assert "'confused'" in warning
    assert result.summary["teachers"][2]["weight"] < 0.05


@pytest.mark.parametrize("missing", [None, -1])
def test_some_labels_are_taken_over_and_estimate_the_accuracy(missing: int | None) -> None:
    given = [value if row % 2 == 0 else missing for row, value in enumerate(Y.tolist())]
    plain, result = (label(X, teachers=estimators(), y_server=labels) for labels in (None, given))
    assert result.accuracy is None, "labels that are known are not sealed"
    is_given = np.arange(len(X)) % 2 == 0
    assert (result.labels[is_given] == Y[is_given]).all()
    assert (result.labels[~is_given] == plain.labels[~is_given]).all()
    low, high = result.summary["estimated_accuracy_interval"]
    assert low <= np.mean(result.labels == Y) <= high
    assert result.summary["labels_given"] == is_given.sum()


def test_teachers_with_other_class_lists_label_all_classes() -> None:
    teachers = []
    for unknown, (x, y) in zip(NAMES, PARTIES, strict=True):
        rows = y != unknown
        teachers.append(make_pipeline(StandardScaler(), LogisticRegression()).fit(x[rows], y[rows]))
    result = label(X, teachers=teachers, y_server=Y)
    assert sorted(result.classes) == sorted(NAMES)
    assert result.accuracy is not None
    assert max(teacher["accuracy"] for teacher in result.summary["teachers"]) < 0.8 < 0.85 < result.accuracy


def test_student_learns_the_labels_and_predicts_more(tmp_path: Path) -> None:
    result = label(
        X,
        teachers=estimators(),
        student="mlp",
        y_server=Y,
        refine_steps=60,
        hidden_size=32,
        run_dir=str(tmp_path / "run"),
    )
    assert result.accuracy is not None
    assert result.accuracy > 0.85
    assert (result.predict(X) == result.labels).all()
    np.savez(tmp_path / "more.npz", x_test=X[:5])
    assert (
        main(["predict", str(tmp_path / "run"), str(tmp_path / "more.npz"), "--out", str(tmp_path / "more.csv")]) == 0
    )
    more = pandas.read_csv(tmp_path / "more.csv")
    assert more.class_name.tolist() == result.labels[:5].tolist()
    assert main(["report", str(tmp_path / "run")]) == 0


def test_features_cluster_the_labels() -> None:
    teachers = estimators()
    standardized = StandardScaler().fit_transform(X)
    plain, clustered = (label(X, teachers=teachers, y_server=Y, features=h) for h in (None, standardized))
    assert clustered.accuracy is not None
    assert clustered.accuracy > 0.9
    assert not np.allclose(plain.probabilities, clustered.probabilities)


def images() -> tuple[np.ndarray, np.ndarray]:
    """Grey images whose upper half, lower half or left half is bright, with noise, and what is bright."""
    generator = np.random.default_rng(0)
    kinds = np.arange(90) % 3
    pixels = generator.integers(0, 120, (90, 8, 8))
    for row, kind in enumerate(kinds):
        half = (slice(None, 4), slice(4, None), (slice(None), slice(None, 4)))[kind]
        pixels[row][half] += 120
    return pixels.astype(np.uint8), np.array(["above", "below", "left"])[kinds]


def noisy_teachers(truth: np.ndarray) -> list[Any]:
    """Three arrays of probabilities, each wrong on a third of the samples."""
    names = sorted(set(truth))
    columns = np.array([names.index(value) for value in truth])
    arrays = []
    for seed in range(3):
        wrong = np.random.default_rng(seed).random(len(truth)) < 0.33
        arrays.append((np.eye(3)[np.where(wrong, (columns + 1 + seed % 2) % 3, columns)] * 0.7 + 0.1, names))
    return arrays


POOLED = "tests.encoders.tiny:pooled"


def test_encoder_clusters_the_labels_by_its_features() -> None:
    pixels, truth = images()
    plain, clustered = (
        label(pixels, teachers=noisy_teachers(truth), y_server=truth, **settings)  # type: ignore[arg-type]
        for settings in ({}, {"encoder": POOLED})
    )
    by_hand = label(pixels, teachers=noisy_teachers(truth), y_server=truth, features=pooled(to_tensor(pixels)).numpy())
    assert plain.accuracy is not None
    assert clustered.accuracy is not None
    assert clustered.accuracy > plain.accuracy
    np.testing.assert_allclose(clustered.probabilities, by_hand.probabilities, atol=1e-6)


def test_student_reads_the_features_of_the_encoder_and_predicts_later(tmp_path: Path) -> None:
    pixels, truth = images()
    result = label(
        pixels,
        teachers=noisy_teachers(truth),
        student="linear",
        encoder=POOLED,
        refine_steps=100,
        refine_lr=0.05,
        run_dir=str(tmp_path / "run"),
    )
    np.savez(tmp_path / "more.npz", x_test=pixels[:6])
    words = [str(tmp_path / "run"), str(tmp_path / "more.npz"), "--out", str(tmp_path / "more.csv")]
    assert main(["predict", *words]) == 0
    assert pandas.read_csv(tmp_path / "more.csv").class_name.tolist() == result.labels[:6].tolist()
    assert (result.predict(pixels) == result.labels).all()
    assert (result.labels == truth).mean() > 0.9


def test_texts_reach_teachers_unchanged_and_students_through_an_encoder() -> None:
    texts = [f"{word} {row}" for row in range(8) for word in ("banana", "robin")]
    truth = ["fruit", "bird"] * 8
    vectorizer = make_pipeline(CountVectorizer(analyzer="char"), LogisticRegression()).fit(texts, truth)
    result = label(texts, teachers=[vectorizer], y_server=truth, encoder="tests.encoders.tiny:letters")
    assert result.accuracy == 1.0
    with pytest.raises(UserError, match="encoder"):
        label(texts, teachers=[vectorizer], student="linear")
    with pytest.raises(UserError, match="narrow"):
        label(texts, teachers=[Teacher(torch.nn.Linear(3, 2), ["a", "b"], "narrow")])


def test_bad_encoders_of_teachers_are_one_sentence() -> None:
    pixels, truth = images()
    for changes, match in (
        ({"encoder": POOLED, "features": np.zeros((90, 2))}, "features and encoder"),
        ({"encoder": "tests.encoders.tiny:broken"}, "NaN"),
        ({"encoder": "torchvision:resnet18"}, "encoder_weights"),
        ({"encoder_size": 9}, "encoder_size"),
    ):
        with pytest.raises(UserError, match=match):
            label(pixels, teachers=noisy_teachers(truth), **changes)  # type: ignore[arg-type]


def test_command_reads_a_folder_of_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels, truth = images()
    for row in range(12):
        folder = tmp_path / "photos" / truth[row]
        folder.mkdir(parents=True, exist_ok=True)
        # Images of another size are brought to the most frequent one.
        size = 8 if row else 16
        Image.fromarray(pixels[row]).resize((size, size)).save(folder / f"{row}.png")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    halves = torch.zeros(3, 8, 8)
    halves[0, :4], halves[1, 4:], halves[2, :, :4] = 1, 1, 1
    network[1].load_state_dict({"weight": halves.flatten(1), "bias": torch.zeros(3)})
    torch.onnx.export(
        network,
        (torch.zeros(2, 1, 8, 8),),
        str(tmp_path / "halves.onnx"),
        dynamo=False,
        input_names=["x"],
        dynamic_axes={"x": {0: "n"}},
    )
    words = ["label", str(tmp_path / "photos"), "--teacher", f"{tmp_path}/halves.onnx=above,below,left"]
    assert main([*words, "--label-folders", "--set", f"encoder={POOLED}", "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["samples_labelled"], summary["accuracy"]) == (12, 1.0)
    ids = pandas.read_csv(tmp_path / "run" / "predictions.csv").id.tolist()
    assert sorted(ids) == sorted(f"{truth[row]}/{row}.png" for row in range(12))
    assert main([*words, "--out", str(tmp_path / "unscored")]) == 0
    assert json.loads((tmp_path / "unscored" / "summary.json").read_text())["accuracy"] is None
    capsys.readouterr()
    assert main([*words, "--set", "image_size=4", "--out", str(tmp_path / "small")]) == 2
    assert "halves.onnx" in capsys.readouterr().err, "its images have 8 x 8 pixels"
    (tmp_path / "empty").mkdir()
    assert main(["label", str(tmp_path / "empty"), *words[2:]]) == 2
    assert "empty" in capsys.readouterr().err
    Image.fromarray(pixels[0]).save(tmp_path / "photos" / "loose.png")
    assert main([*words, "--label-folders", "--out", str(tmp_path / "loose")]) == 2
    assert "loose.png" in capsys.readouterr().err


def test_command_reads_a_column_of_texts(tmp_path: Path) -> None:
    rows = [("banana", "fruit"), ("robin", "bird"), ("papaya", "fruit"), ("a chicken", "bird")] * 3
    table = pandas.DataFrame(rows, columns=["text", "kind"])
    table.to_csv(tmp_path / "texts.csv", index=False)
    np.save(tmp_path / "p.npy", np.tile([[0.1, 0.9], [0.8, 0.2]], (6, 1)))
    words = [
        "label",
        str(tmp_path / "texts.csv"),
        "--teacher",
        f"{tmp_path}/p.npy=bird,fruit",
        "--label-column",
        "kind",
    ]
    settings = ["--set", "text_column=text", "--set", "encoder=tests.encoders.tiny:letters"]
    assert main([*words, *settings, "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["accuracy"] == 1.0
    assert main([*words, "--set", "text_column=review", "--out", str(tmp_path / "two")]) == 2


def test_kinds_of_models_give_the_same_labels(tmp_path: Path) -> None:
    scaler = StandardScaler().fit(X)
    model = LogisticRegression().fit(scaler.transform(PARTIES[0][0]), PARTIES[0][1])
    x = scaler.transform(X).astype(np.float32)
    module = torch.nn.Linear(x.shape[1], 3)
    module.load_state_dict(
        {"weight": torch.from_numpy(model.coef_).float(), "bias": torch.from_numpy(model.intercept_).float()}
    )
    np.save(tmp_path / "a.npy", model.predict_proba(x))
    kinds: list[Any] = [
        model,
        (module, model.classes_),
        (model.predict_proba, model.classes_),
        (model.predict, None),
        (model.predict_proba(x), model.classes_),
        (tmp_path / "a.npy", model.classes_),
    ]
    labels = [label(x, teachers=[kind]).labels for kind in kinds]
    for own in labels:
        assert (own == model.predict(x)).all()


def test_table_reaches_estimators_by_column_names() -> None:
    columns = [f"c{index}" for index in range(X.shape[1])]
    table = pandas.DataFrame(X, columns=columns, index=[f"row {row}" for row in range(len(X))])
    x, y = PARTIES[0]
    model = DecisionTreeClassifier(random_state=0).fit(pandas.DataFrame(x, columns=columns)[columns[::-1]], y)
    result = label(table.assign(remark="text"), teachers=[model])
    assert (result.labels == model.predict(table[columns[::-1]])).all()
    assert result.ids[0] == "row 0"
    with pytest.raises(UserError, match="c3"):
        label(table.drop(columns="c3"), teachers=[model])


@pytest.mark.parametrize(
    ("teachers", "match"),
    [
        ([], "teachers"),
        ([(np.ones((len(X), 2)) / 2, ["a", "b"]), (np.ones((len(X), 2)) / 2, ["c", "d"])], "no class in common"),
        ([(np.full((len(X), 2), np.nan), ["a", "b"])], "NaN"),
        ([(np.ones((len(X), 3)) / 3, ["a", "b"])], "3 outputs"),
        ([np.ones((len(X), 3)) / 3], "class list"),
        ([(np.ones((4, 2)) / 2, ["a", "b"])], "4 rows"),
        ([(np.ones((len(X), 2)) / 2, ["a", "a"])], "twice"),
        ([Teacher(torch.nn.Linear(3, 2), ["a", "b"], "narrow")], "narrow"),
        ([Teacher("missing.onnx", ["a", "b"])], "missing.onnx"),
        ([object()], "object"),
    ],
)
def test_bad_teachers_are_one_sentence(teachers: list[Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        label(X.astype(np.float32), teachers=teachers)


def test_other_bad_arguments_are_one_sentence() -> None:
    teachers = estimators()
    for changes, match in (
        ({"clients": [(X, Y)]}, "clients"),
        ({"y_server": ["unknown"] * len(X)}, "unknown"),
        ({"classes": ["barolo"]}, "classes"),
        ({"student": "mpl"}, "student"),
        ({"features": X[:3]}, "features"),
        ({"learning_rate": 0.1}, "learning_rate"),
    ):
        with pytest.raises(UserError, match=match):
            label(X, teachers=teachers, **changes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="student"):
        label(X, PARTIES, student="mlp")


def test_files_are_never_unpickled(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "executed"), "w"))

    (tmp_path / "a.skops").write_bytes(pickle.dumps(Hostile()))
    np.save(tmp_path / "b.npy", np.array([Hostile()], dtype=object), allow_pickle=True)
    (tmp_path / "c.onnx").write_bytes(pickle.dumps(Hostile()))
    (tmp_path / "d.pkl").write_bytes(pickle.dumps(Hostile()))
    schema = {
        "__class__": "system", "__module__": "os", "__loader__": "FunctionNode", "__id__": 1,
        "content": {"module_path": "os", "function": "system"}, "protocol": 2, "_skops_version": "0.16",
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "e.skops", "w") as archive:
        archive.writestr("schema.json", json.dumps(schema))
    for file in ("a.skops", "b.npy", "c.onnx", "d.pkl", "e.skops"):
        with pytest.raises(UserError, match=file):
            label(X, teachers=[Teacher(tmp_path / file, ["a", "b"])])
    assert not (tmp_path / "executed").exists()


def test_tree_whose_nodes_point_outside_is_refused(tmp_path: Path) -> None:
    tree = DecisionTreeClassifier(random_state=0).fit(*PARTIES[0])
    skops.io.dump(tree, tmp_path / "sound.skops")
    assert len(label(X, teachers=[tmp_path / "sound.skops"]).labels) == len(X)
    state = tree.tree_.__getstate__()
    state["nodes"] = state["nodes"].copy()
    state["nodes"]["left_child"][0] = 10**6
    tree.tree_.__setstate__(state)
    skops.io.dump(tree, tmp_path / "broken.skops")
    with pytest.raises(UserError, match="broken"):
        label(X, teachers=[tmp_path / "broken.skops"])


@pytest.fixture(scope="module")
def parties() -> ModuleType:
    specification = importlib.util.spec_from_file_location("parties", EXAMPLE / "parties.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_example_of_three_parties_by_command(
    tmp_path: Path, parties: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    parties.main(str(tmp_path))
    words = ["--teacher", f"{tmp_path}/north.onnx", "--teacher", f"{tmp_path}/south.skops"]
    west = ["--teacher", f"{tmp_path}/west.npy=0,1,2,3,4,5,6,7,8,9"]
    assert main(["label", f"{tmp_path}/digits.npz", *words, *west, "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["accuracy"] > max(teacher["accuracy"] for teacher in summary["teachers"])
    assert summary["warnings"] == []
    assert str(tmp_path / "run" / "report.html") in capsys.readouterr().out
    assert (tmp_path / "run" / "predictions.csv").read_text().count("\n") == 1 + summary["samples_labelled"]
    assert main(["label", f"{tmp_path}/digits.npz", *words, "--teacher", "west.npy=0,1"]) == 2
    assert "west.npy" in capsys.readouterr().err


def test_command_reads_a_table_with_ids_and_labels(tmp_path: Path) -> None:
    columns = [f"c{index}" for index in range(X.shape[1])]
    table = pandas.DataFrame(X, columns=columns).assign(id=[f"b{row}" for row in range(len(X))], wine=Y)
    table.to_csv(tmp_path / "wine.csv", index=False)
    np.save(tmp_path / "p.npy", np.tile([0.2, 0.3, 0.5], (len(X), 1)))
    words = ["label", str(tmp_path / "wine.csv"), "--teacher", f"{tmp_path}/p.npy={','.join(NAMES)}"]
    assert main([*words, "--label-column", "wine", "--out", str(tmp_path / "run")]) == 0
    predictions = pandas.read_csv(tmp_path / "run" / "predictions.csv")
    assert set(predictions.class_name) == {NAMES[2]}
    assert predictions.id[1] == "b1"
    assert main([*words, "--label-column", "other", "--out", str(tmp_path / "two")]) == 2
