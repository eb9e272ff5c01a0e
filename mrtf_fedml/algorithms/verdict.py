"""What the server makes of its clients' votes: who answers, what is worth sending back, and how good the answer is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .exchange import ClientUpdate
from .votes import VOTES
from .witnesses import WITNESSES, differences, found_by

#: Rounds whose votes are kept, and what a round's count against those of the round after it. Which of two models is
#: better changes slowly, and is told by many; how good they are changes fast while they learn.
_ROUNDS, _FADING, _FADING_FAST = 5, 0.6, 0.3
#: Standard errors by which the base's model must be found better to answer in the refined one's place. With one, chance
#: chose it too often: clients flatter the model that was trained on their samples (docs/choices.md).
_BEYOND_CHANCE = 2.0
#: Where clients find both models level, this share of the refined one answers: between two models that err in different
#: ways lies one that errs less. Where it may be better by so much, for all they know, the refined one answers alone.
_LEVEL, _CLEARLY_BETTER = 0.5, 0.04
#: The gain in accuracy from which on the refined model is sent back as far as `adaptive` would.
_MUCH_BETTER = 0.2

#: Where so much less of the clients' samples is named as the server's are, the server's classes are others altogether.
_UNLIKE = 0.25
#: A vote has so many numbers where it is weighed by the server's classes; fewer where it is not.
_WEIGHED = 7
#: So near to one client there is no spread.
_ALONE = 1e-9

_Pairs = list[tuple[float, float]]


@dataclass(frozen=True)
class Verdict:
    """What the clients of the last rounds say of the last answers.

    Attributes:
        rounds: the votes of each round, the newest last, as JSON can say them: three numbers or seven each, and
            three more of each client's witnesses.
        answer: who answers (`mrtf_args.answer`).
    """

    rounds: list[list[list[float]]]
    answer: str = "refined"

    @classmethod
    def after(cls, rounds: list[list[list[float]]], updates: Iterable[ClientUpdate], answer: str) -> Verdict:
        """With one more round; a client that judged nothing has no vote."""
        # Flat before it is read: a silo's votes are checked as numbers, whatever their shape.
        told = [
            [float(number) for key in (VOTES, WITNESSES) if key in extra for number in extra[key].flatten()]
            for extra in (update.extra for update in updates if VOTES in update.extra)
        ]
        newest = [votes for votes in told if votes[2] > 0]
        return cls([*rounds, newest][-_ROUNDS:] if newest else rounds, answer)

    @property
    def base_answers(self) -> bool:
        """Whether the base's model answers and not the refined one: by order, or as the better one beyond chance."""
        if self.answer != "judged":
            return self.answer == "aggregated"
        gain = self._gain()
        return gain is not None and gain[0] < -_BEYOND_CHANCE * gain[1]

    @property
    def refined_share(self) -> float:
        """How much of the answer is the refined model, and not the base's: 0 where that answers alone, else half to 1.

        Halfway where the clients are sure that both are level, the more the better the refined one may be.
        """
        if self.base_answers:
            return 0.0
        gain = self._gain() if self.answer == "judged" else None
        if gain is None:
            return 1.0
        return min(1.0, max(_LEVEL, _LEVEL + (1 - _LEVEL) * sum(gain) / _CLEARLY_BETTER))

    def worth_sending_back(self, least: float = 0.0) -> float:
        """How much better than by `least` the clients find the refined model, beyond chance: 1 from a fifth on."""
        gain = self._gain()
        return 0.0 if gain is None else min(1.0, max(0.0, gain[0] - gain[1] - least) / (_MUCH_BETTER - least))

    def estimate(self, unseen: bool = False) -> dict[str, float | None]:
        """The accuracy of the model that answers, by its clients, and the standard error of that.

        Where clients have weighed their votes by the server's classes it is of these, as far as `_other_classes` says,
        and `estimated_unweighed` is what it would be of the clients' own. Where clients have witnesses, both are less
        by what these do not find.

        Args:
            unseen: whether clients judge by samples that never train, which flatter nobody.
        """
        votes, share = self._votes(_FADING_FAST), self.refined_share
        plain = _ratio([(found_by(vote, share), vote[2]) for vote in votes])
        if plain is None:
            return {"estimated_accuracy": None, "estimated_error": None}
        flattery = _ratio(differences([vote for votes in self.rounds for vote in votes], share))
        plain = _without_flattery(plain, flattery)
        told: dict[str, float | None] = {"estimated_accuracy": plain[0], "estimated_error": plain[1]}
        weighed = [(found_by(vote[3:], share), vote[5]) for vote in votes if len(vote) >= _WEIGHED]
        if weighed:
            moved = _weighed_ratio(weighed)
            moved = None if moved is None else _without_flattery(moved, flattery)
            accuracy, error = _towards(plain, moved, self._other_classes())
            told = {"estimated_accuracy": accuracy, "estimated_error": error}
            told |= {"estimated_unweighed": plain[0], "estimated_unweighed_error": plain[1]}
        if flattery is None:
            return {**told, "estimated_flattery": 0.0} if unseen else told
        return {**told, "estimated_flattery": max(0.0, -flattery[0])}

    def comparison(self) -> dict[str, float | None]:
        """What the clients gain by the refined model, the standard error of that, and how far it is it that answers."""
        gain, share = self._gain() or (None, None), self.refined_share
        told = {"estimated_gain": gain[0], "estimated_gain_error": gain[1]}
        return {**told, "refined_answers": int(share > 0), "refined_share": share}

    def _other_classes(self) -> float:
        """How far the server's classes are others than the clients', in [0, 1], by how a model names either's samples.

        A model that misses a class, or names one always, does so on both sides: what it names alike on both says
        nothing of the server's classes.
        """
        votes = [vote for vote in self._votes() if len(vote) >= _WEIGHED]
        alike = sum(vote[6] for vote in votes) / sum(vote[2] for vote in votes)
        return min(1.0, max(0.0, 1.0 - alike) / _UNLIKE)

    def _gain(self) -> tuple[float, float] | None:
        """How much more often the refined model is right than the base's, and the standard error of that."""
        return _ratio([(vote[1] - vote[0], vote[2]) for vote in self._votes()])

    def _votes(self, fading: float = _FADING) -> list[list[float]]:
        """All votes, the older ones faded."""
        newest = len(self.rounds) - 1
        return [
            [number * fading ** (newest - age) for number in vote]
            for age, votes in enumerate(self.rounds)
            for vote in votes
        ]


def _without_flattery(told: tuple[float, float], difference: tuple[float, float] | None) -> tuple[float, float]:
    """What clients tell, less what their witnesses do not find; by chance these may find more, and flattery cannot."""
    if difference is None:
        return told
    return max(0.0, told[0] + min(0.0, difference[0])), min(1.0, math.hypot(told[1], difference[1]))


def _ratio(pairs: _Pairs) -> tuple[float, float] | None:
    """The ratio of two sums, and its standard error with clients as the units: their samples are not alike."""
    total = sum(samples for _, samples in pairs)
    if total <= 0:
        return None
    ratio = sum(hits for hits, _ in pairs) / total
    return ratio, _spread(pairs, ratio, len(pairs)) / total if len(pairs) > 1 else 1.0


def _weighed_ratio(pairs: _Pairs) -> tuple[float, float] | None:
    """The same of votes that are weighed; None where nobody has weight.

    Clients without the server's classes have nearly none, and the others are few: (sum w)^2 / sum w^2 of them.
    """
    total = sum(weight for _, weight in pairs)
    if total <= 0:
        return None
    ratio = sum(hits for hits, _ in pairs) / total
    clients = total**2 / sum(weight**2 for _, weight in pairs)
    error = _spread(pairs, ratio, clients) / total if clients > 1 + _ALONE else 1.0
    # Where all weights together are less than one sample's, the spread of the few says nothing.
    return ratio, max(error, 1.0 / (1.0 + total))


def _towards(plain: tuple[float, float], weighed: tuple[float, float] | None, share: float) -> tuple[float, float]:
    """The plain estimate, moved so far towards the weighed one, and its error.

    The server's classes are known by names alone: of these about 1 - plain are wrong, and then nothing speaks for the
    move.
    """
    ratio, error = weighed or (plain[0], 1.0)
    move = share * (ratio - plain[0])
    by_chance = (1.0 - share) * plain[1] + share * error
    return plain[0] + move, min(1.0, math.hypot(by_chance, (1.0 - plain[0]) * move))


def _spread(pairs: _Pairs, ratio: float, clients: float) -> float:
    """What the clients' hits are off the ratio, together, as so many clients would be by chance."""
    squares = sum((hits - ratio * weight) ** 2 for hits, weight in pairs)
    return math.sqrt(squares * clients / (clients - 1))
