"""Every figure and table that can be reproduced, by the word on the command line."""

from __future__ import annotations

from ...errors import UserError, nearest
from ...settings import PRESETS
from .demo import LOGI
from .federated import FEDERATED
from .observation import OBSER
from .scene import Scene
from .splits import DATA, TABLE_DATA

_BY_NAME = {scene.name: scene for scene in (DATA, OBSER, LOGI, TABLE_DATA, *FEDERATED)}
#: In the order in which they stand in the paper.
_ORDER = (
    *("data", "obser", "drawback", "table-data", "logi", "compare", "compare-cifar100", "compare-other", "scenes"),
    *("ablation", "cross-domain", "dp"),
)
SCENES = {name: _BY_NAME[name] for name in _ORDER}
#: The figures of the paper that show no measurement.
NO_MEASUREMENT = {"Fig. teaser": "the setting", "Fig. algo": "the procedure"}
ALL = "all"


def scene_named(word: str) -> Scene:
    """The scene, or a sentence with the one that was meant.

    >>> scene_named("dp").place
    'Table dp (Sect. 5.5)'
    """
    if word not in SCENES:
        raise UserError(f"the paper has no scene {word!r}; {nearest(word, list(SCENES))} (mrtf reproduce --list)")
    return SCENES[word]


def presets_named(words: str) -> tuple[str, ...]:
    """The presets of `--preset`: one, several with commas between, or all.

    >>> presets_named("paper,tuned")
    ('paper', 'tuned')
    """
    names = [word.strip() for word in words.split(",") if word.strip()]
    if names == [ALL]:
        return tuple(PRESETS)
    for name in names or [words]:
        if name not in PRESETS:
            raise UserError(f"--preset: there is no preset {name!r}; {nearest(name, [*PRESETS, ALL])}")
    return tuple(dict.fromkeys(names))
