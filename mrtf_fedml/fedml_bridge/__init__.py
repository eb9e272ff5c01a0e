"""Everything that knows FedML, and nothing else does."""
