"""What server and silos must agree on before the first round; a difference would silently spoil the result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ....config import PrivacySettings
from ....version import __version__

#: Seconds by which two parties' clocks may differ.
MAX_CLOCK_DIFFERENCE = 60.0
#: What is compared: field of the handshake -> its name in tables.
ASPECTS = {
    "version": "version",
    "encoder": "encoder",
    "features": "features",
    "model": "model",
    "class_names": "classes",
    "privacy": "dp_args",
}


@dataclass(frozen=True)
class Handshake:
    """One party's side of the agreement.

    Attributes:
        model: a hash of the weights' names, shapes and types.
        class_names: in the order of the labels; None where the party's data have no class names.
        features: the names of a table's features, in the model's order; None where the samples have no such names.
        encoder: the digest of the encoder; None without one.
        privacy: `dp_args.clip` and `dp_args.sigma`, which the silos apply and the server accounts for; None where off.
        version: of this package.
        torch: version of PyTorch; other versions agree up to rounding.
    """

    model: str
    class_names: list[str] | None
    features: list[str] | None
    encoder: str | None
    privacy: list[float | None] | None
    version: str = __version__
    torch: str = str(torch.__version__)

    @classmethod
    def create(cls, weights: Mapping[str, Tensor], dataset: Any, privacy: PrivacySettings) -> Handshake:
        """The handshake of a party with this model, dataset (ours, or FedML's eight entries) and settings."""
        # A project's own dataset has no such attributes; the server has its features in its preprocessing.
        names, features, encoder, preprocessing = (
            getattr(dataset, name, None) for name in ("class_names", "features", "encoder_digest", "preprocessing")
        )
        features = features or getattr(preprocessing, "features", None)
        return cls(
            model_signature(weights),
            None if names is None else [str(name) for name in names],
            None if features is None else [str(name) for name in features],
            encoder,
            [privacy.clip, privacy.sigma] if privacy.is_active else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The form in a message."""
        return asdict(self)

    def find_differences(self, received: Any, silo: int) -> dict[str, str]:
        """Why the silo that has sent this handshake cannot take part: one sentence per field; empty if it can."""
        fields = received if isinstance(received, Mapping) else {}
        found: dict[str, str] = {}
        if fields.get("version") != self.version:
            version = str(fields.get("version"))[:20]
            found["version"] = (
                f"silo {silo} has mrtf_fedml {version!a} and the server {self.version!r}; install the same version"
            )
        if fields.get("encoder") != self.encoder:
            found["encoder"] = (
                f"the encoder of silo {silo} ({_format_digest(fields.get('encoder'))}) differs from the server's "
                f"({_format_digest(self.encoder)}); give all parties the same files and the same encoder keys of "
                "model_args"
            )
        features = fields.get("features")
        if features is not None and self.features is not None and features != self.features:
            difference = _feature_difference(features, self.features)
            found["features"] = (
                f"the features of silo {silo} differ from the server's: {difference}; "
                "give all parties the same columns and the same data_args.categories"
            )
        if fields.get("model") != self.model:
            remedy = "use the same model_args and classes"
            if self.encoder is not None:
                remedy += ", and an encoder that gives the same number of features everywhere"
            found["model"] = f"the model of silo {silo} differs from the server's; {remedy}"
        names = fields.get("class_names")
        if names is not None and self.class_names is not None and names != self.class_names:
            found["class_names"] = (
                f"the classes of silo {silo} differ from the server's: {_first_difference(names, self.class_names)}; "
                "give all parties the same class_names in the same order"
            )
        if fields.get("privacy") != self.privacy:
            found["privacy"] = (
                f"the dp_args of silo {silo} ({_format_privacy(fields.get('privacy'))}) differ from the server's "
                f"({_format_privacy(self.privacy)}), so the privacy account would be wrong; use the same clip and sigma"
            )
        return found


def model_signature(weights: Mapping[str, Tensor]) -> str:
    """A hash of the weights' names, shapes and types; parties with different signatures cannot exchange weights."""
    description = ";".join(f"{key}:{tuple(tensor.shape)}:{tensor.dtype}" for key, tensor in sorted(weights.items()))
    return hashlib.sha256(description.encode()).hexdigest()[:16]


def _first_difference(names: Any, expected: list[str]) -> str:
    if not isinstance(names, list) or len(names) != len(expected):
        return f"it does not have the server's {len(expected)} classes"
    number = next(index for index, name in enumerate(names) if name != expected[index])
    return f"class {number} is {str(names[number])[:40]!r} at the silo and {expected[number][:40]!r} at the server"


def _format_privacy(clip_and_sigma: Any) -> str:
    if isinstance(clip_and_sigma, list) and len(clip_and_sigma) == 2:
        clip, sigma = (ascii(value)[:20] for value in clip_and_sigma)
        return f"clip {clip}, sigma {sigma}"
    return "none"


def _feature_difference(names: Any, expected: list[str]) -> str:
    """Names that only one side has; foreign strings are shortened."""
    own = [str(name)[:40] for name in names[:100_000]] if isinstance(names, list) else []
    missing = [name for name in expected if name[:40] not in set(own)]
    unknown = [name for name in own if name not in {other[:40] for other in expected}]
    if missing:
        return f"it lacks {missing[0][:40]!r}"
    return f"it has {unknown[0]!r}, which the server lacks" if unknown else "they are in another order"


def _format_digest(digest: Any) -> str:
    return "none" if digest is None else f"digest {str(digest)[:12]!a}"
