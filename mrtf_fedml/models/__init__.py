"""The paper's networks, and functions for any classifier: features, predictions, state-dict arithmetic.

`create_model` builds a network by name (`model_args.model`). `FeatureExtractor` extracts h(x) from any classifier.
`predict_logits` and `predict_logits_and_features` predict many samples. `state_dict` has the arithmetic on weights.
"""

from . import state_dict
from .catalogue import MODELS, Builder, create_model
from .feature_extraction import FeatureExtractor
from .inference import predict_logits, predict_logits_and_features
from .memory_layout import apply_layout, match_layout, preferred_layout, to_layout
from .nets.charlstm import CharLSTM
from .nets.convnet import ConvNet
from .nets.fecnn import FeCNN
from .nets.lenet import LeNet
from .nets.linear import LinearNet, RandomFeatureNet
from .nets.mlp import MLPNet
from .nets.resnet import ResNet
from .nets.vgg8 import VGG8
from .state_dict import StateDict

__all__ = [
    "MODELS",
    "VGG8",
    "Builder",
    "CharLSTM",
    "ConvNet",
    "FeCNN",
    "FeatureExtractor",
    "LeNet",
    "LinearNet",
    "MLPNet",
    "RandomFeatureNet",
    "ResNet",
    "StateDict",
    "apply_layout",
    "create_model",
    "match_layout",
    "predict_logits",
    "predict_logits_and_features",
    "preferred_layout",
    "state_dict",
    "to_layout",
]
