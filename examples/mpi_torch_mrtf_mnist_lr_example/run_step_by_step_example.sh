#!/bin/sh
# sh run_step_by_step_example.sh [WORKERS]: a server and so many ranks that train (2).
set -e
cd "$(dirname "$0")"
workers=${1:-2}
if [ "$(id -u)" = 0 ]; then root=--allow-run-as-root; fi
python -m mrtf_fedml.data.mnist_substitute mnist_substitute --clients 20
mpirun -np $((workers + 1)) --hostfile mpi_host_file --bind-to none $root \
  python torch_mrtf_mnist_lr_step_by_step_example.py --cf config/fedml_config.yaml
