"""MrTF over MPI in one line: FedML's own, after `register()`."""

import fedml

import mrtf_fedml

if __name__ == "__main__":
    mrtf_fedml.register()
    fedml.run_simulation(backend="MPI")
