"""Costs of forward passes on this machine, without the time in which the calling thread waited for a processor."""

from decoder.draft.tree_size.cost_model import Costs
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.models.pair import Pair
from decoder.system.computing_clock import ComputingClock

SERIES = 4
"""Number of repeated measurements, each of up to two seconds. Callers use the lowest costs of all measurements, since
disturbances only add time.
"""


def repeated_costs(pair: Pair, tokens: int) -> list[Costs]:
    """Costs of both models' passes after about `tokens` tokens of text, measured `SERIES` times."""
    clock = ComputingClock(pair.target.device)
    return [measure_costs(pair, tokens, clock) for _ in range(SERIES)]
