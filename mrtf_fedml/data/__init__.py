"""Who owns what: sources of samples, their split over clients, and the server's set without its labels.

`load` makes a run's data from its settings; `from_fedml` takes any dataset that FedML itself would take. Both
give a `TransductiveDataset`: FedML's list of eight, with the server's inputs apart and the true labels
sealed.
"""

from .dataset import TransductiveDataset
from .examiner import Examiner
from .partition import by_dirichlet, by_label, by_user, iid
from .party import SiloDataset, load_for
from .shards import TensorShard, UnlabelledSet
from .sources import (
    SOURCES,
    Source,
    Users,
    load_source,
)
from .tensors import to_tensor
from .transductive import from_fedml, load

__all__ = [
    "SOURCES",
    "Examiner",
    "SiloDataset",
    "Source",
    "TensorShard",
    "TransductiveDataset",
    "UnlabelledSet",
    "Users",
    "by_dirichlet",
    "by_label",
    "by_user",
    "from_fedml",
    "iid",
    "load",
    "load_for",
    "load_source",
    "to_tensor",
]
