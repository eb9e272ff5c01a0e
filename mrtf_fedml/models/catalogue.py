"""The models by the names that `model_args.model` knows them by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from ..errors import UserError, nearest
from ..randomness import forked
from ..settings import ModelSettings
from .nets.charlstm import CharLSTM
from .nets.convnet import ConvNet
from .nets.fecnn import FeCNN
from .nets.lenet import LeNet
from .nets.mlp import MLPNet
from .nets.resnet import ResNet
from .nets.vgg8 import VGG8

#: Makes a classifier from the settings, the shape of one sample and the number of classes.
Builder = Callable[[ModelSettings, tuple[int, ...], int], nn.Module]


#: name -> builder. A new model is one more entry.
MODELS: dict[str, Builder] = {
    "mlp": lambda settings, shape, classes: MLPNet(shape, classes, settings.feature_size, settings.hidden_size),
    "lenet": lambda settings, shape, classes: LeNet(shape, classes),
    "convnet": lambda settings, shape, classes: ConvNet(shape, classes),
    "vgg8": lambda settings, shape, classes: VGG8(shape, classes),
    "resnet8": lambda settings, shape, classes: ResNet(shape, classes, blocks=1),
    "resnet20": lambda settings, shape, classes: ResNet(shape, classes, blocks=3),
    "fecnn": lambda settings, shape, classes: FeCNN(shape, classes),
    # The next character is one of those that the text is made of, so C is the vocabulary unless it is given.
    "charlstm": lambda settings, shape, classes: CharLSTM(shape, classes, settings.vocabulary or classes),
}


def create_model(settings: ModelSettings, input_shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """The classifier that `settings` name, its initial weights drawn from `seed` alone.

    Args:
        settings: `model_args`.
        input_shape: shape of one sample; images are channels, height, width.
        classes: C, the number of logits.
        seed: the run's seed. The same seed gives the same weights; global random state is left as it was.

    >>> model = create_model(ModelSettings(model="lenet"), (1, 28, 28), classes=10, seed=0)
    >>> sum(parameter.numel() for parameter in model.parameters())
    61706
    """
    builder = MODELS.get(settings.model)
    if builder is None:
        raise UserError(f"model_args.model {settings.model!r} is unknown; {nearest(settings.model, list(MODELS))}")
    if classes < 2:
        raise UserError(f"a classifier needs at least two classes, but the training labels hold {classes}")
    shape = tuple(int(size) for size in input_shape)
    if any(size < 1 for size in shape):
        raise UserError(f"a sample of shape {shape} holds nothing; check the data's arrays")
    with forked(seed, "initial weights"):
        return builder(settings, shape, classes)
