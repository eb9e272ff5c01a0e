from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torchvision import models as torchvision_models

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import ConvNet, FeatureExtractor, LeNet, MLPNet
from mrtf_fedml.models.feature_extraction import trace_calls
from mrtf_fedml.models.state_dict import load_weights, snapshot


class CharLSTM(nn.Module):
    """`output`: one per sample from the last state, one per sample cut from all, or one per position."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output
        self.embedding = nn.Embedding(11, 4)
        self.lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True)
        self.out = nn.Linear(6, 11)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(inputs))
        if self.output == "state":
            return self.out(states[:, -1])
        logits = self.out(states)
        return logits[:, -1] if self.output == "cut" else logits.transpose(1, 2)


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


def count_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def read_in_eval(model: nn.Module, inputs: torch.Tensor, layer: str | None = None):
    """The extractor and what it reads, having checked that the logits are the model's own and all is put back."""
    model.train()
    before, state = snapshot(model), torch.random.get_rng_state()
    extractor = FeatureExtractor(model, layer, inputs[:2])
    assert all(module.training for module in model.modules())
    model.eval()
    with torch.inference_mode():
        logits, features = extractor.extract(model, inputs)
        assert torch.equal(logits, model(inputs))
    assert count_hooks(model) == 0
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    assert features.shape[1] == extractor.size
    return extractor, features


def test_mlp_features_are_last_hidden_layer():
    model, inputs = MLPNet((1, 28, 28), 10), torch.randn(5, 1, 28, 28)
    extractor, features = read_in_eval(model, inputs)
    assert features.shape == (5, 128)
    assert torch.equal(features, model.hidden(inputs))
    assert extractor.description == "h(x) is the input of layer 'classifier', the last Linear, 128 numbers per sample"


@pytest.mark.parametrize(("kind", "size"), [(LeNet, 400), (ConvNet, 3136)])
def test_convolutional_features_are_flattened_maps(kind, size):
    model, inputs = kind((1, 28, 28), 10), torch.randn(5, 1, 28, 28)
    extractor, features = read_in_eval(model, inputs)
    assert features.shape == (5, size)
    assert torch.equal(features, model.convolutions(inputs))
    assert "layer 'head.0', the first Linear after the convolutions" in extractor.description


def test_resnet18_features_are_input_of_fc():
    model, inputs = torchvision_models.resnet18(num_classes=4), torch.randn(3, 3, 32, 32)
    extractor, features = read_in_eval(model, inputs)
    assert (extractor.layer, extractor.size) == ("fc", 512)
    trunk = nn.Sequential(*list(model.children())[:-1])
    torch.testing.assert_close(features, trunk(inputs).flatten(1))


def test_mobilenet_v3_features_are_input_of_first_head_linear():
    model, inputs = torchvision_models.mobilenet_v3_small(num_classes=4), torch.randn(3, 3, 32, 32)
    extractor, features = read_in_eval(model, inputs)
    assert (extractor.layer, extractor.size) == ("classifier.0", 576)
    torch.testing.assert_close(features, model.avgpool(model.features(inputs)).flatten(1))


def test_squeezenet_features_are_input_of_last_convolution():
    model, inputs = torchvision_models.squeezenet1_1(num_classes=4), torch.randn(3, 3, 64, 64)
    extractor, features = read_in_eval(model, inputs)
    assert extractor.layer == "classifier.1"
    assert "the last convolution" in extractor.description
    torch.testing.assert_close(features, model.features(inputs).flatten(1))


def test_vision_transformer_features_are_class_token():
    model = torchvision_models.VisionTransformer(
        image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=12, mlp_dim=20, num_classes=4
    )
    extractor, _ = read_in_eval(model, torch.randn(3, 3, 16, 16))
    assert (extractor.layer, extractor.size) == ("heads.head", 12)


def test_squeeze_and_excitation_linear_is_not_the_head():
    model, inputs = SqueezeExcite(), torch.randn(3, 1, 8, 8)
    extractor, features = read_in_eval(model, inputs)
    assert extractor.layer == "head"
    torch.testing.assert_close(features, model.maps(inputs).flatten(1))


@pytest.mark.parametrize("output", ["state", "cut"])
def test_recurrent_features_are_last_state(output):
    model, inputs = CharLSTM(output), torch.randint(11, (5, 7))
    _, features = read_in_eval(model, inputs)
    torch.testing.assert_close(features, model.lstm(model.embedding(inputs))[0][:, -1])


def test_recurrent_net_with_positions_has_one_row_per_position():
    model, inputs = CharLSTM("positions"), torch.randint(11, (5, 7))
    _, features = read_in_eval(model, inputs)
    assert features.shape == (35, 6)
    torch.testing.assert_close(features[2 * 7 + 3], model.lstm(model.embedding(inputs))[0][2, 3])


@pytest.mark.parametrize(("output", "rows"), [("state", 5), ("positions", 35)])
def test_named_recurrent_layer_gives_first_tensor_of_tuple(output, rows):
    model, inputs = CharLSTM(output), torch.randint(11, (5, 7))
    extractor, features = read_in_eval(model, inputs, layer="lstm")
    states = model.lstm(model.embedding(inputs))[0]
    expected = states[:, -1] if output == "state" else states.flatten(0, 1)
    assert features.shape == (rows, 6)
    torch.testing.assert_close(features, expected)
    assert "output of layer 'lstm', set by model_args.feature_layer" in extractor.description


def test_convolution_over_positions_has_one_row_per_position():
    model = nn.Sequential(nn.Conv1d(3, 6, 3, padding=1), nn.ReLU(inplace=True), nn.Conv1d(6, 4, 1))
    inputs = torch.randn(5, 3, 6)
    _, features = read_in_eval(model, inputs)
    hidden = model[:2](inputs)
    assert features.shape == (30, 6)
    torch.testing.assert_close(features[2 * 6 + 5], hidden[2, :, 5])


def test_named_layer_before_in_place_operation_is_copied():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    inputs = torch.randn(5, 4)
    _, features = read_in_eval(model, inputs, layer="0")
    assert (features < 0).any()
    torch.testing.assert_close(features, model[0](inputs))


def test_named_block_gives_its_output():
    model, inputs = LeNet((1, 8, 8), 3), torch.randn(2, 1, 8, 8)
    _, features = read_in_eval(model, inputs, layer="convolutions")
    torch.testing.assert_close(features, model.convolutions(inputs))


def test_single_linear_gives_its_input():
    inputs = torch.randn(5, 4)
    for model in (nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())):
        _, features = read_in_eval(model, inputs)
        assert torch.equal(features, inputs)
    assert "input of the model, the last Linear" in FeatureExtractor(nn.Linear(4, 3), None, inputs).description


def test_parametrised_linear_counts_as_linear():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), parametrizations.weight_norm(nn.Linear(6, 3)))
    inputs = torch.randn(5, 4)
    _, features = read_in_eval(model, inputs)
    torch.testing.assert_close(features, model[:2](inputs))


def test_constructor_does_not_change_batch_norm_and_dropout():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    inputs = torch.randn(5, 4)
    extractor, features = read_in_eval(model, inputs)
    with torch.no_grad():
        assert torch.equal(extractor.extract(model, inputs)[1], features)
        torch.testing.assert_close(extractor.extract(model, inputs[:1])[1], features[:1])


def test_extract_works_with_new_weights_and_another_model():
    model, inputs = MLPNet((4,), 3, feature_size=5), torch.randn(6, 4)
    extractor = FeatureExtractor(model, None, inputs[:1])
    twin = copy.deepcopy(model)
    load_weights(model, snapshot(MLPNet((4,), 3, feature_size=5)))
    assert torch.equal(extractor.extract(model, inputs)[1], model.hidden(inputs))
    assert torch.equal(extractor.extract(twin, inputs)[1], twin.hidden(inputs))
    assert not torch.equal(model.hidden(inputs), twin.hidden(inputs))


def test_features_carry_gradients_in_training():
    model, inputs = MLPNet((4,), 3, feature_size=5), torch.randn(6, 4)
    _, features = FeatureExtractor(model, None, inputs).extract(model, inputs)
    features.square().sum().backward()
    assert model.hidden[1].weight.grad.abs().sum() > 0
    assert model.classifier.weight.grad is None


def test_extract_keeps_no_reference():
    model, inputs = MLPNet((4,), 3), torch.randn(6, 4)
    extractor = FeatureExtractor(model, None, inputs)
    logits, features = extractor.extract(model, inputs)
    watched = [weakref.ref(tensor) for tensor in (logits, features, model)]
    del logits, features, model
    gc.collect()
    assert extractor.size == 128
    assert [reference() for reference in watched] == [None, None, None]


def test_extract_removes_hook_after_model_error():
    model = MLPNet((4,), 3)
    extractor = FeatureExtractor(model, None, torch.randn(2, 4))
    with pytest.raises(RuntimeError):
        extractor.extract(model, torch.randn(2, 5))
    assert count_hooks(model) == 0


def test_unknown_layer_suggests_nearest():
    with pytest.raises(UserError, match=r"feature_layer 'clasifier' is not a layer.*did you mean 'classifier'"):
        FeatureExtractor(MLPNet((4,), 3), "clasifier", torch.randn(2, 4))
    with pytest.raises(UserError, match="feature_layer '' is not a layer"):
        FeatureExtractor(MLPNet((4,), 3), "", torch.randn(2, 4))


def test_layer_that_is_never_called_is_rejected():
    model = LeNet((1, 8, 8), 3)
    model.spare = nn.Linear(1, 1)
    with pytest.raises(UserError, match="'spare' is never called"):
        FeatureExtractor(model, "spare", torch.randn(2, 1, 8, 8))


def test_model_without_linear_or_convolution_names_the_setting():
    with pytest.raises(UserError, match=r"set model_args\.feature_layer"):
        FeatureExtractor(nn.Sequential(nn.Flatten(), nn.ReLU()), None, torch.randn(2, 4))


def test_features_without_one_row_per_sample_name_the_setting():
    class TimeMajor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 4)
            self.out = nn.Linear(4, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.out(self.gru(inputs.transpose(0, 1))[0])[-1]

    with pytest.raises(UserError, match=r"model_args\.feature_layer"):
        FeatureExtractor(TimeMajor(), None, torch.randn(2, 7, 3))


class Restless(nn.Module):
    """Writes one buffer, replaces another, drops out by function, works in place, keeps a part frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4).eval()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("last", torch.tensor(0.0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = inputs.sum()
        return functional.dropout(self.norm(self.linear(input=inputs.relu_())), 0.5)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.linear(inputs)
        raise KeyError("after the first layer")


def test_trace_calls_records_order_and_shapes():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    calls, output = trace_calls(model, torch.zeros(5, 1, 4, 4))
    assert [(call.name, call.input_shape, call.output_shape) for call in calls] == [
        ("0", (5, 1, 4, 4), (5, 2, 2, 2)),
        ("1", (5, 2, 2, 2), (5, 8)),
        ("2", (5, 8), (5, 3)),
        ("", (5, 1, 4, 4), (5, 3)),
    ]
    assert [call.is_leaf for call in calls] == [True, True, True, False]
    assert output.shape == (5, 3)


def test_trace_calls_changes_no_state():
    model, example = Restless(), torch.randn(3, 4)
    last, kept, state = model.last, example.clone(), torch.random.get_rng_state()
    calls, _ = trace_calls(model, example)
    assert calls[0].input_shape == (3, 4)
    assert model.calls == 0
    assert model.last is last
    assert model.last == 0
    assert model.training
    assert not model.norm.training
    assert count_hooks(model) == 0
    assert torch.equal(example, kept)
    assert torch.equal(state, torch.random.get_rng_state())
    model(example).sum().backward()


def test_trace_calls_removes_hooks_after_model_error():
    model = Failing()
    with pytest.raises(KeyError):
        trace_calls(model, torch.zeros(2, 4))
    assert count_hooks(model) == 0
    assert model.training
