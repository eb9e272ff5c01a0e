#!/bin/sh
# A try-out on one machine: both silos in the background, and the server.
set -e
cd "$(dirname "$0")"
python -m mrtf_fedml.data.mnist_substitute mnist_substitute --clients 2
sh run_client.sh 1 custom_data_and_model >client1.log 2>&1 &
first=$!
sh run_client.sh 2 custom_data_and_model >client2.log 2>&1 &
second=$!
trap 'kill $first $second 2>/dev/null || true' EXIT
sh run_server.sh custom_data_and_model
wait $first
wait $second
