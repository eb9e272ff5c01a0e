"""Tells a run's inputs from others of the same name: files, folders, and the user's own code."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from ..algorithms import Algorithm
from ..rounds.inputs import file_stamps
from ..settings import RunSettings
from ..settings.named_object import named_object


def stamps_of(settings: RunSettings, algorithm: Algorithm) -> dict[str, Any]:
    """A stamp of everything that a run reads beside its configuration.

    Files and folders of the user's data are known by their names, sizes and times; code by its contents. The files of
    public datasets in `data_cache_dir` are taken to be what they are called.
    """
    data = settings.data
    codes = (
        (data.loader, "data_args.loader"),
        (settings.model.model, "model_args.model"),
        *((name, "common_args.callbacks") for name in settings.common.callbacks),
    )
    stamps: dict[str, Any] = file_stamps(data)
    stamps |= {name: _code_stamp(name, key) for name, key in codes if name and _is_users(name)}
    for owner in (algorithm, getattr(algorithm, "base", None)):
        module = type(owner).__module__
        if owner is not None and not module.startswith(__package__.partition(".")[0] + "."):
            stamps[module] = _modules_stamp(module)
    return stamps


def _is_users(name: str) -> bool:
    """Whether the name is `package.module:Name`, and not `torchvision:resnet18` or `fedml:cnn`."""
    module, colon, _ = name.partition(":")
    return bool(colon) and module not in ("torchvision", "fedml", "mrtf")


def _code_stamp(name: str, key: str) -> str:
    named_object(name, key)
    return _modules_stamp(name.partition(":")[0])


def _modules_stamp(module: str) -> str:
    """The contents of a module, and of the modules beside it that it has imported."""
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(module) if module not in sys.modules else sys.modules[module].__spec__
    origin = spec.origin if spec is not None else getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        return module
    home = Path(origin).resolve().parent
    digest = hashlib.sha256()
    for name, loaded in sorted(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if not file:
            continue
        path = Path(file).resolve()
        # Packages installed beside it are no part of the user's code.
        beside = path.parent == home and "site-packages" not in path.parts
        if name.partition(".")[0] == top or beside:
            digest.update(f"{name}\0".encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()[:16]
