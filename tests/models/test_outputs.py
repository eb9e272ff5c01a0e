import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models.outputs import check_logits, feature_rows, logit_rows, num_positions, row_ids

SAMPLES, CLASSES, POSITIONS, FEATURES = 2, 4, 3, 5


def test_logit_rows_order_samples_before_positions():
    logits = torch.randn(SAMPLES, CLASSES, POSITIONS)
    rows = logit_rows(logits, SAMPLES)
    assert rows.shape == (SAMPLES * POSITIONS, CLASSES)
    for n in range(SAMPLES):
        for t in range(POSITIONS):
            assert torch.equal(rows[n * POSITIONS + t], logits[n, :, t])


@pytest.mark.parametrize("channels_first", [False, True])
def test_feature_rows_match_logit_rows(channels_first):
    features = torch.randn(SAMPLES, POSITIONS, FEATURES)
    laid_out = features.transpose(1, 2) if channels_first else features
    rows = feature_rows(laid_out, torch.empty(SAMPLES, CLASSES, POSITIONS), True, channels_first)
    assert torch.equal(rows[1 * POSITIONS + 2], features[1, 2])
    assert torch.equal(rows[0 * POSITIONS + 1], features[0, 1])


def test_feature_rows_of_square_uses_channels_first():
    square, logits = torch.randn(1, 3, 3), torch.empty(1, 2, 3)
    assert torch.equal(feature_rows(square, logits, True, channels_first=False), square[0])
    assert torch.equal(feature_rows(square, logits, True, channels_first=True), square[0].T)


def test_feature_rows_keeps_one_row_per_position():
    features = torch.randn(SAMPLES * POSITIONS, FEATURES)
    assert feature_rows(features, torch.empty(SAMPLES, CLASSES, POSITIONS), True, False) is features


def test_feature_rows_takes_last_step_or_flattens():
    features, logits = torch.randn(SAMPLES, POSITIONS, FEATURES), torch.empty(SAMPLES, CLASSES)
    assert torch.equal(feature_rows(features, logits, True, False), features[:, -1])
    assert torch.equal(feature_rows(features, logits, False, False), features.flatten(1))


@pytest.mark.parametrize(
    ("features", "logits"), [((3, 5), (2, 4)), ((2, 5), (2, 4, 3)), ((2, 7, 5), (2, 4, 3)), ((), (2, 4))]
)
def test_feature_rows_rejects_features_without_one_row_per_sample(features, logits):
    with pytest.raises(UserError, match=r"model_args\.feature_layer"):
        feature_rows(torch.empty(features), torch.empty(logits), True, False)


@pytest.mark.parametrize("shape", [(2,), (2, 3, 4, 5), (3, 4)], ids=str)
def test_check_logits_rejects_other_shapes(shape):
    with pytest.raises(UserError, match=r"\[N, C\]"):
        check_logits(torch.empty(shape), samples=2)


def test_check_logits_rejects_tuple():
    with pytest.raises(UserError, match="returned a tuple"):
        check_logits((torch.empty(2, 3), None), samples=2)


def test_row_ids_with_and_without_positions():
    assert num_positions(torch.zeros(2, 4)) is None
    assert num_positions(torch.zeros(2, 4, 3)) == 3
    assert row_ids(["a.txt", "b.txt"], None) == ["a.txt", "b.txt"]
    assert row_ids(["a.txt", "b.txt"], 1) == ["a.txt:0", "b.txt:0"]
    assert row_ids(["a.txt", "b.txt"], 2) == ["a.txt:0", "a.txt:1", "b.txt:0", "b.txt:1"]
