"""The user's own Python, named in YAML as `package.module:Name`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ..errors import UserError, nearest


def named_object(name: str, key: str) -> Any:
    """What `name`, the value of the setting `key`, stands for; the current folder is searched first.

    >>> named_object("math:pi", "model_args.model")
    3.141592653589793
    """
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise UserError(f"{key} is {name!r}; write it as package.module:Name")
    # Installed commands do not search the current folder, which is where a user's file is. It stays on the path,
    # as a module may import its neighbours only when it is used.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(_import_failed(name, key, module_name, error)) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [known for known in vars(found) if not known.startswith("_")]
            raise UserError(f"{key} {name!r}: {module_name} has no {part!r}; {nearest(part, public)}")
        found = getattr(found, part)
    return found


def _import_failed(name: str, key: str, module_name: str, error: Exception) -> str:
    missing = isinstance(error, ModuleNotFoundError) and error.name is not None
    if missing and module_name.startswith(str(getattr(error, "name", ""))):
        return f"{key} {name!r}: there is no module {module_name!r}; run from the folder that holds it, or install it"
    reason = " ".join(str(error).split()) or "no reason given"
    return f"{key} {name!r}: importing {module_name!r} fails with {type(error).__name__} ({reason}); mend that first"
