"""Totals that a run with fewer new tokens would have, computed from the totals after each round of a longer run.

All functions are pure.

The result is exact: the first T tokens of a greedy text do not depend on its length limit, and no round depends on the
number of tokens still to come.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import structs

from decoder.analysis.metrics import Tally
from decoder.tree import share_of_depth
from dynatui.lab.bench.contenders import Trial


def totals_at(trial: Trial, lengths: Sequence[int]) -> tuple[Tally, ...]:
    """Totals of a trial at each of these lengths. The peak memory of the whole trial is only in the last totals."""
    cuts = [cut(trial.after, length) for length in lengths]
    if cuts:
        cuts[-1] = structs.replace(cuts[-1], peak_bytes=trial.tally.peak_bytes)
    return tuple(cuts)


def cut(after: Sequence[Tally], length: int) -> Tally:
    """Totals after `length` new tokens (at least 1); what the last round had beyond that length is removed.

    A text with fewer tokens is not cut. `after` has the totals after each round, at least one.
    """
    number = bisect_left(after, length, key=lambda tally: len(tally.tokens))
    if number == len(after):
        return after[-1]
    reached, before = after[number], after[number - 1] if number else Tally()
    if len(reached.tokens) == length:
        return reached
    kept = reached.tokens[len(before.tokens) : length]
    timed = len(kept) if reached.timed_tokens > before.timed_tokens else 0
    return structs.replace(
        _accepting(before, reached, len(kept) - 1),
        log=before.log.plus(kept),
        timed_tokens=before.timed_tokens + timed,
    )


def _accepting(before: Tally, reached: Tally, most: int) -> Tally:
    """Totals `reached` after a round, with the round's accepted path cut to at most `most` nodes."""
    whole, levels = reached.accepted - before.accepted, reached.levels - before.levels
    path = range(min(whole, most))
    return structs.replace(
        reached,
        accepted=before.accepted + len(path),
        depth_shares=before.depth_shares + share_of_depth(path, levels),
        by_depth=tuple(
            (drafted, used - (len(path) <= level < whole)) for level, (drafted, used) in enumerate(reached.by_depth)
        ),
    )
