"""Types of setting values, and the validation of a section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic_core import PydanticCustomError

from ..errors import UserError, shorten_repr

VALIDATED = ConfigDict(allow_inf_nan=False, validate_default=True, extra="forbid")


def _reject_boolean(value: Any) -> Any:
    # YAML reads `yes` and `on` as true, which Python would convert to 1.
    if isinstance(value, bool):
        raise PydanticCustomError("number", "it should be a number")
    return value


_NUMBER = BeforeValidator(_reject_boolean)

PositiveFloat = Annotated[float, Field(gt=0), _NUMBER]
NonNegativeFloat = Annotated[float, Field(ge=0), _NUMBER]
PositiveInt = Annotated[int, Field(ge=1), _NUMBER]
NonNegativeInt = Annotated[int, Field(ge=0), _NUMBER]
#: The seeds that both NumPy and PyTorch accept.
Seed = Annotated[int, Field(ge=0, lt=2**32), _NUMBER]
Fraction = Annotated[float, Field(ge=0, le=1), _NUMBER]
PositiveFraction = Annotated[float, Field(gt=0, le=1), _NUMBER]

_Section = TypeVar("_Section")


def validate_section(section_class: type[_Section], section: str, values: Mapping[str, Any]) -> _Section:
    """The settings of a section.

    Args:
        section_class: a dataclass, pydantic's or Python's.
        section: its name in the YAML.
        values: the keys that are set, with their values.

    Raises:
        UserError: a value is invalid; the message names the key and the valid values.
    """
    try:
        constructor: type[Any] = section_class
        if is_pydantic_dataclass(section_class):
            return constructor(**values)
        # Python's own dataclasses do not validate.
        return TypeAdapter(section_class).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        remedy = first["msg"].replace("Input should be", "it should be")
        raise UserError(f"{section}.{key} is {shorten_repr(first['input'])}; {remedy}") from None


def to_plain_values(settings: Any) -> dict[str, Any]:
    """The fields of a validated dataclass as YAML values: paths and enumerations as strings, dataclasses as dicts."""
    values: dict[str, Any] = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    return values
