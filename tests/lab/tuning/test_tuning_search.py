"""The search on a made-up machine: found and abandoned settings, noise and drift, and when a race is decided."""

import math
from collections.abc import Callable
from itertools import count, pairwise
from random import Random
from typing import Any, TypeAlias

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.tree_rules import Rules
from dynatui.lab.tuning.search import (
    ENOUGH,
    INITIAL,
    MOST_TEXTS,
    Decision,
    MethodSetting,
    PassageSpeeds,
    Search,
    State,
    decided,
    ratio,
)
from dynatui.lab.tuning.study import CHAIN, LONGEST_CHAIN, Study, trees

TEXTS = 16
FASTEST = 12
"""Nodes; the shipped presets have fewer."""
Long: TypeAlias = "tuple[Machine, Search, list[State]]"


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
    """A machine with made-up speeds and noise; its speed differs between texts and falls over time."""

    def __init__(self, speed: Callable[[Rules | None], float], noise: float = 0.03) -> None:
        self.speed = speed
        self.noise = noise
        self.random = Random(0)
        self.asked: list[tuple[MethodSetting, MethodSetting, int]] = []
        self.wrong: set[int] = set()
        """Node limits of trees whose text differs from the text of ar."""
        self.tied: set[int] = set()
        """Texts on which every candidate differs at a near tie."""

    def __call__(self, candidate: MethodSetting, leader: MethodSetting, text: int) -> PassageSpeeds:
        self.asked.append((candidate, leader, text))
        now = (1 + text / 10) / (1 + len(self.asked) / 50)
        own, best = (
            now * self.speed(each.rules) * self.random.lognormvariate(0, self.noise) for each in (candidate, leader)
        )
        wrong = isinstance(candidate.rules, DynaTree) and candidate.rules.n_max in self.wrong
        return PassageSpeeds(now * 50, None if wrong or text in self.tied else own, best, right=not wrong)


def after(blocks: int) -> Callable[[], bool]:
    """A clock that has run out after `blocks` readings."""
    looks = count()
    return lambda: next(looks) >= blocks


def searched(machine: Machine, blocks: int) -> tuple[Search, list[State]]:
    search = Search([Study(trees(0), 0), Study(CHAIN, 0)], machine, TEXTS, 0)
    return search, list(search.run(after(blocks)))


@pytest.fixture(scope="module")
def long() -> Long:
    machine = Machine(few_nodes)
    return machine, *searched(machine, 200)


def found(state: State) -> tuple[int, int]:
    tree, chain = state.leaders["dynatree"].setting.rules, state.leaders["linear"].setting.rules
    assert isinstance(tree, DynaTree)
    assert isinstance(chain, Linear)
    return tree.n_max, chain.k


def test_what_is_fastest_is_found_whatever_texts_differ_by_and_however_the_machine_slows_down(long: Long) -> None:
    _, search, _ = long
    nodes, chain = found(search.state)
    assert abs(nodes - FASTEST) <= 1
    assert chain == 3


def test_slow_settings_take_few_texts(long: Long) -> None:
    machine, search, _ = long
    state = search.state
    assert state.pruned > state.trials / 2
    assert len(machine.asked) < 6 * state.trials


def test_a_candidate_races_the_leader_of_its_own_method_on_the_same_text(long: Long) -> None:
    machine, _, states = long
    blocks = [state for state in states if state.current]
    for (candidate, leader, _), state in zip(machine.asked, blocks, strict=True):
        assert state.current is not None
        assert candidate == state.current.setting
        assert leader == state.leaders[candidate.method].setting


def test_no_setting_is_measured_twice(long: Long) -> None:
    machine, _, states = long
    candidates = [candidate for candidate, _, _ in machine.asked]
    runs = [one for one, other in pairwise([*candidates, None]) if one != other]
    assert len(runs) == len(set(runs)) == states[-1].trials


def test_no_text_is_decoded_twice_in_one_trial_and_no_trial_is_endless(long: Long) -> None:
    machine, _, _ = long
    texts: dict[MethodSetting, list[int]] = {}
    for candidate, _, text in machine.asked:
        texts.setdefault(candidate, []).append(text)
    assert all(len(each) == len(set(each)) <= MOST_TEXTS for each in texts.values())


def test_both_methods_take_part_and_chains_end_when_all_are_known(long: Long) -> None:
    machine, _, _ = long
    chains = {candidate for candidate, _, _ in machine.asked if candidate.method == "linear"}
    assert len(chains) == LONGEST_CHAIN - 1  # the shipped chain leads from the start and is no candidate


def test_the_knob_that_matters_is_named(long: Long) -> None:
    _, search, _ = long
    assert next(iter(search.state.importance)) == "n_max"


def test_where_all_are_alike_few_candidates_win() -> None:
    search, states = searched(Machine(all_alike, noise=0.1), 300)
    assert search.state.trials > 20
    assert len({state.leaders["dynatree"].trial for state in states}) <= 3


def test_a_setting_that_writes_another_text_is_no_candidate_and_named() -> None:
    machine = Machine(few_nodes)
    machine.wrong = {FASTEST}
    search, _ = searched(machine, 200)
    assert search.state.wrong
    assert all(isinstance(each.rules, DynaTree) and each.rules.n_max == FASTEST for each in search.state.wrong)
    assert found(search.state)[0] != FASTEST


def test_a_text_that_differs_by_a_near_tie_does_not_count() -> None:
    machine = Machine(few_nodes)
    machine.tied = set(range(TEXTS - 8))
    search, _ = searched(machine, 300)
    assert not search.state.wrong
    assert abs(found(search.state)[0] - FASTEST) <= 1


def test_texts_that_all_differ_by_near_ties_tell_nothing() -> None:
    machine = Machine(few_nodes)
    machine.tied = set(range(TEXTS))
    search, _ = searched(machine, 100)
    assert search.state.trials > 2
    assert search.state.leaders["dynatree"].trial == INITIAL


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_a_search_ends_between_two_texts(looks: int) -> None:
    machine = Machine(few_nodes)
    search, states = searched(machine, looks)
    assert len(machine.asked) <= looks
    assert search.state.current is None
    assert not states or states[-1].current is None


def test_a_leader_is_shown_with_what_it_brought_and_its_speed_over_plain_decoding(long: Long) -> None:
    _, search, states = long
    leader = search.state.leaders["dynatree"]
    assert leader.trial > INITIAL
    assert leader.worth > 0
    assert len(leader.over_plain) > 6
    assert [state.trials for state in states] == sorted(state.trials for state in states)


def test_a_longer_search_is_no_worse(long: Long) -> None:
    _, _, states = long
    worth = [few_nodes(states[blocks].leaders["dynatree"].setting.rules) for blocks in (0, 20, 80, -1)]
    assert worth == sorted(worth)
    assert worth[0] < worth[-1]


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

    def importance(self) -> dict[str, float]:
        return {}


def chain_speed(candidate: MethodSetting, leader: MethodSetting, text: int) -> PassageSpeeds:
    """Each token of a chain makes it a tenth faster; chains of length seven write a wrong text on the first texts."""
    own, best = (each.rules.k if isinstance(each.rules, Linear) else 0 for each in (candidate, leader))
    return PassageSpeeds(50, 100 * 1.1**own, 100 * 1.1**best, right=own != 7 or text > 3)


def test_a_setting_that_the_device_has_no_room_for_is_left_out_and_the_search_goes_on() -> None:
    def full(candidate: MethodSetting, leader: MethodSetting, text: int) -> PassageSpeeds | None:
        chain = candidate.rules
        return None if isinstance(chain, Linear) and chain.k > 6 else chain_speed(candidate, leader, text)

    study = Scripted(6, 8, 4)
    search = Search([study], full, TEXTS, 0)
    list(search.run(lambda: False))
    assert [value is None for value in study.told[:3]] == [False, True, False]
    assert search.state.too_large == (MethodSetting("linear", Linear(8)),)
    assert not search.state.wrong


def test_what_a_setting_is_worth_is_told_over_the_shipped_one_whoever_leads_by_then() -> None:
    study = Scripted(6, 8, 4)
    list(Search([study], chain_speed, TEXTS, 0).run(lambda: False))
    gains = [math.exp(value) for value in study.told[:3] if value is not None]
    assert gains == pytest.approx([1.1, 1.1**3, 1.1**-1])


def test_a_setting_that_writes_another_text_is_worth_nothing_known() -> None:
    study = Scripted(7, 6)
    search = Search([study], chain_speed, TEXTS, 0)
    list(search.run(lambda: False))
    assert study.told[0] is None
    assert study.told[1] is not None
    assert search.state.wrong == (MethodSetting("linear", Linear(7)),)


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


def test_an_equal_candidate_seldom_wins_and_a_better_one_mostly() -> None:
    equal = [raced(1.0, 0.08, seed)[0] for seed in range(200)]
    better = [raced(1.1, 0.08, seed)[0] for seed in range(200)]
    assert equal.count("better") < 30
    assert better.count("better") > 180


def test_a_slow_candidate_takes_few_texts() -> None:
    ends = [raced(0.8, 0.08, seed) for seed in range(50)]
    assert {decision for decision, _ in ends} == {"hopeless"}
    assert sum(texts for _, texts in ends) / len(ends) < 3


def test_a_ratio_is_a_geometric_mean_with_an_interval() -> None:
    found: Any = ratio(logs(2.0, 0.5, 1.0))
    assert found.value == pytest.approx(1)
    assert found.low is not None
    assert found.high == pytest.approx(1 / found.low)
    # Student's t of two degrees of freedom is 4.303 at 97.5 %; the standard error here is log(2) / sqrt(3).
    assert found.high == pytest.approx(math.exp(4.303 * math.log(2) / math.sqrt(3)), rel=1e-3)


def test_one_ratio_has_no_interval_and_none_is_none() -> None:
    alone: Any = ratio(logs(1.5))
    assert alone.value == pytest.approx(1.5)
    assert (alone.low, alone.high) == (None, None)
    assert ratio([]) is None
