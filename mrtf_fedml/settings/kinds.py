"""The kinds of value that settings take, and how they are checked; shared by the files that define them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic_core import PydanticCustomError

from ..errors import UserError, shown

VALIDATED = ConfigDict(allow_inf_nan=False, validate_default=True, extra="forbid")


def _no_truth(value: Any) -> Any:
    # YAML's `yes` and `on` are true, which Python would count as 1.
    if isinstance(value, bool):
        raise PydanticCustomError("number", "it should be a number")
    return value


_NUMBER = BeforeValidator(_no_truth)

Positive = Annotated[float, Field(gt=0), _NUMBER]
NonNegative = Annotated[float, Field(ge=0), _NUMBER]
Count = Annotated[int, Field(ge=1), _NUMBER]
Steps = Annotated[int, Field(ge=0), _NUMBER]
#: What NumPy's and PyTorch's generators can be seeded with, both.
Seed = Annotated[int, Field(ge=0, lt=2**32), _NUMBER]
Share = Annotated[float, Field(ge=0, le=1), _NUMBER]
PositiveShare = Annotated[float, Field(gt=0, le=1), _NUMBER]

_Part = TypeVar("_Part")


def validated(part: type[_Part], section: str, given: Mapping[str, Any]) -> _Part:
    """Settings of a section, or one sentence that names the key and the remedy.

    Args:
        part: a dataclass, pydantic's or Python's own.
        section: where the keys are written.
        given: the keys that are.
    """
    try:
        # Python's own dataclasses check nothing by themselves.
        checked: type[Any] = part
        return checked(**given) if is_pydantic_dataclass(part) else TypeAdapter(part).validate_python(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        remedy = first["msg"].replace("Input should be", "it should be")
        raise UserError(f"{section}.{key} is {shown(first['input'])}; {remedy}") from None


def plain_values(settings: Any) -> dict[str, Any]:
    """The keys of a validated dataclass as YAML can say them: paths and enumerations as texts, dataclasses as dicts."""
    values: dict[str, Any] = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    return values
