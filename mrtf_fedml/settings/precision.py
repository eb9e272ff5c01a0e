"""`precision`: one word for all that computes, or one for each part."""

from __future__ import annotations

from typing import Literal

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED

Word = Literal["float32", "bf16", "auto"]
#: What may be given a precision of its own.
Part = Literal["teachers", "distilling", "local"]


@dataclass(frozen=True, config=VALIDATED)
class Precision:
    """In what precision each part computes."""

    teachers: Word = "float32"
    distilling: Word = "float32"
    local: Word = "float32"


def precision_of(given: Word | dict[Part, Word]) -> Precision:
    """By part; what a mapping leaves out is float32.

    >>> precision_of({"teachers": "bf16"})
    Precision(teachers='bf16', distilling='float32', local='float32')
    """
    return Precision(**given) if isinstance(given, dict) else Precision(given, given, given)


def settled(given: Word | dict[Part, Word], everybody_has_bf16: bool) -> Word | dict[Part, Word]:
    """The same without `auto`, which takes bf16 where every party's hardware has it.

    >>> settled("auto", True), settled({"teachers": "auto", "local": "bf16"}, False)
    ('bf16', {'teachers': 'float32', 'local': 'bf16'})
    """
    word: Word = "bf16" if everybody_has_bf16 else "float32"
    if isinstance(given, dict):
        return {part: word if one == "auto" else one for part, one in given.items()}
    return word if given == "auto" else given
