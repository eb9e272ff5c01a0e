"""A run: one round, the loop around it, its folder, and what watches it."""
