"""The backends: how tasks and updates travel between server and clients."""
