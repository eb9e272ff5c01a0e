"""A part of a data set by user, as one .npz file: so many users, so many samples of each, and 1000 for the server.

    python benchmarks/fewer_roles.py shakespeare.npz 60 300 shakespeare_60.npz

Users are drawn among those who have that many samples, and at most three times as many.
"""

from __future__ import annotations

import sys

import numpy as np

SERVERS = 1000


def main(file: str, users: str, samples: str, out: str) -> None:
    """Make the file."""
    rng = np.random.default_rng(7)
    data = dict(np.load(file))
    owner, each = data["u_train"], int(samples)
    names, counts = np.unique(owner, return_counts=True)
    fitting = names[(counts >= each) & (counts <= 3 * each)]
    if len(fitting) < int(users):
        sys.exit(f"{file} has {len(fitting)} users of {each} to {3 * each} samples, not {users}; ask for fewer")
    chosen = rng.choice(fitting, int(users), replace=False)
    kept = np.concatenate([rng.choice(np.flatnonzero(owner == name), each, replace=False) for name in chosen])
    server = rng.choice(len(data["y_test"]), SERVERS, replace=False)
    rest = {key: data[key] for key in ("alphabet", "class_names") if key in data}
    np.savez_compressed(
        out,
        x_train=data["x_train"][kept],
        y_train=data["y_train"][kept],
        u_train=owner[kept],
        x_test=data["x_test"][server],
        y_test=data["y_test"][server],
        **rest,
    )
    print(f"{out}: {users} users of {each} samples, {SERVERS} for the server")


if __name__ == "__main__":
    main(*sys.argv[1:])
