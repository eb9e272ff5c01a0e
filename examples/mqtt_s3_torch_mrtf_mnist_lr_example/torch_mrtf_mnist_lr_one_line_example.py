"""MrTF across silos in one line: FedML's own, after `register()`; `--role` says which party this is."""

import mrtf_fedml  # first, so that FedML's imports do not warn of their own dependencies

import sys

import fedml

if __name__ == "__main__":
    mrtf_fedml.register()
    if "server" in sys.argv:
        fedml.run_cross_silo_server()
    else:
        fedml.run_cross_silo_client()
