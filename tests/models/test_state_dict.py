from collections import OrderedDict

import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import state_dict


def a_state(value: float, counter: int) -> dict[str, torch.Tensor]:
    return {
        "weight": torch.tensor([[value, 2 * value]]),
        "scale": torch.tensor(value),
        "running_var": torch.tensor([value]),
        "num_batches_tracked": torch.tensor(counter),
    }


def copies(*states: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    return [{key: tensor.clone() for key, tensor in state.items()} for state in states]


def same(first, second) -> bool:
    return list(first) == list(second) and all(torch.equal(first[key], second[key]) for key in first)


def test_average_equals_manual_result():
    states = [a_state(1.0, 5), a_state(3.0, 9), a_state(8.0, 7)]
    kept = copies(*states)
    result = state_dict.average(states, [0.5, 0.25, 0.25])
    # 0.5*1 + 0.25*3 + 0.25*8 = 3.25
    assert same(result, a_state(3.25, 9))
    assert isinstance(result, OrderedDict)
    assert result["num_batches_tracked"].dtype == torch.int64
    assert all(same(state, copy) for state, copy in zip(states, kept, strict=True))


def test_average_of_one_model_is_an_exact_copy():
    state = {"w": torch.tensor([0.1, -0.0, 3e-39])}
    result = state_dict.average([state], [1.0])
    assert result["w"].numpy().tobytes() == state["w"].numpy().tobytes()
    result["w"].zero_()
    assert state["w"][0] == 0.1


def test_average_adds_half_precision_in_float32():
    # In float16 alone 2048 + 1 is 2048 again: the four ones would vanish one by one.
    states = [{"w": torch.tensor([value], dtype=torch.float16)} for value in (10240.0, 5.0, 5.0, 5.0, 5.0)]
    result = state_dict.average(states, [0.2] * 5)
    # (10240 + 20) / 5 = 2052, which float16 holds
    assert result["w"].dtype == torch.float16
    assert result["w"].item() == 2052.0


def test_average_keeps_float64():
    states = [{"w": torch.tensor([1 + 1e-12], dtype=torch.float64)}] * 2
    assert state_dict.average(states, [0.5, 0.5])["w"].item() == 1 + 1e-12


def test_average_takes_maximum_of_booleans_and_integers():
    states = [
        {"seen": torch.tensor([True, False]), "steps": torch.tensor([3, 1], dtype=torch.uint8)},
        {"seen": torch.tensor([False, False]), "steps": torch.tensor([2, 4], dtype=torch.uint8)},
    ]
    result = state_dict.average(states, [0.5, 0.5])
    assert torch.equal(result["seen"], torch.tensor([True, False]))
    assert torch.equal(result["steps"], torch.tensor([3, 4], dtype=torch.uint8))


def test_mix_equals_manual_result_and_its_ends():
    first, second = a_state(1.0, 5), a_state(3.0, 9)
    kept = copies(first, second)
    assert same(state_dict.mix(first, second, 0.25), a_state(2.5, 9))
    assert same(state_dict.mix(first, second, 1.0), a_state(1.0, 9))
    assert same(state_dict.mix(first, second, 0.0), a_state(3.0, 9))
    assert same(first, kept[0])
    assert same(second, kept[1])


def test_mix_with_share_zero_ignores_infinity():
    first, broken = {"w": torch.tensor([1.0])}, {"w": torch.tensor([float("inf")])}
    assert state_dict.mix(first, broken, 1.0)["w"].item() == 1.0
    assert state_dict.mix(broken, first, 0.0)["w"].item() == 1.0


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_mix_rejects_share_outside_range(share):
    with pytest.raises(ValueError, match="non-negative and sum to 1"):
        state_dict.mix(a_state(1.0, 0), a_state(2.0, 0), share)


@pytest.mark.parametrize("shares", [[0.5], [0.5, 0.6], [1.5, -0.5], []])
def test_average_rejects_wrong_shares(shares):
    with pytest.raises(ValueError, match="share"):
        state_dict.average([a_state(1.0, 0), a_state(2.0, 0)], shares)


def test_average_rejects_other_keys_and_shapes():
    state = {"w": torch.ones(2), "b": torch.ones(1)}
    with pytest.raises(UserError, match=r"model 1 of the average.*lacks b.*has the unknown c"):
        state_dict.average([state, {"w": torch.ones(2), "c": torch.ones(1)}], [0.5, 0.5])
    with pytest.raises(UserError, match=r"w \(1,\) instead of \(2,\)"):
        state_dict.average([state, {"w": torch.ones(1), "b": torch.ones(1)}], [0.5, 0.5])


def test_average_result_has_no_gradient_and_is_no_inference_tensor():
    with torch.inference_mode():
        made_in_inference = {"w": torch.ones(2)}
    result = state_dict.average([made_in_inference, {"w": nn.Parameter(torch.ones(2))}], [0.5, 0.5])
    assert not result["w"].requires_grad
    assert not result["w"].is_inference()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_is_finite_detects_nan_and_infinity(bad):
    assert state_dict.is_finite(a_state(1.0, 3))
    assert not state_dict.is_finite({**a_state(1.0, 3), "scale": torch.tensor(bad)})
    # Each is finite, though not their sum.
    assert state_dict.is_finite({"w": torch.full((4,), 3e38), "half": torch.full((9,), 6e4, dtype=torch.float16)})


def test_size_in_bytes_counts_all_entries():
    # 2 + 1 + 1 floats of four bytes and one integer of eight
    assert state_dict.size_in_bytes(a_state(1.0, 0)) == 24
    assert state_dict.size_in_bytes({"h": torch.zeros(3, dtype=torch.float16)}) == 6


def test_clone_shares_no_memory():
    state = a_state(1.0, 2)
    result = state_dict.clone(state)
    assert same(result, state)
    result["weight"].zero_()
    assert state["weight"][0, 1] == 2.0


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.decoder = nn.Linear(3, 5, bias=False)
        self.decoder.weight = self.embedding.weight


def test_tied_weights_can_be_averaged_and_loaded():
    first, second, target = Tied(), Tied(), Tied()
    mean = (first.embedding.weight + second.embedding.weight).detach() / 2
    state_dict.load_weights(target, state_dict.average([first.state_dict(), second.state_dict()], [0.5, 0.5]))
    assert target.decoder.weight is target.embedding.weight
    torch.testing.assert_close(target.embedding.weight.detach(), mean)


def test_snapshot_and_load_weights_round_trip():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model(torch.randn(4, 3))
    taken = state_dict.snapshot(model)
    parameter = model[0].weight
    model(torch.randn(4, 3))
    with torch.no_grad():
        parameter.zero_()
    assert not same(taken, model.state_dict())
    state_dict.load_weights(model, taken)
    assert same(taken, model.state_dict())
    assert model[0].weight is parameter
    assert not any(tensor.requires_grad for tensor in taken.values())
    with torch.no_grad():
        parameter.zero_()
    assert taken["0.weight"].abs().sum() > 0


def test_load_weights_rejects_other_keys_and_keeps_the_model():
    model = nn.Linear(3, 2)
    before = state_dict.snapshot(model)
    with pytest.raises(UserError, match="lacks bias"):
        state_dict.load_weights(model, {"weight": torch.zeros(2, 3)})
    with pytest.raises(UserError, match="unknown extra"):
        state_dict.load_weights(model, {**before, "extra": torch.zeros(1)})
    with pytest.raises(UserError, match=r"weight \(3, 3\) instead of \(2, 3\)"):
        state_dict.load_weights(model, {"weight": torch.zeros(3, 3), "bias": torch.zeros(2)})
    assert same(before, model.state_dict())


def test_check_state_dict_counts_many_differences():
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(4)))
    with pytest.raises(UserError, match="and 3 more"):
        state_dict.load_weights(model, {})


def test_mix_keeps_running_variances_non_negative():
    first, second = ({"v": torch.rand(100) * 1e-30} for _ in range(2))
    assert (state_dict.mix(first, second, 1 / 3)["v"] >= 0).all()
