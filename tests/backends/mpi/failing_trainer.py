"""A user's FedML program whose trainer raises in round 1."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fedml
from fedml.runner import FedMLRunner

import mrtf_fedml
from mrtf_fedml import MrTFAggregator, MrTFTrainer
from mrtf_fedml.data import load
from mrtf_fedml.fedml_bridge.args import settings_of
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.models import create_model
from tests.fedml_bridge.fedml_project import fedml_arguments


class FailingTrainer(MrTFTrainer):
    def train(self, train_data: Any, device: Any, args: Any) -> None:
        if args.round_idx == 1:
            raise RuntimeError("the disk is on fire")
        super().train(train_data, device, args)


def run(file: Path) -> None:
    """As FedML's own examples do it."""
    mrtf_fedml.register()
    args = initialize(fedml_arguments(file))
    settings = settings_of(args)
    dataset = load(settings)
    model = create_model(settings.model, dataset.input_shape, dataset.class_num, seed=0)
    device = fedml.device.get_device(args)
    runner = FedMLRunner(args, device, dataset, model, FailingTrainer(model, args), MrTFAggregator(model, args))
    print(f"rank {args.rank} holds {len(dataset.server_inputs)} of the server's inputs", flush=True)
    runner.run()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
