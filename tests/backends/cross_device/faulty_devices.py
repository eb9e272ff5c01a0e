"""Emulated devices with faults."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mrtf_fedml.fedml_bridge.backends.cross_device.device_models import ModelConverter
from mrtf_fedml.fedml_bridge.backends.cross_device.emulator import EmulatedDevice, emulate
from mrtf_fedml.fedml_bridge.backends.cross_device.mnn_file import MnnFile
from mrtf_fedml.fedml_bridge.backends.cross_device.mnn_training import TrainingParameters


class Truncating(EmulatedDevice):
    def train_model(self, model: bytes, parameters: TrainingParameters, round_index: str) -> bytes:
        return model[: len(model) // 2]


class WrongNetwork(EmulatedDevice):
    def train_model(self, model: bytes, parameters: TrainingParameters, round_index: str) -> bytes:
        other = ModelConverter("resnet20", 10)
        return other.to_mnn(other.torch_model.state_dict())


class Diverging(EmulatedDevice):
    def train_model(self, model: bytes, parameters: TrainingParameters, round_index: str) -> bytes:
        file = MnnFile(model)
        return file.replace_values([np.full(one.shape, np.nan) for one in file.parameters])


class RandomBytes(EmulatedDevice):
    def train_model(self, model: bytes, parameters: TrainingParameters, round_index: str) -> bytes:
        return b"\xde\xad\xbe\xef" * 5000


class Late(EmulatedDevice):
    """Replies to round 1 after the server's timeout."""

    seconds = 20.0

    def train_model(self, model: bytes, parameters: TrainingParameters, round_index: str) -> bytes:
        if round_index == "1":
            threading.Event().wait(self.seconds)
        return super().train_model(model, parameters, round_index)


def in_background(config: dict[str, Any], device: int, kind: type[EmulatedDevice]) -> threading.Thread:
    thread = threading.Thread(target=emulate, args=(config, [device], kind), daemon=True)
    thread.start()
    return thread
