"""Totals of a shorter run, from the totals after each round of a longer one. Pure.

A greedy text of T tokens begins with all shorter ones, and no round depends on the number of tokens still to come.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import structs

from decoder.analysis.metrics import Tally
from decoder.tree import share_of_depth


def cut(after: Sequence[Tally], length: int) -> Tally:
    """Totals of the rounds up to `length` tokens; the last round's tokens and accepted path are cut there.

    A text that ended before stays whole.

    Args:
        after: Totals after each round, one at least.
        length: New tokens, 1 or more.
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
    """Totals after a round, with at most `most` nodes of its accepted path."""
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
