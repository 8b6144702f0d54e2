"""Costs of forward passes on the measuring machine, without the time in which threads waited for a processor."""

from decoder.bench.machine import ComputingClock
from decoder.draft.tree_size.cost_model import Costs
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.models.pair import Pair

SERIES = 4
"""Number of measurements of the same costs, up to two seconds each. The minimum is used, since disturbances only add
time.
"""


def repeated_costs(pair: Pair, tokens: int) -> list[Costs]:
    """Costs of both models' passes after a text of about `tokens` tokens, from each of `SERIES` measurements."""
    clock = ComputingClock(pair.target.device)
    return [measure_costs(pair, tokens, clock) for _ in range(SERIES)]
