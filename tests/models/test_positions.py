import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models.positions import (
    check_logits,
    ids_of_rows,
    positions_of,
    rows_of_features,
    rows_of_logits,
)

SAMPLES, CLASSES, POSITIONS, FEATURES = 2, 4, 3, 5


def test_logits_of_positions_run_over_samples_first():
    logits = torch.randn(SAMPLES, CLASSES, POSITIONS)
    rows = rows_of_logits(logits, SAMPLES)
    assert rows.shape == (SAMPLES * POSITIONS, CLASSES)
    for n in range(SAMPLES):
        for t in range(POSITIONS):
            assert torch.equal(rows[n * POSITIONS + t], logits[n, :, t])


@pytest.mark.parametrize("channels_first", [False, True])
def test_features_of_positions_stand_beside_their_logits(channels_first):
    features = torch.randn(SAMPLES, POSITIONS, FEATURES)
    laid_out = features.transpose(1, 2) if channels_first else features
    rows = rows_of_features(laid_out, torch.empty(SAMPLES, CLASSES, POSITIONS), True, channels_first)
    assert torch.equal(rows[1 * POSITIONS + 2], features[1, 2])
    assert torch.equal(rows[0 * POSITIONS + 1], features[0, 1])


def test_a_square_of_positions_is_read_by_the_layers_kind():
    square, logits = torch.randn(1, 3, 3), torch.empty(1, 2, 3)
    assert torch.equal(rows_of_features(square, logits, True, channels_first=False), square[0])
    assert torch.equal(rows_of_features(square, logits, True, channels_first=True), square[0].T)


def test_features_with_a_row_a_position_already_are_kept():
    features = torch.randn(SAMPLES * POSITIONS, FEATURES)
    assert rows_of_features(features, torch.empty(SAMPLES, CLASSES, POSITIONS), True, False) is features


def test_one_answer_a_sample_takes_the_last_step_or_flattens():
    features, logits = torch.randn(SAMPLES, POSITIONS, FEATURES), torch.empty(SAMPLES, CLASSES)
    assert torch.equal(rows_of_features(features, logits, True, False), features[:, -1])
    assert torch.equal(rows_of_features(features, logits, False, False), features.flatten(1))


@pytest.mark.parametrize(
    ("features", "logits"), [((3, 5), (2, 4)), ((2, 5), (2, 4, 3)), ((2, 7, 5), (2, 4, 3)), ((), (2, 4))]
)
def test_features_without_a_row_a_sample_are_refused(features, logits):
    with pytest.raises(UserError, match=r"model_args\.feature_layer"):
        rows_of_features(torch.empty(features), torch.empty(logits), True, False)


@pytest.mark.parametrize("shape", [(2,), (2, 3, 4, 5), (3, 4)], ids=str)
def test_logits_of_another_shape_are_refused(shape):
    with pytest.raises(UserError, match=r"\[N, C\]"):
        check_logits(torch.empty(shape), samples=2)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(UserError, match="returned a tuple"):
        check_logits((torch.empty(2, 3), None), samples=2)


def test_rows_have_names_and_positions_a_number():
    assert positions_of(torch.zeros(2, 4)) is None
    assert positions_of(torch.zeros(2, 4, 3)) == 3
    assert ids_of_rows(["a.txt", "b.txt"], None) == ["a.txt", "b.txt"]
    assert ids_of_rows(["a.txt", "b.txt"], 1) == ["a.txt:0", "b.txt:0"]
    assert ids_of_rows(["a.txt", "b.txt"], 2) == ["a.txt:0", "a.txt:1", "b.txt:0", "b.txt:1"]
