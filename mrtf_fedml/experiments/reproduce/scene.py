"""What a scene of the paper is, what is asked of it, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..progress import ComparisonProgress
from .paper_numbers import paper_number
from .parameters import Budget
from .shelf import Data, Shelf

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    Attributes:
        shelf: the data.
        out: the folder of all reproductions.
        presets: MrTF's, each shown.
        budget: the fraction of the paper's size.
        seeds: how many, from 0 upwards.
        jobs: runs at once.
        only: datasets to which the scene is confined; none for all.
        panels: titles of the panels to which it is confined; none for all.
        asked_panels: `--panel` as it was typed.
        grid: whether all learning rates of the paper are tried.
        changes: `--set` of the federated runs' configurations.
        progress: where lines and the bar go.
    """

    shelf: Shelf
    out: Path
    presets: Sequence[str] = ("paper",)
    budget: Budget = field(default_factory=Budget)
    seeds: int = 1
    jobs: int = 1
    only: Sequence[str] = ()
    panels: Sequence[str] = ()
    asked_panels: Sequence[str] = ()
    grid: bool = False
    changes: Sequence[str] = ()
    progress: ComparisonProgress = field(default_factory=ComparisonProgress)

    def wanted(self, names: Sequence[str]) -> list[str]:
        """The datasets that are left of these."""
        return [name for name in names if not self.only or name in self.only]

    def data(self, name: str) -> Data:
        """What stands for one of the paper's datasets."""
        return self.shelf.data(name)


@dataclass(frozen=True)
class Number:
    """One number of ours, in the unit of the paper's: `what` is the name that the paper's number has, if there is one.

    Attributes:
        what: which it is.
        ours: the mean over seeds where there are several.
        variant: whose, where several of ours stand beside one of the paper's: a preset.
        digits: behind the point; of numbers that may be very small, the negative number of digits that count.
    """

    what: str
    ours: float
    variant: str = ""
    digits: int = 1


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper held here; None where what was run cannot tell."""

    claim: str
    held: bool | None
    evidence: str
    variant: str = ""


@dataclass(frozen=True)
class Outcome:
    """All that a scene shows."""

    figure: Figure
    numbers: list[Number]
    verdicts: list[Verdict]
    seconds: float
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Scene:
    """One figure or table.

    Attributes:
        name: the word on the command line.
        place: the figure or table, and the section.
        shows: the caption in a sentence.
        claim: what the paper says that it shows.
        datasets: that it needs.
        parameters: its hyper-parameters in full, a line each.
        play: runs it.
        cost: `(network, N, samples trained on, samples read)` of all its computing at a budget, for an estimate.
        refines: whether a preset of MrTF makes any difference to it.
        seeds: how many where the user names no number.
        lowers: what a budget lowers, in words; None where it is what it lowers in federated runs.
        panels: the titles of the panels that federated runs fill, and the datasets of each, the clients' first.
    """

    name: str
    place: str
    shows: str
    claim: str
    datasets: tuple[str, ...]
    parameters: tuple[str, ...]
    play: Callable[[Request], Outcome]
    cost: Callable[[Budget], list[Work]]
    refines: bool = True
    seeds: int = 1
    lowers: str | None = None
    panels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def needed(self, request: Request) -> list[str]:
        """The datasets without which what is asked for cannot be done."""
        if not self.panels:
            return request.wanted(self.datasets)
        chosen = [own for title, own in self.panels.items() if not request.panels or title in request.panels]
        return list(dict.fromkeys(name for own in chosen for name in own))

    def budget_sentence(self, budget: Budget) -> str:
        """What a budget changes, for every figure; nothing where it changes nothing."""
        if self.lowers is None or budget.share == 1:
            return budget.sentence()
        return f"budget {budget.share:g} of the paper's {self.lowers}" if self.lowers else ""


@dataclass(frozen=True)
class Work:
    """Samples that one network learns from and reads, on one dataset; the unit of an estimate."""

    dataset: str
    model: str
    trained: float
    read: float


def rows_of_numbers(scene: str, numbers: Sequence[Number]) -> list[list[str]]:
    """What, whose, the paper's number, ours, the difference, and the place in the paper."""
    rows = []
    for number in numbers:
        paper = paper_number(scene, number.what)
        precision = f".{number.digits}f" if number.digits >= 0 else f".{-number.digits}g"
        ours = f"{number.ours:{precision}}"
        theirs = "" if paper is None else f"{paper.value:g}"
        difference = "" if paper is None else f"{number.ours - paper.value:+{precision}}"
        place = "" if paper is None else paper.place
        rows.append([number.what, number.variant, theirs, ours, difference, place])
    return rows


NUMBERS_HEAD = ["what", "variant", "paper", "ours", "difference", "place in the paper"]
