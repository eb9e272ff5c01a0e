"""Differential privacy of client updates: the mechanism (clipping, noise) and the budget that it spends."""
