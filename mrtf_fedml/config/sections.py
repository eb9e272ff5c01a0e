"""The sections of the YAML that every run has, one validated dataclass per section.

The `#:` comments above the fields are the text of docs/reference/settings.md.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from .types import VALIDATED, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt, Seed


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


@dataclass(frozen=True, config=VALIDATED)
class CommonSettings:
    """`common_args`, and `backend` of `comm_args`: the kind of run and its output."""

    #: `simulation`: one process, or the ranks of mpirun, simulate the clients. `cross_silo`: each party is a process of
    #: its own. `cross_device`: the clients are devices.
    training_type: Literal["simulation", "cross_silo", "cross_device"] = "simulation"
    #: The transport. For a simulation: `sp` (one process), `MPI`, or `NCCL` (MPI ranks with one GPU each). Across
    #: silos: `GRPC`, `MQTT_S3`, `TRPC` or `MPI`.
    backend: str = "sp"
    #: Seed of all random draws: partition, initial weights, client selection, batches, refining. Below 2^32. The same
    #: seed with the same `threads` gives the same bytes.
    random_seed: Seed = 0
    #: The run directory. Default: `runs/<dataset>-<algorithm>-<time>`.
    run_dir: str | None = None
    #: Store h(x) of up to 1500 server samples in the run directory, at most 50 numbers each, for the report's feature
    #: plot. Drawing it takes seconds; set `false` for many short runs.
    keep_features: bool = True
    #: The fraction of the samples whose true class shall be in their `prediction_set` (predictions.csv). A sample whose
    #: set has more than one class gets the decision `abstain`.
    coverage: Annotated[float, Field(gt=0, lt=1)] = 0.9
    #: Give a label only to samples whose label is right with at least this probability, as estimated; the others get
    #: the decision `abstain`. Not given: the prediction sets decide.
    accept: Annotated[float, Field(gt=0, lt=1)] | None = None
    #: The checkpoints of a finished run. `last`: the newest, from which the run can be resumed with more rounds.
    #: `none`: none. An unfinished run keeps the last two, each as large as the server state.
    keep_state: Literal["last", "none"] = "last"
    #: Subclasses of mrtf_fedml.Callback, as `package.module:Class`, added to the callbacks of every run.
    callbacks: list[str] = field(default_factory=list)


@dataclass(frozen=True, config=VALIDATED)
class DataSettings:
    """`data_args`: the samples and how they are distributed."""

    #: `digits`, `mnist`, `fashion_mnist`, `mnistm`, `svhn`, `usps`, `cifar10`, `cifar100`, `femnist`, `shakespeare`; or
    #: your own data: `npz`, `images`, `csv`. `arrays` stands for arrays passed from Python.
    dataset: str = "digits"
    #: The folder of the named datasets' files; the same default as FedML's configurations.
    data_cache_dir: str = "~/fedml_data"
    #: Download missing files into `data_cache_dir`, for datasets that torchvision can download; and the weights of
    #: `model_args.encoder`, if `encoder_weights` is not set.
    download: bool = False
    #: Your own data: the file for `dataset: npz` or `csv`, the clients' folder for `dataset: images`.
    data_file: str | None = None
    #: The server's samples: a CSV file, or a folder of images.
    server_file: str | None = None
    #: Labels that the server has of some of its samples: a CSV file with the columns `id` or `index`, and `label`, such
    #: as `mrtf ask` writes. They correct the estimated accuracy, MrTF learns them, and these samples get them.
    labels_file: str | None = None
    #: Another dataset as the source of the server's set. Default: `dataset`.
    server_dataset: str | None = None
    #: Use this many server samples, evenly spaced, instead of all: for a quick run.
    server_samples: PositiveInt | None = None
    #: Use this many samples of all clients together, evenly spaced, instead of all: for a quick run.
    client_samples: PositiveInt | None = None
    #: Hold out this fraction of each client's labelled samples and use them as the server's set, to measure accuracy
    #: where the server's set has no labels. In a simulation only.
    holdout: Annotated[float, Field(gt=0, lt=1)] | None = None
    #: Across silos: this party's own samples, instead of `dataset`: an .npz file, a .csv file or a folder of images.
    #: `{rank}` is replaced by the party's rank.
    own_data_file: str | None = None
    #: Across silos with `own_data_file`: all classes, in the same order for every party. Needed for CSV files and
    #: images; an .npz file may have them itself.
    class_names: list[str] | None = None
    #: Across silos with a CSV file: the values of each column of categories, the same for every party, as in
    #: `{ward: [A, B], sex: [f, m]}`. All other columns are numbers.
    categories: dict[str, list[str]] = field(default_factory=dict)
    #: Your own function, as `package.module:function`, that returns the data; it replaces `dataset`.
    loader: str | None = None
    #: `dataset: csv`: the column of the class.
    label_column: str = "label"
    #: `dataset: csv`: the column of the text that `model_args.encoder` encodes; other columns are then no features.
    text_column: str | None = None
    #: `dataset: csv`: the column of the server's ids. Default: the column `id`, if there is one.
    id_column: str | None = None
    #: `dataset: csv`: the column of the owner of each row, for `partition_method: user`.
    user_column: str | None = None
    #: `dataset: csv`: columns that are not features, as in `[name, date]`.
    ignore_columns: list[str] = field(default_factory=list)
    #: `dataset: csv`: the column separator. Default: the most frequent of comma, semicolon, tab and bar in the header.
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    #: `dataset: csv`: replace missing numbers by the clients' mean, and missing categories by no category. `false`
    #: rejects missing values and names them.
    fill_missing: bool = False
    #: `dataset: images`: height and width after resizing. Default: the most frequent size of the clients' images.
    image_size: PositiveInt | None = None
    #: Maximum memory, in megabytes, for the unpacked samples of one file or folder. A larger file is rejected by its
    #: header, before memory is allocated.
    max_memory_mb: PositiveInt = 4096
    #: `auto` flips and crops the training batches of natural images (CIFAR); digits and letters are not augmented.
    augmentation: Literal["auto", "none"] = "auto"
    #: Scale each feature to mean 0 and standard deviation 1. `auto` does so for tables and not for images.
    standardize: Literal["auto", True, False] = "auto"
    #: Fraction of the users that take part, for datasets with users.
    dset_ratio: PositiveFraction = 1.0
    #: How samples are partitioned. `label`: a few classes per client. `dirichlet` (FedML's `hetero`): class proportions
    #: drawn per client. `iid` (FedML's `homo`): round robin. `user`: one client per user of the data.
    partition_method: Literal["label", "dirichlet", "iid", "user"] = "label"
    #: C-bar of `partition_method: label`: classes per client. Fewer is more heterogeneous.
    classes_per_client: PositiveInt = 3
    #: alpha of `partition_method: dirichlet`. Smaller is more heterogeneous. The paper uses 1 and 0.1.
    partition_alpha: PositiveFloat = 0.5
    #: Seed of the partition alone, to keep it while `random_seed` changes. Default: `random_seed`.
    partition_seed: int | None = None
    #: Minimum number of samples per client in a Dirichlet partition; users with fewer samples are excluded.
    min_samples: PositiveInt = 1

    @field_validator("ignore_columns", mode="before")
    @classmethod
    def _split_string(cls, value: Any) -> Any:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @field_validator("partition_method", mode="before")
    @classmethod
    def _translate_fedml_names(cls, value: Any) -> Any:
        return {"hetero": "dirichlet", "homo": "iid"}.get(value, value)

    @property
    def is_user_data(self) -> bool:
        """Whether the data are the user's own and not a named dataset."""
        return (
            self.dataset in ("npz", "images", "csv", "arrays")
            or self.loader is not None
            or self.own_data_file is not None
        )

    @property
    def title(self) -> str:
        """Name of the data for display: the user's function or file if there is one, else the dataset.

        >>> DataSettings(dataset="csv", data_file="~/wards.csv").title, DataSettings(loader="wards.data:load").title
        ('wards', 'wards.data:load')
        """
        if self.loader is not None:
            return self.loader
        file = self.data_file if self.dataset in ("npz", "images", "csv") else None
        return self.dataset if file is None else Path(file).stem or self.dataset

    def with_absolute_paths(self) -> DataSettings:
        """The same settings with absolute paths, valid from any working directory."""
        keys = ("data_file", "server_file", "labels_file", "own_data_file", "data_cache_dir")
        paths: dict[str, Any] = {key: _absolute(path) for key in keys if (path := getattr(self, key))}
        return dataclasses.replace(self, **paths)

    @property
    def defines_clients(self) -> bool:
        """Whether the data, and not `client_num_in_total`, define the number of clients."""
        return self.partition_method == "user" or self.loader is not None


@dataclass(frozen=True, config=VALIDATED)
class ModelSettings:
    """`model_args`: the classifier and the layer of h(x)."""

    #: The paper's `mlp`, `lenet`, `convnet`, `vgg8`, `resnet8`, `resnet20`, `fecnn`, `charlstm`; `linear`;
    #: `random_features`, a linear model on a fixed random layer; a model of FedML's zoo; a torchvision model, as
    #: `torchvision:resnet18`; or your own as `package.module:Class`.
    model: str = "mlp"
    #: Different models per client, in place of `model`: a name of your choice for each, and what `model` could be, as
    #: in `{small: lenet, large: resnet20}`. Clients of the same model are averaged, all of them teach, each average is
    #: refined, and the mean of the refined models predicts. With MrTF, FedDF, FedAvg, FedProx and FedOpt.
    models: dict[str, str] | None = None
    #: Which of `models` each client trains: a list of names, by the index of the client; a shorter list starts again.
    #: Across silos a silo may name its own. Default: in turn, in alphabetical order.
    client_models: list[str] | str | None = None
    #: Name of the module whose output is h(x). Default: found automatically.
    feature_layer: str | None = None
    #: Width of the last hidden layer of `mlp`.
    feature_size: PositiveInt = 128
    #: Width of the first two hidden layers of `mlp`, and of the fixed layer of `random_features`. Default: 1024, the
    #: paper's; 256 for an `mlp` on a table.
    hidden_size: PositiveInt | None = None
    #: Number of different characters of a text model. Default: taken from the data. Silos with separate data must agree
    #: on it.
    vocabulary: PositiveInt | None = None
    #: Where training starts, instead of random weights: a state dict of the model in a .safetensors, .pt, .pth or .bin
    #: file, or the run directory of an earlier run with the same model. Across silos the server alone reads it.
    initial_weights: str | None = None

    #: A pretrained network that turns samples into features before the training, on each party's own machine:
    #: `torchvision:NAME`, `timm:NAME`, `sentence-transformers:FOLDER` (texts), `onnx:FILE`, or your own function of a
    #: batch as `package.module:function`. `model` then classifies the features. All parties need the same encoder.
    encoder: str | None = None
    #: The weights of a `torchvision:` or `timm:` encoder, a .safetensors, .pt, .pth or .bin file. Without it,
    #: `data_args.download: true` downloads them.
    encoder_weights: str | None = None
    #: Height and width to which images are resized for the encoder. Default: its own, mostly 224. Smaller is faster.
    encoder_size: PositiveInt | None = None
    #: The scale of the pixels that the encoder receives: `imagenet` (ImageNet's mean and deviation), `symmetric`
    #: ([-1, 1]), `unit` ([0, 1]). `auto` is what torchvision or timm says, and `imagenet` for an ONNX file.
    encoder_normalization: Literal["auto", "imagenet", "symmetric", "unit"] = "auto"

    @model_validator(mode="after")
    def _check_models(self) -> ModelSettings:
        if self.models is None and self.client_models is not None:
            raise ValueError("client_models needs models, a mapping of names to models")
        if self.models is not None and (
            len(self.models) < 2 or not all(name.replace("_", "").isalnum() for name in self.models)
        ):
            raise ValueError("models needs two names or more, of letters, digits and underscores")
        known = self.models or {}
        unknown = [name for name in self._listed_models() if name not in known]
        if unknown:
            raise ValueError(f"client_models has {unknown[0]!r}, which is not in models; use one of {', '.join(known)}")
        return self

    def member_of(self, client: int) -> int:
        """The index, in alphabetical order, of the one of `models` that this client trains.

        >>> models = {"small": "lenet", "large": "vgg8"}
        >>> settings = ModelSettings(models=models, client_models=["small", "large", "large"])
        >>> [settings.member_of(client) for client in range(4)]
        [1, 0, 0, 1]
        """
        # Files may sort the names, and a resumed run must find the same order.
        names, listed = sorted(self.models or {}), self._listed_models()
        return names.index(listed[client % len(listed)]) if listed else client % len(names)

    def _listed_models(self) -> list[str]:
        return [self.client_models] if isinstance(self.client_models, str) else list(self.client_models or [])

    def with_absolute_paths(self) -> ModelSettings:
        """The same settings with absolute paths, valid from any working directory."""
        paths: dict[str, Any] = {
            key: _absolute(path) for key in ("initial_weights", "encoder_weights") if (path := getattr(self, key))
        }
        kind, _, path = (self.encoder or "").partition(":")
        if kind in ("onnx", "sentence-transformers"):
            paths["encoder"] = f"{kind}:{_absolute(path)}"
        return dataclasses.replace(self, **paths)

    def with_files_in(self, folder: Path) -> ModelSettings:
        """The same settings, with the encoder's files from `folder` where they are missing and `folder` has them."""

        def find(path: str) -> str:
            other = folder / Path(path).name
            return str(other) if not Path(os.path.expanduser(path)).exists() and other.exists() else path

        weights = None if self.encoder_weights is None else find(self.encoder_weights)
        kind, _, path = (self.encoder or "").partition(":")
        encoder = f"{kind}:{find(path)}" if kind in ("onnx", "sentence-transformers") else self.encoder
        return dataclasses.replace(self, encoder=encoder, encoder_weights=weights)


@dataclass(frozen=True, config=VALIDATED)
class TrainSettings:
    """`train_args` and `validation_args`: rounds and local training."""

    #: The algorithm: `MrTF`, `FedDF`, `FedAvg`, `FedProx`, `FedMMD`, `FedOpt`, `Scaffold`, `MeasuredScaffold`,
    #: `FedRidge`, `FedBE`, `FedAUX`, `UWA`, `SHOT`, `LAME`, or your own as `package.module:Class`. In a FedML project,
    #: names that FedML has too mean FedML's algorithm; `mrtf:FedAvg` means ours.
    federated_optimizer: str = "MrTF"
    #: K, the number of clients. Leave it out where the data define it (`partition_method: user`, `loader`).
    client_num_in_total: PositiveInt = 20
    #: Number of clients per round, at most all.
    client_num_per_round: PositiveInt = 5
    #: Minimum number of valid updates per round. With fewer, other clients are selected as well, up to `max_retries`
    #: times. Then the run stops, and can be resumed, if clients did not reply; else the model is left unchanged.
    min_clients: PositiveInt = 1
    #: How many times per round other clients are selected.
    max_retries: NonNegativeInt = 2
    #: Number of rounds. A resumed run may have more.
    comm_round: PositiveInt = 20
    #: Stop before `comm_round` when the accuracy that clients measure on their held-out samples has not improved for
    #: this many rounds: its mean over the last five rounds has reached no new maximum. It has an effect where clients
    #: validate (`client_validation`, which `preset: tuned` includes). `mrtf compare` runs all rounds.
    early_stopping: PositiveInt | None = None
    #: E, local epochs per round.
    epochs: PositiveInt = 1
    #: Batch size of local training.
    batch_size: PositiveInt = 64
    #: The clients' optimizer. The paper uses SGD; Scaffold requires it.
    client_optimizer: Literal["sgd", "adam"] = "sgd"
    #: The clients' learning rate. The paper tries 0.01 to 0.1 on images.
    learning_rate: PositiveFloat = 0.03
    #: Momentum of the clients' SGD; Adam ignores it. 0 is plain SGD.
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    #: The clients' weight decay, an L2 term of the gradient. 0 disables it.
    weight_decay: NonNegativeFloat = 1e-5
    #: Maximum gradient norm in local training; `null` disables clipping. FedML's `max_grad_norm` is a different key,
    #: of its differential privacy.
    clip_grad_norm: PositiveFloat | None = 100.0
    #: theta_{t+1} is the plain mean over the selected clients (`uniform`, the paper) or weighted by sample counts.
    aggregation: Literal["uniform", "samples"] = "uniform"
    #: Evaluate on the server's set, if labels exist, every this many rounds and after the last.
    frequency_of_the_test: PositiveInt = 1


PrecisionName = Literal["float32", "bf16", "auto"]
#: The parts of a run with a precision of their own.
PrecisionPart = Literal["teachers", "distilling", "local"]
#: One precision for all parts, or one per part.
PrecisionSetting = PrecisionName | dict[PrecisionPart, PrecisionName]


@dataclass(frozen=True, config=VALIDATED)
class Precision:
    """The precision of each part of a run."""

    teachers: PrecisionName = "float32"
    distilling: PrecisionName = "float32"
    local: PrecisionName = "float32"


def parse_precision(setting: PrecisionSetting) -> Precision:
    """The precision per part; parts that a mapping does not name use float32.

    >>> parse_precision({"teachers": "bf16"})
    Precision(teachers='bf16', distilling='float32', local='float32')
    """
    return Precision(**setting) if isinstance(setting, dict) else Precision(setting, setting, setting)


def resolve_auto_precision(setting: PrecisionSetting, all_have_bf16: bool) -> PrecisionSetting:
    """The setting without `auto`, which means bf16 if the hardware of every process supports it.

    >>> resolve_auto_precision("auto", True), resolve_auto_precision({"teachers": "auto", "local": "bf16"}, False)
    ('bf16', {'teachers': 'float32', 'local': 'bf16'})
    """
    automatic: PrecisionName = "bf16" if all_have_bf16 else "float32"
    if isinstance(setting, dict):
        return {part: automatic if name == "auto" else name for part, name in setting.items()}
    return automatic if setting == "auto" else setting


@dataclass(frozen=True, config=VALIDATED)
class DeviceSettings:
    """`device_args`: the hardware."""

    #: Compute on a GPU; an error if there is none. Equal bytes are guaranteed on the CPU only.
    using_gpu: bool = False
    #: The GPU of a single process, from 0. Under mpirun, `gpu_mapping_file` assigns GPUs, or the ranks of a host share
    #: them in turn.
    gpu_id: NonNegativeInt = 0
    #: PyTorch threads per process. Default: all cores for one process, an equal part of the host's cores per rank. Set
    #: it to compare bytes: other numbers of threads agree up to rounding only.
    threads: PositiveInt | None = None
    #: Precision of the models. `bf16` multiplies and convolves in bfloat16 and keeps weights, losses and optimizers in
    #: float32; it is faster only on hardware that supports it (docs/lab/speed.md). `auto` uses it where every rank
    #: supports it; across silos and devices it means float32. A mapping names parts: `{teachers: bf16}`, of `teachers`,
    #: `distilling` and `local`.
    precision: PrecisionName | dict[PrecisionPart, PrecisionName] = "float32"

    @field_validator("precision", mode="before")
    @classmethod
    def _check_precision(cls, value: Any) -> Any:
        # For a union of a literal and a mapping, pydantic's message would list the types, not the valid values.
        names = value.values() if isinstance(value, dict) else [value]
        parts = value if isinstance(value, dict) else ()
        valid = all(name in get_args(PrecisionName) for name in names)
        if not valid or any(part not in get_args(PrecisionPart) for part in parts):
            raise PydanticCustomError(
                "precision",
                "it should be float32, bf16 or auto; or a mapping of teachers, distilling or local to one of these, "
                "as in precision: {teachers: bf16}",
            )
        return value


@dataclass(frozen=True, config=VALIDATED)
class SiloSettings:
    """`comm_args` of a run across silos or over MPI: timeouts, fault limits and TLS."""

    #: Seconds that a selected silo has for a round, training included. A silo that receives nothing from the server for
    #: this time ends. Choose well above the slowest silo's round.
    silo_timeout: PositiveFloat = 600.0
    #: Seconds that the server waits for its silos at the start, and a silo for its server.
    start_timeout: PositiveFloat = 600.0
    #: GRPC, outbound: a silo without a connection for this many seconds counts as lost until it connects again, and the
    #: round continues without it.
    reconnect_timeout: PositiveFloat = 60.0
    #: A silo is no longer selected after this many malformed messages from it, or so many hellos in quick succession
    #: that do not fit the server's settings; a silo ends after this many malformed messages from its server.
    max_faults: PositiveInt = 3
    #: MPI simulation: seconds that a rank has to train one client; then the run ends and can be resumed. After a
    #: quarter of this time the log names the rank and the client.
    rank_timeout: PositiveFloat = 3600.0
    #: GRPC: with `outbound` each silo opens one connection to the server and keeps it; only the server has an open
    #: port. With `two_way`, FedML's form, every party has one and calls the others. All parties need the same value.
    connection: Literal["outbound", "two_way"] = "outbound"
    #: GRPC, outbound: the server's host and port as silos reach it, `host:port`. The server listens on this port, on
    #: all interfaces if the host is a name. Without it: the server's row in `grpc_ipconfig_path`, or 127.0.0.1:8890.
    server_address: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}$")] | None = None
    #: GRPC: this party's certificate, a PEM file. Set all three TLS keys or none; without them anybody who can reach
    #: the port can connect.
    tls_certificate: str | None = None
    #: GRPC: the private key of the certificate, a PEM file.
    tls_key: str | None = None
    #: GRPC: the certificate of the authority that signed all parties' certificates, a PEM file.
    tls_authority: str | None = None
    #: GRPC, server: a file with one SHA-256 of a revoked certificate per line, as `mrtf invite --revoke` writes it. It
    #: is read again whenever it changes, and such a silo is refused at once.
    tls_revoked: str | None = None


@dataclass(frozen=True, config=VALIDATED)
class TrackingSettings:
    """`tracking_args`: where metrics go, in addition to FedML's `enable_wandb` and `enable_tensorboard`."""

    #: The address of an MLflow tracking server, as `http://mlflow.example:5000`. User, password or token are read from
    #: MLflow's environment variables.
    mlflow_uri: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    #: MLflow's experiment; created if it does not exist.
    mlflow_experiment: str = "mrtf_fedml"
    #: Serve the last round's metrics for Prometheus on this port, at `/metrics`, while the run lasts.
    metrics_port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    #: The address to serve them on. The default is reachable from this machine only; `0.0.0.0` from everywhere.
    metrics_host: str = "127.0.0.1"


@dataclass(frozen=True, config=VALIDATED)
class PrivacySettings:
    """`dp_args`: clipping and noise of client updates. FedML's own differential privacy (`enable_dp`) has no budget."""

    #: FedML's differential privacy. If it is on, `sigma` and `delta` are FedML's, and ours do nothing.
    enable_dp: bool = False
    #: Maximum norm of theta_k - theta_t over all floating-point entries, of a client's sums with FedRidge; a larger
    #: update is scaled down to it.
    clip: PositiveFloat | None = None
    #: Standard deviation of the noise on every entry of an update, absolute. The paper uses 0, 0.001, 0.01 and 0.1.
    sigma: NonNegativeFloat = 0.0
    #: The probability that the bound epsilon does not hold; choose it below 1 / number of clients.
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @model_validator(mode="after")
    def _check_one_mechanism(self) -> PrivacySettings:
        if self.enable_dp and self.clip is not None:
            raise ValueError("clip and FedML's enable_dp cannot be used together; remove one of them")
        return self

    @property
    def is_active(self) -> bool:
        """Whether our mechanism changes updates before they are sent."""
        return not self.enable_dp and (self.clip is not None or self.sigma > 0)

    @property
    def has_any_dp(self) -> bool:
        """Whether updates are protected by our mechanism or FedML's; both add noise to the weights only."""
        return self.enable_dp or self.is_active
