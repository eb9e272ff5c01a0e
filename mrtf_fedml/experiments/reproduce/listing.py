"""`mrtf reproduce --list`: every figure and table, with what it needs, its hyper-parameters, and its time."""

from __future__ import annotations

from collections.abc import Mapping

from ...algorithms.fedmmd import FedMMDSettings
from ...algorithms.fedopt import FedOptSettings
from ...algorithms.fedprox import FedProxSettings
from ...algorithms.scaffold import ScaffoldSettings
from ...settings import PRESETS, MrTFSettings, TrainSettings
from .catalogue import NO_MEASUREMENT, SCENES
from .datasets import DATASETS
from .estimate import Stopwatch
from .parameters import SMALL, Budget
from .results import finished, minutes
from .scene import Request, Scene


def listed(request: Request) -> str:
    """The list, for a terminal."""
    watch = Stopwatch()
    done: dict[str, list[dict[str, object]]] = {}
    for _, result in finished(request.out):
        done.setdefault(result["scene"], []).append(result)
    blocks = [_block(scene, request, watch, done.get(scene.name, [])) for scene in SCENES.values()]
    blocks.append(_everywhere())
    blocks.append("without a measurement: " + "; ".join(f"{place} ({what})" for place, what in NO_MEASUREMENT.items()))
    blocks.append(_data(request))
    return "\n\n".join(blocks)


def _block(scene: Scene, request: Request, watch: Stopwatch, results: list[dict[str, object]]) -> str:
    lines = [f"{scene.name}: {scene.place}", f"  {scene.shows}", f"  the paper says: {scene.claim}"]
    lines += [f"  {line}" for line in scene.parameters]
    missing = request.shelf.missing(scene.datasets)
    needs = [DATASETS[name].title + (" (missing)" if name in missing else "") for name in scene.datasets]
    lines.append(f"  needs: {', '.join(needs)}")
    shares = dict.fromkeys((1.0, request.budget.share if request.budget.share < 1 else SMALL))
    times = [f"{minutes(watch.seconds(scene.cost(Budget(share))))} at --budget {share:g}" for share in shares]
    if scene.cost(Budget()):
        lines.append(f"  takes one core here, about, for one seed{' and preset' * scene.refines}: {', '.join(times)}")
    else:
        lines.append("  takes here: as long as reading the data; nothing is trained")
    for result in results:
        seconds = minutes(float(str(result["seconds"])))
        lines.append(f"  done: {result['command']} ({seconds} of computing)")
    return "\n".join(lines)


def _everywhere() -> str:
    """What all federated runs share. The values are those that the runs take, so that none is told that is not so."""
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
        f"  MrTF: tau {ours.temperature:g}; clustering by {ours.cluster_distance} distance, tau "
        f"{ours.cluster_temperature:g}, {ours.cluster_steps} step, after {ours.cluster_warmup} rounds; u_t = 0.25 + "
        "0.75 * mean local loss / log C",
        *(f"  MrTF ({preset}): {_as_words(changes)}" for preset, changes in PRESETS.items() if changes),
        "  networks: mlp 1024-1024-128 (2 in place of 128 in Fig. obser); lenet; convnet (FedAvg's); vgg8, 5 "
        "convolutions and 3 full layers; resnet8, resnet20; fecnn (LEAF's); charlstm (FedAvg's)",
        "  features: the last hidden layer's of mlp and charlstm, the flattened convolutions' of the others",
    ]
    return "\n".join(lines)


def _as_words(changes: Mapping[str, object]) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in changes.items()
    )


def _data(request: Request) -> str:
    lines = [f"Data are looked for in {request.shelf.folder} (--data names another folder):"]
    for name, dataset in DATASETS.items():
        state = "missing" if request.shelf.missing([name]) else "there"
        stands_in = "" if state == "missing" else request.data(name).stands_in
        state = f"stood in for by {stands_in}" if stands_in else state
        lines.append(
            f"  {dataset.title} ({state}; N={dataset.samples}, M={dataset.server_samples}, C={dataset.classes}): "
            f"{', '.join(dataset.files)}, or {name}.npz"
        )
    lines.append(
        "NAME.npz holds x_train, y_train, x_test and y_test; --stand-in runs on embedded digits what is missing."
    )
    lines.append("Times are of one core, estimated from one measured step of each network; a run's start adds seconds.")
    return "\n".join(lines)
