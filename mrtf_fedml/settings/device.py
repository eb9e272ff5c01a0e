"""`device_args`: what computes."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import field_validator
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from .kinds import VALIDATED, Count, Steps
from .precision import Part, Word


@dataclass(frozen=True, config=VALIDATED)
class DeviceSettings:
    """`device_args`: what computes."""

    #: Compute on a GPU; a process that sees none is refused. Equal bytes are promised on the CPU only.
    using_gpu: bool = False
    #: Which GPU a single process takes, counted from 0. Under mpirun `gpu_mapping_file` says it, or
    #: the ranks of a host take turns.
    gpu_id: Steps = 0
    #: PyTorch threads per process. By default one process takes all cores, and ranks divide those of their host. Give
    #: it where bytes are compared: other numbers of threads agree within rounding only.
    threads: Count | None = None
    #: What models compute in. `bf16` multiplies and convolves in bfloat16 and keeps weights, losses and optimisers in
    #: float32; it is faster only where the hardware has it (docs/speed.md). `auto` takes it where every rank's has;
    #: across silos and devices, where nobody knows the others', it is float32. A mapping names parts: `{teachers:
    #: bf16}`, of `teachers`, `distilling` and `local`.
    precision: Word | dict[Part, Word] = "float32"
    #: Let the server read its set by compiled code (torch.compile). It needs a C++ compiler and some seconds of CPU at
    #: the start, and pays for convolutional nets and large sets (docs/speed.md). Results differ in the last bits.
    compile: bool = False

    @field_validator("precision", mode="before")
    @classmethod
    def _one_sentence(cls, value: Any) -> Any:
        # Of a choice between a word and a mapping pydantic would name the two types, not what to write.
        words = value.values() if isinstance(value, dict) else [value]
        parts = value if isinstance(value, dict) else ()
        if any(word not in get_args(Word) for word in words) or any(part not in get_args(Part) for part in parts):
            raise PydanticCustomError(
                "precision",
                "it should be float32, bf16 or auto; or a mapping of teachers, distilling or local to such a word, "
                "as in precision: {teachers: bf16}",
            )
        return value
