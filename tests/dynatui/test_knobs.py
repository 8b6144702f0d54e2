"""The table of knobs agrees with the configuration, the command line and the recordings it speaks of."""

from dataclasses import asdict
from typing import Any

import pytest
from msgspec import structs

from decoder.config import Auto, DynaTree, Fixed, Linear, Rules, RunConfig
from decoder.events import Knob, Knobs
from decoder.knobs import KNOBS, SWITCHES, KnobName, bounds
from decoder.methods import METHODS
from dynatui.cli import main as cli
from dynatui.knobs import TABLE, info, rules_in_force, sliders_of
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import run, tree_round


def test_every_knob_is_in_the_table_once_and_in_order() -> None:
    assert tuple(knob.name for knob in TABLE) == KNOBS
    assert info("tau_h").symbol == "τh"


@pytest.mark.parametrize("rules", [DynaTree(), Auto(), Linear(), Fixed()])
def test_no_two_knobs_of_a_method_are_called_the_same(rules: Rules) -> None:
    symbols = [info(name).symbol for name in rules.ends()]
    assert len(set(symbols)) == len(symbols)


@pytest.mark.parametrize("method", METHODS)
def test_every_key_of_a_method_turns_a_knob_that_it_has(method: str) -> None:
    rules = METHODS[method].rules
    caps = [cap for slider in sliders_of(method) for cap in slider.caps]
    assert len(set(caps)) == len(caps)
    assert all(rules and RunConfig().rules(rules).has(slider.knob) for slider in sliders_of(method))
    assert (rules is None) == (sliders_of(method) == ())


@pytest.mark.parametrize("knob", TABLE, ids=lambda knob: knob.name)
def test_a_knob_is_explained_in_few_words_and_has_an_option(knob: Any) -> None:
    options = {option for parameter in cli.command().params for option in parameter.opts}
    assert knob.option in options
    assert 5 < len(knob.meaning) <= 40


@pytest.mark.parametrize("knob", TABLE, ids=lambda knob: knob.name)
def test_a_step_moves_a_knob_and_a_coarse_one_moves_it_further(knob: Any) -> None:
    config = RunConfig()
    low, high = bounds(config, knob.name)
    assert 0 < knob.step <= high - low
    assert knob.coarse > knob.step or knob.name in SWITCHES
    turned = config.turned(knob.name, low).turned(knob.name, low + knob.step)
    assert turned.knob(knob.name) == pytest.approx(low + knob.step)
    assert not knob.integer or knob.step == int(knob.step)


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("tau_h", 0.85, ".85"),
        ("tau_h", 1.0, "1"),
        ("d0", 5.0, "5"),
        ("d0", 5.337, "5.34"),
        ("n_max", 256.0, "256"),
        ("selection", 1.0, "best"),
        ("selection", 0.0, "bfs"),
        ("tau", 0.0, "0"),
        ("tau", 0.1, ".1"),
        ("tau", 0.005, ".005"),
        ("rho_stop", 0.025, ".025"),
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
