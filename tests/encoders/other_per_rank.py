"""An encoder whose weights differ on each rank under mpirun."""

from __future__ import annotations

import os

import torch
from torch import nn

ENCODER = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
with torch.no_grad():
    ENCODER[1].weight.fill_(1.0 + float(os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
    ENCODER[1].bias.fill_(0.0)
