"""The scenes of docs/evidence.md: what each changes in a configuration, and who is compared on how many seeds.

mnist.npz, usps.npz, mnistm_12k.npz and cifar10_12k.npz hold x_train, y_train, x_test, y_test; fashion.npz is Debian's
`dataset-fashion-mnist` in that form. The others are made of what is at hand:

    python benchmarks/fewer_classes.py usps.npz 3 usps_3.npz         # likewise usps_1 and mnist_3
    python benchmarks/street_digits.py /usr/share/fonts street_digits.npz
    python benchmarks/glyphs.py /usr/share/fonts glyphs.npz
    python benchmarks/fewer_roles.py shakespeare.npz 60 300 shakespeare_60.npz
    python benchmarks/tables.py                                      # wine.npz and cancer.npz, of scikit-learn
"""

from __future__ import annotations

from dataclasses import dataclass

OURS = "MrTF:tuned"
BASELINES = f"FedAvg,Scaffold,{OURS}"
#: On USPS all take part; on slower scenes those that cost less, or that came nearest elsewhere.
OTHERS, FEWER = "FedProx,FedOpt,FedDF,FedAUX,UWA,SHOT,LAME", "FedProx,SHOT,LAME,UWA"
MAIN, BESIDE = "main", "others"


@dataclass(frozen=True)
class Scene:
    """A scene.

    Attributes:
        title: for a table.
        config: a file of fedml_configs, without its ending.
        changes: key=value, as `--set` takes them.
        parts: by name the algorithms and the number of seeds.
    """

    title: str
    config: str
    changes: tuple[str, ...]
    parts: dict[str, tuple[str, int]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NPZ = "dataset=npz data_file={} "
_DIRICHLET = " partition_method=dirichlet partition_alpha=0.1"
_USPS = (
    _NPZ + "client_num_in_total=20 client_num_per_round=5 client_samples=2000 hidden_size=256 batch_size=10 "
    "learning_rate=0.03 server_samples=350 refine_steps=100 comm_round={}"
)
_MNIST = (
    _NPZ + "client_samples=10000 hidden_size=256 batch_size=10 learning_rate=0.03 comm_round=20 server_samples=1000 "
    "refine_steps=100"
)
_LENET = _NPZ + "model=lenet batch_size=10 learning_rate=0.03 server_samples=1000 refine_steps=150 comm_round={}"
_QUARTER = " client_num_in_total=40 client_samples=4000"
_USER = " partition_method=user client_num_per_round=15"
_WIDE = (
    _NPZ + "model={} client_num_in_total=20 client_num_per_round=5 client_samples=4000 comm_round={} batch_size=20 "
    "learning_rate=0.02 server_samples=500 refine_steps=60"
)


def _scene(title: str, config: str, changes: str, seeds: int = 3, others: str = "") -> Scene:
    parts = {MAIN: (BASELINES, seeds)}
    if others:
        parts[BESIDE] = (f"FedAvg,{others},{OURS}", 1)
    return Scene(title, config, _words(changes), parts)


SCENES = {
    "quickstart": _scene("quickstart's digits", "quickstart", ""),
    "usps_label": Scene(
        "USPS, 3 classes per client",
        "mnist",
        _words(_USPS.format("usps.npz", 20)),
        {MAIN: (f"FedAvg,FedProx,Scaffold,FedOpt,FedMMD,FedDF,FedBE,FedAUX,UWA,SHOT,LAME,MrTF:paper,{OURS}", 3)},
    ),
    "usps_dirichlet": _scene("USPS, Dirichlet 0.1, 40 rounds", "mnist", _USPS.format("usps.npz", 40) + _DIRICHLET),
    "usps_iid": _scene("USPS, IID", "mnist", _USPS.format("usps.npz", 20) + " partition_method=iid"),
    "usps_3": _scene("USPS, server with 3 classes", "mnist", _USPS.format("usps_3.npz", 20)),
    "usps_1": _scene("USPS, server with 1 class", "mnist", _USPS.format("usps_1.npz", 20)),
    "usps_3_iid": _scene(
        "USPS, IID, server with 3 classes", "mnist", _USPS.format("usps_3.npz", 20) + " partition_method=iid"
    ),
    "usps_1_iid": _scene(
        "USPS, IID, server with 1 class", "mnist", _USPS.format("usps_1.npz", 20) + " partition_method=iid"
    ),
    "usps_to_mnist": _scene(
        "USPS's clients, MNIST's server",
        "mnist",
        _USPS.format("usps.npz", 20) + " server_dataset=npz server_file=mnist.npz",
    ),
    "mnist_to_usps": _scene(
        "MNIST's clients, USPS's server",
        "mnist",
        _USPS.format("mnist.npz", 20) + " server_dataset=npz server_file=usps.npz",
    ),
    "usps_long": _scene("USPS, 110 rounds", "mnist", _USPS.format("usps.npz", 110), seeds=2),
    "mnist_label": _scene("MNIST, 3 classes per client", "mnist", _MNIST.format("mnist.npz")),
    "mnist_dirichlet": _scene("MNIST, Dirichlet 0.1", "mnist", _MNIST.format("mnist.npz") + _DIRICHLET),
    "mnist_3": _scene("MNIST, server with 3 classes", "mnist", _MNIST.format("mnist_3.npz")),
    "fashion": _scene("Fashion-MNIST, Dirichlet 0.1", "mnist", _USPS.format("fashion.npz", 20) + _DIRICHLET),
    "colour": _scene("colour digits, LeNet", "mnistm", _LENET.format("mnistm_12k.npz", 20), others=OTHERS),
    "colour_convnet": _scene(
        "colour digits, ConvNet", "mnistm", _WIDE.format("mnistm_12k.npz", "convnet", 12), seeds=2
    ),
    "colour_resnet8": _scene(
        "colour digits, ResNet8", "mnistm", _WIDE.format("mnistm_12k.npz", "resnet8", 12), seeds=1
    ),
    "colour_long": _scene("colour digits, LeNet, 120 rounds", "mnistm", _LENET.format("mnistm_12k.npz", 120), seeds=1),
    "street": _scene("street digits, LeNet", "mnistm", _LENET.format("street_digits.npz", 30), others=OTHERS),
    "street_quarter": _scene(
        "street digits, LeNet, a quarter", "mnistm", _LENET.format("street_digits.npz", 30) + _QUARTER, seeds=2
    ),
    "letters": _scene("letters by user, LeNet", "mnistm", _LENET.format("glyphs.npz", 30) + _USER, others=FEWER),
    "letters_long": _scene(
        "letters by user, LeNet, 100 rounds", "mnistm", _LENET.format("glyphs.npz", 100) + _USER, seeds=1
    ),
    "cifar": _scene("CIFAR-10, LeNet", "cifar10", _LENET.format("cifar10_12k.npz", 30), others=FEWER),
    "cifar_quarter": _scene("CIFAR-10, LeNet, a quarter", "cifar10", _WIDE.format("cifar10_12k.npz", "lenet", 20)),
    # Plain SGD, and so Scaffold, has not left the most frequent character after so few rounds; Adam has.
    "shakespeare": Scene(
        "Shakespeare by role, CharLSTM",
        "shakespeare",
        _words(
            _NPZ.format("shakespeare_60.npz") + "dset_ratio=1 client_num_per_round=10 epochs=1 comm_round=20 "
            "client_optimizer=adam learning_rate=0.003 server_samples=500 refine_steps=40"
        ),
        {MAIN: (f"FedAvg,{OURS}", 1)},
    ),
    "wine": _scene(
        "wine, 178 rows",
        "own_npz",
        _NPZ.format("wine.npz") + "model=mlp hidden_size=256 client_num_in_total=8 client_num_per_round=3 epochs=1 "
        "comm_round=12 refine_steps=200",
    ),
    "cancer": _scene(
        "breast cancer, 2 classes",
        "own_npz",
        _NPZ.format("cancer.npz") + "model=mlp client_num_in_total=10 client_num_per_round=5 "
        "partition_method=dirichlet partition_alpha=0.5 comm_round=20 batch_size=16",
    ),
}
