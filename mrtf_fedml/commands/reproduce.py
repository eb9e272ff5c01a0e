"""`mrtf reproduce`: a figure or table of the paper, run again."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from ..errors import UserError
from ..experiments.progress import ComparisonProgress
from ..experiments.reproduce.catalogue import SCENES, presets_named, scene_named
from ..experiments.reproduce.choosing import datasets_named, panels_named
from ..experiments.reproduce.listing import listed
from ..experiments.reproduce.page import PAGE, write_page
from ..experiments.reproduce.parameters import Budget
from ..experiments.reproduce.results import outcome_text, write
from ..experiments.reproduce.scene import Request, Scene
from ..experiments.reproduce.shelf import Shelf
from ..process.signals import code_of, end_without_a_word
from ..settings.secrets import words_without_secrets


def reproduce(options: argparse.Namespace) -> int:
    """Run the scene, or list all, or write the page of those that are done."""
    stand_in = list(options.stand_in or [])
    if options.scene is None and stand_in and stand_in[-1] in SCENES:
        # `--stand-in SCENE`: the word behind the option was the scene.
        options.scene, stand_in[-1] = stand_in[-1], ""
    scene = scene_named(options.scene) if options.scene is not None else None
    request = _request(options, stand_in, scene)
    if options.list:
        print(listed(request))
        return 0
    if scene is None:
        return _page(request, options.page)
    request.shelf.require(scene.needed(request), scene.name)
    _require_writable(request.out)
    return _play(scene, request)


def _request(options: argparse.Namespace, stand_in: list[str], scene: Scene | None) -> Request:
    if options.seeds is not None and options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}; at least one is needed")
    if options.jobs < 1:
        raise UserError(f"--jobs is {options.jobs}; at least one run must be at work")
    if (options.only or options.panel) and scene is None:
        raise UserError("--only and --panel confine a scene to some of its parts; name the scene too")
    if scene is not None and not scene.panels and (options.set or options.grid):
        option = "--set" if options.set else "--grid"
        raise UserError(f"{option} is for federated runs, and the scene {scene.name} has none; leave it out")
    only = datasets_named(options.only, scene) if scene else ()
    return Request(
        shelf=Shelf(Path(options.data).expanduser(), stand_in),
        out=Path(options.out),
        presets=presets_named(options.preset),
        budget=Budget(options.budget),
        seeds=options.seeds or (scene.seeds if scene else 1),
        jobs=options.jobs,
        only=only,
        panels=panels_named(options.panel, only, scene) if scene else (),
        asked_panels=options.panel,
        grid=options.grid,
        changes=options.set,
        progress=ComparisonProgress(),
    )


def _page(request: Request, asked: bool) -> int:
    if not asked:
        raise UserError(f"name a scene to reproduce: {', '.join(SCENES)}; or --list, or --page")
    page = write_page(request.out)
    if page is None:
        raise UserError(f"no scene is done yet in {str(request.out)!r}; begin with `mrtf reproduce logi --stand-in`")
    print(f"The page is {page}")
    return 0


def _require_writable(out: Path) -> None:
    """Found out before anything runs: it may take days."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"--out: {str(out)!r} cannot be written ({error.strerror}); name another folder") from None


def _play(scene: Scene, request: Request) -> int:
    command = _command(sys.argv[1:], scene)
    if not scene.refines and request.presets != ("paper",):
        request.progress.tell(f"{scene.name}: no model is refined here, so --preset changes nothing")
    try:
        outcome = scene.play(request)
        folder = write(scene, request, outcome, command)
        write_page(request.out)
    except KeyboardInterrupt as interrupt:
        code = code_of(interrupt)
        end_without_a_word(code)
        request.progress.close()
        print(f"mrtf: interrupted; what is done is kept in {request.out}; go on with: {command}", file=sys.stderr)
        return code
    print(outcome_text(scene, request, outcome, folder))
    print(f"The page of all scenes done so far is {request.out / PAGE}")
    return 0


def _command(words: list[str], scene: Scene) -> str:
    """What was typed, to be typed again; where a program called us, the scene alone."""
    return (
        shlex.join(["mrtf", *words_without_secrets(words)])
        if words[:1] == ["reproduce"]
        else f"mrtf reproduce {scene.name}"
    )
