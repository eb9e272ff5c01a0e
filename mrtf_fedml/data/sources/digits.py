"""The handwritten digits that come with scikit-learn: real data that needs no file and no network.

1797 images of 8x8 pixels by 43 writers (E. Alpaydin, C. Kaynak, 1998, UCI Machine Learning Repository).
"""

from __future__ import annotations

import numpy as np

from ...randomness import numpy_generator
from ...settings import DataSettings
from .checks import checked_source
from .source import Source

#: The darkest grey of the original, whose pixels count ink in blocks of 4x4.
DARKEST = 16


def load_digits(settings: DataSettings) -> Source:
    """Two thirds of the digits for the clients, one third (599) for the server.

    The cut is the same for every seed: runs that differ in `random_seed` label the same samples.
    """
    # Imported here, since it takes as long as torch and no other source needs it.
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / DARKEST)).astype(np.uint8)
    order = numpy_generator(0, "digits", "server").permutation(len(images))
    server, clients = np.split(order, [len(images) // 3])
    return checked_source(
        "digits",
        "scikit-learn's digits",
        x_train=images[clients],
        y_train=digits.target[clients],
        x_test=images[server],
        y_test=digits.target[server],
        class_names=[str(name) for name in digits.target_names],
    )
