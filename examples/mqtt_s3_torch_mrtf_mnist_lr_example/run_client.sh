#!/bin/sh
# sh run_client.sh RANK [one_line | step_by_step | custom_data_and_model]: a party with labels, of rank 1 or 2.
set -e
cd "$(dirname "$0")"
[ -d mnist_substitute ] || python -m mrtf_fedml.data.mnist_substitute mnist_substitute --clients 2
python torch_mrtf_mnist_lr_${2:-one_line}_example.py --cf config/fedml_config.yaml --rank "$1" --role client
