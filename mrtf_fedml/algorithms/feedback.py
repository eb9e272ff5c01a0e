"""What the next clients receive of a refined round (`mrtf_args.feedback`), and when that is known."""

from __future__ import annotations

from ..models.weights import mix
from ..settings import MrTFSettings
from .base import Algorithm
from .exchange import Weights
from .judging import Verdict


def next_start(feedback: str, refined: Weights, base: Weights, relative: float, verdict: Verdict) -> Weights:
    """theta_t of the next round. `adaptive` trusts the refined model as long as the clients know little.

    Args:
        feedback: the user's word.
        refined: what the refinery made.
        base: what the base's rule would send.
        relative: the mean local loss as a share of log C.
        verdict: of the clients, where they judge.
    """
    if feedback == "always":
        return refined
    if feedback == "never":
        return base
    share = relative * verdict.worth_sending_back if feedback == "judged" else relative
    # A share of nothing is the base's own object: what is sent is its start, to the bit.
    return mix(refined, base, share) if share > 0 else base


def base_knows_the_start(refinery: MrTFSettings, base: Algorithm) -> bool:
    """Whether the base's rule alone says what the next clients get, so that they need not wait for the refinery.

    Clients that judge get the refined model too. A base that reads the server's inputs is itself what one waits for.
    """
    refines = refinery.refine_steps > 0 and refinery.feedback == "never"
    return refines and not refinery.client_judgement and not base.transductive
