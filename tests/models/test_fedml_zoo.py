"""FeatureExtractor on FedML's own models."""

import importlib

import pytest
import torch
from torch import nn

from mrtf_fedml.models import FeatureExtractor, predict_logits_and_features, preferred_layout, to_layout
from mrtf_fedml.models.state_dict import snapshot


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Imports a module of FedML's zoo, in a home of its own: FedML looks for settings in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield lambda module: importlib.import_module(f"fedml.model.{module}")


def trunk_of(model: nn.Module, head: str, inputs: torch.Tensor) -> torch.Tensor:
    """The model's output without its head: an independent reference that needs no hooks."""
    removed = getattr(model, head)
    setattr(model, head, nn.Identity())
    with torch.no_grad():
        output = model.eval()(inputs)
    setattr(model, head, removed)
    return output


IMAGE = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
GREY = torch.rand(4, 28, 28, generator=torch.Generator().manual_seed(0))
TEXT = torch.randint(90, (4, 12), generator=torch.Generator().manual_seed(0))

CASES = {
    "resnet56": ("cv.resnet", lambda zoo: zoo.resnet56(class_num=10), IMAGE, "fc", 256),
    "resnet18_gn": (
        "cv.resnet_gn",
        lambda zoo: zoo.resnet18(num_classes=10, group_norm=32),
        IMAGE,
        "fc",
        512,
    ),
    "mobilenet": ("cv.mobilenet", lambda zoo: zoo.mobilenet(class_num=10), IMAGE, "fc", 1024),
    "rnn": ("nlp.rnn", lambda zoo: zoo.RNN_OriginalFedAvg(), TEXT, "fc", 256),
}


@pytest.mark.parametrize("name", CASES)
def test_extractor_finds_linear_head_of_fedml_net(zoo, name):
    module, build, inputs, head, size = CASES[name]
    model = build(zoo(module))
    before = snapshot(model)
    extractor = FeatureExtractor(model, None, inputs[:2])
    logits, features = predict_logits_and_features(model, inputs, extractor)
    assert model.training
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    assert (extractor.layer, extractor.size) == (head, size)
    # In the layout of the predictions, since another one changes the order of the sums.
    inputs = to_layout(inputs, preferred_layout(model))
    torch.testing.assert_close(features, trunk_of(model, head, inputs))
    with torch.no_grad():
        torch.testing.assert_close(logits, model.eval()(inputs))


def test_extractor_of_logistic_regression_gives_input(zoo):
    model, inputs = zoo("linear.lr").LogisticRegression(784, 10), GREY.flatten(1)
    _, features = FeatureExtractor(model, None, inputs[:2]).extract(model, inputs)
    assert torch.equal(features, inputs)


def test_extractor_of_cnn_gives_flattened_maps(zoo):
    model = zoo("cv.cnn").CNN_DropOut(only_digits=False)
    extractor = FeatureExtractor(model, None, GREY[:2])
    _, features = predict_logits_and_features(model, GREY, extractor)
    assert (extractor.layer, extractor.size) == ("linear_1", 9216)
    with torch.no_grad():
        maps = model.max_pooling(model.conv2d_2(model.conv2d_1(GREY[:, None]).relu()).relu())
    torch.testing.assert_close(features, maps.flatten(1))


def test_extractor_of_mobilenet_v3_skips_squeeze_linears(zoo):
    model = zoo("cv.mobilenet_v3").MobileNetV3(model_mode="LARGE", num_classes=10)
    extractor = FeatureExtractor(model, None, IMAGE[:2])
    assert extractor.layer == "out_conv2.3"
    assert extractor.size == model.out_conv2[3].in_channels


def test_extractor_of_next_character_model_gives_one_row_per_position(zoo):
    model = zoo("nlp.rnn").RNN_FedShakespeare()
    extractor = FeatureExtractor(model, None, TEXT[:2])
    logits, features = predict_logits_and_features(model, TEXT, extractor, batch_size=3)
    assert (logits.shape, features.shape) == ((48, 90), (48, 256))
    with torch.no_grad():
        states = model.lstm(model.embeddings(TEXT))[0]
        torch.testing.assert_close(features[2 * 12 + 5], states[2, 5])
        torch.testing.assert_close(logits[2 * 12 + 5], model.fc(states[2, 5]))
