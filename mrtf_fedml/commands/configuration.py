"""The configuration of a command: a file, or a run's own configuration, with the changes of `--set`."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms import import_algorithms
from ..config.loader import apply_overrides, read_config, warn_about_similar_keys
from ..config.schema import Config


def load_configuration(file: str, changes: Sequence[str]) -> Config:
    """The sections of a file after the changes, each of our keys in its own section."""
    config = apply_changes(read_config(file), changes)
    warn_about_similar_keys(config)
    return config


def apply_changes(config: Config, changes: Sequence[str]) -> Config:
    """The sections after the changes; a user's algorithm is imported first, since it defines keys."""
    import_algorithms(config, changes)
    return apply_overrides(config, changes)
