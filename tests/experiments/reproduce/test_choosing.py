"""A scene confined to some of its panels, and a figure that tells what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.reproduce.catalogue import SCENES
from mrtf_fedml.experiments.reproduce.choosing import datasets_named, panels_named, spelled
from mrtf_fedml.experiments.reproduce.results import changed, folder_of
from mrtf_fedml.experiments.reproduce.scene import Request
from mrtf_fedml.experiments.reproduce.shelf import Shelf


def test_panels_are_named_on_any_keyboard_and_stay_in_the_papers_order() -> None:
    compare = SCENES["compare"]
    assert panels_named([], [], compare) == ()
    assert panels_named(["mnist, alpha=.1", "MNIST,C=3"], [], compare) == ("MNIST, C̄=3", "MNIST, α=0.1")
    assert len(panels_named(["C=3"], [], compare)) == 4
    assert panels_named(["C=3"], ["svhn"], compare) == ("SVHN, C̄=3",)
    assert panels_named(["alpha=1"], ["svhn"], SCENES["cross-domain"]) == ("SVHN→MNISTm, α=1.0",)
    assert panels_named(["sigma=0.001"], [], SCENES["dp"]) == ("σ=0.001",)
    assert panels_named(["K=1000,E=5,svhn"], [], SCENES["scenes"]) == (
        "SVHN, C̄=5, K=1000, E=5",
        "SVHN, α=1.0, K=1000, E=5",
    )


def test_every_part_of_every_panel_can_be_typed() -> None:
    for scene in SCENES.values():
        for title in scene.panels:
            typed = ",".join(spelled(part) for part in title.split(", "))
            assert typed.isascii()
            assert panels_named([typed], [], scene) == (title,)


def test_panels_that_are_not_there_are_refused_with_those_that_are() -> None:
    for asked, only, scene, told in (
        (["C=4"], [], "compare", "no panel of the scene compare is named 'c=4'; it has mnist, c=5, c=3"),
        (["cifar10"], ["mnist"], "compare", "--panel cifar10 with --only mnist"),
        (["C=5,C=3"], [], "ablation", "its panels: svhn,c=5,k=100,e=3;"),
        (["C=5"], [], "logi", "the scene logi has none"),
    ):
        with pytest.raises(UserError, match=told):
            panels_named(asked, only, SCENES[scene])


def test_the_servers_data_are_asked_for_too_and_those_of_other_panels_are_not() -> None:
    shelf, scene = Shelf(Path("nowhere")), SCENES["cross-domain"]
    only = datasets_named("svhn", scene)
    assert scene.needed(Request(shelf, Path(), panels=panels_named([], only, scene))) == ["svhn", "mnistm"]
    compare = SCENES["compare"]
    assert compare.needed(Request(shelf, Path(), panels=panels_named(["cifar10,C=3"], [], compare))) == ["cifar10"]
    assert SCENES["obser"].needed(Request(shelf, Path(), only=["mnist"])) == ["mnist"]


def test_what_was_changed_is_told_and_has_a_folder_of_its_own() -> None:
    shelf, scene = Shelf(Path("nowhere")), SCENES["dp"]
    plain = folder_of(scene, Request(shelf, Path("out")))
    assert folder_of(scene, Request(shelf, Path("out"), changes=["threads=1"])) == plain == Path("out/dp")
    folders = {
        folder_of(scene, Request(shelf, Path("out"), changes=changes, grid=grid, asked_panels=panels)).name
        for changes, grid, panels in (
            (["model=lenet"], False, []),
            (["model_args.model=mlp"], False, []),
            ([], True, []),
            ([], False, ["σ=0.1"]),
        )
    }
    assert {"dp-grid", "dp-sigma=0.1"} < folders
    assert sorted(name.rpartition("-")[0] for name in folders if "set" in name) == ["dp-set-model"] * 2
    secret = Request(shelf, Path("out"), changes=["wandb_key=1a2b", "epochs=1"])
    assert changed(secret) == ["wandb_key=(not shown)", "epochs=1"]
