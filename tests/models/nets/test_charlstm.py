import pytest
import torch

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import CharLSTM, FeatureExtractor, create_model
from mrtf_fedml.models.checks import infer_vocabulary_size


def test_charlstm_number_of_parameters():
    """Four gates a layer; PyTorch keeps two biases a gate."""
    embedding = 80 * 8
    first = 4 * (8 * 256 + 256 * 256 + 2 * 256)
    second = 4 * (256 * 256 + 256 * 256 + 2 * 256)
    out = 256 * 80 + 80
    model = CharLSTM((20,), 80, vocabulary=80)
    assert sum(p.numel() for p in model.parameters()) == embedding + first + second + out == 819_920


def test_charlstm_features_are_last_lstm_output():
    model, inputs = CharLSTM((7,), 5, vocabulary=11), torch.randint(11, (3, 7))
    extractor = FeatureExtractor(model, None, inputs[:2])
    with torch.no_grad():
        logits, features = extractor.extract(model, inputs)
        assert torch.equal(features, model.lstm(model.embedding(inputs))[0][:, -1])
        assert torch.equal(model(inputs.float()), logits), "indices that were stored as floats"
    assert (extractor.layer, logits.shape, features.shape) == ("classifier", (3, 5), (3, 256))


def test_charlstm_vocabulary_defaults_to_classes():
    assert create_model(ModelSettings(model="charlstm"), (7,), 5, seed=0).embedding.num_embeddings == 5
    settings = ModelSettings(model="charlstm", vocabulary=9)
    assert create_model(settings, (7,), 5, seed=0).embedding.num_embeddings == 9


def test_charlstm_rejects_images():
    with pytest.raises(UserError, match="'charlstm' needs sequences of character indices"):
        CharLSTM((1, 8), 5, vocabulary=5)


@pytest.mark.parametrize(
    ("inputs", "size"),
    [
        ([torch.tensor([[0, 4]]), None], 5),
        ([torch.tensor([[0, 4]]), torch.tensor([[6.0, 1.0]])], 7),
        ([torch.tensor([[0.5, 4.0]])], None),
        ([torch.tensor([[-1, 4]])], None),
        ([torch.zeros(1, 2, 3)], None),
        ([None], None),
    ],
)
def test_infer_vocabulary_size_of_indices_and_other_inputs(inputs, size):
    assert infer_vocabulary_size(*inputs) == size
