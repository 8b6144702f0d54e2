"""Search for the fastest setting. In each trial, a candidate setting is measured beside the leader (the best setting so
far), text by text, until the candidate has won or lost. Callers supply the measurement and decide when the search ends.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from decoder.analysis.interval import COVERAGE, Interval, students_t
from decoder.tree_rules import Rules
from dynatui.lab.tuning.study import Study

LOSING = 0.8
"""Coverage of the confidence interval that decides whether a candidate has lost. The low value saves time: if a good
candidate loses by chance, the search tries similar settings later.
"""
ENOUGH = 6
"""Minimum number of texts for a candidate to win."""
FAR_BELOW = 0.9
"""A candidate whose mean speed relative to the leader is below this value loses, even after only two texts."""
Decision: TypeAlias = Literal["go on", "hopeless", "not better", "better"]
"""State of a trial: undecided; lost early, since the candidate is clearly slower; lost, since the candidate is not
faster beyond noise; or won by the candidate.
"""


def ratio(logs: Sequence[float]) -> Interval | None:
    """Geometric mean of ratios, with Student's interval, from the ratios' logarithms; None if there are no ratios."""
    if not logs:
        return None
    if len(logs) == 1:
        return Interval(value=math.exp(logs[0]), low=None, high=None)
    low, high = _interval(logs, COVERAGE)
    return Interval(value=math.exp(fmean(logs)), low=math.exp(low), high=math.exp(high))


def decided(logs: Sequence[float], most: int) -> Decision:
    """Decision from the logarithms of speed ratios (candidate over leader), one per text; after `most` texts, an
    undecided candidate counts as not better.
    """
    if len(logs) > 1:
        winning, losing = _interval(logs, COVERAGE), _interval(logs, LOSING)
        if fmean(logs) < math.log(FAR_BELOW) or (len(logs) > 2 and losing[1] < 0):
            return "hopeless"
        if len(logs) >= ENOUGH and winning[0] > 0:
            return "better"
        if len(logs) >= ENOUGH and fmean(logs) <= 0:
            return "not better"
    return "go on" if len(logs) < most else "not better"


def _interval(logs: Sequence[float], coverage: float) -> tuple[float, float]:
    half = students_t(len(logs) - 1, coverage) * stdev(logs) / math.sqrt(len(logs))
    return fmean(logs) - half, fmean(logs) + half


MOST_TEXTS = 16
"""Largest number of texts in a trial."""
CHAIN_EVERY = 4
"""One in this many trials tests a setting of a method other than the first method."""
ASKS = 30
"""A study counts as exhausted after this many consecutive suggestions of settings that are already measured."""
COMPARED_EVERY = 10
"""Number of trials after which knob importance is computed again."""
INITIAL = 0
"""Trial number of the shipped setting, which precedes the first trial."""


@dataclass(frozen=True)
class MethodSetting:
    method: str
    rules: Rules | None = None
    """None if the method has no parameters."""


@dataclass(frozen=True)
class PassageSpeeds:
    """Tokens per second on one passage; None for a setting whose text differs from the text of plain decoding."""

    plain: float
    candidate: float | None
    leader: float | None
    right: bool = True
    """Whether the candidate's text equals the text of plain decoding, or differs only because of a near tie."""


Measure: TypeAlias = Callable[[MethodSetting, MethodSetting, int], PassageSpeeds | None]
"""(candidate, leader, number of the passage) -> speeds; None if a setting exceeds the device's memory."""


@dataclass(frozen=True)
class Leader:
    setting: MethodSetting
    trial: int = INITIAL
    worth: float = 0.0
    """Logarithm of the ratio of the leader's speed to the shipped setting's speed; biased upwards by the selection."""
    over_plain: tuple[float, ...] = ()
    """For each passage, the logarithm of the ratio of the setting's speed to the speed of plain decoding."""


@dataclass(frozen=True)
class Current:
    setting: MethodSetting
    texts: int
    most: int
    ratio: Interval | None
    """Ratio of the candidate's speed to the leader's speed; None if unknown."""


@dataclass(frozen=True)
class State:
    leaders: Mapping[str, Leader]
    trials: int = 0
    """Number of finished trials, including trials of pruned, wrong and too large settings."""
    pruned: int = 0
    """Number of trials that ended early, because the candidate was clearly slower."""
    wrong: tuple[MethodSetting, ...] = ()
    """Settings whose text differs from that of plain decoding, not only by a near tie; these cannot become leaders."""
    too_large: tuple[MethodSetting, ...] = ()
    current: Current | None = None
    importance: Mapping[str, float] = field(default_factory=dict)
    """{knob of the first method: share of the variance of the speed that the knob explains}."""

    def led_by(self, leader: Leader) -> Mapping[str, Leader]:
        return {**self.leaders, leader.setting.method: leader}


class Search:
    def __init__(self, studies: Sequence[Study], measure: Measure, texts: int, seed: int) -> None:
        self._studies = {study.space.method: study for study in studies}
        self._values: dict[MethodSetting, float | None] = {
            MethodSetting(study.space.method, study.space.shipped): 0.0 for study in studies
        }
        self._measure = measure
        self._texts = texts
        self._random = Random(seed)
        self.state = State({setting.method: Leader(setting) for setting in self._values})

    def run(self, over: Callable[[], bool]) -> Iterator[State]:
        """Yields the state after every text, until `over()` is true or no setting is left."""
        while not over():
            first, *others = self._studies.values()
            due = [*others, first] if (self.state.trials + 1) % CHAIN_EVERY == 0 else [first, *others]
            candidate = next(filter(None, map(self._candidate, due)), None)
            if candidate is None:
                return
            yield from self._trial(candidate, over)

    def _candidate(self, study: Study) -> MethodSetting | None:
        """A setting that is not measured yet; None if no setting is left. If the study suggests a measured
        setting, the setting's value is reported to the study again.
        """
        tried = sum(setting.method == study.space.method for setting in self._values)
        if tried == study.space.count:
            return None
        for _ in range(ASKS):
            setting = MethodSetting(study.space.method, study.ask())
            if setting not in self._values:
                return setting
            study.tell(self._values[setting])
        return None

    def _trial(self, candidate: MethodSetting, over: Callable[[], bool]) -> Iterator[State]:
        texts = self._random.sample(range(self._texts), min(MOST_TEXTS, self._texts))
        over_leader, over_plain, right = list[float](), list[float](), True
        for number, text in enumerate(texts, 1):
            leader = self.state.leaders[candidate.method]
            block = self._measure(candidate, leader.setting, text)
            if block is None:
                self.state = replace(self.state, too_large=(*self.state.too_large, candidate))
                over_leader, right = [], True
                break
            right &= block.right
            over_leader += _log(block.candidate, block.leader)
            over_plain += _log(block.candidate, block.plain)
            leader = replace(leader, over_plain=(*leader.over_plain, *_log(block.leader, block.plain)))
            current = Current(candidate, number, len(texts), ratio(over_leader))
            self.state = replace(self.state, leaders=self.state.led_by(leader), current=current)
            yield self.state
            if over() or not right or decided(over_leader, len(texts)) != "go on":
                break
        self._close(candidate, over_leader, over_plain, decided(over_leader, len(texts)), right=right)
        yield self.state

    def _close(
        self,
        candidate: MethodSetting,
        over_leader: list[float],
        over_plain: list[float],
        decision: Decision,
        *,
        right: bool,
    ) -> None:
        """Reports the candidate's value to the study; a candidate that has won the trial becomes the leader."""
        state, study = self.state, self._studies[candidate.method]
        known = right and len(over_leader) > 1
        value = state.leaders[candidate.method].worth + fmean(over_leader) if known else None
        self._values[candidate] = value
        study.tell(value)
        trials, leaders, importance = state.trials + 1, state.leaders, state.importance
        if value is not None and decision == "better":
            leaders = state.led_by(Leader(candidate, trials, value, tuple(over_plain)))
        if trials % COMPARED_EVERY == 0:
            importance = next(iter(self._studies.values())).importance()
        self.state = replace(
            state,
            leaders=leaders,
            trials=trials,
            pruned=state.pruned + (right and decision == "hopeless"),
            wrong=state.wrong if right else (*state.wrong, candidate),
            current=None,
            importance=importance,
        )


def _log(over: float | None, under: float | None) -> list[float]:
    """List with the logarithm of the ratio of two speeds; empty if one of the speeds is unknown."""
    return [math.log(over / under)] if over and under else []
