"""A map of the server's samples by their features, in two dimensions (t-SNE)."""

from __future__ import annotations

from html import escape

import numpy as np
import numpy.typing as npt

from .artifacts import COMPONENTS, Floats, select_samples
from .charts import shorten_names
from .plot import dot_path
from .run_data import Predictions

#: Fewer samples have no feature map.
MIN_SAMPLES = 8

#: The size in SVG units, and the minimum and the usual width in pixels, at which labels must not overlap.
_SIZE, _NARROW_WIDTH, _WIDE_WIDTH = 1000, 330, 620
#: Pixels of a letter and of a line of the labels, and the number of letters that fit inside a marker.
_NAME_LETTER_WIDTH, _LINE_HEIGHT, _MAX_INSIDE = 7.5, 22, 2


def feature_map(
    predictions: Predictions, features: Floats, features_index: npt.NDArray[np.int64] | None = None
) -> str | None:
    """The map as HTML; None for too few samples or constant features.

    Args:
        predictions: the predictions of the run.
        features: h(x), one row per sample of `features_index`.
        features_index: the samples of the features; None for all samples.
    """
    selected, uncertain = select_samples(predictions.confidences)
    if features_index is not None:
        selected, uncertain = features_index, np.isin(features_index, selected[uncertain])
    used = features if features_index is not None else features[selected]
    rows = np.asarray(used, dtype=np.float64).reshape(len(selected), -1)
    if len(rows) < MIN_SAMPLES or not np.isfinite(rows).all() or np.ptp(rows, axis=0).max(initial=0) == 0:
        return None
    centres, classes = prototypes(predictions.probabilities[selected], rows)
    positions = embed_2d(np.concatenate([rows, centres]))
    samples, markers = positions[: len(rows)], positions[len(rows) :]
    labels = predictions.labels[selected]
    drawn = []
    for label in np.unique(labels).tolist():
        drawn.append(
            _dot_path(samples[(labels == label) & ~uncertain], class_colour(label, len(predictions.class_names)))
        )
    drawn.append(_dot_path(samples[uncertain], 'class="ring"'))
    drawn.append(_dot_path(samples[uncertain], 'class="hole"'))
    for label in np.unique(labels[uncertain]).tolist():
        drawn.append(
            _dot_path(samples[(labels == label) & uncertain], class_colour(label, len(predictions.class_names)))
        )
    names = shorten_names([predictions.class_names[label] for label in classes], 12)
    return (
        '<figure class="map"><svg role="img" aria-label="Features of the samples in two dimensions" '
        f'viewBox="0 0 {_SIZE} {_SIZE}">{"".join(drawn)}</svg>'
        f"{_prototype_labels(names, classes, markers, len(predictions.class_names))}</figure>"
    )


def prototypes(probabilities: Floats, features: Floats) -> tuple[Floats, list[int]]:
    """v_c = E[q_c(x) h(x)] / E[q_c(x)] (Eq. 11) for the predicted classes, and these classes."""
    classes = np.unique(probabilities.argmax(axis=1)).tolist()
    weights = np.asarray(probabilities[:, classes], dtype=np.float64)
    return (weights / weights.sum(axis=0)).T @ features, classes


def embed_2d(rows: Floats) -> npt.NDArray[np.int64]:
    """Positions [N, 2] by t-SNE of the normalized rows, as in the paper's cosine distance."""
    # Imported here: scikit-learn is slow to import, and few runs keep their features.
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length == 0, 1, length)
    # One thread: another order of sums would give another map.
    with threadpool_limits(1):
        if unit.shape[1] > COMPONENTS and len(unit) > COMPONENTS:
            unit = PCA(COMPONENTS, svd_solver="full").fit_transform(unit)
        start = "pca" if min(unit.shape) >= 2 else "random"
        perplexity = min(30.0, (len(unit) - 1) / 3)
        # Half the iterations and a coarser sum than usual suffice for clusters, and save time at the end of a run.
        tsne = TSNE(2, perplexity=perplexity, init=start, random_state=0, max_iter=500, angle=0.8)
        flat = tsne.fit_transform(unit)
    low, high = flat.min(axis=0), flat.max(axis=0)
    margin, room = 0.04 * _SIZE, 0.92 * _SIZE
    return (margin + room * (flat - low) / np.where(high > low, high - low, 1)).round().astype(np.int64)


def class_colour(label: int, classes: int) -> str:
    """The colour of a class as an attribute: a class of the style sheet for up to 10 classes, else a hue."""
    if classes <= 10:
        return f'class="c{label}"'
    # Steps of the golden angle give different hues to neighbouring classes.
    return f'style="--c:hsl({label * 137.5 % 360:.0f} 55% var(--light))"'


def _dot_path(positions: npt.NDArray[np.int64], attributes: str) -> str:
    return f'<path {attributes} d="{dot_path([tuple(position) for position in positions.tolist()])}"/>'


def _prototype_labels(names: list[str], classes: list[int], positions: npt.NDArray[np.int64], total: int) -> str:
    """Markers of the prototypes, with names that do not overlap on a narrow screen, or only on a wide one.

    A long name is above its marker and inside the map: it is centred at the marker in the middle of the map, and
    shifted inwards at the left and the right edge.
    """
    spots = [(name, left, top) for name, (left, top) in zip(names, positions.tolist(), strict=True)]
    narrow = _labels_without_overlap(spots, [], _NARROW_WIDTH)
    wide = _labels_without_overlap(spots, narrow, _WIDE_WIDTH)
    # Markers without a name come first, so that they do not cover a name.
    layers: tuple[list[str], list[str], list[str]] = ([], [], [])
    for index, ((name, left, top), label) in enumerate(zip(spots, classes, strict=True)):
        text = escape(name)
        layer = 2 if index in narrow else 1 if index in wide else 0
        is_long = len(name) > _MAX_INSIDE
        more = ' class="more"' if layer == 1 else ""
        tag = f'<em{more} style="transform:translateX(-{left / _SIZE:.0%})">{text}</em>'
        shown = "" if layer == 0 else tag if is_long else f"<b{more}>{text}</b>"
        colour = class_colour(label, total)
        bare = "bare" if is_long or not shown else ""
        named, tint = (colour[7:-1], "") if colour.startswith("class") else ("", colour[7:-1] + ";")
        where = f"{tint}left:{left / _SIZE:.1%};top:{top / _SIZE:.1%}"
        kind = f'class="{f"{named} {bare}".strip()}"'
        layers[layer].append(f'<span {kind} style="{where}" title="prototype of {text}">{shown}</span>')
    return "".join(sign for layer in layers for sign in layer)


def _labels_without_overlap(spots: list[tuple[str, int, int]], first: list[int], width: int) -> list[int]:
    """The indices of names that fit at a width of `width` pixels: those of `first`, then the others in order."""
    occupied: list[tuple[float, float, float]] = []
    fitting = []
    for index in [*first, *(index for index in range(len(spots)) if index not in first)]:
        name, left, top = spots[index]
        half = (len(name) * _NAME_LETTER_WIDTH + 16) / 2
        x, y = left * width / _SIZE + half * (1 - 2 * left / _SIZE), top * width / _SIZE
        if all(abs(x - other) > half + its or abs(y - line) > _LINE_HEIGHT for other, line, its in occupied):
            occupied.append((x, y, half))
            fitting.append(index)
    return fitting
