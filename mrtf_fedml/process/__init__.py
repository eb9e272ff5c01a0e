"""The process: MPI ranks, signals, threads, GPUs, logging, and tuning of the runtime."""
