"""What server and silos must have in common before the first round: a difference would spoil the result in silence."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from ...settings import PrivacySettings


@dataclass(frozen=True)
class Terms:
    """One party's side of it.

    Attributes:
        model: a hash of the weights' names, shapes and types; others cannot be exchanged.
        class_names: in the order of their numbers; None where the party's data have no names.
        privacy: `dp_args.clip` and `dp_args.sigma`, which the server accounts for and the silos act by; None where off.
    """

    model: str
    class_names: list[str] | None
    privacy: list[float | None] | None

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], class_names: Sequence[str] | None, privacy: PrivacySettings) -> Terms:
        """The terms of a party with this model, these classes and these settings."""
        names = None if class_names is None else [str(name) for name in class_names]
        return cls(signature_of(weights), names, [privacy.clip, privacy.sigma] if privacy.active else None)

    def facts(self) -> dict[str, Any]:
        """As they travel."""
        return asdict(self)

    def difference(self, claimed: Any, silo: int) -> str | None:
        """Why the silo that has told these facts cannot take part; None where it can."""
        facts = claimed if isinstance(claimed, Mapping) else {}
        if facts.get("model") != self.model:
            return f"the model of silo {silo} differs from the server's; use the same model_args and classes"
        names = facts.get("class_names")
        if names is not None and self.class_names is not None and names != self.class_names:
            return (
                f"silo {silo} numbers its classes differently from the server: {_first_difference(names, self)}; give "
                "all parties the same class_names in the same order"
            )
        if facts.get("privacy") != self.privacy:
            return (
                f"silo {silo} has other dp_args ({_privacy(facts.get('privacy'))}) than the server "
                f"({_privacy(self.privacy)}), whose account would be wrong; use the same clip and sigma"
            )
        return None


def signature_of(weights: Mapping[str, Tensor]) -> str:
    """A hash of the weights' names, shapes and types; parties whose signatures differ cannot exchange weights."""
    text = ";".join(f"{key}:{tuple(tensor.shape)}:{tensor.dtype}" for key, tensor in sorted(weights.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _first_difference(names: Any, here: Terms) -> str:
    ours = here.class_names or []
    if not isinstance(names, list) or len(names) != len(ours):
        return f"it does not name the server's {len(ours)} classes"
    number = next(index for index, name in enumerate(names) if name != ours[index])
    return f"class {number} is {str(names[number])[:40]!r} there and {ours[number][:40]!r} here"


def _privacy(clip_and_sigma: Any) -> str:
    if isinstance(clip_and_sigma, list) and len(clip_and_sigma) == 2:
        clip, sigma = (ascii(value)[:20] for value in clip_and_sigma)
        return f"clip {clip}, sigma {sigma}"
    return "none"
