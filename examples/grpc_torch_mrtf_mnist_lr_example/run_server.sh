#!/bin/sh
# sh run_server.sh [one_line | step_by_step | custom_data_and_model]: the party with the unlabelled data.
set -e
cd "$(dirname "$0")"
[ -d mnist_substitute ] || python -m mrtf_fedml.data.mnist_substitute mnist_substitute --clients 2
python torch_mrtf_mnist_lr_${1:-one_line}_example.py --cf config/fedml_config.yaml --rank 0 --role server
