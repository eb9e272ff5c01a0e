"""Optional parts of a run: each is a callback, called at the start, around every round and at the end."""
