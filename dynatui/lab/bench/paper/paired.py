"""Paired comparisons of lanes: quotients of results on the same prompt, then means over prompts.

All functions are pure.

Only texts that equal the text of `ar` are compared. `dynatui.lab.bench.sampling.averages` computes confidence
intervals.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TypeAlias

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, bootstrap
from decoder.events import Figures
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.paper.records import Block, has_text_of
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.request import PaperExperiment
from dynatui.lab.bench.sampling.averages import Values, estimate
from dynatui.lab.bench.sampling.request import Place

Measure: TypeAlias = Callable[[Figures], float | None]
"""Function that takes the figures of a turn and returns the compared quantity, or None if the quantity is unknown."""
SPREAD_COVERAGE = 0.99
"""Nominal coverage of the bootstrap interval for a quotient of standard deviations.

With 5 to 19 normally distributed values, this interval contains the true quotient in 95 to 99 % of cases; an interval
with a nominal coverage of 95 % contains it in only 88 to 94 % of cases.
"""


@dataclass(frozen=True)
class Course:
    """All results of one experiment at one text length."""

    experiment: PaperExperiment
    blocks: tuple[Block, ...]
    seed: int
    place: int = -1
    """Index of the text length in the experiment's lengths."""

    def figures(self, lane: str, block: Block) -> Figures | None:
        """Figures of a lane in a block; None if the lane was not measured or its text differs from the text of `ar`."""
        by_lane = {turn.lane: turn.at[self.place] for turn in block.turns}
        own = by_lane.get(lane)
        return own if own and has_text_of(own, by_lane[BASELINE]) else None

    def values(self, lane: str, measure: Measure) -> Values:
        """Mean over repeats of a lane's quantity, for each prompt."""
        return self._by_prompt(lambda block: _number(self.figures(lane, block), measure))

    def quotients(self, over: str, under: str, measure: Measure) -> Values:
        """Quantity of lane `over` divided by the quantity of lane `under`: mean over the blocks of each prompt."""

        def quotient(block: Block) -> float | None:
            above, below = (_number(self.figures(lane, block), measure) for lane in (over, under))
            return above / below if above is not None and below else None

        return self._by_prompt(quotient)

    def _by_prompt(self, value: Callable[[Block], float | None]) -> Values:
        values: dict[Place, list[float]] = {}
        for block in self.blocks:
            one = value(block)
            if one is not None:
                values.setdefault(Place(0, self.experiment.data_set, block.prompt), []).append(one)
        return {place: fmean(those) for place, those in values.items()}


def courses(report: PaperReport, name: str) -> Iterator[Course]:
    """Results of each experiment with this name and at least one block, at the experiment's greatest text length."""
    for number, experiment in enumerate(report.header.request.experiments):
        blocks = tuple(block for block in report.blocks if block.experiment == number)
        if experiment.name == name and blocks:
            yield Course(experiment, blocks, report.header.request.seed)


def mean(values: Values, seed: int) -> Interval | None:
    """Mean over prompts with its bootstrap interval, which has width 0 if all values are equal.

    None if there are no values.
    """
    if len(values) > 1 and len(set(values.values())) == 1:
        (same,) = set(values.values())
        return Interval(value=same, low=same, high=same)
    return estimate(values, seed) if values else None


def mean_and_std(values: Values, seed: int) -> Interval | None:
    """Mean over prompts with its bootstrap interval and the standard deviation over prompts."""
    interval = mean(values, seed)
    return interval and structs.replace(interval, std=pstdev(values.values()))


def spread_quotient(over: Values, under: Values, seed: int) -> Interval | None:
    """Quotient of two quantities' standard deviations over common prompts; None if a deviation is 0 or unknown.

    Both deviations are recomputed for each bootstrap sample. With few prompts, an interval with a nominal coverage of
    95 % would be too narrow, so the nominal coverage is `SPREAD_COVERAGE`.
    """
    common = sorted(over.keys() & under.keys())
    both = np.array([[values[place] for place in common] for values in (over, under)])
    if len(common) < 2 or not np.ptp(both, axis=1).all():
        return None

    def quotients(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        (places,) = drawn
        samples = both[:, places]
        over, under = samples[:, np.ptp(samples, axis=2).all(axis=0)].std(axis=2)
        quotient: NDArray[np.float64] = over / under
        return quotient

    low, high = bootstrap(quotients, [len(common)], seed=seed, coverage=SPREAD_COVERAGE)
    above, below = both.std(axis=1).tolist()
    return Interval(value=above / below, low=low, high=high)


def speed(figures: Figures) -> float | None:
    """Tokens per second of decoding, without the prefill."""
    return figures.tokens_per_second


def _number(figures: Figures | None, measure: Measure) -> float | None:
    return None if figures is None else measure(figures)
