"""The server's samples as the model sees them: features in two dimensions, near where the model finds them alike."""

from __future__ import annotations

from html import escape

import numpy as np
import numpy.typing as npt

from .classes import shortened
from .facts import Answer, Floats
from .plot import dots

#: More samples are not drawn: the picture says no more, and takes long to make. They are chosen by even spacing.
MOST_SAMPLES = 1500
#: The least certain are always drawn, and marked.
UNCERTAIN = 24
#: Fewer samples have no landscape.
LEAST_SAMPLES = 8
#: Principal components of the features that are kept: what is beyond them is noise to a picture.
COMPONENTS = 50

#: The picture's inner units, and the pixels of its least and usual width, where names must not cover one another.
_SIDE, _NARROW, _WIDE = 1000, 330, 620
#: Pixels of a letter and of a line of the names, and how many letters have room in a sign.
_LETTER, _LINE, _SHORT = 7.5, 22, 2


def landscape(answer: Answer, features: Floats, known: npt.NDArray[np.int64] | None = None) -> str | None:
    """The picture; None where there are too few samples or the features tell nothing.

    Args:
        answer: of the run.
        features: h(x), a row for each sample of `known`.
        known: the samples whose features are there; None is all of them.
    """
    shown, uncertain = chosen_of(answer.confidences)
    if known is not None:
        shown, uncertain = known, np.isin(known, shown[uncertain])
    rows = np.asarray(features if known is not None else features[shown], dtype=np.float64).reshape(len(shown), -1)
    if len(rows) < LEAST_SAMPLES or not np.isfinite(rows).all() or np.ptp(rows, axis=0).max(initial=0) == 0:
        return None
    centres, classes = prototypes(answer.probabilities[shown], rows)
    places = embedded(np.concatenate([rows, centres]))
    samples, marks = places[: len(rows)], places[len(rows) :]
    labels = answer.labels[shown]
    drawn = []
    for label in np.unique(labels).tolist():
        drawn.append(_path(samples[(labels == label) & ~uncertain], colour_of(label, len(answer.class_names))))
    drawn.append(_path(samples[uncertain], 'class="ring"'))
    drawn.append(_path(samples[uncertain], 'class="hole"'))
    for label in np.unique(labels[uncertain]).tolist():
        drawn.append(_path(samples[(labels == label) & uncertain], colour_of(label, len(answer.class_names))))
    names = shortened([answer.class_names[label] for label in classes], 12)
    return (
        '<figure class="map"><svg role="img" aria-label="Features of the samples in two dimensions" '
        f'viewBox="0 0 {_SIDE} {_SIDE}">{"".join(drawn)}</svg>'
        f"{_signs(names, classes, marks, len(answer.class_names))}</figure>"
    )


def chosen_of(confidences: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Indices of the samples to draw, in order, and which of them are the least certain."""
    total = len(confidences)
    even = np.unique(np.linspace(0, total - 1, min(total, MOST_SAMPLES)).round().astype(np.int64))
    least = np.argsort(confidences, kind="stable")[:UNCERTAIN]
    shown = np.union1d(even, least)
    return shown, np.isin(shown, least)


def prototypes(probabilities: Floats, features: Floats) -> tuple[Floats, list[int]]:
    """v_c = E[q_c(x) h(x)] / E[q_c(x)] (Eq. 11) for the classes that some sample was given, and these classes."""
    classes = np.unique(probabilities.argmax(axis=1)).tolist()
    weights = np.asarray(probabilities[:, classes], dtype=np.float64)
    return (weights / weights.sum(axis=0)).T @ features, classes


def embedded(rows: Floats) -> npt.NDArray[np.int64]:
    """Places [N, 2] in the picture by t-SNE; rows in one direction are alike, as in the paper's cosine distance."""
    # Imported here: scikit-learn takes a second, and few runs keep their features.
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length == 0, 1, length)
    # One thread: sums in another order would give another picture.
    with threadpool_limits(1):
        if unit.shape[1] > COMPONENTS and len(unit) > COMPONENTS:
            unit = PCA(COMPONENTS, svd_solver="full").fit_transform(unit)
        start = "pca" if min(unit.shape) >= 2 else "random"
        perplexity = min(30.0, (len(unit) - 1) / 3)
        # Half the iterations and a coarser sum than usual: clusters stand apart long before, and a run waits for this.
        tsne = TSNE(2, perplexity=perplexity, init=start, random_state=0, max_iter=500, angle=0.8)
        flat = tsne.fit_transform(unit)
    low, high = flat.min(axis=0), flat.max(axis=0)
    margin, room = 0.04 * _SIDE, 0.92 * _SIDE
    return (margin + room * (flat - low) / np.where(high > low, high - low, 1)).round().astype(np.int64)


def colour_of(label: int, classes: int) -> str:
    """The colour of a class as an attribute: a class of the style sheet while these suffice, else a hue."""
    if classes <= 10:
        return f'class="c{label}"'
    # Steps of the golden angle keep neighbours apart.
    return f'style="--c:hsl({label * 137.5 % 360:.0f} 55% var(--light))"'


def _path(places: npt.NDArray[np.int64], attributes: str) -> str:
    return f'<path {attributes} d="{dots([tuple(place) for place in places.tolist()])}"/>'


def _signs(names: list[str], classes: list[int], places: npt.NDArray[np.int64], total: int) -> str:
    """The prototypes: each with its name where no other is in the way, on a narrow screen or only on a wide one.

    A name of more than a few letters stands above its sign, where it hides less, and within the picture: its own
    middle lies at the sign in the middle of the picture, its beginning at the left edge, its end at the right one.
    """
    spots = [(name, left, top) for name, (left, top) in zip(names, places.tolist(), strict=True)]
    narrow = _free(spots, [], _NARROW)
    wide = _free(spots, narrow, _WIDE)
    # Signs without a name come first: they must not lie over one.
    layers: tuple[list[str], list[str], list[str]] = ([], [], [])
    for place, ((name, left, top), label) in enumerate(zip(spots, classes, strict=True)):
        text = escape(name)
        layer = 2 if place in narrow else 1 if place in wide else 0
        long = len(name) > _SHORT
        more = ' class="more"' if layer == 1 else ""
        tag = f'<em{more} style="transform:translateX(-{left / _SIDE:.0%})">{text}</em>'
        shown = "" if layer == 0 else tag if long else f"<b{more}>{text}</b>"
        colour = colour_of(label, total)
        bare = "bare" if long or not shown else ""
        named, tint = (colour[7:-1], "") if colour.startswith("class") else ("", colour[7:-1] + ";")
        where = f"{tint}left:{left / _SIDE:.1%};top:{top / _SIDE:.1%}"
        kind = f'class="{f"{named} {bare}".strip()}"'
        layers[layer].append(f'<span {kind} style="{where}" title="prototype of {text}">{shown}</span>')
    return "".join(sign for layer in layers for sign in layer)


def _free(spots: list[tuple[str, int, int]], first: list[int], width: int) -> list[int]:
    """Which names have room in a picture of so many pixels: those of `first`, then the others as they come."""
    taken: list[tuple[float, float, float]] = []
    free = []
    for place in [*first, *(place for place in range(len(spots)) if place not in first)]:
        name, left, top = spots[place]
        half = (len(name) * _LETTER + 16) / 2
        x, y = left * width / _SIDE + half * (1 - 2 * left / _SIDE), top * width / _SIDE
        if all(abs(x - other) > half + its or abs(y - line) > _LINE for other, line, its in taken):
            taken.append((x, y, half))
            free.append(place)
    return free
