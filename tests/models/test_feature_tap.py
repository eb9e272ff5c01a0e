import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torchvision import models as torchvision_models

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import (
    ConvNet,
    FeatureTap,
    LeNet,
    MLPNet,
)
from mrtf_fedml.models.weights import load, snapshot


class CharLSTM(nn.Module):
    """`answer`: one a sample from the last state, one a sample cut from all, or one a position."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer
        self.embedding = nn.Embedding(11, 4)
        self.lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True)
        self.out = nn.Linear(6, 11)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(inputs))
        if self.answer == "state":
            return self.out(states[:, -1])
        logits = self.out(states)
        return logits[:, -1] if self.answer == "cut" else logits.transpose(1, 2)


class SqueezeExcite(nn.Module):
    """Linears that weigh the maps after the last convolution, then the head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.squeeze = nn.Linear(4, 2)
        self.excite = nn.Linear(2, 4)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(16, 3)

    def maps(self, inputs: torch.Tensor) -> torch.Tensor:
        maps = self.conv(inputs)
        weights = self.excite(self.squeeze(maps.mean((2, 3))).relu()).sigmoid()
        return self.pool(maps * weights[:, :, None, None])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.maps(inputs).flatten(1))


def hooks_of(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def read_in_eval(model: nn.Module, inputs: torch.Tensor, layer: str | None = None):
    """The tap and what it reads, having checked that the logits are the model's own and all is put back."""
    model.train()
    before, state = snapshot(model), torch.random.get_rng_state()
    tap = FeatureTap(model, layer, inputs[:2])
    assert all(module.training for module in model.modules())
    model.eval()
    with torch.inference_mode():
        logits, features = tap.read(model, inputs)
        assert torch.equal(logits, model(inputs))
    assert hooks_of(model) == 0
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    assert features.shape[1] == tap.size
    return tap, features


def test_mlp_gives_its_last_hidden_layer():
    model, inputs = MLPNet((1, 28, 28), 10), torch.randn(5, 1, 28, 28)
    tap, features = read_in_eval(model, inputs)
    assert features.shape == (5, 128)
    assert torch.equal(features, model.hidden(inputs))
    assert tap.description == "h(x) is the input of layer 'classifier', the last Linear, 128 numbers per sample"


@pytest.mark.parametrize(("kind", "size"), [(LeNet, 400), (ConvNet, 3136)])
def test_convolutional_nets_give_their_flattened_maps(kind, size):
    model, inputs = kind((1, 28, 28), 10), torch.randn(5, 1, 28, 28)
    tap, features = read_in_eval(model, inputs)
    assert features.shape == (5, size)
    assert torch.equal(features, model.convolutions(inputs))
    assert "layer 'head.0', the first Linear after the convolutions" in tap.description


def test_resnet18():
    model, inputs = torchvision_models.resnet18(num_classes=4), torch.randn(3, 3, 32, 32)
    tap, features = read_in_eval(model, inputs)
    assert (tap.layer, tap.size) == ("fc", 512)
    trunk = nn.Sequential(*list(model.children())[:-1])
    torch.testing.assert_close(features, trunk(inputs).flatten(1))


def test_mobilenet_v3_small():
    model, inputs = torchvision_models.mobilenet_v3_small(num_classes=4), torch.randn(3, 3, 32, 32)
    tap, features = read_in_eval(model, inputs)
    assert (tap.layer, tap.size) == ("classifier.0", 576)
    torch.testing.assert_close(features, model.avgpool(model.features(inputs)).flatten(1))


def test_squeezenet_ends_in_a_convolution():
    model, inputs = torchvision_models.squeezenet1_1(num_classes=4), torch.randn(3, 3, 64, 64)
    tap, features = read_in_eval(model, inputs)
    assert tap.layer == "classifier.1"
    assert "the last convolution" in tap.description
    torch.testing.assert_close(features, model.features(inputs).flatten(1))


def test_vision_transformer_gives_its_class_token():
    model = torchvision_models.VisionTransformer(
        image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=12, mlp_dim=20, num_classes=4
    )
    tap, _ = read_in_eval(model, torch.randn(3, 3, 16, 16))
    assert (tap.layer, tap.size) == ("heads.head", 12)


def test_squeeze_and_excitation_is_no_head():
    model, inputs = SqueezeExcite(), torch.randn(3, 1, 8, 8)
    tap, features = read_in_eval(model, inputs)
    assert tap.layer == "head"
    torch.testing.assert_close(features, model.maps(inputs).flatten(1))


@pytest.mark.parametrize("answer", ["state", "cut"])
def test_recurrent_net_gives_its_last_state(answer):
    model, inputs = CharLSTM(answer), torch.randint(11, (5, 7))
    _, features = read_in_eval(model, inputs)
    torch.testing.assert_close(features, model.lstm(model.embedding(inputs))[0][:, -1])


def test_recurrent_net_that_answers_at_every_position():
    model, inputs = CharLSTM("positions"), torch.randint(11, (5, 7))
    _, features = read_in_eval(model, inputs)
    assert features.shape == (35, 6)
    torch.testing.assert_close(features[2 * 7 + 3], model.lstm(model.embedding(inputs))[0][2, 3])


@pytest.mark.parametrize(("answer", "rows"), [("state", 5), ("positions", 35)])
def test_named_recurrent_layer_gives_the_first_of_its_tuple(answer, rows):
    model, inputs = CharLSTM(answer), torch.randint(11, (5, 7))
    tap, features = read_in_eval(model, inputs, layer="lstm")
    states = model.lstm(model.embedding(inputs))[0]
    expected = states[:, -1] if answer == "state" else states.flatten(0, 1)
    assert features.shape == (rows, 6)
    torch.testing.assert_close(features, expected)
    assert "output of layer 'lstm', named by model_args.feature_layer" in tap.description


def test_convolution_over_positions():
    model = nn.Sequential(nn.Conv1d(3, 6, 3, padding=1), nn.ReLU(inplace=True), nn.Conv1d(6, 4, 1))
    inputs = torch.randn(5, 3, 6)
    _, features = read_in_eval(model, inputs)
    hidden = model[:2](inputs)
    assert features.shape == (30, 6)
    torch.testing.assert_close(features[2 * 6 + 5], hidden[2, :, 5])


def test_named_layer_before_work_in_place():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    inputs = torch.randn(5, 4)
    _, features = read_in_eval(model, inputs, layer="0")
    assert (features < 0).any()
    torch.testing.assert_close(features, model[0](inputs))


def test_named_block():
    model, inputs = LeNet((1, 8, 8), 3), torch.randn(2, 1, 8, 8)
    _, features = read_in_eval(model, inputs, layer="convolutions")
    torch.testing.assert_close(features, model.convolutions(inputs))


def test_one_linear_gives_its_input():
    inputs = torch.randn(5, 4)
    for model in (nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())):
        _, features = read_in_eval(model, inputs)
        assert torch.equal(features, inputs)
    assert "input of the model, the last Linear" in FeatureTap(nn.Linear(4, 3), None, inputs).description


def test_parametrised_linear_is_a_linear():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), parametrizations.weight_norm(nn.Linear(6, 3)))
    inputs = torch.randn(5, 4)
    _, features = read_in_eval(model, inputs)
    torch.testing.assert_close(features, model[:2](inputs))


def test_batch_norm_and_dropout_do_not_stir_the_features():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    inputs = torch.randn(5, 4)
    tap, features = read_in_eval(model, inputs)
    with torch.no_grad():
        assert torch.equal(tap.read(model, inputs)[1], features)
        torch.testing.assert_close(tap.read(model, inputs[:1])[1], features[:1])


def test_reads_on_after_new_weights_and_from_a_twin():
    model, inputs = MLPNet((4,), 3, feature_size=5), torch.randn(6, 4)
    tap = FeatureTap(model, None, inputs[:1])
    twin = copy.deepcopy(model)
    load(model, snapshot(MLPNet((4,), 3, feature_size=5)))
    assert torch.equal(tap.read(model, inputs)[1], model.hidden(inputs))
    assert torch.equal(tap.read(twin, inputs)[1], twin.hidden(inputs))
    assert not torch.equal(model.hidden(inputs), twin.hidden(inputs))


def test_features_carry_gradients_in_training():
    model, inputs = MLPNet((4,), 3, feature_size=5), torch.randn(6, 4)
    _, features = FeatureTap(model, None, inputs).read(model, inputs)
    features.square().sum().backward()
    assert model.hidden[1].weight.grad.abs().sum() > 0
    assert model.classifier.weight.grad is None


def test_nothing_is_held_after_a_read():
    model, inputs = MLPNet((4,), 3), torch.randn(6, 4)
    tap = FeatureTap(model, None, inputs)
    logits, features = tap.read(model, inputs)
    watched = [weakref.ref(tensor) for tensor in (logits, features, model)]
    del logits, features, model
    gc.collect()
    assert tap.size == 128
    assert [reference() for reference in watched] == [None, None, None]


def test_an_error_in_the_model_leaves_no_hook():
    model = MLPNet((4,), 3)
    tap = FeatureTap(model, None, torch.randn(2, 4))
    with pytest.raises(RuntimeError):
        tap.read(model, torch.randn(2, 5))
    assert hooks_of(model) == 0


def test_unknown_layer_names_the_nearest():
    with pytest.raises(UserError, match=r"feature_layer 'clasifier' is no layer.*did you mean 'classifier'"):
        FeatureTap(MLPNet((4,), 3), "clasifier", torch.randn(2, 4))
    with pytest.raises(UserError, match="feature_layer '' is no layer"):
        FeatureTap(MLPNet((4,), 3), "", torch.randn(2, 4))


def test_layer_that_never_runs_is_refused():
    model = LeNet((1, 8, 8), 3)
    model.spare = nn.Linear(1, 1)
    with pytest.raises(UserError, match="'spare' is never called"):
        FeatureTap(model, "spare", torch.randn(2, 1, 8, 8))


def test_nothing_to_find_names_the_setting():
    with pytest.raises(UserError, match=r"set model_args\.feature_layer"):
        FeatureTap(nn.Sequential(nn.Flatten(), nn.ReLU()), None, torch.randn(2, 4))


def test_features_without_a_row_a_sample_name_the_setting():
    class TimeMajor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 4)
            self.out = nn.Linear(4, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.out(self.gru(inputs.transpose(0, 1))[0])[-1]

    with pytest.raises(UserError, match=r"model_args\.feature_layer"):
        FeatureTap(TimeMajor(), None, torch.randn(2, 7, 3))
