"""`data_args.loader`: the data from a function of the user's own."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..errors import UserError, nearest
from ..settings import RunSettings


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
            f"data_args.loader {name} failed with {type(error).__name__}: {error} ({place.filename}, line "
            f"{place.lineno}); mend the function"
        ) from error
    return _unwrapped(name, returned)


def _function(name: str) -> Callable[..., Any]:
    module_name, colon, function_name = name.partition(":")
    if not (colon and module_name and function_name):
        raise UserError(f"data_args.loader is {name!r}; write it as package.module:function")
    # Programs that are started by a script of their own, as `mrtf` is, do not look into the current folder.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f"data_args.loader {name}: {module_name} cannot be imported ({type(error).__name__}: {error}); correct the "
            "name, or run from the folder that has it"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [known for known in vars(module) if callable(getattr(module, known)) and not known.startswith("_")]
        raise UserError(
            f"data_args.loader {name}: {module_name} has no function {function_name!r}; {nearest(function_name, names)}"
        )
    return function


def _takes_one(function: Callable[..., Any]) -> bool:
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(parameter.kind in kinds for parameter in inspect.signature(function).parameters.values())


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
