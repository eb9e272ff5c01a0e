"""Checks of a run that need no labels: collapsed predictions, client consistency, distribution shift, losses."""
