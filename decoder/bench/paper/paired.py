"""Paired comparisons of lanes: quotients within a block, then means over prompts. Pure.

Only texts that equal ar's are compared. Intervals are by the bootstrap of the sampling benchmark.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TypeAlias

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, bootstrap
from decoder.bench.contenders import BASELINE
from decoder.bench.paper.records import Block, has_text_of
from decoder.bench.paper.report import PaperReport
from decoder.bench.paper.request import Experiment
from decoder.bench.sampling.averages import Values, estimate
from decoder.bench.sampling.request import Place
from decoder.events import Figures

Measure: TypeAlias = Callable[[Figures], float | None]
"""Figure of one turn; None where unknown."""
SPREAD_COVERAGE = 0.99
"""Nominal coverage of the interval of a quotient of standard deviations: over 5 to 19 normal values it covered the
truth in 95 to 99 of 100 cases, a nominal 95 % interval in 88 to 94."""


@dataclass(frozen=True)
class Course:
    """All turns of one experiment, cut at one length."""

    experiment: Experiment
    blocks: tuple[Block, ...]
    seed: int
    place: int = -1
    """Index of the length in the experiment's lengths."""

    def figures(self, lane: str, block: Block) -> Figures | None:
        """Figures of a turn; None where its text differs from ar's, or it was not measured."""
        by_lane = {turn.lane: turn.at[self.place] for turn in block.turns}
        own = by_lane.get(lane)
        return own if own and has_text_of(own, by_lane[BASELINE]) else None

    def values(self, lane: str, measure: Measure) -> Values:
        """Mean over repeats, by prompt."""
        return self._by_prompt(lambda block: _number(self.figures(lane, block), measure))

    def quotients(self, over: str, under: str, measure: Measure) -> Values:
        """Mean of the quotients within blocks, by prompt."""

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
    """Courses of all experiments of a name that have a block, at their greatest length."""
    for number, experiment in enumerate(report.header.request.experiments):
        blocks = tuple(block for block in report.blocks if block.experiment == number)
        if experiment.name == name and blocks:
            yield Course(experiment, blocks, report.header.request.seed)


def mean(values: Values, seed: int) -> Interval | None:
    """Mean with its interval, of width 0 where all prompts agree; None where there is no value."""
    if len(values) > 1 and len(set(values.values())) == 1:
        (same,) = set(values.values())
        return Interval(value=same, low=same, high=same)
    return estimate(values, seed) if values else None


def stat(values: Values, seed: int) -> Interval | None:
    """Mean with its interval and the standard deviation over prompts."""
    interval = mean(values, seed)
    return interval and structs.replace(interval, std=pstdev(values.values()))


def spread_quotient(over: Values, under: Values, seed: int) -> Interval | None:
    """Quotient of two standard deviations over the common prompts; None where one is 0 or unknown.

    Each bootstrap sample recomputes both. Few prompts make the interval too narrow, hence the nominal coverage
    `SPREAD_COVERAGE`.
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
    """Tokens per second after the prompt."""
    return figures.tokens_per_second


def _number(figures: Figures | None, measure: Measure) -> float | None:
    return None if figures is None else measure(figures)
