"""Make an .npz file from a part of a dataset by user: some users, some samples of each, and 1000 for the server.

    python benchmarks/evidence/few_users.py shakespeare.npz 60 300 shakespeare_60.npz

Users are drawn from those with at least that many samples and at most three times as many.
"""

from __future__ import annotations

import sys

import numpy as np

SERVERS = 1000


def main(file: str, users: str, samples: str, out: str) -> None:
    """Write the file."""
    rng = np.random.default_rng(7)
    data = dict(np.load(file))
    owner, each = data["u_train"], int(samples)
    names, counts = np.unique(owner, return_counts=True)
    eligible = names[(counts >= each) & (counts <= 3 * each)]
    if len(eligible) < int(users):
        sys.exit(
            f"{file} has {len(eligible)} users of {each} to {3 * each} samples, not {users}; give a smaller number"
        )
    chosen = rng.choice(eligible, int(users), replace=False)
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
