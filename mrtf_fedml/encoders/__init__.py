"""Pretrained encoders (`model_args.encoder`): samples become features before anything is federated.

`load_encoder` makes the encoder that the settings name. Each party encodes its own samples, once, on its own machine.
"""

from .encoder import Encoder, Samples
from .registry import load_encoder

__all__ = ["Encoder", "Samples", "load_encoder"]
