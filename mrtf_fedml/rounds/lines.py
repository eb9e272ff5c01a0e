"""Whether what stands in metrics.jsonl is a round's line: others may have written there, or a disk may have failed."""

from __future__ import annotations

from typing import Any

_NUMBERS = ("local_loss", "local_weight", "acc", "seconds_local", "seconds_refine", "bytes_up", "bytes_down")


def is_line(line: Any) -> bool:
    """Whether a round's number is in it, and what else every line has is of its kind, where it is there.

    >>> is_line({"round": 0, "acc": None, "clients": [1]}), is_line({"round": "0"}), is_line([0])
    (True, False, False)
    """
    if not isinstance(line, dict) or type(line.get("round")) is not int or line["round"] < 0:
        return False
    clients, left_out = line.get("clients", []), line.get("left_out", {})
    if not isinstance(clients, list) or not isinstance(left_out, dict | list):
        return False
    numbers = [line.get(key) for key in _NUMBERS] + [line[key] for key in line if key.startswith("acc_")]
    return all(number is None or isinstance(number, int | float) for number in numbers)
