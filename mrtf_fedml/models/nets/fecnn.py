"""FeCNN, LEAF's network for FEMNIST, which the paper uses for FeMnist.

S. Caldas, S. M. K. Duddu, P. Wu, T. Li, J. Konečný, H. B. McMahan, V. Smith, A. Talwalkar. LEAF: a benchmark for
federated settings. 2018 (models/femnist/cnn.py).
"""

from __future__ import annotations

from typing import ClassVar

from .convnet import ConvNet


class FeCNN(ConvNet):
    """ConvNet with a wider hidden layer: 5x5 convolution of 32 maps, pool, of 64 maps, pool, 2048, C.

    28 x 28 grey images and 62 classes make 6,603,710 parameters.
    """

    name: ClassVar[str] = "fecnn"
    hidden: ClassVar[int] = 2048
