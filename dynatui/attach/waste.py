"""Detects wasted drafts, whose tokens are almost all rejected, by batches of rounds and with hysteresis."""

from dataclasses import dataclass, field, replace

from dynatui.attach.counters import Counts
from dynatui.attach.events import Wasted
from dynatui.attach.figures import round_length, share
from dynatui.attach.servers import Kind

ROUNDS, SECONDS = 100, 10.0
"""A batch is judged once it has so many rounds and seconds."""
WASTED_BELOW, PAYING_FROM = 1.1, 1.2
"""Tokens per round below which drafts become wasted, and from which they can stop being so. A round takes at least a
pass of plain decoding and its drafting, so the speed-up is below the tokens per round."""
REJECTED_BELOW, ACCEPTED_FROM = 0.05, 0.06
"""Acceptance rates of a second criterion, which also asks for tokens per round below `LONG_BELOW` or `LONG_FROM`."""
LONG_BELOW, LONG_FROM = 1.35, 1.5
"""At a rate below `REJECTED_BELOW`, a round reaches `LONG_BELOW` only with more than seven drafted tokens; below
`ACCEPTED_FROM`, it reaches `LONG_FROM` only with more than eight."""


@dataclass(frozen=True)
class Judgement:
    lot: Counts = field(default_factory=Counts)
    """Counts of the incomplete batch."""
    begun: float | None = None
    """Start of the incomplete batch; None while it is empty."""
    wasted: Counts | None = None
    """Counts since drafts became wasted; None if they are not."""
    since: float = 0.0


def judged(kind: Kind, before: Judgement, counts: Counts, begun: float, t: float) -> Judgement:
    """The verdict after an interval from `begun` to `t`; one without drafts, or with unknown counts, leaves it."""
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


def as_event(kind: Kind, judgement: Judgement) -> Wasted | None:
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
