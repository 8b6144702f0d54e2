"""The search: trial after trial, a candidate races the incumbent until one of them is known to be better.

Each method that is tuned has an incumbent and a study of its own. What a candidate is told to be worth is its ratio to
the incumbent times what that is worth, so that all values compare with the shipped setting. Knows no models and no
clock: what measures is handed in, and when to stop is asked between texts.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from decoder.analysis.interval import Interval
from decoder.tree_rules import Rules
from decoder.tuning.race import Decision, decided, ratio
from decoder.tuning.study import Study

MOST_TEXTS = 16
"""That a candidate is measured on."""
CHAIN_EVERY = 4
"""Every so many trials one goes to a method beside the first."""
ASKS = 30
"""Times that a sampler is asked in a row for a setting that has not been tried."""
COMPARED_EVERY = 10
"""Trials after which knobs are compared anew."""
INITIAL = 0
"""The trial that the shipped setting came from."""


@dataclass(frozen=True)
class Setting:
    """A method with its parameters."""

    method: str
    rules: Rules | None = None
    """None: it has none."""


@dataclass(frozen=True)
class Turned:
    """One text of one setting."""

    speed: float | None
    """Tokens a second; None: the text is not ar's, so it has none."""
    right: bool = True
    """Whether the text is ar's, but for a near tie."""


@dataclass(frozen=True)
class Block:
    """Several settings and plain decoding on one text, side by side."""

    plain: float
    """ar's tokens a second."""
    turned: Sequence[Turned]
    """In the order of the settings."""


Measure = Callable[[Sequence[Setting], int], Block | None]
"""(settings, number of the text) -> what came of their turns; None: the device has no room for one of them."""


@dataclass(frozen=True)
class Leader:
    """The best setting of a method so far."""

    setting: Setting
    trial: int = INITIAL
    worth: float = 0.0
    """Logarithm of its speed over the shipped setting's, as the search believes, which flatters."""
    over_plain: tuple[float, ...] = ()
    """Logarithms of its speed over ar's, a text each."""


@dataclass(frozen=True)
class Current:
    """The candidate that is being measured."""

    setting: Setting
    texts: int
    most: int
    ratio: Interval | None
    """Its speed over the leader's."""


@dataclass(frozen=True)
class State:
    """How far a search has come."""

    leaders: Mapping[str, Leader]
    """By method."""
    trials: int = 0
    """Finished ones, those among them that follow too."""
    pruned: int = 0
    """Given up after few texts."""
    wrong: tuple[Setting, ...] = ()
    """Whose text was not ar's: they are no candidates."""
    too_large: tuple[Setting, ...] = ()
    """For which the device had no room."""
    current: Current | None = None
    importance: Mapping[str, float] = field(default_factory=dict)
    """Of the first method's knobs."""


class Search:
    """A search that can be stopped between any two texts."""

    def __init__(self, studies: Sequence[Study], measure: Measure, texts: int, seed: int) -> None:
        """Begins with what is shipped.

        Args:
            studies: One a method; the first gets most trials.
            measure: Lets settings decode a text in turns.
            texts: How many there are.
            seed: Of the order of texts.
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
        """States after every text, until it is over or every setting is known."""
        while not over():
            candidate = next(filter(None, map(self._candidate, self._due())), None)
            if candidate is None:
                return
            yield from self._trial(candidate, over)

    def _due(self) -> Sequence[Study]:
        """The study whose turn it is, then the others, in case that has nothing new."""
        first, *others = self._studies.values()
        trial = self.state.trials + 1
        return [*others, first] if trial % CHAIN_EVERY == 0 else [first, *others]

    def _candidate(self, study: Study) -> Setting | None:
        """A setting that has not been tried; of others the study is told again what they are worth."""
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
        found = _Measured()
        for number, text in enumerate(texts, 1):
            leader = self.state.leaders[candidate.method]
            block = self._measure((candidate, leader.setting), text)
            if block is None:
                self.state = replace(self.state, too_large=(*self.state.too_large, candidate))
                found = _Measured()
                break
            found.add(block)
            leader = replace(leader, over_plain=(*leader.over_plain, *_logs(block.turned[1], block.plain)))
            current = Current(candidate, number, len(texts), ratio(found.over_leader))
            self.state = replace(self.state, leaders=self._with(leader), current=current)
            yield self.state
            if over() or not found.right or decided(found.over_leader, len(texts)) is not Decision.GO_ON:
                break
        self._close(candidate, found, decided(found.over_leader, len(texts)))
        yield self.state

    def _close(self, candidate: Setting, found: "_Measured", decision: Decision) -> None:
        """Tells the study, and lets a better candidate lead."""
        before, study = self.state.leaders[candidate.method], self._studies[candidate.method]
        known = found.right and len(found.over_leader) > 1
        value = before.worth + fmean(found.over_leader) if known else None
        self._values[candidate] = value
        study.tell(value)
        trials, leaders = self.state.trials + 1, self.state.leaders
        if value is not None and decision is Decision.BETTER:
            leaders = self._with(Leader(candidate, trials, value, tuple(found.over_plain)))
        self.state = replace(
            self.state,
            leaders=leaders,
            trials=trials,
            pruned=self.state.pruned + (found.right and decision is Decision.HOPELESS),
            wrong=self.state.wrong if found.right else (*self.state.wrong, candidate),
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
    """A candidate's texts so far."""

    over_leader: list[float] = field(default_factory=list)
    over_plain: list[float] = field(default_factory=list)
    right: bool = True

    def add(self, block: Block) -> None:
        mine, best = block.turned
        self.right &= mine.right
        self.over_leader += _logs(mine, best.speed)
        self.over_plain += _logs(mine, block.plain)


def _logs(turned: Turned, under: float | None) -> list[float]:
    """The logarithm of a ratio of speeds, where there is one."""
    return [math.log(turned.speed / under)] if turned.speed and under else []
