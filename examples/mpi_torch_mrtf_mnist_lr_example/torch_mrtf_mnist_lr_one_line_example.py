"""MrTF over MPI in one line: FedML's own, after `register()`."""

import mrtf_fedml  # first, so that FedML's imports do not warn of their own dependencies

import fedml

if __name__ == "__main__":
    mrtf_fedml.register()
    fedml.run_simulation(backend="MPI")
