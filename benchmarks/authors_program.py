"""The authors' released program and our `ReleasedMrTF`: both run every round, with the same clients.

    git clone https://github.com/lxcnju/MrTF
    python benchmarks/authors_program.py MrTF config.yaml --set threads=1 --seeds 0 1 2 --draws 0 1 --out rounds.jsonl
    python benchmarks/authors_figures.py rounds.jsonl

Nothing of the program is here: it is imported from the folder as it was cloned. Its iterator's `next`, which PyTorch no
longer has, is given back. It is handed our shards, the server's inputs, our initial weights in our net, and in every
round the clients that ours has drawn; after each of our rounds it plays the same one, so that both are timed by turns.
A draw has batches and refining orders of its own on the same setup.

`--images` hands it bytes, each sample made a picture and a tensor whenever it is read, in place of tensors made once.
`--same-models` hands it our clients' trained models in place of its own, so that all but the refined model must be
equal.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml
from authors_adapter import Halves, Pictures, timed_program
from torch.utils.data import Subset, TensorDataset

from mrtf_fedml.algorithms import MrTF
from mrtf_fedml.algorithms.sampling import select_clients
from mrtf_fedml.callbacks.base import Callback
from mrtf_fedml.config import RunSettings
from mrtf_fedml.config.loader import apply_values, read_config
from mrtf_fedml.data import load
from mrtf_fedml.data.server_set import load_server_set
from mrtf_fedml.data.sources import load_run_source
from mrtf_fedml.fedml_bridge.adapters import make_adapters
from mrtf_fedml.fedml_bridge.args import make_arguments
from mrtf_fedml.fedml_bridge.backends.single_process import SingleProcess
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.models import create_model
from mrtf_fedml.phases import DISTILLING, LOCAL, TARGETS, TEACHERS, measured_phases
from mrtf_fedml.training.loop import Run

_CPU = torch.device("cpu")
#: Ours are named by what they are scored on.
_ACCURACIES = ("acc_aggregated", "acc_ensemble", "acc_targets", "acc_refined")


class ProgramRunner(Callback):
    """After each of our rounds the program's: what both have reached, and what it took them."""

    def __init__(self, program: Any, evaluator: Any, seed: int, phases: dict[str, float]) -> None:
        self.program, self.evaluator, self.seed, self.phases = program, evaluator, seed, phases
        self.rounds: list[dict[str, Any]] = []

    def on_start(self, run: Run) -> None:
        """Its draws are from the global state."""
        torch.manual_seed(self.seed)
        np.random.seed(self.seed)
        self._go_on()

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """The clock stops, and the program plays the round with these clients."""
        seconds = {name: taken - self.known.get(name, 0.0) for name, taken in self.phases.items()}
        ours = _parts(
            time.process_time() - self.began,
            local=seconds[LOCAL],
            teachers=seconds[TEACHERS] + seconds[TARGETS],
            distilling=seconds[DISTILLING],
        )
        began, program = time.process_time(), self.program
        # One round of all that there are is one of those that were chosen.
        program.clients = line["clients"]
        assert run.record is not None
        program.updates = {update.client: update for update in run.record.replies.updates}
        program.seconds.clear()
        program.train()
        spent, parts = time.process_time() - began, program.seconds
        teachers = parts["teachers and targets"]
        theirs = _parts(spent, parts["local"], teachers, parts["refining"] - teachers, parts["testing"])
        logs, targets = program.logs, run.record.report.predictions["targets"]
        reached = (
            logs["GLO_TACCS"][-1],
            self.evaluator.score(torch.from_numpy(program.ensemble)),
            self.evaluator.score(program.glo_probs),
            logs["REF_TACCS"][-1],
        )
        self.rounds.append(
            {
                "round": line["round"],
                "targets_apart": float((targets - program.glo_probs).abs().max()),
                "ours": {**{name: line[name] for name in _ACCURACIES}, "loss": line["train_loss"], "seconds": ours},
                "theirs": {
                    **dict(zip(_ACCURACIES, reached, strict=True)),
                    "loss": logs["LOSSES"][-1],
                    "seconds": theirs,
                },
            }
        )
        self._go_on()

    def _go_on(self) -> None:
        self.known, self.began = dict(self.phases), time.process_time()


def _parts(whole: float, local: float, teachers: float, distilling: float, testing: float = 0.0) -> dict[str, float]:
    """CPU seconds; ours has no testing of its own: it is a teacher's pass, and what is scored of what is known."""
    rest = whole - local - teachers - distilling
    return {"whole": whole, "local": local, "teachers": teachers, "distilling": distilling, "rest": rest} | (
        {"testing": testing} if testing else {}
    )


def run_both(config: dict[str, Any], seed: int, draw: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The rounds of one seed and one draw, by both."""
    config = apply_values(config, {"partition_seed": seed, "random_seed": seed + 1000 * draw}, "--set")
    with tempfile.TemporaryDirectory() as runs, measured_phases() as phases:
        config = apply_values(config, {"run_dir": str(Path(runs) / "run")}, "--set")
        settings = RunSettings.from_config(config)
        train, refinery = settings.train, settings.algorithm_section(MrTF.Settings, MrTF.section)
        dataset = load(settings)
        labels = load_server_set(load_run_source(settings.data), settings.data, dataset.input_shape).labels
        assert labels is not None, "the curves need y_test"
        model = create_model(settings.model, dataset.input_shape, dataset.class_num, seed=seed)
        as_given: Any = Pictures if given.images else TensorDataset
        everything = as_given(dataset[5][0].inputs, dataset[5][0]._all_labels)
        shards = {client: Subset(everything, shard.indices.tolist()) for client, shard in dataset[5].items()}
        halves = Halves(create_model(settings.model, dataset.input_shape, dataset.class_num, seed=seed))
        program = timed_program(given.folder, given.same_models)(
            {client: (shard, shard) for client, shard in shards.items()},
            as_given(dataset.server_inputs.clone(), torch.from_numpy(np.asarray(labels)).long()),
            halves,
            SimpleNamespace(
                **{"dataset": "ours", "n_classes": dataset.class_num, "cuda": False, "max_round": 1, "test_round": 1},
                **{"c_ratio": 1.0, "batch_size": train.batch_size, "local_epochs": train.epochs, "local_steps": None},
                **{"optimizer": "SGD", "lr": train.learning_rate, "momentum": train.momentum, "dp_sigma": 0.0},
                **{"weight_decay": train.weight_decay, "max_grad_norm": train.clip_grad_norm, "ref_alpha": 0.1},
                **{"ref_way": "ALL", "add_glo": True, "glo_w": True, "ref_steps": refinery.refine_steps},
            ),
        )
        args = initialize(make_arguments(settings))
        runner = SingleProcess(args, _CPU, dataset, *(half(model, args) for half in make_adapters(MrTF)))
        turns = ProgramRunner(program, dataset.evaluator, seed + 1000 * draw, phases)
        # The last: what the others do in a round belongs to it.
        runner.session.run.callbacks.append(turns)

        def select_by_seed(settings: Any, round_index: int, *others: Any) -> list[int]:
            return select_clients(round_index, train.client_num_in_total, train.client_num_per_round, seed)

        # All draws of a seed have the same clients.
        with patch("mrtf_fedml.training.round.select_clients", select_by_seed):
            runner.run()
    return turns.rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the program as it was cloned")
    parser.add_argument("config", type=Path, help="a configuration of ours; its algorithm becomes ReleasedMrTF")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the split, the weights and the clients")
    parser.add_argument("--draws", type=int, nargs="+", default=[0], help="of the batches, for every seed")
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--same-models", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    changes = {key: yaml.safe_load(value) for key, value in (text.split("=", 1) for text in given.set)}
    config = apply_values(
        read_config(given.config), {"federated_optimizer": "benchmarks.paper.released:ReleasedMrTF", **changes}, "--set"
    )
    for seed in given.seeds:
        for draw in given.draws:
            rounds = run_both(config, seed, draw, given)
            with given.out.open("a") as file:
                file.writelines(json.dumps({"seed": seed, "draw": draw, **line}) + "\n" for line in rounds)


if __name__ == "__main__":
    main()
