"""What the clients' nearest samples say of a run: a server's set of another kind, and labels that they do not bear."""

from __future__ import annotations

from ..data.neighbours import Nearness

#: So many more unlike samples than usual are another kind of data. Fewer, beyond chance, are some of one.
_UNLIKE = 0.25
#: So many features that have moved are no chance and no single instrument's fault.
_MOVED = 0.25
#: Who agrees with a witness less often by g than the witness is right, is wrong on a share of g at least. With the true
#: labels of sets of one kind g was 0.18 at most.
_UNSUPPORTED = 0.25
#: The server's samples are told from the clients' of the same class so well; of sets of one kind it was 0.75 at most.
_APART = 0.9
#: Where they are, neighbours are poorer witnesses and fewer contradictions are enough to doubt; 0.13 at most elsewhere.
_CONTRADICTED = 0.15
#: A witness is right so often, and agreed with nearly as often.
_WITNESS, _NEARLY = 0.8, 0.1


def unlike(near: Nearness | None) -> str | None:
    """Samples of another kind than any that the clients have."""
    if near is None:
        return None
    more = near.novel - near.usual
    share = f"{near.novel:.0%} of the server's samples are unlike any of the clients' ({near.usual:.0%} is usual)"
    if more >= _UNLIKE:
        return (
            f"{share}: they are of another kind or of classes that no client knows; check scale, units and the order "
            "of columns, and do not use these labels unchecked"
        )
    if near.moved >= _MOVED:
        return (
            f"{near.moved:.0%} of the features lie on average where no mixture of the clients' classes could put them: "
            "the server's units, instrument or calibration may be another; check them, and do not use these labels "
            "unchecked"
        )
    if more < near.chance:
        return None
    return f"{share}: some may be of a kind or a class that no client knows, and get another's label"


def differs(near: Nearness) -> bool:
    """Whether the server's samples are of another kind. Their labels may be right all the same."""
    return unlike(near) is not None or (near.apart is not None and near.apart >= _APART)


def unsupported(near: Nearness | None) -> str | None:
    """Labels that the clients' samples next to them do not bear, though among themselves they do."""
    if near is None or near.agreeing is None or near.expected is None:
        return None
    if differs(near) and near.expected - near.agreeing >= _CONTRADICTED:
        return (
            "the server's samples are told from the clients' of the same class nearly always: they are of another "
            f"kind, and the clients' nearest samples bear the given label in {near.agreeing:.0%} of the cases only "
            f"({near.expected:.0%} among their own); do not use these labels unchecked"
        )
    if wrong_at_least(near) == 0.0:
        return None
    return (
        f"the nearest sample of the clients bears a label's class in {near.agreeing:.0%} of the cases, and in "
        f"{near.expected:.0%} among their own: {wrong_at_least(near):.0%} of these labels or more are likely "
        "to be wrong; train for more rounds, or try another learning_rate"
    )


def wrong_at_least(near: Nearness) -> float:
    """The share of the labels that are wrong by what the nearest samples bear; 0 where that is within chance."""
    if near.agreeing is None or near.expected is None or near.expected - near.agreeing < _UNSUPPORTED:
        return 0.0
    return near.expected - near.agreeing


def supported(near: Nearness | None) -> bool:
    """Whether the clients' nearest samples bear the labels, as far as they can tell at all."""
    if near is None or near.agreeing is None or near.expected is None or unlike(near) is not None:
        return False
    return near.expected >= _WITNESS and near.agreeing >= near.expected - _NEARLY
