"""`mrtf_args.preset`: several switches of the refinery by one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What each preset changes in the defaults. `paper` is the defaults; docs/evidence.md says what `tuned` reaches.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tuned": {
        "base": "auto",
        "teacher_weights": "familiarity",
        "class_balance": 0.5,
        "balance_fade": 0.5,
        "class_shares": "estimated",
        "shares_fade": 0.25,
        "cluster_refinery": False,
        "feedback": "judged",
        "answer": "judged",
        "client_judgement": True,
        "estimate_classes": "server",
        "target_smoothing": 0.75,
        "smoothing_fade": 0.75,
        "target_sharpness": 3.0,
    },
    # The authors' program, where it departs from their paper: docs/method.md.
    "released": {
        "cluster_distance": "squared_euclidean",
        "cluster_warmup": 0,
        "entropy_per_class": True,
        "feedback": "never",
        "global_confidence": True,
        "local_training": "released",
        "loss_window": 5,
        "refine_clip_norm": 100.0,
        "refine_lr": 1e-3,
        "refine_schedule": "cosine",
        "refine_weight_decay": 1e-6,
        "std_batches": 10,
        "target_smoothing": 0.75,
        "teacher_mode": "train",
        "temperature": 1.0,
    },
}

#: What a preset's word may become in a run, where clients cannot do what it wants of them.
BECOMES: dict[tuple[str, Any], tuple[Any, ...]] = {
    # Runs of before the variates faded have Scaffold.
    ("base", "auto"): ("FedAvg", "FadingScaffold", "Scaffold"),
    ("feedback", "judged"): ("never",),
    ("answer", "judged"): ("refined",),
    ("client_judgement", True): (False,),
    ("estimate_classes", "server"): ("clients",),
}

#: The preset of a run that names none, where the data are the user's own or a FedML project's.
OWN_DATA = "tuned"


def with_preset(config: Mapping[str, Mapping[str, Any]], preset: str) -> dict[str, dict[str, Any]]:
    """The sections with that preset in `mrtf_args`, where the user has named none.

    >>> with_preset({"mrtf_args": {"refine_steps": 9}}, "tuned")
    {'mrtf_args': {'refine_steps': 9, 'preset': 'tuned'}}
    """
    sections = {name: dict(values) for name, values in config.items()}
    own = sections.setdefault("mrtf_args", {})
    if own.get("preset") is None:
        own["preset"] = preset
    return sections
