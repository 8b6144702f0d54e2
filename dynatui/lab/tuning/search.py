"""Search: in each trial, a candidate races the best setting so far, text by text, until it has won or lost. Uses no
models and no clock: the measuring function and the end of the time are arguments.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random
from statistics import fmean, stdev

from decoder.analysis.interval import COVERAGE, Interval, students_t
from decoder.tree_rules import Rules
from dynatui.lab.tuning.study import Study

LOSING = 0.8
"""Coverage of the confidence interval that decides whether a candidate loses. The coverage is low, which saves time; if
a good candidate loses by chance, similar settings are tried later.
"""
ENOUGH = 6
"""Minimum number of texts for a candidate to win."""
FAR_BELOW = 0.9
"""A candidate whose mean ratio is below this value loses, even after only two texts."""


class Decision(Enum):
    """State of a race."""

    GO_ON = auto()
    """Undecided: the race continues."""
    HOPELESS = auto()
    """The candidate loses early, since it is clearly slower."""
    NOT_BETTER = auto()
    """The candidate loses, since it is not faster beyond noise."""
    BETTER = auto()


def ratio(logs: Sequence[float]) -> Interval | None:
    """Geometric mean of ratios, with Student's interval, from the ratios' logarithms; None if there are no ratios."""
    if not logs:
        return None
    if len(logs) == 1:
        return Interval(value=math.exp(logs[0]), low=None, high=None)
    low, high = _interval(logs, COVERAGE)
    return Interval(value=math.exp(fmean(logs)), low=math.exp(low), high=math.exp(high))


def decided(logs: Sequence[float], most: int) -> Decision:
    """Decision made from the ratios of the candidate's speed to the incumbent's speed.

    Args:
        logs: Natural logarithms of the ratios, one per text.
        most: Number of texts after which an undecided candidate counts as not better.
    """
    if len(logs) > 1:
        winning, losing = _interval(logs, COVERAGE), _interval(logs, LOSING)
        if fmean(logs) < math.log(FAR_BELOW) or (len(logs) > 2 and losing[1] < 0):
            return Decision.HOPELESS
        if len(logs) >= ENOUGH and winning[0] > 0:
            return Decision.BETTER
        if len(logs) >= ENOUGH and fmean(logs) <= 0:
            return Decision.NOT_BETTER
    return Decision.GO_ON if len(logs) < most else Decision.NOT_BETTER


def _interval(logs: Sequence[float], coverage: float) -> tuple[float, float]:
    """Student's interval of the mean."""
    half = students_t(len(logs) - 1, coverage) * stdev(logs) / math.sqrt(len(logs))
    return fmean(logs) - half, fmean(logs) + half


MOST_TEXTS = 16
"""Largest number of texts in a race."""
CHAIN_EVERY = 4
"""One of this many successive trials is for a method other than the first method."""
ASKS = 30
"""A study counts as exhausted after this many consecutive suggestions of settings that are already measured."""
COMPARED_EVERY = 10
"""Number of trials after which knob importance is computed again."""
INITIAL = 0
"""Trial number of the shipped setting, which precedes the first trial."""


@dataclass(frozen=True)
class Setting:
    """Method with its parameters."""

    method: str
    rules: Rules | None = None
    """Parameters; None if the method has none."""


@dataclass(frozen=True)
class PassageResult:
    """Result of one passage under one setting."""

    speed: float | None
    """Tokens per second; None if the text differs from the text of plain decoding."""
    right: bool = True
    """Whether the text equals the text of plain decoding, or differs from it only because of a near tie."""


@dataclass(frozen=True)
class Block:
    """Results of several settings and of plain decoding on one passage, measured in turns."""

    plain: float
    """Tokens per second of plain decoding."""
    results: Sequence[PassageResult]
    """One result per setting, in the order of the settings."""


Measure = Callable[[Sequence[Setting], int], Block | None]
"""(settings, number of the passage) -> results; None if a setting exceeds the device's memory."""


@dataclass(frozen=True)
class Leader:
    """Best setting of a method so far, and the speed ratios measured for this setting."""

    setting: Setting
    trial: int = INITIAL
    worth: float = 0.0
    """Logarithm of the ratio of the setting's speed to the shipped setting's speed. Since the setting was selected for
    its speed, the value is biased upwards.
    """
    over_plain: tuple[float, ...] = ()
    """For each passage, the logarithm of the ratio of the setting's speed to the speed of plain decoding."""


@dataclass(frozen=True)
class Current:
    """Candidate of the running trial."""

    setting: Setting
    texts: int
    most: int
    ratio: Interval | None
    """Ratio of the candidate's speed to the leader's speed; None if unknown."""


@dataclass(frozen=True)
class State:
    """Progress of a search."""

    leaders: Mapping[str, Leader]
    """Best setting of each method so far, by name of the method."""
    trials: int = 0
    """Number of finished trials, including trials of pruned, wrong and too large settings."""
    pruned: int = 0
    """Number of trials that ended early, because the candidate was clearly slower."""
    wrong: tuple[Setting, ...] = ()
    """Settings with a text that differs from the text of plain decoding; such settings cannot become leaders."""
    too_large: tuple[Setting, ...] = ()
    """Settings that exceed the device's memory."""
    current: Current | None = None
    importance: Mapping[str, float] = field(default_factory=dict)
    """Importance of the first method's knobs, by name."""


class Search:
    """Search that can stop between any two texts."""

    def __init__(self, studies: Sequence[Study], measure: Measure, texts: int, seed: int) -> None:
        """Begins with the shipped settings.

        Args:
            studies: One study for each method; the first study gets most trials.
            measure: Function that measures settings on a passage, in turns.
            texts: Number of passages.
            seed: Seed of the order of passages.
        """
        self._studies = {study.space.method: study for study in studies}
        self._values: dict[Setting, float | None] = {
            Setting(study.space.method, study.space.shipped): 0.0 for study in studies
        }
        self._measure = measure
        self._texts = texts
        self._random = Random(seed)
        shipped = {setting.method: Leader(setting) for setting in self._values}
        self.state = State(shipped)

    def run(self, over: Callable[[], bool]) -> Iterator[State]:
        """Yields the state after every text, until `over()` is true or no setting is left."""
        while not over():
            candidate = next(filter(None, map(self._candidate, self._due())), None)
            if candidate is None:
                return
            yield from self._trial(candidate, over)

    def _due(self) -> Sequence[Study]:
        """Studies in the order in which they are asked; the first study that suggests a setting gets the trial."""
        first, *others = self._studies.values()
        trial = self.state.trials + 1
        return [*others, first] if trial % CHAIN_EVERY == 0 else [first, *others]

    def _candidate(self, study: Study) -> Setting | None:
        """An unmeasured setting that the study suggests; None if no setting is left. If the study suggests a measured
        setting, the known value is reported to the study, and the study is asked again.
        """
        tried = sum(setting.method == study.space.method for setting in self._values)
        if tried == study.space.count:
            return None
        for _ in range(ASKS):
            setting = Setting(study.space.method, study.ask())
            if setting not in self._values:
                return setting
            study.tell(self._values[setting])
        return None

    def _trial(self, candidate: Setting, over: Callable[[], bool]) -> Iterator[State]:
        texts = self._random.sample(range(self._texts), min(MOST_TEXTS, self._texts))
        results = _Measured()
        for number, text in enumerate(texts, 1):
            leader = self.state.leaders[candidate.method]
            block = self._measure((candidate, leader.setting), text)
            if block is None:
                self.state = replace(self.state, too_large=(*self.state.too_large, candidate))
                results = _Measured()
                break
            results.add(block)
            leader = replace(leader, over_plain=(*leader.over_plain, *_logs(block.results[1], block.plain)))
            current = Current(candidate, number, len(texts), ratio(results.over_leader))
            self.state = replace(self.state, leaders=self._with(leader), current=current)
            yield self.state
            if over() or not results.right or decided(results.over_leader, len(texts)) is not Decision.GO_ON:
                break
        self._close(candidate, results, decided(results.over_leader, len(texts)))
        yield self.state

    def _close(self, candidate: Setting, results: "_Measured", decision: Decision) -> None:
        """Reports the candidate's value to the study; if the candidate has won the race, it becomes the leader."""
        before, study = self.state.leaders[candidate.method], self._studies[candidate.method]
        known = results.right and len(results.over_leader) > 1
        value = before.worth + fmean(results.over_leader) if known else None
        self._values[candidate] = value
        study.tell(value)
        trials, leaders = self.state.trials + 1, self.state.leaders
        if value is not None and decision is Decision.BETTER:
            leaders = self._with(Leader(candidate, trials, value, tuple(results.over_plain)))
        self.state = replace(
            self.state,
            leaders=leaders,
            trials=trials,
            pruned=self.state.pruned + (results.right and decision is Decision.HOPELESS),
            wrong=self.state.wrong if results.right else (*self.state.wrong, candidate),
            current=None,
            importance=self._importance(trials),
        )

    def _importance(self, trials: int) -> Mapping[str, float]:
        if trials % COMPARED_EVERY:
            return self.state.importance
        return next(iter(self._studies.values())).importance()

    def _with(self, leader: Leader) -> Mapping[str, Leader]:
        return {**self.state.leaders, leader.setting.method: leader}


@dataclass
class _Measured:
    """Results of the candidate so far."""

    over_leader: list[float] = field(default_factory=list)
    over_plain: list[float] = field(default_factory=list)
    right: bool = True

    def add(self, block: Block) -> None:
        mine, best = block.results
        self.right &= mine.right
        self.over_leader += _logs(mine, best.speed)
        self.over_plain += _logs(mine, block.plain)


def _logs(result: PassageResult, under: float | None) -> list[float]:
    """List of one number, the logarithm of the ratio of two speeds; an empty list if a speed is unknown."""
    return [math.log(result.speed / under)] if result.speed and under else []
