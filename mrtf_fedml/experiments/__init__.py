"""Several runs as one experiment: which runs, doing them, and what they show together."""
