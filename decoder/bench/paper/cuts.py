"""What a shorter run would have come to, from the totals after each round of a longer one. Pure.

A greedy text of T tokens begins with all shorter ones, and no round depends on how many tokens are still to come.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import structs

from decoder.analysis.metrics import Tally


def cut(after: Sequence[Tally], length: int) -> Tally:
    """The totals of the rounds until so many tokens are out, the last round's tokens cut at that length.

    A text that ended before is whole.

    Args:
        after: The totals after each round, of one at least.
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
    return structs.replace(reached, log=before.log.plus(kept), timed_tokens=before.timed_tokens + timed)
