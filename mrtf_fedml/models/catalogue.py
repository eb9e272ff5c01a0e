"""Models by name: the paper's nets, torchvision's classifiers, and the user's own classes."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ..config import ModelSettings
from ..config.user_code import import_object
from ..errors import UserError, suggest_name
from ..rng import fork_rng
from .checks import check_image_shape
from .forward_hooks import adapt_inputs, grey_to_rgb
from .nets.charlstm import CharLSTM
from .nets.convnet import ConvNet
from .nets.fecnn import FeCNN
from .nets.lenet import LeNet
from .nets.linear import LinearNet, RandomFeatureNet
from .nets.mlp import MLPNet
from .nets.resnet import ResNet
from .nets.vgg8 import VGG8

#: Builds a classifier from the settings, the shape of one sample and the number of classes.
Builder = Callable[[ModelSettings, tuple[int, ...], int], nn.Module]

#: Default width of hidden layers: the paper's, and that for tables. On four tables a width of 256 was 0.01 less
#: accurate on average after 15 rounds and sent a twelfth of the bytes (docs/guides/models.md).
_WIDTH, _TABLE_WIDTH = 1024, 256

#: name -> builder. A new model is one more entry.
MODELS: dict[str, Builder] = {
    "mlp": lambda settings, shape, classes: MLPNet(
        shape, classes, settings.feature_size, settings.hidden_size or (_TABLE_WIDTH if len(shape) == 1 else _WIDTH)
    ),
    "linear": lambda settings, shape, classes: LinearNet(shape, classes),
    "random_features": lambda settings, shape, classes: RandomFeatureNet(
        shape, classes, settings.hidden_size or _WIDTH
    ),
    "lenet": lambda settings, shape, classes: LeNet(shape, classes),
    "convnet": lambda settings, shape, classes: ConvNet(shape, classes),
    "vgg8": lambda settings, shape, classes: VGG8(shape, classes),
    "resnet8": lambda settings, shape, classes: ResNet(shape, classes, blocks=1),
    "resnet20": lambda settings, shape, classes: ResNet(shape, classes, blocks=3),
    "fecnn": lambda settings, shape, classes: FeCNN(shape, classes),
    # The classes are the next characters, so C is the size of the vocabulary unless it is set.
    "charlstm": lambda settings, shape, classes: CharLSTM(shape, classes, settings.vocabulary or classes),
}


def create_model(settings: ModelSettings, input_shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """The classifier that `settings` name, with initial weights drawn from `seed`.

    Args:
        settings: `model_args`.
        input_shape: shape of one sample; images are channels, height, width.
        classes: C, the number of logits.
        seed: the run's seed. The same seed gives the same weights; the global random state is unchanged.

    >>> model = create_model(ModelSettings(model="lenet"), (1, 28, 28), classes=10, seed=0)
    >>> sum(parameter.numel() for parameter in model.parameters())
    61706
    """
    builder = MODELS.get(settings.model)
    if builder is None:
        raise UserError(f"model_args.model {settings.model!r} is unknown; {suggest_name(settings.model, list(MODELS))}")
    if classes < 2:
        raise UserError(f"a classifier needs at least two classes, but the training labels have {classes}")
    shape = tuple(int(size) for size in input_shape)
    if any(size < 1 for size in shape):
        raise UserError(f"a sample of shape {shape} is empty; check the data's arrays")
    with fork_rng(seed, "initial weights"):
        return builder(settings, shape, classes)


TORCHVISION_PREFIX = "torchvision:"

#: In training these return a tuple unless their auxiliary head is disabled.
_WITH_AUXILIARY_HEAD = ("googlenet", "inception_v3")

_log = logging.getLogger(__name__)


def create_torchvision_model(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The torchvision model named after the prefix, untrained, with `classes` logits.

    The channel of grey images is repeated three times.
    """
    # Imported here, since it takes seconds and most runs do not use it.
    import torchvision.models

    known = torchvision.models.list_models(module=torchvision.models)
    model_name = name[len(TORCHVISION_PREFIX) :]
    if model_name not in known:
        raise UserError(f"model_args.model {name!r}: torchvision has no such model; {suggest_name(model_name, known)}")
    channels, _, _ = check_image_shape(name, input_shape, smallest_side=1)
    if channels not in (1, 3):
        raise UserError(f"model_args.model {name!r} needs images of 3 channels (or 1), but they have {channels} here")
    heads = {"aux_logits": False, "init_weights": True} if model_name in _WITH_AUXILIARY_HEAD else {}
    model: nn.Module = torchvision.models.get_model(model_name, weights=None, num_classes=classes, **heads)
    if channels == 1:
        _log.info("%s receives the grey channel three times, since it expects RGB images", name)
        adapt_inputs(model, grey_to_rgb)
    return model


#: Property of the data -> names of constructor parameters that receive it.
_PARAMETER_NAMES: dict[str, tuple[str, ...]] = {
    "classes": (
        "num_classes",
        "classes",
        "n_classes",
        "num_class",
        "class_num",
        "n_class",
        "nclasses",
        "output_dim",
        "output_size",
        "out_features",
    ),
    "shape": ("input_shape", "in_shape", "sample_shape"),
    "numbers": ("input_dim", "input_size", "in_features", "n_features", "num_features"),
    "channels": ("in_channels", "input_channels", "channels", "in_chans", "num_channels"),
    "vocabulary": ("vocab_size", "vocabulary", "vocabulary_size", "num_embeddings"),
}


def create_user_model(name: str, input_shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
    """The model made by `package.module:Class`, a class or a function that returns a model.

    It is called with one keyword argument for each of its parameters that `_PARAMETER_NAMES` lists: the number of
    classes, the shape of one sample, the number of values of a sample, its channels (the first size of its shape), the
    size of the vocabulary. Other parameters keep their defaults.
    """
    factory = import_object(name, "model_args.model")
    if not callable(factory) or isinstance(factory, nn.Module):
        raise UserError(
            f"model_args.model {name!r} is a {type(factory).__name__}; name a class, or a function that returns a model"
        )
    properties = {
        "classes": classes,
        "shape": input_shape,
        "numbers": math.prod(input_shape),
        "channels": input_shape[0] if input_shape else 1,
        "vocabulary": vocabulary,
    }
    arguments = _constructor_arguments(name, factory, properties)
    try:
        model = factory(**arguments)
    except UserError:
        raise
    except Exception as error:
        call = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"model_args.model {name!r}: calling it with ({call}) fails with {type(error).__name__} ({reason})"
        ) from error
    if not isinstance(model, nn.Module):
        raise UserError(f"model_args.model {name!r} returns a {type(model).__name__}; it must return a torch.nn.Module")
    return model


def _constructor_arguments(name: str, factory: Callable[..., Any], properties: dict[str, Any]) -> dict[str, Any]:
    property_names = {parameter: name for name, parameters in _PARAMETER_NAMES.items() for parameter in parameters}
    arguments: dict[str, Any] = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in property_names and parameter.kind is not parameter.POSITIONAL_ONLY:
            arguments[parameter.name] = properties[property_names[parameter.name]]
        elif parameter.default is parameter.empty:
            available = ", ".join(names[0] for names in _PARAMETER_NAMES.values())
            raise UserError(
                f"model_args.model {name!r} needs {parameter.name!r}, which the data do not define; give it a default, "
                f"or name a function with no other parameters than {available}"
            )
    return arguments
