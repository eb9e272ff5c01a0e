"""`data_args`: which samples there are and who owns them."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
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

    #: `digits`, `mnist`, `fashion_mnist`, `mnistm`, `svhn`, `usps`, `cifar10`, `cifar100`, `femnist`, `shakespeare`; or
    #: your own: `npz`, `images`, `csv`. In the folder of a run that a program started with its own arrays: `arrays`.
    dataset: str = "digits"
    #: The folder with the files of the datasets known by name; FedML's own configurations name the same one.
    data_cache_dir: str = "~/fedml_data"
    #: Fetch missing files into `data_cache_dir`, for the datasets that torchvision knows where to find.
    download: bool = False
    #: The user's own data: the file of `dataset: npz` or `csv`, the clients' folder of `dataset: images`.
    data_file: str | None = None
    #: The server's own samples: a csv file, or a folder of images.
    server_file: str | None = None
    #: Another dataset, from which the server's set is taken; `dataset` itself where it is not given.
    server_dataset: str | None = None
    #: So many of the server's samples, evenly spaced, in place of all of them: for a quick look.
    server_samples: Count | None = None
    #: So many of all clients' samples together, evenly spaced, in place of all of them: for a quick look.
    client_samples: Count | None = None
    #: Hold out this share of each client's labelled samples and let them stand in for the server's set, to see how well
    #: a scene without labels goes: what `mrtf compare --rehearse` does. In a simulation only.
    rehearse: Annotated[float, Field(gt=0, lt=1)] | None = None
    #: Across silos: a file (.npz) with the samples of this party alone, in place of `dataset`; `{rank}` in it is the
    #: party's rank.
    own_data_file: str | None = None
    #: A function of your own, as `package.module:function`, which returns the data in place of `dataset`.
    loader: str | None = None
    #: The column of `dataset: csv` that holds the class.
    label_column: str = "label"
    #: The column of `dataset: csv` that holds the server's ids; a column `id` is taken without being named.
    id_column: str | None = None
    #: The column of `dataset: csv` that says whose a row is, for `partition_method: user`.
    user_column: str | None = None
    #: Columns of `dataset: csv` that are no features: `[name, date]`.
    ignore_columns: list[str] = field(default_factory=list)
    #: What parts the columns of `dataset: csv`; the commonest of comma, semicolon, tab and bar in the header where it
    #: is not given.
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    #: Let the clients' mean stand in for missing numbers of `dataset: csv`, and no category for a missing one. `false`
    #: refuses them, by name.
    fill_missing: bool = False
    #: Height and width to which `dataset: images` are resized; the commonest size of the clients' images where it is
    #: not given.
    image_size: Count | None = None
    #: What the samples of one file or folder may take in memory, once unpacked; a file that asks for more is refused
    #: by its header, before it gets any.
    max_memory_mb: Count = 4096
    #: `auto` flips and crops the training batches of natural images (CIFAR); digits and letters stay as they are.
    augmentation: Literal["auto", "none"] = "auto"
    #: Bring each feature to mean 0 and deviation 1. `auto` does so for tables (rows of numbers) and leaves images as
    #: they are; true and false do and do not, whatever the data are.
    standardize: Literal["auto", True, False] = "auto"
    #: The share of the users that take part, where a dataset names its users.
    dset_ratio: PositiveShare = 1.0
    #: How samples are dealt to the clients. `label`: a few classes for each client. `dirichlet` (FedML's `hetero`): in
    #: random shares per client. `iid` (FedML's `homo`): in turn. `user`: as the data say.
    partition_method: Literal["label", "dirichlet", "iid", "user"] = "label"
    #: C-bar of `partition_method: label`: how many classes a client holds. Fewer is more heterogeneous.
    classes_per_client: Count = 3
    #: alpha of `partition_method: dirichlet`; smaller is more heterogeneous. The paper takes 1 and 0.1.
    partition_alpha: Positive = 0.5
    #: Seeds the split alone, so that it stays while `random_seed` changes; `random_seed` where it is not given.
    partition_seed: int | None = None
    #: No client of a Dirichlet split holds fewer samples; users who have fewer are left out.
    min_samples: Count = 1

    @field_validator("ignore_columns", mode="before")
    @classmethod
    def _one_column(cls, value: Any) -> Any:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @field_validator("partition_method", mode="before")
    @classmethod
    def _fedml_words(cls, value: Any) -> Any:
        return {"hetero": "dirichlet", "homo": "iid"}.get(value, value)

    @property
    def is_own(self) -> bool:
        """Whether the data are the user's own, and not a dataset known by its name."""
        return (
            self.dataset in ("npz", "images", "csv", "arrays")
            or self.loader is not None
            or self.own_data_file is not None
        )

    @property
    def title(self) -> str:
        """What the data are called: by the user's own function or file where there is one, else by the dataset.

        >>> DataSettings(dataset="csv", data_file="~/wards.csv").title, DataSettings(loader="wards.data:load").title
        ('wards', 'wards.data:load')
        """
        if self.loader is not None:
            return self.loader
        file = self.data_file if self.dataset in ("npz", "images", "csv") else None
        return self.dataset if file is None else Path(file).stem or self.dataset

    def located(self) -> DataSettings:
        """The same with paths that hold from any folder; those from the user's home do already."""
        given = {key: getattr(self, key) for key in ("data_file", "server_file", "own_data_file", "data_cache_dir")}
        paths = {key: os.path.abspath(os.path.expanduser(path)) for key, path in given.items() if path}
        return dataclasses.replace(self, **paths)

    @property
    def clients_come_with_the_data(self) -> bool:
        """Whether the data say how many clients there are, and not `client_num_in_total`."""
        return self.partition_method == "user" or self.loader is not None
