"""The search on a made-up machine: found and abandoned settings, noise and drift, and when a race is decided."""

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import count, pairwise
from random import Random
from typing import TypeAlias

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.tree_rules import Rules
from dynatui.lab.tuning.search import (
    ENOUGH,
    INITIAL,
    MOST_TEXTS,
    Compared,
    Decision,
    Leader,
    MethodSetting,
    Search,
    Trials,
    decided,
)
from dynatui.lab.tuning.study import CHAIN, LONGEST_CHAIN, Study, trees

TEXTS = 16
FASTEST = 12
"""Nodes; the shipped presets have fewer."""
Leaders: TypeAlias = dict[str, Leader]
Long: TypeAlias = "tuple[Machine, Search, list[Leaders]]"


def few_nodes(rules: Rules | None) -> float:
    """Speeds of a machine on which `FASTEST` nodes, or a chain of three, are fastest."""
    match rules:
        case DynaTree():
            return 100 / (1 + abs(rules.n_max - FASTEST) / 10)
        case Linear():
            return 90 / (1 + abs(rules.k - 3) / 5)
        case _:
            return 50


def all_alike(_rules: Rules | None) -> float:
    return 100


class Machine:
    """A machine with made-up speeds and noise."""

    def __init__(self, speed: Callable[[Rules | None], float], noise: float = 0.03) -> None:
        self.speed = speed
        self.noise = noise
        self.random = Random(0)
        self.asked: list[tuple[MethodSetting, MethodSetting, int]] = []

    def __call__(self, candidate: MethodSetting, leader: MethodSetting, text: int) -> Compared:
        self.asked.append((candidate, leader, text))
        own, best = (self.speed(each.rules) * self.random.lognormvariate(0, self.noise) for each in (candidate, leader))
        return Compared(own / best)


def after(blocks: int) -> Callable[[], bool]:
    """A clock that has run out after `blocks` readings."""
    looks = count()
    return lambda: next(looks) >= blocks


def searched(machine: Machine, blocks: int) -> tuple[Search, list[Leaders]]:
    """A search, and its leaders after every text and every trial."""
    search = Search([Study(trees(0), 0), Study(CHAIN, 0)], machine, TEXTS, 0)
    return search, [dict(search.leaders) for _ in search.run(after(blocks))]


@pytest.fixture(scope="module")
def long() -> Long:
    machine = Machine(few_nodes)
    return machine, *searched(machine, 200)


def test_what_is_fastest_is_found_by_and_by_and_the_knob_that_decides_is_named(long: Long) -> None:
    _, search, leaders = long
    leader = search.leaders["dynatree"]
    assert isinstance(leader.setting.rules, DynaTree)
    assert abs(leader.setting.rules.n_max - FASTEST) <= 1
    assert search.leaders["linear"].setting.rules == Linear(3)
    assert leader.trial > INITIAL
    assert leader.worth > 0
    assert next(iter(search.importance())) == "n_max"
    worth = [few_nodes(leaders[texts]["dynatree"].setting.rules) for texts in (0, 20, 80, -1)]
    assert worth == sorted(worth)
    assert worth[0] < worth[-1]


def test_slow_settings_take_few_texts_and_none_is_measured_twice(long: Long) -> None:
    machine, search, _ = long
    trials, candidates = search.trials, [candidate for candidate, _, _ in machine.asked]
    assert trials.pruned > trials.finished / 2
    assert len(machine.asked) < 6 * trials.finished
    runs = [one for one, other in pairwise([*candidates, None]) if one != other]
    assert len(runs) == len(set(runs)) == trials.finished
    # The shipped chain leads from the start and is no candidate.
    assert len({candidate for candidate in candidates if candidate.method == "linear"}) == LONGEST_CHAIN - 1


def test_a_candidate_races_the_leader_of_its_own_method_once_on_each_of_a_few_texts(long: Long) -> None:
    machine, _, leaders = long
    texts, led = defaultdict[MethodSetting, list[int]](list), {each["dynatree"].setting for each in leaders}
    for candidate, leader, text in machine.asked:
        assert leader.method == candidate.method
        assert leader in led or leader.method == "linear"
        texts[candidate].append(text)
    assert all(len(each) == len(set(each)) <= MOST_TEXTS for each in texts.values())


def test_where_all_are_alike_few_candidates_win() -> None:
    search, leaders = searched(Machine(all_alike, noise=0.1), 300)
    assert search.trials.finished > 20
    assert len({each["dynatree"].trial for each in leaders}) <= 3


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_a_search_ends_between_two_texts(looks: int) -> None:
    machine = Machine(few_nodes)
    searched(machine, looks)
    assert len(machine.asked) <= looks


class Scripted(Study):
    """A study that suggests chains of these lengths, and records the values reported for them."""

    def __init__(self, *lengths: int) -> None:
        self.space = CHAIN
        self.lengths = list(lengths)
        self.told: list[float | None] = []

    def ask(self) -> Rules:
        return Linear(self.lengths.pop(0) if self.lengths else 5)

    def tell(self, value: float | None) -> None:
        self.told.append(value)


def chain_speed(candidate: MethodSetting, leader: MethodSetting, text: int) -> Compared | None:
    """Each token of a chain makes it a tenth faster. There is no room for chains of eight. Chains of seven write wrong
    texts at first; chains of three differ at a near tie in the first texts, and chains of two in all.
    """
    own, best = (each.rules.k if isinstance(each.rules, Linear) else 0 for each in (candidate, leader))
    tied = own == 2 or (own == 3 and text < 8)
    return None if own == 8 else Compared(None if tied else 1.1 ** (own - best), right=own != 7 or text > 3)


def test_a_study_is_told_what_a_setting_is_worth_over_the_shipped_one_if_it_is_known_whoever_leads_by_then() -> None:
    study = Scripted(6, 8, 4, 7, 2, 3)
    search = Search([study], chain_speed, TEXTS, 0)
    list(search.run(lambda: False))
    exponents = [value and round(value / math.log(1.1), 6) for value in study.told[:6]]
    assert exponents == [1, None, -1, None, None, -2]
    assert search.trials == Trials(finished=6, pruned=2, wrong=1, too_large=1)
    assert search.leaders["linear"].setting.rules == Linear(6)


MOST = 16


def logs(*ratios: float) -> list[float]:
    return [math.log(each) for each in ratios]


def raced(mean: float, noise: float, seed: int) -> tuple[Decision, int]:
    """Result of a race with random ratios of this mean and noise, and its number of texts."""
    random, found = Random(seed), list[float]()
    while (decision := decided(found, MOST)) == "go on":
        found.append(random.gauss(math.log(mean), noise))
    return decision, len(found)


@pytest.mark.parametrize(
    ("ratios", "most", "decision"),
    [
        pytest.param([], MOST, "go on", id="no text"),
        pytest.param([0.2], MOST, "go on", id="one slow text"),
        pytest.param([5.0], MOST, "go on", id="one fast text"),
        pytest.param([0.7, 0.9], MOST, "hopeless", id="far below on two texts"),
        pytest.param([0.95, 0.95], MOST, "go on", id="a little below on two texts"),
        pytest.param([0.95, 0.96, 0.95], MOST, "hopeless", id="an interval below one"),
        pytest.param([0.95, 1.1, 0.95], MOST, "go on", id="an interval around one"),
        pytest.param(([1.2, 1.21] * ENOUGH)[: ENOUGH - 1], MOST, "go on", id="ahead on few texts"),
        pytest.param(([1.2, 1.21] * ENOUGH)[:ENOUGH], MOST, "better", id="ahead on enough texts"),
        pytest.param([1.2, 0.8] * 3, MOST, "not better", id="not ahead on enough texts"),
        pytest.param([1.3], 1, "not better", id="no text left"),
    ],
)
def test_a_race_goes_on_until_it_is_decided(ratios: list[float], most: int, decision: Decision) -> None:
    assert decided(logs(*ratios), most) == decision


def test_whoever_is_ahead_by_noise_does_not_win() -> None:
    wide = logs(*[1.5, 0.7] * (MOST // 2))
    assert decided(wide[:ENOUGH], MOST) == "go on"
    assert decided(wide, MOST) == "not better"


def test_an_equal_candidate_seldom_wins_a_better_one_mostly_and_a_slow_one_takes_few_texts() -> None:
    equal, better, slow = ([raced(mean, 0.08, seed) for seed in range(200)] for mean in (1.0, 1.1, 0.8))
    assert sum(decision == "better" for decision, _ in equal) < 30
    assert sum(decision == "better" for decision, _ in better) > 180
    assert {decision for decision, _ in slow} == {"hopeless"}
    assert sum(texts for _, texts in slow) / len(slow) < 3
