#!/bin/sh
# Three parties' models, of three kinds and with three class lists, label the server's digits.
set -e
cd "$(dirname "$0")"
python parties.py models
mrtf label models/digits.npz --teacher models/north.onnx --teacher models/south.skops \
  --teacher models/west.npy=0,1,2,3,4,5,6,7,8,9 --out "${1:-runs/labels}"
