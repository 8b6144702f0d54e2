"""Cost curve of the machine, measured."""

from decoder.models.pair import Pair
from dynatui.lab.bench.paper.records import CostCurve
from dynatui.lab.bench.pass_costs import repeated_costs

ROWS = (1, 2, 4, 8, 16, 32, 64)


def cost_curve(pair: Pair, tokens: int) -> CostCurve:
    """Seconds of target and draft passes after about `tokens` tokens of text: the lowest of repeated measurements."""
    series = repeated_costs(pair, tokens)
    return CostCurve(
        rows=ROWS,
        verify_s=tuple(
            min(costs.verify.seconds(rows) if rows > 1 else costs.plain_s() for costs in series) for rows in ROWS
        ),
        draft_s=tuple(min(costs.draft.seconds(rows) for costs in series) for rows in ROWS),
    )
