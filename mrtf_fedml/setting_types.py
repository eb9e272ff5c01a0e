"""The kinds of value that settings take, shared by the files that define them."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

VALIDATED = ConfigDict(allow_inf_nan=False, validate_default=True)

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Steps = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
