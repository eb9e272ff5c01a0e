"""A FedML project across silos that uses our adapters and does not call `register()`: FedML's own server runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from fedml.runner import FedMLRunner
from mpi4py import MPI
from safetensors.torch import save_file

from mrtf_fedml import MrTFAggregator, MrTFTrainer
from mrtf_fedml.data import load
from mrtf_fedml.fedml_bridge.args import settings_of
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.fedml_bridge.participants import make_model
from tests.fedml_bridge.fedml_project import fedml_arguments

CPU = torch.device("cpu")


class SavingAggregator(MrTFAggregator):
    """Saves the weights after each round: FedML's server ends the process when it is done."""

    def on_after_aggregation(self, aggregated_model_or_grad):  # type: ignore[no-untyped-def]
        """Save the next weights, and those that predict."""
        weights = super().on_after_aggregation(aggregated_model_or_grad)
        folder, state = Path(sys.argv[2]), self.server.state
        save_file(dict(weights), folder / f"weights-{state.round}.safetensors")
        save_file(dict(state.prediction_weights), folder / f"prediction-{state.round}.safetensors")
        return weights


def run(file: Path) -> None:
    """As FedML's own examples do it."""
    rank = MPI.COMM_WORLD.Get_rank()
    args = fedml_arguments(file, rank)
    # FedML's launcher sets it.
    args.worker_num = args.client_num_in_total
    args = initialize(args)
    settings = settings_of(args)
    dataset = load(settings)
    model = make_model(settings, dataset)
    aggregator = SavingAggregator(model, args)
    aggregator.bind_server_set(dataset.server_inputs, dataset.class_num)
    assert FedMLRunner.__init__.__module__ == "fedml.runner", "FedMLRunner is FedML's own"
    FedMLRunner(args, CPU, list(dataset), model, MrTFTrainer(model, args), aggregator).run()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
