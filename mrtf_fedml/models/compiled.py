"""`device_args.compile`: the server's model reads whole batches compiled by PyTorch (torch.compile).

Reading is where it gains; the training of convolutional nets would lose a third to a half (docs/speed.md).

Compiled code is made for one shape, and what it is made of must not depend on what a process has met before: the same
seed must give every backend the same bytes. So a rule looks at the batch alone: one with as many samples as a whole
one has runs compiled, all others run as the model is written. The feature tap, which needs the layers' hooks, does not
come here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn

from ..errors import UserError

_to_be_compiled: WeakSet[nn.Module] = WeakSet()
#: Each model of a process, in each precision: more than PyTorch's eight.
_MOST_VARIANTS = 64


def compile_reading(model: nn.Module) -> None:
    """From now on this model reads whole batches compiled; PyTorch compiles when it meets the first."""
    _to_be_compiled.add(model)


def is_compiled(model: nn.Module) -> bool:
    """Whether this model reads whole batches compiled."""
    return model in _to_be_compiled


def reading(model: nn.Module, inputs: Tensor, whole: int) -> Any:
    """model(inputs), compiled where the model is to be and the batch has `whole` samples.

    >>> import torch
    >>> reading(nn.Linear(2, 3), torch.zeros(4, 2), whole=4).shape
    torch.Size([4, 3])
    """
    if len(inputs) != whole or model not in _to_be_compiled:
        return model(inputs)
    try:
        return compiled_call()(model, inputs)
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UserError(
            f"device_args.compile: PyTorch cannot compile {type(model).__name__} here ({reason[:200]}); leave it out"
        ) from error


@cache
def compiled_call() -> Callable[[nn.Module, Tensor], Any]:
    """What calls a model by code that PyTorch makes for it and its inputs' shape."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_VARIANTS)
    # In this process: a pool of compiling processes would be forked from one that speaks MPI.
    return torch.compile(_called, dynamic=False, options={"compile_threads": 1})


def _called(model: nn.Module, inputs: Tensor) -> Any:
    return model(inputs)
