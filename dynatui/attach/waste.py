"""Detection of wasted drafts: almost no drafted token is accepted. A pure fold of counts.

Rounds are judged in lots, so that few rounds or one short text decide nothing. Two limits give hysteresis: between them
the judgement stays, so a server near a limit does not alternate.
"""

from dataclasses import dataclass, field, replace

from dynatui.attach.counters import Counts
from dynatui.attach.events import Wasted
from dynatui.attach.figures import round_length, share
from dynatui.attach.servers import Kind

ROUNDS, SECONDS = 100, 10.0
"""Least rounds and least seconds of a lot."""
WASTED_BELOW, PAYING_FROM = 1.1, 1.2
"""Limits in tokens a round. A round takes at least the time of a plain pass, so tokens a round bound the speed-up over
plain decoding, and drafting takes time besides."""
REJECTED_BELOW, ACCEPTED_FROM = 0.05, 0.06
"""Acceptance rates below which long drafts become wasted, and from which they cease to be."""
LONG_BELOW, LONG_FROM = 1.35, 1.5
"""The same limits in tokens a round; at these acceptance rates a round drafts seven tokens or more."""


@dataclass(frozen=True)
class Judgement:
    """Judgement of a server's drafts, with its counts."""

    lot: Counts = field(default_factory=Counts)
    """Counts of the incomplete lot."""
    begun: float | None = None
    """Start of the lot, in seconds of the session; None without one."""
    wasted: Counts | None = None
    """Counts since drafts became wasted; None where they are not, or unknown."""
    since: float = 0.0


def judged(kind: Kind, before: Judgement, counts: Counts, begun: float, t: float) -> Judgement:
    """The judgement after the counts from `begun` to `t`; idle times and unknown counts leave it unchanged."""
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
    """The judgement as a field of an event; None where drafts are not wasted."""
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
