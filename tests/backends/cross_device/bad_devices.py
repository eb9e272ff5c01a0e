"""Emulated devices that do wrong, each in a way of its own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mrtf_fedml.fedml_bridge.cross_device.emulate import emulate
from mrtf_fedml.fedml_bridge.cross_device.emulator import EmulatedDevice
from mrtf_fedml.fedml_bridge.cross_device.exchange import Exchange
from mrtf_fedml.fedml_bridge.cross_device.mnn_file import MnnFile
from mrtf_fedml.fedml_bridge.cross_device.mnn_training import LocalTraining


class Truncating(EmulatedDevice):
    def local_result(self, model: bytes, how: LocalTraining, round_text: str) -> bytes:
        return model[: len(model) // 2]


class Mistaken(EmulatedDevice):
    def local_result(self, model: bytes, how: LocalTraining, round_text: str) -> bytes:
        other = Exchange("resnet20", 10)
        return other.to_file(other.twin.state_dict())


class Diverging(EmulatedDevice):
    def local_result(self, model: bytes, how: LocalTraining, round_text: str) -> bytes:
        file = MnnFile(model)
        return file.with_values([np.full(one.shape, np.nan) for one in file.parameters])


class Scribbling(EmulatedDevice):
    def local_result(self, model: bytes, how: LocalTraining, round_text: str) -> bytes:
        return b"\xde\xad\xbe\xef" * 5000


class Lazy(EmulatedDevice):
    """Sleeps through round 1, longer than the server waits, and then answers."""

    seconds = 20.0

    def local_result(self, model: bytes, how: LocalTraining, round_text: str) -> bytes:
        if round_text == "1":
            threading.Event().wait(self.seconds)
        return super().local_result(model, how, round_text)


def in_background(config: dict[str, Any], device: int, kind: type[EmulatedDevice]) -> threading.Thread:
    thread = threading.Thread(target=emulate, args=(config, [device], kind), daemon=True)
    thread.start()
    return thread
