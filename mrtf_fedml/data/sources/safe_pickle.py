"""Pickles of which only arrays and plain containers are let through.

A pickle names the functions that rebuild its objects, and plain `pickle.load` calls whichever it names. CIFAR
and MNIST-M are distributed as pickles, so here the names are looked up in a short table and nowhere else.
"""

from __future__ import annotations

import collections
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.core import multiarray, numeric

from ...errors import UserError
from .reading import damaged


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes in protocol 2. Other codecs than this one may unpack a bomb."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it encodes text as {encoding}")
    return text.encode("latin1")


_ARRAYS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{
        (f"numpy.{core}.{module.__name__.rpartition('.')[2]}", name): getattr(module, name)
        for core in ("core", "_core")
        for module, name in ((multiarray, "_reconstruct"), (multiarray, "scalar"), (numeric, "_frombuffer"))
    },
}
_CONTAINERS: dict[tuple[str, str], Any] = {
    (module, kind.__name__): kind
    for module in ("builtins", "__builtin__")
    for kind in (list, tuple, dict, set, bytes, bytearray)
}
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    **_ARRAYS,
    **_CONTAINERS,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encode,
}


class _Refused(Exception):
    """The pickle names something else than arrays and containers."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def load_pickle(content: bytes, path: Path) -> Any:
    """The arrays and containers of a pickle, with the keys of dictionaries as texts.

    Nothing that the pickle names is called unless it is in the table. `path` is where it came from, for
    messages.
    """
    try:
        # Python 2 wrote text as bytes, and latin1 keeps every byte of its arrays.
        loaded = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except _Refused as error:
        raise UserError(
            f"data file {str(path)!r} names {error}, which is neither an array nor a plain container; nothing of it "
            "was run, and you should fetch the file again from where it is published"
        ) from None
    # A damaged pickle may raise anything that its instructions stumble on.
    except Exception as error:
        raise damaged(path, error) from error
    return _with_text_keys(loaded)


def _with_text_keys(thing: Any) -> Any:
    if not isinstance(thing, dict):
        return thing
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): _with_text_keys(value)
        for key, value in thing.items()
    }
