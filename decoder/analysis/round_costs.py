"""Time of a round by the size of its tree, estimated from recorded rounds of one method.

    seconds = fixed_s + level_s * levels + row_s * drafted

Medians, so that a few stalled rounds change little. A chain that a least probability ended took one more level than it
has. This module does not know screens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import linear_regression, median

from decoder.analysis.metrics import drafted_nodes
from decoder.events import Round
from decoder.methods.linear import P_MIN
from decoder.tree import depths

LEAST_ROUNDS = 5


@dataclass(frozen=True)
class RoundCosts:
    fixed_s: float
    """Verification of a single row, commit and the rest of a round."""
    level_s: float
    row_s: float

    def seconds(self, levels: float, drafted: float) -> float:
        return self.fixed_s + self.level_s * levels + self.row_s * drafted


def fitted(rounds: Sequence[Round], plain_pass_s: float | None) -> RoundCosts | None:
    """`plain_pass_s`: time of a verification of one row, if known. None if too few rounds have a tree and times, or if
    they are too alike to tell what a row costs.
    """
    timed = [
        (event.t - before.t, event.draft_s, event.verify_s, _levels(event), drafted_nodes(event) or 0)
        for before, event in pairwise(rounds)
        if event.draft_s is not None and event.verify_s is not None and event.t > before.t
    ]
    trees = [(draft_s, verify_s, levels, drafted) for _, draft_s, verify_s, levels, drafted in timed if drafted]
    if len(trees) < LEAST_ROUNDS:
        return None
    row_s = _row_s([(drafted, verify_s) for _, verify_s, _, drafted in trees], plain_pass_s)
    if row_s is None:
        return None
    level_s = median(draft_s / levels for draft_s, _, levels, _ in trees)
    fixed_s = median(whole_s - level_s * levels - row_s * drafted for whole_s, _, _, levels, drafted in timed)
    return RoundCosts(fixed_s, level_s, row_s) if fixed_s > 0 else None


def _levels(event: Round) -> int:
    return max(depths(event.parents)) + (event.limited_by == P_MIN)


def _row_s(verified: Sequence[tuple[int, float]], plain_pass_s: float | None) -> float | None:
    """From the time of one row if it is known, else from the different sizes of the trees."""
    if plain_pass_s is not None:
        return max(0.0, median((verify_s - plain_pass_s) / drafted for drafted, verify_s in verified))
    if len({drafted for drafted, _ in verified}) < 2:
        return None
    return max(0.0, linear_regression(*zip(*verified, strict=True)).slope)
