"""The table of knobs agrees with the configuration, the command line and recordings."""

from dataclasses import asdict, replace
from typing import Any, Literal

import pytest
from msgspec import structs

from decoder.events import Knob, Knobs
from decoder.knobs import KnobName, bounds
from decoder.methods import METHODS, all_knobs
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.tree_rules import Rules
from dynatui import main as cli
from dynatui.knobs import info, preset_of, rules_in_force, sliders_of
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import run, tree_round

KNOBS = tuple(all_knobs().values())


def test_a_knob_is_found_by_its_name_and_a_recorded_one_that_no_method_has_called_by_it() -> None:
    assert [info(knob.name) for knob in KNOBS] == [*KNOBS]
    assert [info(name).symbol for name in ("tau_h", "volume", "\x1b[2J")] == ["τh", "volume", "␛[2J"]
    assert len(info("v" * 999).symbol) < 30


@pytest.mark.parametrize("method", METHODS)
def test_every_key_of_a_method_turns_a_knob_that_it_has(method: str) -> None:
    rules = METHODS[method].rules
    caps = [cap for slider in sliders_of(method) for cap in slider.keys]
    assert len(set(caps)) == len(caps)
    assert all(rules and RunConfig().rules(rules).has(slider.name) for slider in sliders_of(method))
    assert (rules is None) == (sliders_of(method) == ())


@pytest.mark.parametrize("rules", [DynaTree(), Auto(), Linear(), Fixed()])
def test_no_two_knobs_of_a_method_are_called_the_same(rules: Rules) -> None:
    symbols = [info(name).symbol for name in rules.ends()]
    assert len(set(symbols)) == len(symbols)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.own])
def test_every_knob_of_a_method_is_explained_in_few_words_and_set_by_an_option(name: str) -> None:
    method, options = METHODS[name], {flag for parameter in cli.command().params for flag in parameter.opts}
    set_by = {parameter: option.flag for option in method.options for parameter in option.parameters}
    assert all(set_by[knob.parameter] in options and 5 < len(knob.meaning) <= 40 for knob in method.knobs)


def test_a_step_moves_a_knob_and_a_coarse_one_moves_it_further() -> None:
    for knob in KNOBS:
        rules = next(rules for rules in RunConfig(tuple(METHODS)).parameters.values() if rules.has(knob.name))
        low, high = bounds(rules, knob.name)
        assert 0 < knob.step <= high - low
        assert knob.coarse > knob.step or knob.values
        turned = rules.turned(knob.name, low).turned(knob.name, low + knob.step)
        assert turned.knob(knob.name) == pytest.approx(low + knob.step)
        assert not knob.integer or knob.step == int(knob.step)


WRITTEN: dict[KnobName, dict[float, str]] = {
    "tau_h": {0.85: "0.85", 1.0: "1"},
    "d0": {5.0: "5", 5.337: "5.34"},
    "n_max": {256.0: "256"},
    "selection": {1.0: "best", 0.0: "bfs"},
    "tau": {0.0: "0", 0.1: "0.1", 0.005: "0.005"},
    "rho_stop": {0.025: "0.025"},
    "history": {1.0: "on", 0.0: "off"},
    "k": {10.0: "10"},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_values_are_written_as_people_write_them(name: KnobName) -> None:
    assert {value: info(name).written(value) for value in WRITTEN[name]} == WRITTEN[name]


def _state(parameters: dict[str, Any], *knobs: Knob) -> RunState:
    begun = run()
    begun.methods["dynatree"].clear()
    begun.methods["dynatree"].update(parameters)
    state = apply(apply(RunState(), begun), tree_round(0, d0=4.2, tau_h=0.8))
    for knob in knobs:
        state = apply(state, knob)
    return state


PARAMETERS: dict[str, Any] = {
    "d0": 5.0, "d_max": 7, "branching": [1, 3, 4], "tau_h": 0.9, "tau_l": 0.4, "rho_stop": 0.2, "rho_deep": 0.6,
    "tau": 0.1, "n_max": 64, "selection": "best", "history": True, "window": 3,
}  # fmt: skip


def test_the_rules_in_force_are_those_of_the_run_and_its_method_with_its_knobs_as_they_are_now() -> None:
    turned = Knob(method="dynatree", round=1, name="n_max", old=64, new=32, source="user")
    assert rules_in_force(_state(PARAMETERS, turned)) == DynaTree(
        d0=4.2, d_max=7, branching=(1, 3, 4), tau_h=0.8, tau_l=0.4, rho_stop=0.2, rho_deep=0.6, tau=0.1, n_max=32,
        selection="best", history=True,
    )  # fmt: skip
    methods = {"auto": asdict(Auto(d0=6)), "linear": {"k": 7}, "fixed": asdict(Fixed(3, 4, 0.2, 99))}
    state = apply(RunState(), structs.replace(run(), methods=methods))
    found = [rules_in_force(structs.replace(state, chosen=name)) for name in methods]
    assert found == [Auto(d0=6), Linear(7), Fixed(3, 4, 0.2, 99)]


@pytest.mark.parametrize(
    "absurd",
    [{"d_max": -4}, {"branching": [3, 2, 1]}, {"rho_stop": 7}, {"branching": "no"}, {"n_max": None}, {"tau": "x"}],
)
def test_absurd_parameters_of_a_recording_are_no_fault(absurd: dict[str, Any]) -> None:
    found = rules_in_force(_state(PARAMETERS | absurd))
    assert found is None or isinstance(found, DynaTree)


def _turn(name: KnobName, value: float, source: Literal["user", "history"] = "user") -> Knob:
    return Knob(method="dynatree", round=1, name=name, old=0, new=value, source=source)


TUNED, PAPER = PRESETS["tuned"], PRESETS["paper"]
MORE = TUNED.n_max + 1


@pytest.mark.parametrize(
    ("rules", "turns", "name"),
    [
        *((rules, turns, name) for name, rules in PRESETS.items() for turns in ([], [_turn("temperature", 0.9)])),
        (TUNED, [_turn("n_max", MORE)], ""),
        (TUNED, [_turn("n_max", MORE), _turn("n_max", TUNED.n_max)], "tuned"),
        (TUNED, [_turn(knob, PAPER.knob(knob)) for knob in PAPER.ends()], "paper"),
        (PAPER, [_turn("d0", 4.5, "history"), _turn("tau_h", 0.85, "history")], "paper"),
        (replace(TUNED, window=TUNED.window + 1), [], ""),
    ],
)
def test_the_preset_in_force_has_the_name_of_the_user_s_values(rules: DynaTree, turns: list[Knob], name: str) -> None:
    assert preset_of("dynatree", _state(asdict(rules), *turns).lane) == name


def test_a_method_without_presets_has_none_and_one_without_possible_knobs_no_rules() -> None:
    lane = apply(RunState(), run(("linear", "ar"))).lane
    assert [preset_of(method, lane) for method in ("linear", "ar", "")] == [""] * 3
    assert rules_in_force(apply(RunState(), run(("ar",)))) is None
    state = apply(apply(RunState(), run()), structs.replace(tree_round(0), knobs=Knobs(0.9, 0.4, 99.0)))
    assert rules_in_force(state) is None
