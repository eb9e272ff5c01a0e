import torch

from mrtf_fedml.models import MLPNet


def test_mlp_number_of_parameters_at_28_x_28():
    # 784*1024+1024 = 803,840; 1024*1024+1024 = 1,049,600; 1024*128+128 = 131,200; 128*10+10 = 1,290
    model = MLPNet((1, 28, 28), classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_985_930


def test_mlp_accepts_any_input_shape():
    for shape in [(1, 28, 28), (8, 8), (13,)]:
        assert MLPNet(shape, classes=5, feature_size=2)(torch.randn(3, *shape)).shape == (3, 5)


def test_mlp_forward_equals_three_hidden_layers_with_relu():
    model = MLPNet((2, 3), classes=4, feature_size=7)
    inputs = torch.randn(5, 2, 3)
    hidden = inputs.reshape(5, 6)
    weights = list(model.parameters())
    for weight, bias in zip(weights[0:6:2], weights[1:6:2], strict=True):
        hidden = (hidden @ weight.T + bias).clamp(min=0)
    assert hidden.shape == (5, 7)
    torch.testing.assert_close(model(inputs), hidden @ weights[6].T + weights[7])
