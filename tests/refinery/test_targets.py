"""Sect. 4.4, steps (2) to (4): the targets as a whole, against the oracle and by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.algorithms.mrtf import distillation_targets
from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.refinery.distillation import distill
from mrtf_fedml.refinery.targets import sharpen_targets

from . import oracle
from .cases import SWITCHES, TOLERANCE, complete_case, every_dtype, random_case, random_numbers, targets_of

AVG_LOGIT = {
    "teacher": "avg_logit",
    "teacher_weighting": "uniform",
    "self_teaching": False,
    "cluster_refinery": False,
}
STABILISED = {**AVG_LOGIT, "teacher": "avg_prob"}
RECTIFIED = {**STABILISED, "teacher_weighting": "entropy", "self_teaching": True}
COMPLETE = {**RECTIFIED, "cluster_refinery": True}


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: torch.Tensor, expected: object, tolerance: float = 1e-10, where: object = "") -> None:
    given, wanted = actual.double().numpy(), np.asarray(expected)
    np.testing.assert_allclose(given, wanted, rtol=0, atol=tolerance, err_msg=str(where))


@every_dtype
def test_agrees_with_the_oracle(dtype: torch.dtype) -> None:
    for seed, switches in enumerate(SWITCHES):
        rng = np.random.default_rng(seed)
        for _ in range(12):
            case = random_case(rng, dtype)
            chosen = {**switches, **random_numbers(rng)}
            expected = case.expected(chosen)
            actual = targets_of(case, **chosen)
            close(actual.ensemble, expected.ensemble, TOLERANCE[dtype], chosen)
            close(actual.targets, expected.targets, TOLERANCE[dtype], chosen)
            assert actual.local_weight == pytest.approx(expected.local_weight, abs=1e-12), chosen
            assert isinstance(actual.local_weight, float), chosen
            assert actual.targets.dtype == actual.ensemble.dtype == dtype, chosen


@pytest.mark.parametrize("weighted", [True, False])
def test_targets_equal_the_papers_example_of_negative_transfer(weighted: bool) -> None:
    # Sect. 4.2: C = 4, S = {1, 2}. Logits 1, 1, -1, -1 have std 1; at tau = 50, sigma(50 * [1, 1, -1, -1]) is
    # [.5, .5, 0, 0] but for e^-100. Both entropies are log 2, so entropy weights are uniform here too.
    logits = tensor([[[1.0, 1.0, -1.0, -1.0]], [[1.0, -1.0, 1.0, -1.0]]])
    settings = {"temperature": 50, "teacher_weighting": "entropy" if weighted else "uniform"}
    close(distillation_targets(settings, logits, None, None, 1.0).targets, [[0.5, 0.25, 0.25, 0.0]])


def test_entropy_weighting_by_hand_from_the_logits() -> None:
    # Client 1: sigma(400 * [1, -1]) is [1, 0]. Client 2 is constant: [1/2, 1/2]. Weights [2/3, 1/3] as in
    # test_rectify, hence [5/6, 1/6]; without them the mean [3/4, 1/4].
    logits = tensor([[[1.0, -1.0]], [[3.0, 3.0]]])
    weighted = distillation_targets({"temperature": 400}, logits, None, None, 0.0)
    close(weighted.targets, [[5 / 6, 1 / 6]])
    plain = distillation_targets({"temperature": 400, "teacher_weighting": "uniform"}, logits, None, None, 0.0)
    close(plain.targets, [[3 / 4, 1 / 4]])


def test_avg_logit_by_hand() -> None:
    # Logits [2, 0] and [0, 1]: mean [1, 1/2], a plain softmax of it: 1 / (1 + e^(-1/2)).
    logits = tensor([[[2.0, 0.0]], [[0.0, 1.0]]])
    sure = 1 / (1 + math.exp(-0.5))
    close(
        distillation_targets(AVG_LOGIT, logits, None, None, 1.0).targets,
        [[sure, 1 - sure]],
    )


def test_avg_logit_with_entropy_weights_by_hand() -> None:
    # Weights [2/3, 1/3] from the Eq. 6 probabilities as above; they weigh the raw logits:
    # 2/3 [1, -1] + 1/3 [3, 3] = [5/3, 1/3], whose difference is 4/3.
    logits = tensor([[[1.0, -1.0]], [[3.0, 3.0]]])
    settings = {"teacher": "avg_logit", "temperature": 400}
    sure = 1 / (1 + math.exp(-4 / 3))
    close(distillation_targets(settings, logits, None, None, 1.0).targets, [[sure, 1 - sure]])


@pytest.mark.parametrize("teacher", ["avg_prob", "avg_logit"])
def test_globals_enter_as_equation_6_probabilities(teacher: str) -> None:
    # The local model is constant: [1/2, 1/2] under either teacher. Both globals say [1, 0] up to e^-800.
    # At loss 0, u = 1/4: 1/4 [1/2, 1/2] + 3/8 ([1, 0] + [1, 0]) = [7/8, 1/8].
    settings = {"teacher": teacher, "temperature": 400}
    local, sure = tensor([[[5.0, 5.0]]]), [[0.1, -0.1]]
    agreeing = distillation_targets(settings, local, tensor([sure, sure]), None, 0.0)
    close(agreeing.targets, [[7 / 8, 1 / 8]])
    assert agreeing.local_weight == 0.25
    opposed = distillation_targets(settings, local, tensor([sure, [[-9.0, 9.0]]]), None, 0.0)
    close(opposed.targets, [[1 / 2, 1 / 2]])


OTHER = {True: False, False: True, "avg_prob": "avg_logit", "avg_logit": "avg_prob"}
OTHER |= {"entropy": "uniform", "uniform": "entropy"}


@pytest.mark.parametrize("switch", ["teacher", "teacher_weighting", "self_teaching", "cluster_refinery"])
def test_switch_changes_only_its_own_part(switch: str) -> None:
    case = complete_case(seed=21)
    for switches in SWITCHES:
        other = OTHER[switches[switch]]
        turned = {**switches, switch: other}
        before, after = targets_of(case, **switches), targets_of(case, **turned)
        assert (before.targets - after.targets).abs().max() > 1e-3, switches
        assert torch.equal(before.ensemble, after.ensemble) == (switch == "cluster_refinery"), switches
        assert (before.local_weight == after.local_weight) == (switch != "self_teaching"), switches


def test_ablation_bars_equal_their_equations() -> None:
    # Each bar composed here from the equations that it has, without the oracle's own composition.
    case = complete_case(seed=22)
    logits, features = case.local_logits.numpy(), case.features.numpy()
    local = np.stack([oracle.normalised_probabilities(model, 4.0) for model in logits])
    taught = np.stack([oracle.normalised_probabilities(model, 4.0) for model in case.global_logits.numpy()])
    uniform = np.full(len(logits), 1 / len(logits))
    weighted = oracle.average_probabilities(local, oracle.confidence_weights(oracle.entropy(local)))
    rectified = oracle.self_taught(weighted, taught, 0.25 + 0.75 * 0.4)
    bars = [
        (AVG_LOGIT, oracle.average_logits(logits, uniform)),
        (STABILISED, oracle.average_probabilities(local, uniform)),
        (RECTIFIED, rectified),
        (COMPLETE, oracle.reassigned_probabilities(rectified, features, 4.0, 1)),
    ]
    results = [targets_of(case, **switches).targets for switches, _ in bars]
    for result, (_, expected) in zip(results, bars, strict=True):
        close(result, expected)
    for one, other in itertools.pairwise(results):
        assert (one - other).abs().max() > 1e-3
    assert MrTFSettings(**COMPLETE) == MrTFSettings()

    # PA, the bar before them: parameter averaging alone; the student stays what it was, whatever the targets.
    student = torch.nn.Linear(features.shape[1], logits.shape[2], dtype=torch.float64)
    before = [parameter.detach().clone() for parameter in student.parameters()]
    distill(student, case.features, results[-1], MrTFSettings(refine_steps=0), torch.Generator().manual_seed(0))
    for parameter, old in zip(student.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature"):
        targets_of(complete_case(seed=23), temprature=2)


@pytest.mark.parametrize("change", [{"global_logits": None}, {"self_teaching": False}])
def test_without_self_teaching_the_local_weight_is_one(change: dict[str, Any]) -> None:
    case = complete_case(seed=24)
    if "global_logits" in change:
        case.global_logits = None
        result = targets_of(case)
    else:
        result = targets_of(case, **change)
    assert result.local_weight == 1.0
    close(result.ensemble, case.expected({**COMPLETE, "self_teaching": False}).ensemble)


def test_without_features_there_is_no_clustering() -> None:
    case = complete_case(seed=25)
    clustered = targets_of(case)
    case.features = None
    result = targets_of(case)
    assert torch.equal(result.targets, result.ensemble)
    assert torch.equal(result.ensemble, clustered.ensemble)


def test_sharper_targets_by_hand() -> None:
    # No loss: p = 2. Squares of [.6, .3, .1] are [.36, .09, .01], which sum to .46.
    q = tensor([[0.6, 0.3, 0.1], [1.0, 0.0, 0.0]])
    close(sharpen_targets(q, 0.0, 2.0), [[0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46], [1.0, 0.0, 0.0]])
    # Half of log C: p = 1 + (4 - 1) / 2 = 2.5.
    powers = np.array([0.6, 0.3, 0.1]) ** 2.5
    close(sharpen_targets(q, math.log(3) / 2, 4.0)[0], powers / powers.sum())


def test_sharpen_targets_without_sharpness_or_with_high_loss_changes_nothing() -> None:
    q = tensor([[0.6, 0.3, 0.1]])
    assert torch.equal(sharpen_targets(q, 0.1, 1.0), q)
    close(sharpen_targets(q, math.log(3), 9.0), q)
    close(sharpen_targets(q, 100.0, 9.0), q)


def test_very_large_sharpness_gives_the_best_class_and_no_nan() -> None:
    q = torch.softmax(torch.randn(50, 100, generator=torch.Generator().manual_seed(0)), dim=1)
    sharp = sharpen_targets(q, 0.0, 1e6)
    assert torch.equal(sharp.argmax(dim=1), q.argmax(dim=1))
    close(sharp.sum(dim=1), np.ones(50), 1e-6)
