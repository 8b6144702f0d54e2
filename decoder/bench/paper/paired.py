"""Lanes against each other on the same prompts: quotients within a block, then over prompts. Pure.

Only texts that equal ar's are compared. Intervals come from the same bootstrap as those of sampled benchmarks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TypeAlias

import numpy as np

from decoder.bench.contenders import BASELINE
from decoder.bench.paper.asked import Experiment
from decoder.bench.paper.records import Block, has_text_of
from decoder.bench.paper.report import PaperReport, Stat
from decoder.bench.sampling.asked import Place
from decoder.bench.sampling.averages import Mean, Values, estimate
from decoder.bench.statistics import DRAWS
from decoder.events import Figures

Measure: TypeAlias = Callable[[Figures], float | None]
"""One number of a turn."""
SPREAD_COVERAGE = 0.99
"""In name, of the interval of a quotient of spreads: of 5 to 19 normal values it held the truth in 95 to 99 of 100
cases, one of 95 % in 88 to 94."""


@dataclass(frozen=True)
class Course:
    """All turns of one experiment, after so many new tokens."""

    experiment: Experiment
    blocks: tuple[Block, ...]
    seed: int
    place: int = -1
    """Which of the experiment's lengths."""

    def figures(self, lane: str, block: Block) -> Figures | None:
        """A turn's figures; None where its text differs from ar's, or it was not measured."""
        by_lane = {turn.lane: turn.at[self.place] for turn in block.turns}
        found = by_lane.get(lane)
        return found if found and has_text_of(found, by_lane[BASELINE]) else None

    def values(self, lane: str, measure: Measure) -> Values:
        """By prompt, the mean of its repeats."""
        return self._by_prompt(lambda block: _number(self.figures(lane, block), measure))

    def quotients(self, over: str, under: str, measure: Measure) -> Values:
        """By prompt, the mean of the quotients of its blocks."""

        def quotient(block: Block) -> float | None:
            above, below = (_number(self.figures(lane, block), measure) for lane in (over, under))
            return above / below if above is not None and below else None

        return self._by_prompt(quotient)

    def _by_prompt(self, value: Callable[[Block], float | None]) -> Values:
        found: dict[Place, list[float]] = {}
        for block in self.blocks:
            one = value(block)
            if one is not None:
                found.setdefault(Place(0, self.experiment.data_set, block.prompt), []).append(one)
        return {place: fmean(those) for place, those in found.items()}


def courses(report: PaperReport, name: str) -> Iterator[Course]:
    """Those of all experiments of a name that have any block, at their greatest length."""
    for number, experiment in enumerate(report.begun.asked.experiments):
        blocks = tuple(block for block in report.blocks if block.experiment == number)
        if experiment.name == name and blocks:
            yield Course(experiment, blocks, report.begun.asked.seed)


def mean(values: Values, seed: int) -> Mean | None:
    """With its interval, which has no width where all prompts agree; None: there is nothing."""
    if len(values) > 1 and len(set(values.values())) == 1:
        (same,) = set(values.values())
        return Mean(same, same, same)
    return estimate(values, seed) if values else None


def stat(values: Values, seed: int) -> Stat | None:
    """The same with the spread over prompts."""
    found = mean(values, seed)
    return None if found is None else Stat(mean=found.mean, std=pstdev(values.values()), low=found.low, high=found.high)


def spread_quotient(over: Values, under: Values, seed: int) -> Mean | None:
    """The quotient of two standard deviations over the prompts that both know; None where there is none.

    Both are taken anew in every sample of prompts, which takes few prompts for telling more of a spread than they do:
    the interval is one of `SPREAD_COVERAGE`.
    """
    common = sorted(over.keys() & under.keys())
    both = np.array([[values[place] for place in common] for values in (over, under)])
    if len(common) < 2 or not np.ptp(both, axis=1).all():
        return None
    drawn = both[:, np.random.default_rng(seed).integers(len(common), size=(DRAWS, len(common)))]
    spread = drawn[:, np.ptp(drawn, axis=2).all(axis=0)].std(axis=2)
    low, high = np.percentile(spread[0] / spread[1], (50 - 50 * SPREAD_COVERAGE, 50 + 50 * SPREAD_COVERAGE)).tolist()
    above, below = both.std(axis=1).tolist()
    return Mean(above / below, low, high)


def speed(figures: Figures) -> float | None:
    """Tokens a second after the prompt."""
    return figures.tokens_per_second


def _number(figures: Figures | None, measure: Measure) -> float | None:
    return None if figures is None else measure(figures)
