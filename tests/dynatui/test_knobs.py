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


def test_a_knob_is_found_by_its_name() -> None:
    assert [info(knob.name) for knob in KNOBS] == [*KNOBS]
    assert info("tau_h").symbol == "τh"


def test_a_recorded_knob_that_no_method_has_is_called_by_its_name() -> None:
    assert info("volume").symbol == "volume"
    assert info("\x1b[2J").symbol == "␛[2J"
    assert len(info("v" * 999).symbol) < 30


@pytest.mark.parametrize("rules", [DynaTree(), Auto(), Linear(), Fixed()])
def test_no_two_knobs_of_a_method_are_called_the_same(rules: Rules) -> None:
    symbols = [info(name).symbol for name in rules.ends()]
    assert len(set(symbols)) == len(symbols)


@pytest.mark.parametrize("method", METHODS)
def test_every_key_of_a_method_turns_a_knob_that_it_has(method: str) -> None:
    rules = METHODS[method].rules
    caps = [cap for slider in sliders_of(method) for cap in slider.keys]
    assert len(set(caps)) == len(caps)
    assert all(rules and RunConfig().rules(rules).has(slider.name) for slider in sliders_of(method))
    assert (rules is None) == (sliders_of(method) == ())


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.own])
def test_every_knob_of_a_method_is_explained_in_few_words_and_set_by_an_option(name: str) -> None:
    method, options = METHODS[name], {flag for parameter in cli.command().params for flag in parameter.opts}
    set_by = {parameter: option.flag for option in method.options for parameter in option.parameters}
    for knob in method.knobs:
        assert set_by[knob.parameter] in options
        assert 5 < len(knob.meaning) <= 40


def test_a_step_moves_a_knob_and_a_coarse_one_moves_it_further() -> None:
    for knob in KNOBS:
        rules = next(rules for rules in RunConfig(tuple(METHODS)).parameters.values() if rules.has(knob.name))
        low, high = bounds(rules, knob.name)
        assert 0 < knob.step <= high - low
        assert knob.coarse > knob.step or knob.values
        turned = rules.turned(knob.name, low).turned(knob.name, low + knob.step)
        assert turned.knob(knob.name) == pytest.approx(low + knob.step)
        assert not knob.integer or knob.step == int(knob.step)


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("tau_h", 0.85, "0.85"),
        ("tau_h", 1.0, "1"),
        ("d0", 5.0, "5"),
        ("d0", 5.337, "5.34"),
        ("n_max", 256.0, "256"),
        ("selection", 1.0, "best"),
        ("selection", 0.0, "bfs"),
        ("tau", 0.0, "0"),
        ("tau", 0.1, "0.1"),
        ("tau", 0.005, "0.005"),
        ("rho_stop", 0.025, "0.025"),
        ("history", 1.0, "on"),
        ("history", 0.0, "off"),
        ("k", 10.0, "10"),
    ],
)
def test_values_are_written_as_people_write_them(name: KnobName, value: float, written: str) -> None:
    assert info(name).written(value) == written


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


def test_the_rules_in_force_are_those_of_the_run_with_its_knobs_as_they_are_now() -> None:
    turned = Knob(method="dynatree", round=1, name="n_max", old=64, new=32, source="user")
    assert rules_in_force(_state(PARAMETERS, turned)) == DynaTree(
        d0=4.2, d_max=7, branching=(1, 3, 4), tau_h=0.8, tau_l=0.4, rho_stop=0.2, rho_deep=0.6, tau=0.1, n_max=32,
        selection="best", history=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "absurd",
    [{"d_max": -4}, {"branching": [3, 2, 1]}, {"rho_stop": 7}, {"branching": "no"}, {"n_max": None}, {"tau": "x"}],
)
def test_absurd_parameters_of_a_recording_are_no_fault(absurd: dict[str, Any]) -> None:
    found = rules_in_force(_state(PARAMETERS | absurd))
    assert found is None or isinstance(found, DynaTree)


def _turn(name: KnobName, value: float, source: Literal["user", "history"] = "user") -> Knob:
    return Knob(method="dynatree", round=1, name=name, old=0, new=value, source=source)


def _preset(rules: DynaTree, *knobs: Knob) -> str:
    """The preset that is shown after these turns in a run that began with `rules`."""
    return preset_of("dynatree", _state(asdict(rules), *knobs).lane)


@pytest.mark.parametrize("name", PRESETS)
def test_the_preset_in_force_has_the_name_of_its_values(name: str) -> None:
    assert _preset(PRESETS[name]) == name
    assert _preset(PRESETS[name], _turn("temperature", 0.9)) == name


def test_a_turned_knob_belongs_to_no_preset_until_it_is_turned_back() -> None:
    rules = PRESETS["tuned"]
    assert _preset(rules, _turn("n_max", rules.n_max + 1)) == ""
    assert _preset(rules, _turn("n_max", rules.n_max + 1), _turn("n_max", rules.n_max)) == "tuned"


def test_knobs_turned_to_the_values_of_another_preset_have_its_name() -> None:
    assert (
        _preset(PRESETS["tuned"], *(_turn(name, PRESETS["paper"].knob(name)) for name in PRESETS["paper"].ends()))
        == "paper"
    )


def test_the_history_rule_of_a_preset_does_not_leave_the_preset() -> None:
    assert _preset(PRESETS["paper"], _turn("d0", 4.5, "history"), _turn("tau_h", 0.85, "history")) == "paper"


def test_parameters_that_no_knob_turns_belong_to_a_preset_too() -> None:
    assert _preset(replace(PRESETS["tuned"], window=PRESETS["tuned"].window + 1)) == ""


def test_a_method_without_presets_has_none() -> None:
    lane = apply(RunState(), run(("linear", "ar"))).lane
    assert [preset_of(method, lane) for method in ("linear", "ar", "")] == [""] * 3


def test_a_method_without_knobs_has_no_rules() -> None:
    assert rules_in_force(apply(RunState(), run(("ar",)))) is None


def test_knobs_that_no_rules_could_have_give_none() -> None:
    state = apply(apply(RunState(), run()), structs.replace(tree_round(0), knobs=Knobs(0.9, 0.4, 99.0)))
    assert rules_in_force(state) is None


def test_each_method_has_rules_of_its_own() -> None:
    methods = {"auto": asdict(Auto(d0=6)), "linear": {"k": 7}, "fixed": asdict(Fixed(3, 4, 0.2, 99))}
    state = apply(RunState(), structs.replace(run(), methods=methods))
    found = [rules_in_force(structs.replace(state, chosen=name)) for name in methods]
    assert found == [Auto(d0=6), Linear(7), Fixed(3, 4, 0.2, 99)]
