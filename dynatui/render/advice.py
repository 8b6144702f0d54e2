"""The remedy that would make the watched method faster: one for all panels, which then cannot contradict each other.

The knobs come first, where the what-if tables estimate that other values are faster; else the remedy for what limits
the method's speed. Knows no panel.
"""

from decoder.analysis.bottleneck import of_method, remedy_of
from decoder.analysis.limit_words import Remedy
from decoder.analysis.what_if import WhatIf
from dynatui.knobs import info
from dynatui.number_format import percent, short
from dynatui.render.scene import Scene


def remedy(scene: Scene) -> Remedy | None:
    estimate, state = scene.whatif, scene.state
    if estimate is not None and (knobs := faster_knobs(estimate)):
        values, gain = knobs
        return Remedy(f"{values}, {gain} faster by estimate", f"{values} ({gain} faster by estimate)", values)
    settled = estimate is not None and estimate.breadth.here.rate is not None
    return remedy_of(of_method(state.race, state.watched), settled=settled)


def faster_knobs(estimate: WhatIf) -> tuple[str, str] | None:
    """Values in words and gain; None if none are faster than the present ones."""
    place, here = estimate.faster(), estimate.breadth.here.rate
    if place is None or here is None:
        return None
    grid, row, column = place
    rate = grid.cells[row][column].rate or here
    values = f"{info(grid.down).symbol} {short(grid.rows[row])} with D0 {grid.columns[column]:.0f}"
    return values, percent(rate / here - 1)
