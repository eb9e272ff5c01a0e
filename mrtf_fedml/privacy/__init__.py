"""What an update tells of its client: the mechanism (clip, noise) and the budget it spends."""
