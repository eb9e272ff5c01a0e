"""The paper's networks, and what is done with any classifier: reading h(x), predicting, averaging weights.

`create_model` makes a network by the name that `model_args.model` gives. `FeatureTap` finds where h(x) is
read in it or in any other classifier. `predict_logits` and `predict_logits_and_features` answer for many
samples. `weights` is the arithmetic on state dicts.
"""

from . import weights
from .catalogue import MODELS, Builder, create_model
from .feature_tap import FeatureTap
from .inference import predict_logits, predict_logits_and_features
from .layout import as_laid_out, in_layout, lay_out, layout_of
from .nets.charlstm import CharLSTM
from .nets.convnet import ConvNet
from .nets.fecnn import FeCNN
from .nets.lenet import LeNet
from .nets.mlp import MLPNet
from .nets.resnet import ResNet
from .nets.vgg8 import VGG8
from .weights import StateDict

__all__ = [
    "MODELS",
    "VGG8",
    "Builder",
    "CharLSTM",
    "ConvNet",
    "FeCNN",
    "FeatureTap",
    "LeNet",
    "MLPNet",
    "ResNet",
    "StateDict",
    "as_laid_out",
    "create_model",
    "in_layout",
    "lay_out",
    "layout_of",
    "predict_logits",
    "predict_logits_and_features",
    "weights",
]
