"""The model that `model_args.model` names: ours, FedML's zoo, torchvision's, or a user's own class."""

from __future__ import annotations

import contextlib
import io
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from fedml.model.cv import cnn, efficientnet, mobilenet, mobilenet_v3, resnet, resnet_cifar, resnet_gn, vgg
from fedml.model.linear import lr
from fedml.model.nlp import rnn
from torch import Tensor, nn

from ..config import ModelSettings
from ..errors import UserError, suggest_name
from ..models import MODELS, create_model
from ..models.catalogue import TORCHVISION_PREFIX as TORCHVISION
from ..models.catalogue import create_torchvision_model, create_user_model
from ..models.checks import check_image_shape, check_model_output, materialize_lazy_layers
from ..models.forward_hooks import (
    InputTransform,
    adapt_inputs,
    flatten_inputs,
    grey_to_rgb,
    has_truncated_logits,
    to_grey_28,
    to_indices,
    truncate_logits,
)
from ..models.group import ModelGroup
from ..rng import fork_rng

_log = logging.getLogger(__name__)

#: The prefix that selects FedML's model where we have one of the same name.
FEDML = "fedml:"

#: Channels per group of GroupNorm, the default of FedML's layer. FedML's own `resnet18_gn` uses 0, which is batch
#: normalisation.
_CHANNELS_PER_GROUP = 32

_GREY_28 = ((1, 28, 28), (28, 28), (784,))


@dataclass(frozen=True)
class ZooModel:
    """One of FedML's models: how it is made, and which inputs it takes.

    Attributes:
        make: from the shape of a sample, the number of classes and the size of the vocabulary.
        inputs: `numbers` [N, D]; `grey 28` [N, 28, 28]; `colour` [N, 3, H, W]; `colour 32` the same with 32 x 32
            pixels; `text` [N, T], int64.
    """

    make: Callable[[tuple[int, ...], int, int], nn.Module]
    inputs: str


def _by_classes(make: Callable[[int], nn.Module], inputs: str = "colour") -> ZooModel:
    return ZooModel(lambda shape, classes, vocabulary: make(classes), inputs)


def _vgg(layers: str, batch_norm: bool) -> ZooModel:
    return _by_classes(lambda classes: vgg.VGG(vgg.make_layers(vgg.cfgs[layers], batch_norm), num_classes=classes))


def _text(kind: type[nn.Module]) -> ZooModel:
    # One number is both the vocabulary and the number of outputs.
    return ZooModel(lambda shape, classes, vocabulary: kind(vocab_size=max(classes, vocabulary)), "text")


#: FedML's models by FedML's names, and those without a name by their functions' names.
ZOO: dict[str, ZooModel] = {
    "lr": ZooModel(lambda shape, classes, _: lr.LogisticRegression(math.prod(shape), classes), "numbers"),
    "cnn": _by_classes(lambda classes: cnn.CNN_DropOut(only_digits=classes <= 10), "grey 28"),
    "cnn_original_fedavg": _by_classes(lambda classes: cnn.CNN_OriginalFedAvg(only_digits=classes <= 10), "grey 28"),
    "cnn_web": _by_classes(lambda classes: cnn.CNN_WEB(), "colour 32"),
    "rnn": _text(rnn.RNN_OriginalFedAvg),
    "rnn_fed_shakespeare": _text(rnn.RNN_FedShakespeare),
    "resnet20": _by_classes(resnet.resnet20),
    "resnet32": _by_classes(resnet.resnet32),
    "resnet44": _by_classes(resnet.resnet44),
    "resnet56": _by_classes(resnet.resnet56),
    "resnet110": _by_classes(resnet.resnet110),
    "resnet18_cifar": _by_classes(lambda classes: resnet_cifar.resnet18_cifar(num_classes=classes)),
    "resnet34_cifar": _by_classes(lambda classes: resnet_cifar.resnet34_cifar(num_classes=classes)),
    "resnet50_cifar": _by_classes(lambda classes: resnet_cifar.resnet50_cifar(num_classes=classes)),
    "resnet18_gn": _by_classes(lambda classes: resnet_gn.resnet18(num_classes=classes, group_norm=_CHANNELS_PER_GROUP)),
    "resnet34_gn": _by_classes(lambda classes: resnet_gn.resnet34(num_classes=classes, group_norm=_CHANNELS_PER_GROUP)),
    "resnet50_gn": _by_classes(lambda classes: resnet_gn.resnet50(num_classes=classes, group_norm=_CHANNELS_PER_GROUP)),
    "mobilenet": _by_classes(lambda classes: mobilenet.mobilenet(class_num=classes)),
    "mobilenet_v3": _by_classes(lambda classes: mobilenet_v3.MobileNetV3(model_mode="LARGE", num_classes=classes)),
    "efficientnet": ZooModel(
        lambda shape, classes, _: efficientnet.EfficientNet.from_name(
            "efficientnet-b0", num_classes=classes, image_size=list(shape[1:])
        ),
        "colour",
    ),
    "vgg11": _vgg("A", batch_norm=False),
    "vgg11_bn": _vgg("A", batch_norm=True),
    "vgg13": _vgg("B", batch_norm=False),
    "vgg13_bn": _vgg("B", batch_norm=True),
    "vgg16": _vgg("D", batch_norm=False),
    "vgg16_bn": _vgg("D", batch_norm=True),
    "vgg19": _vgg("E", batch_norm=False),
    "vgg19_bn": _vgg("E", batch_norm=True),
}


def build_model(
    settings: ModelSettings,
    input_shape: Sequence[int],
    classes: int,
    seed: int,
    example: Tensor | None = None,
    vocabulary: int | None = None,
) -> nn.Module:
    """The model that `model_args.model` names: ours, `torchvision:name`, `package.module:Class`, or FedML's.

    Args:
        settings: `model_args`.
        input_shape: shape of one sample.
        classes: C.
        seed: the run's; initial weights depend on it alone, and the global random state is not changed.
        example: a few of the data's inputs, on which the model is tried.
        vocabulary: number of characters in the data, for models of text; `model_args.vocabulary` overrides it, and C is
            the default of both.
    """
    if settings.models is not None:
        members = {
            name: build_model(
                replace(settings, model=model, models=None, client_models=None),
                *(input_shape, classes, seed, example, vocabulary),
            )
            for name, model in sorted(settings.models.items())
        }
        return ModelGroup(members)
    name, shape = settings.model, tuple(int(size) for size in input_shape)
    if settings.vocabulary is not None and vocabulary is not None and settings.vocabulary < vocabulary:
        raise UserError(
            f"model_args.vocabulary is {settings.vocabulary} but the data have the index {vocabulary - 1}; raise it "
            f"to {vocabulary}"
        )
    characters = settings.vocabulary or max(classes, vocabulary or 0)
    label = f"model_args.model {name!r}"
    if name in MODELS:
        model = create_model(replace(settings, vocabulary=characters), shape, classes, seed)
    else:
        with fork_rng(seed, "initial weights"):
            model = _other_model(name, shape, classes, characters)
            if example is not None:
                materialize_lazy_layers(model, example[:2], label)
    if example is not None:
        if vocabulary is None and _reads_text(name):
            raise UserError(
                f"{label} needs characters as indices, integers from 0, but the data have other "
                f"values; use `model: mlp`, which takes any numbers"
            )
        check_model_output(model, example[:2], classes, label)
    return model


def truncate_zoo_model(model: Any, dataset: Any) -> None:
    """Truncate the outputs of a project's FedML model to the first C logits; other models are not changed.

    `fedml.model.create` makes several models with a fixed number of outputs.
    """
    is_from_zoo = isinstance(model, nn.Module) and type(model).__module__.startswith("fedml.model.")
    is_eight = isinstance(dataset, list | tuple) and len(dataset) == 8 and isinstance(dataset[7], Integral)
    if is_from_zoo and is_eight and not has_truncated_logits(model):
        truncate_logits(model, int(dataset[7]), f"FedML's {type(model).__name__}")


def _reads_text(name: str) -> bool:
    entry = None if name in MODELS else ZOO.get(name.removeprefix(FEDML))
    return name == "charlstm" or (entry is not None and entry.inputs == "text")


def _other_model(name: str, shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
    zoo_name = name.removeprefix(FEDML)
    if zoo_name in ZOO:
        return _zoo_model(zoo_name, shape, classes, vocabulary)
    if name.startswith(TORCHVISION):
        return create_torchvision_model(name, shape, classes)
    if ":" in name and not name.startswith(FEDML):
        return create_user_model(name, shape, classes, vocabulary)
    raise UserError(
        f"model_args.model {name!r} is unknown; {suggest_name(zoo_name, [*MODELS, *ZOO])} (torchvision:NAME and "
        f"package.module:Class are also possible)"
    )


def _zoo_model(name: str, shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
    entry = ZOO[name]
    transform = _input_transform(name, entry.inputs, shape)
    # FedML prints the layers.
    with contextlib.redirect_stdout(io.StringIO()):
        model = entry.make(shape, classes, vocabulary)
    if transform is not None:
        adapt_inputs(model, transform)
    return truncate_logits(model, classes, f"model_args.model {name!r}")


def _input_transform(name: str, inputs: str, shape: tuple[int, ...]) -> InputTransform | None:
    """The transform of samples of that shape into the shape that the model takes; None where none is needed."""
    opening = f"model_args.model {name!r} of FedML needs"
    here = " x ".join(str(size) for size in shape)
    if inputs == "numbers":
        return flatten_inputs
    if inputs == "text":
        if len(shape) != 1:
            raise UserError(f"{opening} sequences of character indices, but a sample here is {here}; use another model")
        return to_indices
    if inputs == "grey 28":
        if shape not in _GREY_28:
            other = "convnet" if len(shape) == 3 else "mlp"
            raise UserError(f"{opening} grey images of 28 x 28, but a sample here is {here}; use `model: {other}`")
        return to_grey_28
    channels, height, width = check_image_shape(name, shape, smallest_side=1)
    if channels not in (1, 3):
        raise UserError(f"{opening} images of 3 channels (or 1), but a sample here is {here}; use `model: convnet`")
    if inputs == "colour 32" and (height, width) != (32, 32):
        raise UserError(f"{opening} images of 32 x 32, but a sample here is {here}; use `model: convnet`")
    if channels == 3:
        return None
    _log.info("%s gets the grey channel three times, as it needs colour images", name)
    return grey_to_rgb
