"""Whether a server's drafts are wasted: verified, and next to nothing of them accepted. A pure fold of counts.

Rounds are judged in lots, so that neither few of them nor one short text says anything. Between the two limits all
stays as it was, so that a server near one of them is not judged anew each time.
"""

from dataclasses import dataclass, field, replace

from dynatui.attach.counters import Counts
from dynatui.attach.events import Wasted
from dynatui.attach.figures import round_length, share
from dynatui.attach.servers import Kind

ROUNDS, SECONDS = 100, 10.0
"""A lot has at least so many rounds, and lasts at least so long."""
WASTED_BELOW, PAYING_FROM = 1.1, 1.2
"""Tokens a round. A round takes at least the time of a plain pass, so that is how many times as fast as plain decoding
a server can be at most, and drafting itself takes time too."""
REJECTED_BELOW, ACCEPTED_FROM = 0.05, 0.06
"""Acceptance rates between which a draft of many tokens a round begins and ceases to be wasted, ..."""
LONG_BELOW, LONG_FROM = 1.35, 1.5
"""... and tokens a round, which at these rates are of seven drafted ones and more, none of them free."""


@dataclass(frozen=True)
class Judgement:
    """Whether a server's drafts are wasted, and the counts behind it."""

    lot: Counts = field(default_factory=Counts)
    """Counts of the newest rounds, which are too few yet."""
    begun: float | None = None
    """When they began."""
    wasted: Counts | None = None
    """Counts since drafts are wasted; None where they are not, or where that is unknown."""
    since: float = 0.0


def judged(kind: Kind, before: Judgement, counts: Counts, begun: float, t: float) -> Judgement:
    """The judgement after what was counted from `begun` to `t`; idle times and unknown counts leave it as it was."""
    if None in (counts.drafts, counts.drafted, counts.accepted) or not (counts.drafts or counts.drafted):
        return before
    lot = before.lot.plus(counts)
    begun = begun if before.begun is None else before.begun
    length = round_length(kind, lot)
    if (lot.drafts or 0) < ROUNDS or t - begun < SECONDS or length is None:
        return replace(before, lot=lot, begun=begun)
    if not _is_wasted(length, share(lot.accepted, lot.drafted) or 0.0, already=before.wasted is not None):
        return Judgement()
    if before.wasted is None:
        return Judgement(wasted=lot, since=begun)
    return Judgement(wasted=before.wasted.plus(lot), since=before.since)


def _is_wasted(length: float, acceptance: float, *, already: bool) -> bool:
    if already:
        return length < PAYING_FROM or (acceptance < ACCEPTED_FROM and length < LONG_FROM)
    return length < WASTED_BELOW or (acceptance < REJECTED_BELOW and length < LONG_BELOW)


def told(kind: Kind, judgement: Judgement) -> Wasted | None:
    """The same for an event."""
    wasted = judgement.wasted
    if wasted is None:
        return None
    return Wasted(
        since=judgement.since,
        drafts=wasted.drafts or 0,
        drafted=wasted.drafted or 0,
        accepted=wasted.accepted or 0,
        tokens_per_round=round_length(kind, wasted) or 1.0,
        acceptance_rate=share(wasted.accepted, wasted.drafted) or 0.0,
    )
