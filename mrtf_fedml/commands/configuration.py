"""What a command is asked to run: a file, or a run's own configuration, with the changes of `--set`."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms import import_named
from ..settings.sections import Config
from ..settings.yaml_file import read_config, warn_of_near_misses, with_changes


def configured(file: str, changes: Sequence[str]) -> Config:
    """The sections of a file after the changes, each key of ours in its own section."""
    config = changed(read_config(file), changes)
    warn_of_near_misses(config)
    return config


def changed(config: Config, changes: Sequence[str]) -> Config:
    """The same for sections that have been read; an algorithm of the user's own is imported, since it has keys."""
    import_named(config, changes)
    return with_changes(config, changes)
