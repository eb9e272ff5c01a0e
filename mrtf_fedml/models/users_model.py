"""A model of the user's own, named in YAML as `package.module:Class`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import UserError
from ..settings.named_object import named_object

#: What the data know, and the parameters of a constructor that ask for it.
PARAMETERS: dict[str, tuple[str, ...]] = {
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


def users_model(name: str, input_shape: tuple[int, ...], classes: int, vocabulary: int) -> nn.Module:
    """The model that `package.module:Class` makes: a class, or a function that returns a model.

    It is called with keywords, one for each of its parameters that `PARAMETERS` lists: the number of classes, the
    shape of one sample, how many numbers a sample has, its channels (the first size of its shape), the size of the
    vocabulary. Other parameters keep their defaults.
    """
    maker = named_object(name, "model_args.model")
    if not callable(maker) or isinstance(maker, nn.Module):
        raise UserError(
            f"model_args.model {name!r} is a {type(maker).__name__}; name a class, or a function that makes the model"
        )
    known = {
        "classes": classes,
        "shape": input_shape,
        "numbers": math.prod(input_shape),
        "channels": input_shape[0] if input_shape else 1,
        "vocabulary": vocabulary,
    }
    arguments = _arguments(name, maker, known)
    try:
        model = maker(**arguments)
    except UserError:
        raise
    except Exception as error:
        called = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"model_args.model {name!r}: calling it with ({called}) fails with {type(error).__name__} ({reason})"
        ) from error
    if not isinstance(model, nn.Module):
        raise UserError(f"model_args.model {name!r} makes a {type(model).__name__}; it must make a torch.nn.Module")
    return model


def _arguments(name: str, maker: Callable[..., Any], known: dict[str, Any]) -> dict[str, Any]:
    meaning = {parameter: what for what, parameters in PARAMETERS.items() for parameter in parameters}
    arguments: dict[str, Any] = {}
    for parameter in inspect.signature(maker).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in meaning and parameter.kind is not parameter.POSITIONAL_ONLY:
            arguments[parameter.name] = known[meaning[parameter.name]]
        elif parameter.default is parameter.empty:
            asked = ", ".join(names[0] for names in PARAMETERS.values())
            raise UserError(
                f"model_args.model {name!r} wants {parameter.name!r}, which the data do not tell; give it a default, "
                f"or name a function that asks for no more than {asked}"
            )
    return arguments
