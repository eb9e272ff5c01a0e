import pytest
import torch
from torch import nn
from torch.nn import functional

from mrtf_fedml.models.trace import trace


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


def hooks_of(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_calls_stand_in_order_with_their_shapes():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    calls, output = trace(model, torch.zeros(5, 1, 4, 4))
    assert [(call.name, call.input_shape, call.output_shape) for call in calls] == [
        ("0", (5, 1, 4, 4), (5, 2, 2, 2)),
        ("1", (5, 2, 2, 2), (5, 8)),
        ("2", (5, 8), (5, 3)),
        ("", (5, 1, 4, 4), (5, 3)),
    ]
    assert [call.innermost for call in calls] == [True, True, True, False]
    assert output.shape == (5, 3)


def test_the_world_is_left_as_it_was():
    model, example = Restless(), torch.randn(3, 4)
    last, kept, state = model.last, example.clone(), torch.random.get_rng_state()
    calls, _ = trace(model, example)
    assert calls[0].input_shape == (3, 4)
    assert model.calls == 0
    assert model.last is last
    assert model.last == 0
    assert model.training
    assert not model.norm.training
    assert hooks_of(model) == 0
    assert torch.equal(example, kept)
    assert torch.equal(state, torch.random.get_rng_state())
    model(example).sum().backward()


def test_an_error_in_the_model_leaves_no_hooks():
    model = Failing()
    with pytest.raises(KeyError):
        trace(model, torch.zeros(2, 4))
    assert hooks_of(model) == 0
    assert model.training
