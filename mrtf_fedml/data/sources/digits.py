"""`dataset: digits`: the handwritten digits of scikit-learn, real data without a file or a network.

1797 images of 8x8 pixels by 43 writers (E. Alpaydin, C. Kaynak, 1998, UCI Machine Learning Repository).
"""

from __future__ import annotations

import numpy as np

from ...config import DataSettings
from ...rng import numpy_generator
from .source import Source, make_source

#: The maximum of the original pixels, which count the black pixels in blocks of 4x4.
MAX_VALUE = 16


def load_digits(settings: DataSettings) -> Source:
    """Two thirds of the digits for the clients, one third (599) for the server.

    The split is the same for every seed: runs with different `random_seed` label the same samples.
    """
    # Imported here, since it is slow to import and no other source needs it.
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / MAX_VALUE)).astype(np.uint8)
    order = numpy_generator(0, "digits", "server").permutation(len(images))
    server, clients = np.split(order, [len(images) // 3])
    return make_source(
        "digits",
        "scikit-learn's digits",
        x_train=images[clients],
        y_train=digits.target[clients],
        x_test=images[server],
        y_test=digits.target[server],
        class_names=[str(name) for name in digits.target_names],
    )
