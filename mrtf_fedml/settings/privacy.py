"""`dp_args`: what is done to a client's update before it leaves the client."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, NonNegative, Positive


@dataclass(frozen=True, config=VALIDATED)
class PrivacySettings:
    """Clipping and noise of ours. FedML's own differential privacy (`enable_dp`) goes its own way, without a budget."""

    #: FedML's own. Where it is on, `sigma` and `delta` are FedML's, and ours do nothing.
    enable_dp: bool = False
    #: The largest norm of theta_k - theta_t over all floating-point entries; a longer update is shortened to it.
    clip: Positive | None = None
    #: Standard deviation of the noise on every entry of an update, absolute, as in the paper: 0, 0.001, 0.01, 0.1.
    sigma: NonNegative = 0.0
    #: The probability with which the budget epsilon may not hold; below one over the number of clients.
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @model_validator(mode="after")
    def _one_of_the_two(self) -> PrivacySettings:
        if self.enable_dp and self.clip is not None:
            raise ValueError("ours and FedML's enable_dp cannot act together; leave one of them out")
        return self

    @property
    def active(self) -> bool:
        """Whether updates are changed before they leave."""
        return not self.enable_dp and (self.clip is not None or self.sigma > 0)

    @property
    def promised(self) -> bool:
        """Whether clients are promised privacy, ours or FedML's: noise is on their weights, and on nothing beside."""
        return self.enable_dp or self.active
