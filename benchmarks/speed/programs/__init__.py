"""What each peer runs, in an environment of its own: `python FILE.py SHAPE.json DATA.npz` prints its CPU seconds."""
