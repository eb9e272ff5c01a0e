"""Data of a run: sources of samples, their partition over clients, and the server's unlabelled set.

`load` makes a run's dataset from its settings; `from_fedml` accepts any dataset of FedML. Both return a
`TransductiveDataset`: FedML's list of eight entries, with the server's inputs separate and the true labels sealed.
"""

from .dataset import TransductiveDataset
from .evaluator import SealedEvaluator
from .loader import from_fedml, load
from .partitioning import partition_by_dirichlet, partition_by_label, partition_by_user, partition_iid
from .preprocessing import to_tensor
from .shards import TensorShard, UnlabelledSet
from .silo import SiloDataset, load_for_rank
from .sources import SOURCES, Source, Users, load_source

__all__ = [
    "SOURCES",
    "SealedEvaluator",
    "SiloDataset",
    "Source",
    "TensorShard",
    "TransductiveDataset",
    "UnlabelledSet",
    "Users",
    "from_fedml",
    "load",
    "load_for_rank",
    "load_source",
    "partition_by_dirichlet",
    "partition_by_label",
    "partition_by_user",
    "partition_iid",
    "to_tensor",
]
