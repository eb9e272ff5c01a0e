"""The Python calls `mrtf_fedml.label` and `mrtf_fedml.run`, and their result."""
