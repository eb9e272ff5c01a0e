#!/bin/sh
# The simulation in one process; further arguments are the program's.
set -e
cd "$(dirname "$0")"
python -m mrtf_fedml.data.mnist_substitute mnist_substitute --clients 20
python torch_mrtf_mnist_lr_custom_data_and_model_example.py --cf config/fedml_config.yaml "$@"
