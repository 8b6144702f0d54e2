"""Parameters have bounds, and errors name the allowed values; knobs are moved to the nearest allowed value."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.errors import ConfigError
from decoder.knobs import KNOB_GAP, MOST, KnobName, TunableParameters, bounds
from decoder.methods import all_knobs
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.methods.streaming import Streaming
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling

KNOBS = tuple(all_knobs())
OUTSIDE: list[dict[str, Any]] = [
    *({"d0": value} for value in (0.9, 7.1, math.nan)),
    {"d_max": 1, "d0": 1},
    *({"tau_l": value} for value in (0.0, 0.95, 0.9)),
    *({"tau_h": value} for value in (1.1, math.nan)),
    *({"rho_stop": value} for value in (-0.1, 0.6)),
    {"rho_deep": 1.1},
    *({"branching": value} for value in ((0, 2, 3), (3, 2, 1))),
    *({"tau": value} for value in (-0.1, 1.1)),
    *({"n_max": 0}, {"selection": "worst"}, {"window": 0}),
    *({"sharpness": value} for value in (0, 4.1)),
]
INSIDE: list[dict[str, Any]] = [
    *({"d0": 1}, {"d0": 7}, {"d_max": 2, "d0": 1}, {"tau_h": 1}, {"rho_stop": 0, "rho_deep": 0}, {"rho_deep": 1}),
    *({"branching": (1, 1, 1)}, {"n_max": 1}, {"tau": 0}, {"tau": 1}, {"selection": "best"}, {"sharpness": 4}),
]


@pytest.mark.parametrize("changes", OUTSIDE, ids=str)
def test_a_parameter_outside_its_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        DynaTree(**changes)


@pytest.mark.parametrize("changes", INSIDE, ids=str)
def test_a_parameter_at_its_bound_is_taken(changes: dict[str, Any]) -> None:
    tree = DynaTree(**changes)
    assert {name: getattr(tree, name) for name in changes} == changes


def test_the_defaults_are_the_paper_s() -> None:
    assert PRESETS["paper"] == DynaTree()
    sizes: dict[str, Any] = {"d0": 5, "d_max": 8, "branching": (1, 2, 3), "n_max": 256, "selection": "bfs"}
    thresholds = {"tau_h": 0.9, "tau_l": 0.4, "rho_stop": 0.1, "rho_deep": 0.5, "tau": 0.05, "sharpness": 1}
    history = {"history": True, "window": 10, "target_acceptance": 0.7, "eta_d": 1, "eta_h": 0.1}
    assert {field.name: field.default for field in fields(DynaTree)} == sizes | thresholds | history
    assert Fixed() == Fixed(5, 2, 0.05, 256)
    assert Linear().k == 5


TREE, CHAIN = DynaTree(), Linear()


@pytest.mark.parametrize(
    ("rules", "name", "value", "kept"),
    [
        *((TREE, "tau_h", value, kept) for value, kept in ((0.8, 0.8), (7, 1.0), (0, 0.4 + KNOB_GAP))),
        *((TREE, "tau_l", value, kept) for value, kept in ((0.5, 0.5), (0.95, 0.9 - KNOB_GAP), (-1, KNOB_GAP))),
        *((TREE, "d0", value, kept) for value, kept in ((3.25, 3.25), (99, 7), (0, 1))),
        *((TREE, "history", value, kept) for value, kept in ((0, 0), (1, 1), (7, 1))),
        *((TREE, name, 9, kept) for name, kept in (("b_min", 2), ("b_mid", 3), ("b_max", 9))),
        *((DynaTree(d0=d0), "d_max", 0, kept) for d0, kept in ((4.2, 6), (4, 5))),
        *((CHAIN, "k", value, kept) for value, kept in ((3.49, 3), (3.5, 4), (4.5, 5), (-7, 1))),
    ],
)
def test_a_turned_knob_stays_in_bounds(rules: TunableParameters, name: KnobName, value: float, kept: float) -> None:
    assert rules.turned(name, value).knob(name) == pytest.approx(kept)


def test_whole_numbers_and_truth_values_stay_what_they_are() -> None:
    """A recording stores them so."""
    assert type(CHAIN.turned("k", 3.49).k) is int
    assert TREE.turned("history", 0).history is False
    assert TREE.turned("history", 7).history is True


LOWEST_AND_HIGHEST: dict[KnobName, tuple[float, float]] = {
    "tau_h": (0.41, 1),
    "tau_l": (KNOB_GAP, 0.89),
    "d0": (1, 7),
    "history": (0, 1),
    "d_max": (6, 32),
    "b_min": (1, 2),
    "b_mid": (1, 3),
    "b_max": (2, 16),
    "rho_stop": (0, 0.5),
    "rho_deep": (0.1, 1),
    "sharpness": (0.5, 4),
    "tau": (0, 1),
    "n_max": (1, 1024),
    "lookup": (0, 1),
    "selection": (0, 1),
    "k": (1, 32),
    "fixed_depth": (1, 32),
    "fixed_branching": (1, 16),
    "fixed_tau": (0, 1),
    "p_min": (0, 1),
    "eagle_steps": (1, 32),
    "eagle_topk": (1, 16),
    "draft_tokens": (2, 1024),
    "best_depth": (1, 32),
    "rollouts": (1, 16),
    "l1": (0, 32),
    "l2": (0, 32),
    "verifier": (1, 7),
    "drafting": (1, 3),
    "temperature": (0, 2),
    "top_p": (0.05, 1),
}


def _with_knob(name: KnobName) -> TunableParameters:
    return next(
        rules
        for rules in (DynaTree(), Auto(), Linear(), Fixed(), BestFirst(), Eagle2(), Delayed().drawn(), Sampling())
        if rules.has(name)
    )


@pytest.mark.parametrize("name", KNOBS)
def test_a_knob_can_be_turned_as_far_as_the_other_parameters_let_it(name: KnobName) -> None:
    rules = _with_knob(name)
    ends = rules.turned(name, -math.inf).knob(name), rules.turned(name, math.inf).knob(name)
    assert ends == bounds(rules, name) == LOWEST_AND_HIGHEST[name]
    with pytest.raises(ConfigError, match=f"{name} .*give a number"):
        rules.turned(name, math.nan)


def test_a_knob_can_be_turned_in_one_parameter_set_alone() -> None:
    """DynaTree's threshold may be 0, while the fixed tree with 0 would grow all nodes."""
    config = RunConfig().turned("tau", 0.3, "dynatree").turned("fixed_tau", 0.2, "fixed").turned("d0", 2, "auto")
    assert config.of(DynaTree) == replace(RunConfig().of(DynaTree), tau=0.3)
    assert (config.of(Fixed), config.of(Auto)) == (Fixed(tau=0.2), Auto(d0=2))
    assert RunConfig().turned("n_max", 9, "fixed").of(Fixed) == Fixed(n_max=9)


def test_a_run_s_defaults_depend_on_its_temperature_and_stay_when_that_is_turned() -> None:
    assert RunConfig().methods == ("dynatree", "auto", "ar", "linear", "fixed")
    auto = RunConfig().of(Auto)
    assert (auto.d0, auto.d_max, auto.rho_stop, auto.tau, auto.history) == (8, 12, 0, 0, False)
    assert not auto.has("n_max")
    for temperature, preset in ((0.0, "tuned"), (0.6, "sampled")):
        assert RunConfig(temperature=temperature).of(DynaTree) == PRESETS[preset]
        assert RunConfig(parameters={SAMPLING: Sampling(temperature)}).of(DynaTree) == PRESETS[preset]
        turned = RunConfig(temperature=temperature).turned("temperature", 0.6 - temperature, SAMPLING)
        assert (turned.sampling.temperature, turned.of(DynaTree)) == (0.6 - temperature, PRESETS[preset])
        for rules in PRESETS.values():
            assert RunConfig(temperature=temperature, dynatree=rules).of(DynaTree) == rules


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (DynaTree(d_max=99), "d_max"),
        (DynaTree(branching=(1, 2, 77)), "b_max"),
        (DynaTree(n_max=4000), "n_max"),
        (Linear(99), "k"),
        (Fixed(depth=99), "fixed_depth"),
        (Fixed(branching=99), "fixed_branching"),
        (Fixed(n_max=4000), "n_max"),
    ],
)
def test_a_knob_that_began_beyond_its_usual_end_may_stay_there(rules: TunableParameters, name: KnobName) -> None:
    assert bounds(rules, name)[1] == rules.knob(name)
    assert rules.turned(name, 1e6) == rules


@pytest.mark.parametrize("rules", [DynaTree(), Auto(), Linear(), Fixed(), Sampling()])
def test_a_knob_that_rules_do_not_have_is_refused(rules: TunableParameters) -> None:
    for name in (name for name in KNOBS if not rules.has(name)):
        for use in (rules.knob, lambda name: rules.turned(name, 1), lambda name: bounds(rules, name)):
            with pytest.raises(ConfigError, match=f"{type(rules).__name__} has no knob {name}; choose from"):
                use(name)


numbers = st.one_of(
    st.floats(allow_nan=False), st.floats(-0.2, 1.2), st.floats(0, 40), st.integers(-3, 40).map(float), st.just(0.5)
)
parameters: st.SearchStrategy[TunableParameters] = st.one_of(
    st.just(DynaTree()),
    st.just(DynaTree(tau_l=1e-9, tau_h=2e-9)),
    st.just(DynaTree(tau_l=0.9999, tau_h=1)),
    st.just(DynaTree(d_max=50, d0=48.7, branching=(20, 30, 40), n_max=4000)),
    st.builds(Linear, st.integers(1, 50)),
    st.builds(Fixed, st.integers(1, 50), st.integers(1, 50), st.floats(0, 1), st.integers(1, 4000)),
)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(rules=parameters, turns=st.lists(st.tuples(st.sampled_from(KNOBS), numbers), max_size=12))
def test_however_knobs_are_turned_the_rules_hold(rules: TunableParameters, turns: list[tuple[KnobName, float]]) -> None:
    """Invalid parameters raise an error when the rules are constructed."""
    names = [knob.name for knob in rules.knobs]
    for name, value in ((name, value) for name, value in turns if name in names):
        before, rules = rules, rules.turned(name, value)
        low, high = bounds(before, name)
        assert low <= rules.knob(name) <= high
        assert all(rules.knob(other) == before.knob(other) for other in names if other != name)
    for name in names:
        low, high = bounds(rules, name)
        assert low <= rules.knob(name) <= high
        assert [rules.turned(name, end).knob(name) for end in (low, high)] == [low, high]
        assert rules.turned(name, rules.knob(name)).knob(name) == rules.knob(name)


LARGE: dict[str, Callable[[int], TunableParameters]] = {
    "d_max": lambda many: DynaTree(d_max=many),
    "the largest branching": lambda many: DynaTree(branching=(1, 2, many)),
    "window": lambda many: DynaTree(window=many),
    "n_max": lambda many: DynaTree(n_max=many),
    "K": Linear,
    "the fixed tree's depth": lambda many: Fixed(depth=many),
    "the fixed tree's branching": lambda many: Fixed(branching=many),
    "n_max of the fixed tree": lambda many: Fixed(n_max=many),
}


@pytest.mark.parametrize(("name", "rules"), LARGE.items(), ids=LARGE)
def test_a_number_that_no_tree_could_use_is_refused(name: str, rules: Callable[[int], TunableParameters]) -> None:
    rules(MOST)
    for many in (MOST + 1, 10**20):
        with pytest.raises(ConfigError, match=f"{name.partition(' of ')[0]} is {many}; give {MOST} or less"):
            rules(many)


REFUSED: dict[str, Callable[[], object]] = {
    "give": lambda: Fixed(depth=0),
    "give 1 or more": lambda: Fixed(branching=0),
    "tau is -0.1; give": lambda: Fixed(tau=-0.1),
    "tau is 1.1; give": lambda: Fixed(tau=1.1),
    "n_max is 0; give 1 or more": lambda: Fixed(n_max=0),
    "K is 0; give 1 or more": lambda: Linear(0),
    "p_min is 1.5; give 0 to 1": lambda: Linear(5, 1.5),
    "eagle2 has 0 steps; give 1 or more": lambda: Eagle2(0),
    "eagle2's top-k is 0; give 1 or more": lambda: Eagle2(topk=0),
    "eagle2 verifies 1 tokens; give 2 or more": lambda: Eagle2(draft_tokens=1),
    "eagle2's N is 5000; give 4096 or less": lambda: Eagle2(draft_tokens=5000),
    "the best-first tree's depth is 0; give 1 or more": lambda: BestFirst(8, 0),
    "n_max is 5000; give 4096 or less": lambda: BestFirst(5000, 5),
    "streaming has -1 sinks; give 0 to 64": lambda: Streaming(sinks=-1),
    "streaming has 65 sinks; give 0 to 64": lambda: Streaming(sinks=65),
    "streaming's window is 32 tokens; give 33 or more": lambda: Streaming(window=32),
    "streaming's window is 40 tokens; give 41 or more": lambda: Streaming(window=40, k=40),
    "no method was named": lambda: RunConfig(()),
    "methods contains ar more than once": lambda: RunConfig(("ar", "dynatree", "ar")),
    "max_new_tokens is 0; give 1 or more": lambda: RunConfig(max_new_tokens=0),
    "the parameters of sampling have the type Linear": lambda: RunConfig(parameters={SAMPLING: Linear()}),
    "Auto has no knob n_max; choose from": lambda: RunConfig().turned("n_max", 9, "auto"),
}


@pytest.mark.parametrize(("message", "made"), REFUSED.items(), ids=REFUSED)
def test_what_is_no_run_is_refused_by_what_it_gives(message: str, made: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=message):
        made()
