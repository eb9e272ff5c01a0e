"""FedML's zoo, models of the user's own and torchvision's: each by name, each through a round of MrTF."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedml.model.cv.cnn import CNN_DropOut
from fedml.model.cv.group_normalization import GroupNorm2d
from fedml.runner import FedMLRunner
from safetensors.torch import load_file
from torch import nn

import mrtf_fedml
from mrtf_fedml.config import ModelSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.fedml_bridge.model_zoo import ZOO, build_model, truncate_zoo_model
from mrtf_fedml.models import MODELS, FeatureExtractor, ResNet
from tests.conftest import write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments

from .small_federation import SERVER_SAMPLES, config, eight, metrics, one_round

SHAPES = {"numbers": (1, 4, 4), "grey 28": (1, 28, 28), "colour": (1, 32, 32), "colour 32": (1, 32, 32), "text": (9,)}

#: A hundred million weights each: made without memory below.
LARGE = [name for name in ZOO if name.startswith("vgg")]


def build(name: str, shape: tuple[int, ...], classes: int, **more: Any) -> nn.Module:
    return build_model(ModelSettings(model=name), shape, classes, seed=0, **more)


def example(name: str) -> torch.Tensor:
    inputs = ZOO[name].inputs
    if inputs == "text":
        return torch.randint(12, (2, *SHAPES[inputs]))
    return torch.randn(2, *SHAPES[inputs])


@pytest.mark.parametrize("name", [name for name in ZOO if name not in LARGE])
def test_zoo_model_builds_fits_and_has_features(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = example(name)
    vocabulary = 12 if ZOO[name].inputs == "text" else None
    state = torch.random.get_rng_state()
    model = build(f"fedml:{name}", inputs.shape[1:], 5, example=inputs, vocabulary=vocabulary)
    assert torch.equal(state, torch.random.get_rng_state())
    extractor = FeatureExtractor(model, None, inputs)
    logits, features = extractor.extract(model.eval(), inputs)
    rows = 2 * 9 if logits.dim() == 3 else 2
    assert logits.shape[:2] == (2, 5)
    assert features.shape == (rows, extractor.size)
    assert type(model).__module__.startswith("fedml.model.")
    assert not capsys.readouterr().out


@pytest.mark.parametrize("name", LARGE)
def test_large_zoo_model_builds(name: str) -> None:
    with torch.device("meta"):
        model = ZOO[name].make((3, 32, 32), 5, 5)
    assert model.classifier[6].out_features == 5
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert convolutions + 3 == int(name[3:5])
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == name.endswith("_bn")


def test_model_names_of_ours_win_and_prefix_selects_fedmls() -> None:
    assert isinstance(build("resnet20", (3, 8, 8), 5), ResNet)
    assert type(build("fedml:resnet20", (3, 8, 8), 5)).__module__ == "fedml.model.cv.resnet"
    assert set(MODELS) & set(ZOO) == {"resnet20"}


def test_zoo_model_gets_the_class_count() -> None:
    assert build("resnet56", (3, 8, 8), 7).fc.out_features == 7
    assert build("mobilenet", (3, 32, 32), 7).fc.out_features == 7
    assert build("cnn", (1, 28, 28), 10).linear_2.out_features == 10
    assert build("cnn", (1, 28, 28), 11).linear_2.out_features == 62
    assert build("rnn", (9,), 80).fc.out_features == 80
    lr = build("lr", (2, 3), 7)
    assert (lr.linear.in_features, lr.linear.out_features) == (6, 7)


def test_resnet18_gn_has_group_norm() -> None:
    model = build("resnet18_gn", (3, 32, 32), 5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    assert any(isinstance(module, GroupNorm2d) for module in model.modules())


def test_build_model_with_same_seed_gives_equal_weights() -> None:
    def weights(seed: int) -> torch.Tensor:
        return build_model(ModelSettings(model="cnn_web"), (3, 32, 32), 10, seed).fc3.weight

    first = weights(3)
    torch.rand(5)
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))


def test_vocabulary_comes_from_the_data_unless_set() -> None:
    assert build("charlstm", (9,), 2, vocabulary=12).embedding.num_embeddings == 12
    assert build("charlstm", (9,), 80, vocabulary=12).embedding.num_embeddings == 80
    given = ModelSettings(model="rnn", vocabulary=30)
    assert build_model(given, (9,), 5, 0, vocabulary=12).embeddings.num_embeddings == 30
    with pytest.raises(UserError, match=r"vocabulary is 30 .* raise it to 40"):
        build_model(given, (9,), 5, 0, vocabulary=40)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "sentence"),
    [
        ("restnet56", (3, 8, 8), 5, "'restnet56' is unknown; did you mean 'resnet56'"),
        ("xyz", (3, 8, 8), 5, "known: charlstm, cnn, .*package.module:Class"),
        ("fedml:xyz", (3, 8, 8), 5, "'fedml:xyz' is unknown"),
        ("cnn", (1, 8, 8), 5, "grey images of 28 x 28, but a sample here is 1 x 8 x 8"),
        ("cnn_web", (3, 28, 28), 5, "images of 32 x 32"),
        ("cnn_web", (3, 32, 32), 62, "gives 10 logits but the data have 62 classes"),
        ("mobilenet", (2, 32, 32), 5, r"images of 3 channels \(or 1\), but a sample here is 2 x 32 x 32"),
        ("mobilenet", (16,), 5, "images of channels x height x width"),
        ("resnet18_gn", (3, 64, 64), 5, "cannot take samples of shape 3 x 64 x 64"),
        ("rnn", (1, 8, 8), 5, "sequences of character indices"),
        ("rnn", (9,), 5, "characters as indices"),
        ("charlstm", (9,), 5, "characters as indices"),
    ],
)
def test_unfit_model_is_refused_with_one_sentence(
    name: str, shape: tuple[int, ...], classes: int, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        build(name, shape, classes, example=torch.randn(2, *shape))


@pytest.mark.parametrize(
    ("name", "shape", "vocabulary"),
    [
        ("lr", (1, 28, 28), None),
        ("cnn", (1, 28, 28), None),
        ("cnn_web", (3, 32, 32), None),
        ("rnn", (9,), 12),
        ("resnet56", (3, 16, 16), None),
        ("mobilenet", (1, 16, 16), None),
        ("mobilenet_v3", (3, 16, 16), None),
        ("resnet18_gn", (3, 32, 32), None),
        ("torchvision:resnet18", (1, 32, 32), None),
    ],
)
def test_mrtf_round_with_zoo_model_finishes(
    tmp_path: Path, name: str, shape: tuple[int, ...], vocabulary: int | None
) -> None:
    run_dir = one_round(tmp_path / "run", eight(shape, 5, vocabulary), model=name)
    assert np.load(run_dir / "probabilities.npy").shape == (SERVER_SAMPLES, 5)
    line = metrics(run_dir)
    assert not line["excluded_clients"]
    assert None not in [line[key] for key in ("acc", "acc_refined", "acc_targets", "local_weight")]
    weights = load_file(run_dir / "model.safetensors")
    assert set(weights) == set(build(name, shape, 5, vocabulary=vocabulary).state_dict())


def test_logistic_regression_sigmoid_is_used_as_logits() -> None:
    model, inputs = build("lr", (1, 4, 4), 3), torch.randn(2, 1, 4, 4)
    with torch.no_grad():
        assert torch.equal(model(inputs), model.linear(inputs.flatten(1)).sigmoid())


def test_users_model_class_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users_net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, in_features, num_classes, wrong=0):\n"
        "        last = nn.Linear(6, num_classes + wrong)\n"
        "        super().__init__(nn.Flatten(), nn.LazyLinear(6), nn.ReLU(), last)\n"
        "def too_wide(in_features, num_classes):\n"
        "    return Net(in_features, num_classes, wrong=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run_dir = one_round(tmp_path / "run", eight((1, 4, 4), 3), model="users_net:Net")
    assert load_file(run_dir / "model.safetensors")["1.weight"].shape == (6, 16)
    with pytest.raises(UserError, match="'users_net:too_wide' gives 4 logits but the data have 3 classes"):
        one_round(tmp_path / "wide", eight((1, 4, 4), 3), model="users_net:too_wide")
    assert not (tmp_path / "wide").exists(), "refused before anything was begun"


class TestAProjectsOwnModel:
    """Models that a FedML project made itself and hands to FedMLRunner."""

    def run(self, folder: Path, dataset: list[Any], model: nn.Module) -> Path:
        args = initialize(fedml_arguments(write_yaml(folder / "fedml_config.yaml", config(folder / "run"))))
        mrtf_fedml.register()
        try:
            FedMLRunner(args, torch.device("cpu"), dataset, model).run()
        finally:
            mrtf_fedml.unregister()
        return folder / "run"

    def test_surplus_outputs_of_a_zoo_model_are_left_out(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
            run_dir = self.run(tmp_path, eight((28, 28), 5), CNN_DropOut(only_digits=False))
        assert caplog.text.count("FedML's CNN_DropOut gives 62 logits but the data have 5 classes") == 1
        assert np.load(run_dir / "probabilities.npy").shape == (SERVER_SAMPLES, 5)
        assert load_file(run_dir / "model.safetensors")["linear_2.bias"].shape == (62,)

    def test_zoo_model_with_too_few_outputs_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"\(CNN_DropOut\) gives 10 logits but the data have 11 classes"):
            self.run(tmp_path, eight((28, 28), 11), CNN_DropOut(only_digits=True))

    @pytest.mark.parametrize("outputs", [4, 6])
    def test_user_model_with_other_number_of_outputs_is_refused(self, tmp_path: Path, outputs: int) -> None:
        with pytest.raises(UserError, match=rf"\(Linear\) gives {outputs} logits but the data have 5 classes"):
            self.run(tmp_path, eight((16,), 5), nn.Linear(16, outputs))
        assert not (tmp_path / "run").exists()

    def test_truncate_zoo_model_twice_adds_one_hook(self) -> None:
        model, dataset = CNN_DropOut(only_digits=False), eight((28, 28), 5)
        dataset[7] = np.int64(5)
        truncate_zoo_model(model, dataset)
        truncate_zoo_model(model, dataset)
        assert len(model._forward_hooks) == 1
        plain = nn.Linear(2, 2)
        truncate_zoo_model(plain, dataset)
        assert not plain._forward_hooks
