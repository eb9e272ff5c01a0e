"""Work that is no federated run, kept piece by piece, so that a scene that was killed does none of it twice."""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...rounds.inputs import file_stamps
from ...rounds.whole_file import replace_file
from ...settings import DataSettings
from ...version import __version__
from ..progress import ComparisonProgress
from .shelf import Data

Arrays = dict[str, npt.NDArray[Any]]
_SECONDS = "seconds"


class Pieces:
    """The finished pieces of a scene, in `out`/pieces.

    Args:
        out: the folder of all reproductions.
        scene: whose they are.
        progress: where the bar goes.
        number: how many pieces there will be.
    """

    def __init__(self, out: Path, scene: str, progress: ComparisonProgress, number: int) -> None:
        self.folder = out / "pieces"
        self.scene = scene
        self.seconds = 0.0
        self._progress, self._number, self._done = progress, number, 0
        progress.start(number, 0, "piece", scene)

    def get(self, data: Data, facts: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
        """The arrays of the piece that these facts tell from others; made where they are not there yet."""
        stamps = file_stamps(DataSettings(**data.args))
        known = {**facts, "for": data.dataset.name, "data": data.args, "stamps": stamps, "version": __version__}
        text = json.dumps(known, sort_keys=True, default=str)
        file = self.folder / f"{self.scene}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        arrays = self._kept(file)
        if arrays is None:
            began = time.perf_counter()
            arrays = {**make()}
            arrays[_SECONDS] = np.array(time.perf_counter() - began)
            content = io.BytesIO()
            np.savez_compressed(content, **arrays)
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(file, content.getvalue())
        self.seconds += float(arrays.pop(_SECONDS))
        self._done += 1
        self._progress.show(lambda: self._done)
        return arrays

    def close(self) -> None:
        """Leave the bar where it stands."""
        self._progress.close()

    def _kept(self, file: Path) -> Arrays | None:
        try:
            with np.load(file, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
        # Not there, or cut off by a disk that was full: it is made again.
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None
