"""What a resume has changed in a run's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The keys whose values differ, as `section.key`; where a run writes is none of its settings."""
    changes = {}
    for section in dict.fromkeys([*before, *after]):
        old, new = before.get(section) or {}, after.get(section) or {}
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key) and key != "run_dir":
                changes[f"{section}.{key}"] = {"from": old.get(key), "to": new.get(key)}
    return changes
