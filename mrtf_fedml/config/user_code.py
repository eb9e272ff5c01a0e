"""Import of the user's own classes and functions, named in the YAML as `package.module:Name`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ..errors import UserError, suggest_name


def import_object(name: str, key: str) -> Any:
    """The object that `name`, the value of the setting `key`, refers to; the working directory is searched first.

    >>> import_object("math:pi", "model_args.model")
    3.141592653589793
    """
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise UserError(f"{key} is {name!r}; write it as package.module:Name")
    # An installed command does not search the working directory, where a user's file is. The directory stays on the
    # path, since a module may import its neighbours later.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        result: Any = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(_import_error(name, key, module_name, error)) from error
    for part in attribute.split("."):
        if not hasattr(result, part):
            public = [known for known in vars(result) if not known.startswith("_")]
            raise UserError(f"{key} {name!r}: {module_name} has no {part!r}; {suggest_name(part, public)}")
        result = getattr(result, part)
    return result


def _import_error(name: str, key: str, module_name: str, error: Exception) -> str:
    missing = isinstance(error, ModuleNotFoundError) and error.name is not None
    if missing and module_name.startswith(str(getattr(error, "name", ""))):
        return (
            f"{key} {name!r}: there is no module {module_name!r}; run from the folder that contains it, or install it"
        )
    reason = " ".join(str(error).split()) or "no reason given"
    return f"{key} {name!r}: importing {module_name!r} fails with {type(error).__name__} ({reason}); correct that first"
