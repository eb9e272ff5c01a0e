"""`data_args.loader`: the data from a function of the user's own."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..errors import UserError
from ..settings import RunSettings
from ..settings.named_object import named_object
from .sources.reading import first_line


def call_loader(name: str, settings: RunSettings) -> Any:
    """What the function `package.module:function` returns.

    It is called with one argument, the run's keys as attributes (`args.batch_size`, `args.data_cache_dir`,
    `args.client_num_in_total`, ...), as FedML calls its own; or with none if it takes none.
    """
    function = _function(name)
    args = SimpleNamespace(**{key: value for keys in settings.to_config().values() for key, value in keys.items()})
    try:
        returned = function(args) if _takes_one(function) else function()
    except UserError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"data_args.loader {name} failed with {type(error).__name__}: {first_line(error)} ({place.filename}, line "
            f"{place.lineno}); mend the function"
        ) from error
    return _unwrapped(name, returned)


def _function(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = named_object(name, "data_args.loader")
    if not callable(function):
        raise UserError(f"data_args.loader {name!r} is no function but {type(function).__name__}; name a function")
    return function


def _takes_one(function: Callable[..., Any]) -> bool:
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        # What is written in C does not tell.
        return True
    return any(parameter.kind in kinds for parameter in parameters)


def _unwrapped(name: str, returned: Any) -> Any:
    """FedML's loaders give the tuple of eight together with the number of classes."""
    if isinstance(returned, tuple | list) and len(returned) == 2 and isinstance(returned[0], tuple | list):
        returned = returned[0]
    from .sources import Source

    if not isinstance(returned, Source) and not (isinstance(returned, tuple | list) and len(returned) == 8):
        raise UserError(
            f"data_args.loader {name} returned a {type(returned).__name__}; return FedML's tuple of eight entries, a "
            "mrtf_fedml.data.Source or a TransductiveDataset"
        )
    return returned
