"""An experiment limited to some of its panels, and a figure that states what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper.catalogue import EXPERIMENTS
from benchmarks.paper.datasets import DataFolder
from benchmarks.paper.experiment import Request, parse_only, select_panels, to_ascii
from benchmarks.paper.results import output_folder, visible_changes
from mrtf_fedml.errors import UserError


def test_select_panels_accepts_ascii_and_keeps_the_papers_order() -> None:
    compare = EXPERIMENTS["compare"]
    assert select_panels([], [], compare) == ()
    assert select_panels(["mnist, alpha=.1", "MNIST,C=3"], [], compare) == ("MNIST, C̄=3", "MNIST, α=0.1")
    assert len(select_panels(["C=3"], [], compare)) == 4
    assert select_panels(["C=3"], ["svhn"], compare) == ("SVHN, C̄=3",)
    assert select_panels(["alpha=1"], ["svhn"], EXPERIMENTS["cross-domain"]) == ("SVHN→MNISTm, α=1.0",)
    assert select_panels(["sigma=0.001"], [], EXPERIMENTS["dp"]) == ("σ=0.001",)
    assert select_panels(["K=1000,E=5,svhn"], [], EXPERIMENTS["scenes"]) == (
        "SVHN, C̄=5, K=1000, E=5",
        "SVHN, α=1.0, K=1000, E=5",
    )


def test_every_panel_can_be_selected_in_ascii() -> None:
    for experiment in EXPERIMENTS.values():
        for title in experiment.panels:
            typed = ",".join(to_ascii(part) for part in title.split(", "))
            assert typed.isascii()
            assert select_panels([typed], [], experiment) == (title,)


def test_select_panels_refuses_unknown_panels() -> None:
    for panels, only, experiment, message in (
        (["C=4"], [], "compare", "no panel of the experiment compare is named 'c=4'; it has mnist, c=5, c=3"),
        (["cifar10"], ["mnist"], "compare", "--panel cifar10 with --only mnist"),
        (["C=5,C=3"], [], "ablation", "its panels: svhn,c=5,k=100,e=3;"),
        (["C=5"], [], "logi", "the experiment logi has none"),
    ):
        with pytest.raises(UserError, match=message):
            select_panels(panels, only, EXPERIMENTS[experiment])


def test_required_datasets_are_those_of_the_selected_panels() -> None:
    data_folder, experiment = DataFolder(Path("nowhere")), EXPERIMENTS["cross-domain"]
    only = parse_only("svhn", experiment)
    assert experiment.required_datasets(Request(data_folder, Path(), panels=select_panels([], only, experiment))) == [
        "svhn",
        "mnistm",
    ]
    compare = EXPERIMENTS["compare"]
    assert compare.required_datasets(
        Request(data_folder, Path(), panels=select_panels(["cifar10,C=3"], [], compare))
    ) == ["cifar10"]
    assert EXPERIMENTS["obser"].required_datasets(Request(data_folder, Path(), only=["mnist"])) == ["mnist"]


def test_output_folder_depends_on_changes() -> None:
    data_folder, experiment = DataFolder(Path("nowhere")), EXPERIMENTS["dp"]
    plain = output_folder(experiment, Request(data_folder, Path("out")))
    assert (
        output_folder(experiment, Request(data_folder, Path("out"), changes=["threads=1"])) == plain == Path("out/dp")
    )
    folders = {
        output_folder(
            experiment, Request(data_folder, Path("out"), changes=changes, grid=grid, panel_options=panels)
        ).name
        for changes, grid, panels in (
            (["model=lenet"], False, []),
            (["model_args.model=mlp"], False, []),
            ([], True, []),
            ([], False, ["σ=0.1"]),
        )
    }
    assert {"dp-grid", "dp-sigma=0.1"} < folders
    assert sorted(name.rpartition("-")[0] for name in folders if "set" in name) == ["dp-set-model"] * 2
    secret = Request(data_folder, Path("out"), changes=["wandb_key=1a2b", "epochs=1"])
    assert visible_changes(secret) == ["wandb_key=(not shown)", "epochs=1"]
