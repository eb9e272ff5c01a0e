"""How many of the server's rows are made into targets at once (`refine_memory_mb`); the results do not depend on it.

What grows with M rows: the K teachers' logits, the doubles from which targets are made, and the features. Only the
doubles can be made in blocks of rows; the rest, and the few arrays [M, C] that a round keeps, are held whole. The
server's inputs, the models and a model's own batch are not counted.
"""

from __future__ import annotations

from ..errors import UserError

_MEGABYTE = 2**20
_DOUBLE = 8
_FLOAT = 4
#: Doubles [M, C] that exist at once, without the teachers: the ensemble, what balances and smooths it, the targets.
_KEPT = 5
#: Doubles per teacher, row and class that exist at once while targets are made.
_WORKING = 6
#: Rows per block are a multiple of this, and at least this many.
_ROWS = 1024


def rows_per_block(megabytes: int | None, models: int, rows: int, classes: int, features: int = 0) -> int:
    """Rows per block that keep the memory of a round's targets within a bound; 0 means all rows at once.

    Args:
        megabytes: `refine_memory_mb`; None means no bound.
        models: K, the local models.
        rows: M, or M * T.
        classes: C.
        features: D, where the round clusters; else 0.

    Raises:
        UserError: the bound is too small even for the smallest block.

    >>> rows_per_block(None, models=10, rows=10_000, classes=10)
    0
    >>> rows_per_block(200, models=10, rows=100_000, classes=10)
    20480
    """
    if megabytes is None:
        return 0
    per_row = (models + 2) * classes * _DOUBLE * _WORKING
    held = rows * (classes * _DOUBLE * _KEPT + (models + 2) * classes * _FLOAT + features * _FLOAT)
    least, allowed = held + min(rows, _ROWS) * per_row, megabytes * _MEGABYTE
    if least > allowed:
        raise UserError(
            f"mrtf_args.refine_memory_mb is {megabytes}, but refining {rows} rows of {classes} classes with {models} "
            f"clients takes {-(-least // _MEGABYTE)} at least; raise it, or leave it out"
        )
    block = max(_ROWS, (allowed - held) // per_row // _ROWS * _ROWS)
    return 0 if block >= rows else block
