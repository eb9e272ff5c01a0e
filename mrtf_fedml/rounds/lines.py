"""Whether what stands in metrics.jsonl is a round's line: others may have written there, or a disk may have failed."""

from __future__ import annotations

from typing import Any

_NUMBERS = ("local_loss", "local_weight", "acc", "seconds_local", "seconds_refine", "bytes_up", "bytes_down")


def is_line(told: Any) -> bool:
    """Whether a round's number is in it, and what else every line has is of its kind, where it is there.

    >>> is_line({"round": 0, "acc": None, "clients": [1]}), is_line({"round": "0"}), is_line([0])
    (True, False, False)
    """
    if not isinstance(told, dict) or type(told.get("round")) is not int or told["round"] < 0:
        return False
    clients, left_out = told.get("clients", []), told.get("left_out", {})
    if not isinstance(clients, list) or not isinstance(left_out, dict | list):
        return False
    numbers = [told.get(key) for key in _NUMBERS] + [told[key] for key in told if key.startswith("acc_")]
    return all(number is None or isinstance(number, int | float) for number in numbers)
