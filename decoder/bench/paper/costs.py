"""The machine's cost curve: what a pass takes by the rows that are computed together."""

from decoder.bench.machine import ComputingClock
from decoder.bench.paper.records import RoundCosts
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.models.pair import Pair

ROWS = (1, 2, 4, 8, 16, 32, 64)
SERIES = 4
"""Times that passes are measured, up to two seconds each; the least counts, since disturbances only add."""


def round_costs(pair: Pair, tokens: int) -> RoundCosts:
    """Seconds of passes of both models after a text of about so many tokens, without waits for a processor."""
    clock = ComputingClock(pair.target.device)
    series = [measure_costs(pair, tokens, clock) for _ in range(SERIES)]
    return RoundCosts(
        rows=ROWS,
        verify_s=tuple(
            min(costs.verify.seconds(rows) if rows > 1 else costs.plain_s() for costs in series) for rows in ROWS
        ),
        draft_s=tuple(min(costs.draft.seconds(rows) for costs in series) for rows in ROWS),
    )
