"""Detects wasted drafts: drafts whose tokens are almost all rejected. A pure fold over the counts of intervals.

Each batch of rounds is judged as a whole, so that a few rounds or one short text do not decide the verdict. Two
thresholds give hysteresis: between the thresholds the verdict stays as it is, so it does not alternate at a threshold.
"""

from dataclasses import dataclass, field, replace

from dynatui.attach.counters import Counts
from dynatui.attach.events import Wasted
from dynatui.attach.figures import round_length, share
from dynatui.attach.servers import Kind

ROUNDS, SECONDS = 100, 10.0
"""A batch is judged as soon as it has at least `ROUNDS` rounds and has lasted at least `SECONDS` seconds."""
WASTED_BELOW, PAYING_FROM = 1.1, 1.2
"""Thresholds of the tokens per round: drafts become wasted below `WASTED_BELOW`, and can stop being wasted only at
`PAYING_FROM` or above. A round takes at least as long as a pass of plain decoding, and drafting takes additional time,
so the speed-up is below the tokens per round."""
REJECTED_BELOW, ACCEPTED_FROM = 0.05, 0.06
"""Thresholds of the acceptance rate, for a second criterion: drafts also become wasted if the rate is below
`REJECTED_BELOW` and the tokens per round are below `LONG_BELOW`. Drafts can stop being wasted only if the rate is at
least `ACCEPTED_FROM`, or the tokens per round are at least `LONG_FROM`."""
LONG_BELOW, LONG_FROM = 1.35, 1.5
"""Thresholds of the tokens per round for the second criterion. At an acceptance rate below `REJECTED_BELOW`, the tokens
per round reach `LONG_BELOW` only if a round drafts more than seven tokens. At a rate below `ACCEPTED_FROM`, they reach
`LONG_FROM` only if a round drafts more than eight tokens."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a server's drafts so far, with the counts from which it follows."""

    lot: Counts = field(default_factory=Counts)
    """Counts of the batch of rounds that is still incomplete."""
    begun: float | None = None
    """Start of the incomplete batch, in seconds since the start of the session; None while the batch is empty."""
    wasted: Counts | None = None
    """Counts since drafts became wasted; None if drafts are not wasted, or if too few rounds were counted."""
    since: float = 0.0


def judged(kind: Kind, before: Judgement, counts: Counts, begun: float, t: float) -> Judgement:
    """The verdict after one more interval, from `begun` to `t`.

    An interval without drafts, or with unknown counts, leaves the verdict unchanged.
    """
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
    """The verdict as a field of an event; None if drafts are not wasted."""
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
