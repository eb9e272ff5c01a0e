#!/bin/sh
# The simulation in one process; further arguments are the program's.
set -e
cd "$(dirname "$0")"
python -m mrtf_fedml.data.stand_in mnist_stand_in --clients 20
python torch_mrtf_mnist_lr_one_line_example.py --cf config/fedml_config.yaml "$@"
