"""The paper's networks, one file each."""
