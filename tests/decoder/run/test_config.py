"""Parameters have bounds, and errors name the allowed values; knobs are moved to the nearest allowed value."""

import math
from collections.abc import Callable
from dataclasses import fields
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
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.methods.streaming import Streaming
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling

KNOBS = tuple(all_knobs())

OUTSIDE: dict[str, dict[str, Any]] = {
    "d0 under 1": {"d0": 0.9},
    "d0 above d_max - 1": {"d0": 7.1},
    "d0 no number": {"d0": float("nan")},
    "d_max under 2": {"d_max": 1, "d0": 1},
    "tau_l 0": {"tau_l": 0.0},
    "tau_l above tau_h": {"tau_l": 0.95},
    "tau_l equal to tau_h": {"tau_l": 0.9},
    "tau_h above 1": {"tau_h": 1.1},
    "tau_h no number": {"tau_h": float("nan")},
    "rho_stop under 0": {"rho_stop": -0.1},
    "rho_stop above rho_deep": {"rho_stop": 0.6},
    "rho_deep above 1": {"rho_deep": 1.1},
    "no children": {"branching": (0, 2, 3)},
    "falling branching": {"branching": (3, 2, 1)},
    "tau under 0": {"tau": -0.1},
    "tau above 1": {"tau": 1.1},
    "no nodes": {"n_max": 0},
    "an unknown selection": {"selection": "worst"},
    "an empty window": {"window": 0},
    "a flat exponent": {"sharpness": 0},
    "too large an exponent": {"sharpness": 4.1},
}
INSIDE: dict[str, dict[str, Any]] = {
    "d0 1": {"d0": 1},
    "d0 at d_max - 1": {"d0": 7},
    "d_max 2": {"d_max": 2, "d0": 1},
    "tau_h 1": {"tau_h": 1},
    "rho_stop 0": {"rho_stop": 0, "rho_deep": 0},
    "rho_deep 1": {"rho_deep": 1},
    "breadth off": {"branching": (1, 1, 1)},
    "one node": {"n_max": 1},
    "tau 0": {"tau": 0},
    "tau 1": {"tau": 1},
    "best": {"selection": "best"},
    "a large exponent": {"sharpness": 4},
}


@pytest.mark.parametrize("changes", OUTSIDE.values(), ids=OUTSIDE)
def test_a_parameter_outside_its_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        DynaTree(**changes)


@pytest.mark.parametrize("changes", INSIDE.values(), ids=INSIDE)
def test_a_parameter_at_its_bound_is_taken(changes: dict[str, Any]) -> None:
    tree = DynaTree(**changes)
    assert {name: getattr(tree, name) for name in changes} == changes


def test_the_defaults_are_the_paper_s() -> None:
    assert PRESETS["paper"] == DynaTree()
    values = {field.name: field.default for field in fields(DynaTree)}
    assert values == {
        "d0": 5,
        "d_max": 8,
        "branching": (1, 2, 3),
        "tau_h": 0.9,
        "tau_l": 0.4,
        "rho_stop": 0.1,
        "rho_deep": 0.5,
        "tau": 0.05,
        "sharpness": 1,
        "n_max": 256,
        "selection": "bfs",
        "history": True,
        "window": 10,
        "target_acceptance": 0.7,
        "eta_d": 1,
        "eta_h": 0.1,
    }
    assert Fixed() == Fixed(5, 2, 0.05, 256)
    assert Linear().k == 5


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("tau_h", 0.8, 0.8),
        ("tau_h", 7, 1.0),
        ("tau_h", 0, 0.4 + KNOB_GAP),
        ("tau_l", 0.5, 0.5),
        ("tau_l", 0.95, 0.9 - KNOB_GAP),
        ("tau_l", -1, KNOB_GAP),
        ("d0", 3.25, 3.25),
        ("d0", 99, 7),
        ("d0", 0, 1),
        ("history", 0, 0),
        ("history", 1, 1),
    ],
)
def test_a_turned_knob_stays_within_its_bounds(name: KnobName, value: float, kept: float) -> None:
    assert DynaTree().turned(name, value).knob(name) == pytest.approx(kept)


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
        for rules in (DynaTree(), Auto(), Linear(), Fixed(), BestFirst(), Delayed().drawn(), Sampling())
        if rules.has(name)
    )


def test_a_knob_can_be_turned_as_far_as_the_other_parameters_let_it() -> None:
    assert {name: bounds(_with_knob(name), name) for name in KNOBS} == LOWEST_AND_HIGHEST


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


def test_d_max_is_never_turned_under_what_d0_needs() -> None:
    assert DynaTree(d0=4.2).turned("d_max", 0).d_max == 6
    assert DynaTree(d0=4).turned("d_max", 0).d_max == 5


@pytest.mark.parametrize(("value", "whole"), [(3.49, 3), (3.5, 4), (4.5, 5), (-7, 1)])
def test_a_whole_number_is_turned_to_the_nearest(value: float, whole: int) -> None:
    turned = Linear().turned("k", value)
    assert (turned.k, type(turned.k)) == (whole, int)


def test_history_stays_a_truth_value() -> None:
    """A recording stores it as true or false."""
    assert DynaTree().turned("history", 0).history is False
    assert DynaTree().turned("history", 7).history is True


def test_a_branch_is_turned_between_its_neighbours() -> None:
    assert DynaTree().turned("b_mid", 9).branching == (1, 3, 3)
    assert DynaTree().turned("b_min", 9).branching == (2, 2, 3)
    assert DynaTree().turned("b_max", 9).branching == (1, 2, 9)


def test_the_fixed_tree_s_threshold_is_its_own() -> None:
    """DynaTree's threshold may be 0, while the fixed tree with 0 would grow all nodes."""
    config = RunConfig().turned("tau", 0.3, "dynatree").turned("fixed_tau", 0.2, "fixed")
    assert (config.of(DynaTree).tau, config.of(Fixed).tau) == (0.3, 0.2)


def test_a_knob_can_be_turned_in_one_parameter_set_alone() -> None:
    config = RunConfig().turned("d0", 2, "auto")
    assert (config.of(Auto), config.of(DynaTree)) == (Auto(d0=2), RunConfig().of(DynaTree))
    assert RunConfig().turned("n_max", 9, "fixed").of(Fixed) == Fixed(n_max=9)


def test_auto_has_wide_bounds_and_no_number_of_nodes() -> None:
    rules = RunConfig().of(Auto)
    assert (rules.d0, rules.d_max, rules.rho_stop, rules.tau, rules.history) == (8, 12, 0, 0, False)
    assert not rules.has("n_max")


def test_the_default_preset_of_a_run_depends_on_its_temperature() -> None:
    assert RunConfig().of(DynaTree) == PRESETS["tuned"]
    assert RunConfig(temperature=0.6).of(DynaTree) == PRESETS["sampled"]
    assert RunConfig(parameters={SAMPLING: Sampling(0.6)}).of(DynaTree) == PRESETS["sampled"]


@pytest.mark.parametrize("rules", PRESETS.values(), ids=list(PRESETS))
def test_given_parameters_are_kept_at_any_temperature(rules: DynaTree) -> None:
    for temperature in (0.0, 0.6):
        assert RunConfig(temperature=temperature, dynatree=rules).of(DynaTree) == rules


def test_a_turn_of_the_temperature_keeps_the_preset() -> None:
    warmer, greedy = (RunConfig(temperature=start).turned("temperature", 0.8 - start, SAMPLING) for start in (0.0, 0.8))
    assert (warmer.sampling.temperature, warmer.of(DynaTree)) == (0.8, PRESETS["tuned"])
    assert (greedy.sampling.temperature, greedy.of(DynaTree)) == (0, PRESETS["sampled"])


def test_by_default_one_s_own_hand_races_the_automatic_tree_and_three_baselines() -> None:
    assert RunConfig().methods == ("dynatree", "auto", "ar", "linear", "fixed")


@pytest.mark.parametrize("rules", [DynaTree(), Auto(), Linear(), Fixed(), Sampling()])
def test_a_knob_that_rules_do_not_have_is_refused(rules: TunableParameters) -> None:
    for name in (name for name in KNOBS if not rules.has(name)):
        for use in (rules.knob, lambda name: rules.turned(name, 1), lambda name: bounds(rules, name)):
            with pytest.raises(ConfigError, match=f"{type(rules).__name__} has no knob {name}; choose from"):
                use(name)


def test_no_knob_can_be_turned_to_what_is_no_number() -> None:
    for name in KNOBS:
        with pytest.raises(ConfigError, match=f"{name} .*give a number"):
            _with_knob(name).turned(name, math.nan)


def test_beyond_all_numbers_a_knob_is_turned_to_its_end() -> None:
    for name in KNOBS:
        rules = _with_knob(name)
        ends = rules.turned(name, -math.inf).knob(name), rules.turned(name, math.inf).knob(name)
        assert ends == bounds(rules, name), name


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
