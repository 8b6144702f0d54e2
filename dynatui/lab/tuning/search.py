"""Search for the fastest setting. In each trial, a candidate setting is measured beside the leader (the best setting so
far), text by text, until the candidate has won or lost. Callers supply the measurement and decide when the search ends.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal, TypeAlias

from decoder.analysis.interval import COVERAGE, students_t
from decoder.tree_rules import Rules

if TYPE_CHECKING:
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


def decided(logs: Sequence[float], most: int) -> Decision:
    """Decision from the logarithms of speed ratios (candidate over leader), one per text; after `most` texts, an
    undecided candidate counts as not better.
    """
    if len(logs) > 1:
        mean, error = fmean(logs), stdev(logs) / math.sqrt(len(logs))
        winning, losing = (students_t(len(logs) - 1, coverage) * error for coverage in (COVERAGE, LOSING))
        if mean < math.log(FAR_BELOW) or (len(logs) > 2 and mean + losing < 0):
            return "hopeless"
        if len(logs) >= ENOUGH and mean > winning:
            return "better"
        if len(logs) >= ENOUGH and mean <= 0:
            return "not better"
    return "go on" if len(logs) < most else "not better"


MOST_TEXTS = 16
"""Largest number of texts in a trial."""
CHAIN_EVERY = 4
"""One in this many trials tests a setting of a method other than the first method."""
ASKS = 30
"""A study counts as exhausted after this many consecutive suggestions of settings that are already measured."""
INITIAL = 0
"""Trial number of the shipped setting, which precedes the first trial."""


@dataclass(frozen=True)
class MethodSetting:
    method: str
    rules: Rules | None = None
    """None if the method has no parameters."""


@dataclass(frozen=True)
class Compared:
    """A candidate and the leader on one text."""

    ratio: float | None
    """Speed of the candidate divided by that of the leader; None if a text differs from that of plain decoding."""
    right: bool = True
    """Whether the candidate's text equals the text of plain decoding, or differs only because of a near tie."""


Measure: TypeAlias = Callable[[MethodSetting, MethodSetting, int], Compared | None]
"""(candidate, leader, number of the text) -> comparison; None if a setting exceeds the device's memory."""


@dataclass(frozen=True)
class Leader:
    setting: MethodSetting
    trial: int = INITIAL
    worth: float = 0.0
    """Logarithm of the ratio of the leader's speed to the shipped setting's speed; biased upwards by the selection."""


@dataclass
class Trials:
    """Numbers of trials."""

    finished: int = 0
    pruned: int = 0
    """Trials that ended early, because the candidate was clearly slower."""
    wrong: int = 0
    """Trials of settings whose text differs from that of plain decoding, not only by a near tie; these cannot lead."""
    too_large: int = 0


class Search:
    """Search for the fastest setting of each study's method; `leaders` has the best settings so far, by method."""

    def __init__(self, studies: Sequence["Study"], measure: Measure, texts: int, seed: int) -> None:
        self.leaders = {
            each.space.method: Leader(MethodSetting(each.space.method, each.space.shipped)) for each in studies
        }
        self.trials = Trials()
        self._studies = {study.space.method: study for study in studies}
        self._values: dict[MethodSetting, float | None] = {leader.setting: 0.0 for leader in self.leaders.values()}
        self._measure = measure
        self._texts = texts
        self._random = Random(seed)

    def run(self, over: Callable[[], bool]) -> Iterator[None]:
        """Yields after every text and every trial, until `over()` is true or no setting is left."""
        while not over():
            first, *others = self._studies.values()
            due = [*others, first] if (self.trials.finished + 1) % CHAIN_EVERY == 0 else [first, *others]
            candidate = next(filter(None, map(self._candidate, due)), None)
            if candidate is None:
                return
            yield from self._trial(candidate, over)

    def importance(self) -> Mapping[str, float]:
        """{knob of the first method: share of the variance of the speed that the knob explains}."""
        return next(iter(self._studies.values())).importance()

    def _candidate(self, study: "Study") -> MethodSetting | None:
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

    def _trial(self, candidate: MethodSetting, over: Callable[[], bool]) -> Iterator[None]:
        """Compares a candidate with the leader, and reports its value; a candidate that has won becomes the leader."""
        texts = self._random.sample(range(self._texts), min(MOST_TEXTS, self._texts))
        leader, logs, found = self.leaders[candidate.method], list[float](), None
        for text in texts:
            found = self._measure(candidate, leader.setting, text)
            if found is None or not found.right:
                break
            logs += [math.log(found.ratio)] if found.ratio else []
            yield
            if over() or decided(logs, len(texts)) != "go on":
                break
        trials, value = self.trials, None
        trials.finished += 1
        if found is None:
            trials.too_large += 1
        elif not found.right:
            trials.wrong += 1
        elif len(logs) > 1:
            decision, value = decided(logs, len(texts)), leader.worth + fmean(logs)
            trials.pruned += decision == "hopeless"
            if decision == "better":
                self.leaders[candidate.method] = Leader(candidate, trials.finished, value)
        self._values[candidate] = value
        self._studies[candidate.method].tell(value)
        yield
