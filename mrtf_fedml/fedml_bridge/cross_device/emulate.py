"""The command that starts emulated devices for a dry run on one machine.

python -m mrtf_fedml.fedml_bridge.cross_device.emulate --cf cross_device.yaml --devices 1-4 [--set key=value]
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...data import load
from ...errors import RunStopped, UserError
from ...process.signals import code_of, hear_sigterm
from ...settings import RunSettings
from ...settings.yaml_file import Config, read_config, with_changes
from .bucket import Bucket
from .device_models import device_model
from .emulator import EmulatedDevice
from .pictures import as_on_device

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


def main(words: Sequence[str] | None = None) -> int:
    """Emulate devices until the run is over; 0 well, 1 no server, 2 a wrong setting, 130 or 143 interrupted."""
    parser = argparse.ArgumentParser(description="emulated devices for a run across devices")
    parser.add_argument("--cf", required=True, metavar="FILE.yaml", help="the run's configuration")
    parser.add_argument("--devices", required=True, metavar="A-B", help="their ids: 3, 1-4 or 1,5,7-9")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key")
    options = parser.parse_args(words)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    hear_sigterm()
    try:
        emulate(with_changes(read_config(options.cf), options.set), ids_in(options.devices))
    except UserError as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 2
    except RunStopped as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        return code_of(interrupt)
    return 0


def emulate(config: Config, ids: Sequence[int], kind: type[EmulatedDevice] = EmulatedDevice) -> None:
    """Emulate the devices of these ids until each of them has been told that the run is over."""
    settings = RunSettings.from_config(config)
    jobs: queue.Queue[Callable[[], None]] = queue.Queue()
    devices = _devices(settings, config.get("comm_args", {}), ids, jobs, kind)
    try:
        for device in devices:
            device.start()
        _work(devices, jobs, settings.silo.start_timeout)
    finally:
        for device in devices:
            device.stop()


def _devices(
    settings: RunSettings,
    comm: Mapping[str, Any],
    ids: Sequence[int],
    jobs: queue.Queue[Callable[[], None]],
    kind: type[EmulatedDevice],
) -> list[EmulatedDevice]:
    dataset = load(settings)
    shape = device_model(settings.model.model).twin(dataset.class_num).input_shape
    bucket = Bucket(comm.get("customized_training_s3_config"))
    broker = comm.get("customized_training_mqtt_config")
    if not isinstance(broker, Mapping):
        raise UserError("backend MQTT_S3_MNN needs comm_args.customized_training_mqtt_config; give it")
    devices = []
    for device in ids:
        if device - 1 not in dataset[5]:
            raise UserError(f"there are data for the devices 1 to {dataset.client_num} and not for device {device}")
        batches = list(dataset[5][device - 1])
        inputs = as_on_device(torch.cat([inputs for inputs, _ in batches]), shape)
        labels = torch.cat([labels for _, labels in batches])
        seed = settings.common.random_seed
        try:
            devices.append(kind(device, broker, bucket, inputs.numpy(), labels.numpy(), seed, jobs))
        except OSError as error:
            raise RunStopped(
                f"the MQTT broker at {broker['BROKER_HOST']}:{broker['BROKER_PORT']} cannot be reached: {error}"
            ) from error
    return devices


def _work(devices: list[EmulatedDevice], jobs: queue.Queue[Callable[[], None]], patience: float) -> None:
    """Do what comes, one job after another, as long as somebody has a run."""
    heard = time.monotonic()
    while not all(device.ended.is_set() for device in devices):
        with contextlib.suppress(queue.Empty):
            jobs.get(timeout=_LOOK_SECONDS)()
        if any(device.has_a_run for device in devices):
            heard = time.monotonic()
        if time.monotonic() > heard + patience:
            raise RunStopped(f"no server has started a run for {patience:g} s (comm_args.start_timeout)")


def ids_in(text: str) -> list[int]:
    """The ids that a list names.

    >>> ids_in("1,4-6")
    [1, 4, 5, 6]
    """
    ids: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            ids += range(int(first), int(last or first) + 1)
    except ValueError:
        raise UserError(f"--devices {text!r} is no list of ids such as 1-4 or 1,5,7-9") from None
    return ids


if __name__ == "__main__":
    sys.exit(main())
