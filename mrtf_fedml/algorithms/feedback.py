"""What becomes of a refined round: who answers, what the next clients receive (`mrtf_args.feedback`), and when."""

from __future__ import annotations

from ..models.weights import mix
from ..refinery.refine import RefinedRound
from ..refinery.shares import knowing
from ..settings import MrTFSettings
from .base import Algorithm
from .exchange import Weights
from .verdict import Verdict

#: What clients must gain, beyond chance, for something to be sent back on a base whose clients keep state. The state
#: belongs to the start that they knew: another start must gain more than it upsets (docs/choices.md).
_WORTH_UPSETTING = 0.1


def between(refined: Weights, base: Weights, share: float) -> Weights:
    """Mix both: share * refined + (1 - share) * base. A share of nothing, or of all, is that very object."""
    if share <= 0:
        return base
    return refined if share >= 1 else mix(refined, base, share)


def next_start(
    feedback: str, refined: RefinedRound, aggregated: Weights, relative: float, verdict: Verdict, base: Algorithm
) -> Weights:
    """theta_t of the next round. `adaptive` trusts the refined model as long as the clients know little.

    What `judged` sends back must also tell samples apart: while models are at chance, those that name the most frequent
    class are found better, and who starts from them takes longer to leave it (docs/choices.md).

    Args:
        feedback: the user's word.
        refined: what the refinery made.
        aggregated: what the base's rule would send.
        relative: the mean local loss as a share of log C.
        verdict: of the clients, where they judge.
        base: what the refinery stands on.
    """
    if feedback == "always":
        return refined.weights
    if feedback == "never":
        return aggregated
    share = relative
    if feedback == "judged":
        worth = verdict.worth_sending_back(_WORTH_UPSETTING if base.keeps_client_state else 0.0)
        share *= worth * knowing(refined.targets) if worth > 0 else 0.0
    return between(refined.weights, aggregated, share)


def base_knows_the_start(refinery: MrTFSettings, base: Algorithm) -> bool:
    """Whether the base's rule alone says what the next clients get, so that they need not wait for the refinery.

    Clients that judge get the refined model too. A base that reads the server's inputs is itself what one waits for.
    """
    refines = refinery.refine_steps > 0 and refinery.feedback == "never"
    return refines and not refinery.client_judgement and not base.transductive
