"""`--only` and `--panel`: the parts of a scene that are meant, by words that any keyboard can type."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from ...errors import UserError, nearest
from .datasets import DATASETS
from .scene import Scene

_SPELLED = {"α": "alpha", "σ": "sigma", "→": "->"}


def datasets_named(words: str | None, scene: Scene) -> tuple[str, ...]:
    """The datasets of `--only`, each one that the scene has; none is all."""
    names = [word.strip().lower() for word in (words or "").split(",") if word.strip()]
    for name in names:
        if name not in scene.datasets:
            known = nearest(name, list(scene.datasets))
            what = "is no dataset of" if name in DATASETS else "is no dataset, so none of"
            raise UserError(f"--only: {name!r} {what} the scene {scene.name}; {known}")
    return tuple(names)


def panels_named(asked: Sequence[str], only: Sequence[str], scene: Scene) -> tuple[str, ...]:
    """The titles of the panels that are left, in the paper's order; none where nothing was asked for.

    One entry of `--panel`, such as `mnist,C=3`, means the panels that have all its parts; several entries add up.
    """
    if asked and not scene.panels:
        raise UserError(f"--panel chooses among federated runs, and the scene {scene.name} has none; leave it out")
    if not asked and not (only and scene.panels):
        return ()
    parts = {title: _parts(title.split(", ")) for title in scene.panels}
    known = list(dict.fromkeys(part for own in parts.values() for part in own))
    wanted = [_parts(entry.split(",")) for entry in asked]
    for word in (word for entry in wanted for word in entry if word not in known):
        raise UserError(f"--panel: no panel of the scene {scene.name} is named {word!r}; it has {', '.join(known)}")
    chosen = tuple(
        title
        for title, datasets in scene.panels.items()
        if (not only or datasets[0] in only) and (not asked or any(set(entry) <= set(parts[title]) for entry in wanted))
    )
    if not chosen:
        together = " and ".join(f"--panel {entry}" for entry in asked) + (f" with --only {','.join(only)}" * bool(only))
        raise UserError(f"no panel of the scene {scene.name} is meant by {together}; its panels: {_titles(scene)}")
    return chosen


def spelled(part: str) -> str:
    """One part of a panel's title as it is typed.

    >>> spelled("C̄=3"), spelled("α=1.0"), spelled("SVHN→MNISTm")
    ('c=3', 'alpha=1', 'svhn->mnistm')
    """
    text = "".join(_SPELLED.get(letter, letter) for letter in unicodedata.normalize("NFKD", part.strip()))
    name, equals, value = "".join(letter for letter in text if not unicodedata.combining(letter)).lower().partition("=")
    try:
        return f"{name.strip()}={float(value):g}" if equals else name
    except ValueError:
        return f"{name}={value}"


def _parts(words: Iterable[str]) -> list[str]:
    return [spelled(word) for word in words if word.strip()]


def _titles(scene: Scene) -> str:
    return "; ".join(",".join(_parts(title.split(", "))) for title in scene.panels)
