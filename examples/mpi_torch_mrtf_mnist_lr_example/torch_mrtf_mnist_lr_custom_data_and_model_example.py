"""Your own data and model: any tuple of FedML's eight entries, and any classifier."""

import mrtf_fedml  # first, so that FedML's imports do not warn of their own dependencies

import fedml
import torch
from fedml import FedMLRunner
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def load_data(args):
    """FedML's eight entries and the number of classes, from arrays: put your own in their place."""
    digits = load_digits()
    x = torch.tensor(digits.images / 16, dtype=torch.float32).flatten(1)
    y = torch.tensor(digits.target)
    server, clients = torch.arange(0, len(x), 3), torch.cat([torch.arange(k, len(x), 3) for k in (1, 2)])

    def loader(rows, shuffle):
        return DataLoader(TensorDataset(x[rows], y[rows]), batch_size=args.batch_size, shuffle=shuffle)

    # Sorted by class and cut up, so that every client knows a few classes only.
    pieces = clients[y[clients].argsort(stable=True)].tensor_split(3 * args.client_num_in_total)
    shards = [torch.cat(pieces[client :: args.client_num_in_total]) for client in range(args.client_num_in_total)]
    dataset = [
        len(clients),
        len(server),
        loader(clients, shuffle=False),
        loader(server, shuffle=False),
        {client: len(rows) for client, rows in enumerate(shards)},
        {client: loader(rows, shuffle=True) for client, rows in enumerate(shards)},
        dict.fromkeys(range(args.client_num_in_total)),
        10,
    ]
    return dataset, 10


class TwoLayers(torch.nn.Module):
    """A classifier; the input of its last layer is h(x), which MrTF finds by itself."""

    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.hidden = torch.nn.Linear(input_dim, 64)
        self.output = torch.nn.Linear(64, output_dim)

    def forward(self, x):
        """Logits [N, C]."""
        return self.output(torch.relu(self.hidden(x)))


if __name__ == "__main__":
    mrtf_fedml.register()
    args = fedml.init()
    device = fedml.device.get_device(args)
    dataset, output_dim = load_data(args)
    # The model's first weights are drawn here, from the state that fedml.init has seeded: alike for every party.
    model = TwoLayers(64, output_dim)
    FedMLRunner(args, device, dataset, model).run()
