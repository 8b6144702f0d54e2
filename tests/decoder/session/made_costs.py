"""Made-up costs of rounds of `auto`, and its rules, for tests that measure no time."""

import random
from collections.abc import Sequence
from dataclasses import replace

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.engine import Engine
from decoder.methods.auto import Auto


class FixedCurve(RowCostCurve):
    """A curve that learns nothing, so that times measured on a busy machine have no influence."""

    def learn(self, calls: Sequence[int], seconds: float) -> float:  # noqa: ARG002
        return 1.0

    def scale(self, factor: float) -> None:
        """Keeps the costs."""


_TARGET_PASS = FixedCurve({1: 0.003, 64: 0.006})
PAYING = Costs(_TARGET_PASS, _TARGET_PASS, FixedCurve({1: 0.0001, 64: 0.0002}), _TARGET_PASS, FixedCurve({1: 0.0}))
"""Fixed costs for which drafts, trees and lookups pay."""
WIDE = Auto()
FREE = Costs(
    RowCostCurve({1: 1.0}),
    RowCostCurve({1: 1e-6}),
    RowCostCurve({1: 1e-6}),
    RowCostCurve({1: 1.0, 64: 1.0}),
    RowCostCurve({1: 1e-6}),
)
"""Drafting costs almost nothing."""
DEAR = Costs(
    RowCostCurve({1: 1e-9}),
    RowCostCurve({1: 1.0}),
    RowCostCurve({1: 1.0}),
    RowCostCurve({1: 1.0, 64: 64.0}),
    RowCostCurve({1: 1.0}),
)
"""Drafting costs more than it can ever gain."""


def priced(engine: Engine, costs: Costs) -> Engine:
    """The pair as if `costs` had been measured. The copy of the costs is the test's own, so learning is not shared."""
    own = Costs(*(RowCostCurve(dict(enumerate(curve.by_rows()[1:], 1))) for curve in vars(costs).values()))
    return replace(
        engine,
        costs={1 << power: own for power in range(12)},
        acceptance=AcceptanceModel(),
    )


def some_costs(luck: random.Random) -> Costs:
    """Random costs: drafts from nearly free to dearer than the target, with random curves over the rows."""
    plain = 10 ** luck.uniform(-5, -1)

    def curve(least: float, most: float) -> RowCostCurve:
        return RowCostCurve({rows: plain * 10 ** luck.uniform(least, most) for rows in (1, 2, 4, 8, 16, 32, 64)})

    return Costs(RowCostCurve({1: plain}), curve(-3, 0.5), curve(-3, 0.5), curve(-0.2, 0.6), curve(-3, 0))


def some_rules(luck: random.Random) -> Auto:
    low, mid, high = sorted(luck.choices((1, 2, 3, 5), k=3))
    stop = luck.choice((0.0, 0.0, 0.05))
    d_max = luck.randint(2, 9)
    return replace(
        WIDE,
        d_max=d_max,
        d0=luck.randint(1, d_max - 1),
        branching=(low, mid, high),
        rho_stop=stop,
        rho_deep=max(stop, luck.choice((0.0, 0.5))),
    )
