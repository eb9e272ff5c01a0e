import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor, LeNet, predict_logits, predict_logits_and_features
from mrtf_fedml.models.state_dict import snapshot


class EveryPosition(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 6, batch_first=True)
        self.out = nn.Linear(6, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(inputs)[0]).transpose(1, 2)


def test_predict_logits_is_independent_of_batch_size():
    model, inputs = LeNet((1, 8, 8), 10), torch.randn(7, 1, 8, 8)
    expected = model(inputs).detach()
    for batch_size in (1, 3, 7, 1024):
        torch.testing.assert_close(predict_logits(model, inputs, batch_size), expected)


def test_predict_logits_and_features_gives_equal_logits():
    model, inputs = LeNet((1, 8, 8), 10), torch.randn(7, 1, 8, 8)
    extractor = FeatureExtractor(model, None, inputs[:2])
    logits, features = predict_logits_and_features(model, inputs, extractor, batch_size=3)
    torch.testing.assert_close(logits, model(inputs).detach())
    torch.testing.assert_close(features, model.convolutions(inputs).detach())


def test_predict_logits_gives_one_row_per_position():
    model, inputs = EveryPosition(), torch.randn(5, 7, 3)
    extractor = FeatureExtractor(model, None, inputs[:2])
    logits, features = predict_logits_and_features(model, inputs, extractor, batch_size=2)
    assert logits.shape == (35, 4)
    torch.testing.assert_close(logits, predict_logits(model, inputs))
    torch.testing.assert_close(logits[3 * 7 + 2], model(inputs)[3, :, 2].detach())
    torch.testing.assert_close(features[3 * 7 + 2], model.lstm(inputs)[0][3, 2].detach())


def test_predict_logits_uses_eval_mode_and_changes_no_state():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    inputs = torch.randn(6, 4)
    kept, before, state = inputs.clone(), snapshot(model), torch.random.get_rng_state()
    first, second = predict_logits(model, inputs, 4), predict_logits(model, inputs, 4)
    assert torch.equal(first, second)
    assert model.training
    assert torch.equal(inputs, kept)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("called_in_inference_mode", [False, True])
def test_predict_logits_result_can_be_saved_by_autograd(called_in_inference_mode):
    model, inputs = nn.Linear(4, 3), torch.randn(5, 4)
    with torch.inference_mode(called_in_inference_mode):
        targets = predict_logits(model, inputs)
    assert not targets.is_inference()
    assert not targets.requires_grad
    scale = torch.ones((), requires_grad=True)
    (scale * targets).sum().backward()
    torch.testing.assert_close(scale.grad, targets.sum())


def test_predict_logits_keeps_dtype_of_model():
    assert predict_logits(nn.Linear(4, 3).double(), torch.randn(5, 4).double()).dtype == torch.float64


def test_predict_logits_rejects_wrong_arguments():
    with pytest.raises(UserError, match="no inputs"):
        predict_logits(nn.Linear(4, 3), torch.empty(0, 4))
    with pytest.raises(UserError, match="batch size of predictions is -1"):
        predict_logits(nn.Linear(4, 3), torch.empty(2, 4), batch_size=-1)
    with pytest.raises(UserError, match=r"shape \(2, 5, 5, 3\)"):
        predict_logits(nn.Linear(4, 3), torch.empty(2, 5, 5, 4))


def test_default_batch_size_is_smaller_for_images():
    sizes = []
    for model, inputs in (
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), torch.randn(70, 1, 4, 4)),
        (nn.Linear(4, 3), torch.randn(70, 4)),
    ):
        model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
        predict_logits(model, inputs)
    assert sizes == [64, 6, 70]
