"""How this process was started (alone, as a rank, as a silo), its threads, GPUs and logs."""
