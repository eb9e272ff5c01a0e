"""FedML's MPI simulation over any number of ranks; rank 0 is the server."""
