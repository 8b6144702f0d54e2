"""Totals of methods with known bottlenecks, and races with these totals."""

from collections.abc import Mapping

from msgspec import structs

from decoder.analysis.metrics import RunFold, Tally
from decoder.analysis.speedup import Decoded, Segments
from decoder.append_only import TokenLog

ROUNDS = 10


def tally(*, tokens: int, draft_ms: float, verify_ms: float, host_ms: float, levels: int = 4, nodes: int = 8) -> Tally:
    """Rounds of constant duration, in milliseconds, with tokens that never repeat."""
    total_s = ROUNDS * (draft_ms + verify_ms + host_ms) / 1000
    return Tally(
        rounds=ROUNDS,
        drafted=nodes * ROUNDS,
        accepted=(tokens - 1) * ROUNDS,
        levels=levels * ROUNDS,
        timed_tokens=tokens * ROUNDS,
        decode_s=total_s,
        draft_s=ROUNDS * draft_ms / 1000,
        verify_s=ROUNDS * verify_ms / 1000,
        commit_s=0.0,
        log=TokenLog().plus(list(range(tokens * ROUNDS))),
    )


PLAIN = structs.replace(tally(tokens=1, draft_ms=0, verify_ms=3, host_ms=1), drafted=0, accepted=0, levels=0)
LIMITED = {
    "agreement": tally(tokens=2, draft_ms=1, verify_ms=3, host_ms=1),
    "draft": tally(tokens=4, draft_ms=15, verify_ms=4, host_ms=1),
    "verification": tally(tokens=4, draft_ms=1, verify_ms=18, host_ms=1, nodes=16),
    "host": tally(tokens=4, draft_ms=1, verify_ms=4, host_ms=15),
}
"""A tally for each largest limit."""


def raced(tallies: Mapping[str, Tally]) -> RunFold:
    """A finished race with these totals, in which all turns were alike."""
    turns = {name: _alike(of, tallies["ar"]) for name, of in tallies.items() if name != "ar"}
    return RunFold(tallies={name: structs.replace(of, ended=True) for name, of in tallies.items()}, segments=turns)


def _alike(of: Tally, plain: Tally) -> Segments:
    turns, before = Segments(), Decoded()
    own, passes = (Decoded(each.timed_tokens, each.decode_s / ROUNDS) for each in (of, plain))
    for _ in range(ROUNDS):
        turns, before = turns.with_round(own, before), before.plus(passes)
    return turns.ended(before)
