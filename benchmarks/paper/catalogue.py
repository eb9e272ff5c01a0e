"""Every figure and table that can be reproduced, and the list of them with estimated times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields

import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms.fedmmd import FedMMDSettings
from mrtf_fedml.algorithms.fedopt import FedOptSettings
from mrtf_fedml.algorithms.fedprox import FedProxSettings
from mrtf_fedml.algorithms.scaffold import ScaffoldSettings
from mrtf_fedml.config import PRESETS, ModelSettings, MrTFSettings, TrainSettings
from mrtf_fedml.errors import UserError, suggest_name
from mrtf_fedml.models import create_model
from mrtf_fedml.models.modes import eval_mode

from .datasets import DATASETS
from .experiment import SMALL, Budget, Experiment, Request, Workload
from .federated import FEDERATED
from .fig_data import DATA, TABLE_DATA
from .fig_logi import LOGI
from .fig_obser import OBSER
from .released import ReleasedSettings
from .results import format_duration, read_finished

_BY_NAME = {experiment.name: experiment for experiment in (DATA, OBSER, LOGI, TABLE_DATA, *FEDERATED)}
#: The order of the paper.
_ORDER = (
    *("data", "obser", "drawback", "table-data", "logi", "compare", "compare-cifar100", "compare-other", "scenes"),
    *("ablation", "cross-domain", "dp"),
)
EXPERIMENTS = {name: _BY_NAME[name] for name in _ORDER}
#: Figures of the paper without a measurement.
NO_MEASUREMENT = {"Fig. teaser": "the setting", "Fig. algo": "the procedure"}
ALL = "all"


def find_experiment(word: str) -> Experiment:
    """The experiment of this name; an unknown name raises a UserError with the nearest one.

    >>> find_experiment("dp").place
    'Table dp (Sect. 5.5)'
    """
    if word not in EXPERIMENTS:
        raise UserError(
            f"the paper has no experiment {word!r}; {suggest_name(word, list(EXPERIMENTS))} "
            "(python benchmarks/paper --list)"
        )
    return EXPERIMENTS[word]


#: Presets of MrTF, and the authors' program (`released.py`).
VARIANTS = (*PRESETS, "released")


def parse_presets(words: str) -> tuple[str, ...]:
    """The presets of `--preset`: one, several separated by commas, or all.

    >>> parse_presets("paper,tuned")
    ('paper', 'tuned')
    """
    names = [word.strip() for word in words.split(",") if word.strip()]
    if names == [ALL]:
        return VARIANTS
    for name in names or [words]:
        if name not in VARIANTS:
            raise UserError(f"--preset: there is no preset {name!r}; {suggest_name(name, [*VARIANTS, ALL])}")
    return tuple(dict.fromkeys(names))


#: The shape of one sample of each dataset.
_SHAPES = {"mnist": (1, 28, 28), "femnist": (1, 28, 28), "shakespeare": (80,)}
_COLOUR_SHAPE = (3, 32, 32)
#: Batch of the measured step: small, since `--list` waits for it; full where the cost of a step is mostly that of the
#: weights, which does not depend on the batch.
_BATCH, _FULL_BATCH = 16, {"mlp": 64}


class TimeEstimator:
    """Seconds per trained and per predicted sample of each network, measured once as CPU time on one core."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}

    def seconds(self, works: Sequence[Workload]) -> float:
        """The total time of the workloads."""
        total = 0.0
        for work in works:
            trained, read = self._of(work.model, _SHAPES.get(work.dataset, _COLOUR_SHAPE))
            total += work.trained * trained + work.read * read
        return total

    def _of(self, model: str, shape: tuple[int, ...]) -> tuple[float, float]:
        if (model, shape) not in self._known:
            self._known[model, shape] = _measure(model, shape)
        return self._known[model, shape]


def _measure(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = create_model(ModelSettings(model=name), shape, 80 if len(shape) == 1 else 10, seed=0)
        batch = _FULL_BATCH.get(name, _BATCH)
        inputs = torch.zeros(batch, *shape, dtype=torch.int64 if len(shape) == 1 else torch.float32)
        labels = torch.zeros(batch, dtype=torch.int64)
        # The first pass includes one-time initialisation.
        _step(model, inputs[:2], labels[:2])
        trained = _step(model, inputs, labels)
        with eval_mode(model), torch.inference_mode():
            began = time.process_time()
            model(inputs)
            read = time.process_time() - began
    finally:
        torch.set_num_threads(before)
    return trained / batch, read / batch


def _step(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    # CPU time and not wall time: the machine may be shared.
    began = time.process_time()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    return time.process_time() - began


def list_experiments(request: Request) -> str:
    """The list of all experiments, for a terminal."""
    watch = TimeEstimator()
    done: dict[str, list[dict[str, object]]] = {}
    for _, result in read_finished(request.out):
        done.setdefault(result["experiment"], []).append(result)
    blocks = [_block(experiment, request, watch, done.get(experiment.name, [])) for experiment in EXPERIMENTS.values()]
    blocks.append(_shared_parameters())
    blocks.append("without a measurement: " + "; ".join(f"{place} ({what})" for place, what in NO_MEASUREMENT.items()))
    blocks.append(_datasets_block(request))
    return "\n\n".join(blocks)


def _block(experiment: Experiment, request: Request, watch: TimeEstimator, results: list[dict[str, object]]) -> str:
    lines = [
        f"{experiment.name}: {experiment.place}",
        f"  {experiment.caption}",
        f"  the paper says: {experiment.claim}",
    ]
    lines += [f"  {line}" for line in experiment.parameters]
    missing = request.data_folder.missing(experiment.datasets)
    needs = [DATASETS[name].title + (" (missing)" if name in missing else "") for name in experiment.datasets]
    lines.append(f"  needs: {', '.join(needs)}")
    shares = dict.fromkeys((1.0, request.budget.share if request.budget.share < 1 else SMALL))
    times = [
        f"{format_duration(watch.seconds(experiment.cost(Budget(share))))} at --budget {share:g}" for share in shares
    ]
    if experiment.cost(Budget()):
        lines.append(
            f"  takes one core here, about, for one seed{' and preset' * experiment.refines}: {', '.join(times)}"
        )
    else:
        lines.append("  takes here: as long as reading the data; nothing is trained")
    for result in results:
        seconds = format_duration(float(str(result["seconds"])))
        lines.append(f"  done: {result['command']} ({seconds} of computing)")
    return "\n".join(lines)


def _shared_parameters() -> str:
    """The parameters that all federated runs share, read from the settings that the runs use."""
    train, ours, opt = TrainSettings(), MrTFSettings(), FedOptSettings()
    lines = [
        "In all federated runs:",
        f"  clients: SGD, momentum {train.momentum:g}; the paper does not say: weight decay {train.weight_decay:g}, "
        f"gradient's norm at most {train.clip_grad_norm:g}",
        f"  the paper does not say: FedProx's mu {FedProxSettings().fedprox_mu:g}; FedMMD's weight "
        f"{FedMMDSettings().mmd_weight:g}; FedOpt's server {opt.server_optimizer}, momentum {opt.server_momentum:g}, "
        f"step 1; Scaffold's option {ScaffoldSettings().scaffold_option}",
        f"  FedDF and MrTF: Adam {ours.refine_lr:g}, {ours.refine_steps} steps, batches of {ours.refine_batch_size} "
        "(the paper does not say the batch)",
        f"  MrTF: tau {ours.temperature:g}; clustering by cosine distance, tau "
        f"{ours.cluster_temperature:g}, 1 step, after {ours.cluster_warmup} rounds; u_t = 0.25 + "
        "0.75 * mean local loss / log C",
        *(f"  MrTF ({preset}): {_format_changes(changes)}" for preset, changes in PRESETS.items() if changes),
        f"  MrTF (released): {_format_changes(_released_changes())}; the rest is in benchmarks/paper/released.py",
        "  networks: mlp 1024-1024-128 (2 in place of 128 in Fig. obser); lenet; convnet (FedAvg's); vgg8, 5 "
        "convolutions and 3 full layers; resnet8, resnet20; fecnn (LEAF's); charlstm (FedAvg's)",
        "  features: the last hidden layer's of mlp and charlstm, the flattened convolutions' of the others",
    ]
    return "\n".join(lines)


def _released_changes() -> dict[str, object]:
    """The settings whose default in the authors' program differs from the paper."""
    paper, released = MrTFSettings(), ReleasedSettings()
    names = [field.name for field in fields(paper)]
    return {name: getattr(released, name) for name in names if getattr(released, name) != getattr(paper, name)}


def _format_changes(changes: Mapping[str, object]) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in changes.items()
    )


def _datasets_block(request: Request) -> str:
    lines = [f"Data folder: {request.data_folder.folder} (--data names another):"]
    for name, dataset in DATASETS.items():
        state = "missing" if request.data_folder.missing([name]) else "there"
        stand_in = "" if state == "missing" else request.data(name).stand_in
        state = f"replaced by {stand_in}" if stand_in else state
        lines.append(
            f"  {dataset.title} ({state}; N={dataset.samples}, M={dataset.server_samples}, C={dataset.classes}): "
            f"{', '.join(dataset.files)}, or {name}.npz"
        )
    lines.append(
        "NAME.npz holds x_train, y_train, x_test and y_test; --stand-in runs on embedded digits what is missing."
    )
    lines.append("Times are of one core, estimated from one measured step of each network; a run's start adds seconds.")
    return "\n".join(lines)
