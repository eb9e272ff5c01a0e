"""Other words for keys, as other libraries spell them; they serve on the command line and in Python, not in files."""

from __future__ import annotations

#: The key that each word means. A word that is a key of the configuration itself means that one.
ALIASES = {
    "lr": "learning_rate",
    "rounds": "comm_round",
    "num_rounds": "comm_round",
    "n_rounds": "comm_round",
    "clients": "client_num_in_total",
    "num_clients": "client_num_in_total",
    "n_clients": "client_num_in_total",
    "clients_per_round": "client_num_per_round",
    "local_epochs": "epochs",
    "num_epochs": "epochs",
    "batch": "batch_size",
    "bs": "batch_size",
    "optimizer": "client_optimizer",
    "optimiser": "client_optimizer",
    "algorithm": "federated_optimizer",
    "seed": "random_seed",
    "wd": "weight_decay",
    "alpha": "partition_alpha",
    "partition": "partition_method",
    "data": "data_file",
    "standardise": "standardize",
    "normalize": "standardize",
    "out": "run_dir",
    "out_dir": "run_dir",
    "output_dir": "run_dir",
    "tau": "temperature",
    "num_threads": "threads",
}
