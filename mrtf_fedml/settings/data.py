"""`data_args`: which samples there are and who owns them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator
from pydantic.dataclasses import dataclass

from .kinds import (
    VALIDATED,
    Count,
    Positive,
    PositiveShare,
)


@dataclass(frozen=True, config=VALIDATED)
class DataSettings:
    """`data_args`: which samples there are and who owns them."""

    dataset: str = "digits"
    #: The folder with the files of the datasets known by name; FedML's own configurations name the same one.
    data_cache_dir: str = "~/fedml_data"
    #: Fetch missing files into `data_cache_dir`, for the datasets that torchvision knows where to find.
    download: bool = False
    #: The user's own data: the file of `dataset: npz` or `csv`, the clients' folder of `dataset: images`.
    data_file: str | None = None
    #: The server's own samples: a csv file, or a folder of images.
    server_file: str | None = None
    #: Another dataset, from which the server's set is taken; None takes it from `dataset`.
    server_dataset: str | None = None
    #: So many of the server's samples, evenly spaced, in place of all of them: for a quick look.
    server_samples: Count | None = None
    #: Across silos: a file (.npz) with the samples of this party alone, in place of `dataset`; `{rank}` in it is the
    #: party's rank.
    own_data_file: str | None = None
    #: `package.module:function`, which returns the data in place of `dataset`.
    loader: str | None = None
    #: The columns of `dataset: csv` that hold classes, ids and owners. A column `id` is the ids' by itself.
    label_column: str = "label"
    id_column: str | None = None
    user_column: str | None = None
    #: Height and width to which `dataset: images` are resized; None is the commonest size of the clients' images.
    image_size: Count | None = None
    #: `auto` flips and crops the training batches of natural images (CIFAR); digits and letters stay as they are.
    augmentation: Literal["auto", "none"] = "auto"
    #: The share of the users that take part, where a dataset names its users.
    dset_ratio: PositiveShare = 1.0
    partition_method: Literal["label", "dirichlet", "iid", "user"] = "label"
    #: C-bar of `partition_method: label`.
    classes_per_client: Count = 3
    #: alpha of `partition_method: dirichlet`; smaller is more heterogeneous.
    partition_alpha: Positive = 0.5
    #: Seeds the split alone; `random_seed` where it is not given.
    partition_seed: int | None = None
    #: No client of a Dirichlet split holds fewer samples; users who have fewer are left out.
    min_samples: Count = 1

    @field_validator("partition_method", mode="before")
    @classmethod
    def _fedml_words(cls, value: Any) -> Any:
        return {"hetero": "dirichlet", "homo": "iid"}.get(value, value)

    @property
    def clients_come_with_the_data(self) -> bool:
        """Whether the data say how many clients there are, and not `client_num_in_total`."""
        return self.partition_method == "user" or self.loader is not None
