"""The tables of keys and of knobs agree with settings, apps, the configuration, the command line and recordings."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

import pytest
from msgspec import structs

from decoder.errors import ConfigError
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
from dynatui.keymap import KEYMAP, LEFT_OUT, PANELS, Keymap, Mode
from dynatui.knobs import info, preset_of, rules_in_force, sliders_of
from dynatui.screen import commands
from dynatui.screen.app import DynaApp
from dynatui.screen.compare import CompareApp
from dynatui.screen.server_app import ServerApp
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import run, tree_round

MODES: tuple[Mode, ...] = get_args(Mode)


def assert_distinct(found: Iterable[object]) -> None:
    every = list(found)
    assert len(every) == len(set(every))


@pytest.mark.parametrize("mode", MODES)
def test_in_each_mode_keys_places_in_the_footer_and_names_are_given_once(mode: Mode) -> None:
    keys = [key for key in KEYMAP.every if mode in key.modes]
    assert_distinct(cap for key in keys for cap in key.caps)
    assert_distinct(key.rank for key in keys if 0 < key.rank < LEFT_OUT)
    names = [name for key in keys if not key.fixed for name in key.settings]
    assert_distinct(names)
    assert len(names) == sum(len(key.different) for key in keys if not key.fixed)


def test_every_key_has_a_command_or_an_action_of_its_app_and_explains_itself() -> None:
    assert all(len(key.caps) == len(key.actions) and key.label and key.help for key in KEYMAP.every)
    assert all(group.title and group.keys for group in (*KEYMAP.groups, KEYMAP.side_by_side, KEYMAP.attached))
    actions = {action for key in KEYMAP.keys for action in key.actions}
    assert all(commands.find(action) or callable(getattr(DynaApp, f"action_{action}")) for action in actions)
    for group, app in ((KEYMAP.side_by_side, CompareApp), (KEYMAP.attached, ServerApp)):
        assert all(hasattr(app, f"action_{action.partition('(')[0]}") for key in group.keys for action in key.actions)


def test_the_palette_has_a_title_for_every_action_and_the_table_names_all_panels() -> None:
    keys = [key for key in KEYMAP.keys if "watch" in key.modes]
    assert all(len(key.titles) == len(key.different) for key in keys)
    assert_distinct(title for key in keys for title in key.titles)
    actions = [action for key in KEYMAP.keys for action in key.actions]
    assert [f"panel('{name}')" for name in PANELS] == [action for action in actions if action.startswith("panel")]


def means(keys: Keymap, cap: str, mode: Mode = "watch") -> str | None:
    return keys.action_for(cap, mode)


@pytest.mark.parametrize(
    ("cap", "mode", "action"),
    [
        *(("left", "watch", "scrub(-1)"), ("left", "inspect", "cursor(-1)"), ("left", "knobs", "nudge(-1)")),
        *(("left", "compare", "step(-1)"), ("n", "watch", "prompt(1)"), ("n", "search", "hit(1)")),
        *(("0", "knobs", "type_digit('0')"), ("0", "watch", "defaults"), ("ü", "watch", None)),
    ],
)
def test_a_key_means_what_its_mode_says(cap: str, mode: Mode, action: str | None) -> None:
    assert KEYMAP.action_for(cap, mode) == action


def test_another_key_does_it_and_the_usual_one_no_longer() -> None:
    keys = KEYMAP.rebound({"pause": ["f5"], "tau_h_down": ["&", "~"]})
    assert (means(keys, "f5"), means(keys, "P"), keys.cap("pause")) == ("pause", None, "f5")
    assert means(keys, "&") == means(keys, "~") == "turn('[')"
    assert (means(keys, "["), means(keys, "]")) == (None, "turn(']')")
    assert means(keys, "f5", "compare") == "pause"


def test_two_keys_can_be_exchanged_but_one_always_quits() -> None:
    keys = KEYMAP.rebound({"pause": ["h"], "history": ["P"], "quit": ["Q"]})
    assert (means(keys, "h"), means(keys, "P"), means(keys, "ctrl+c", "compare")) == ("pause", "history", "leave")
    assert keys.all_for("leave") == {"Q", "ctrl+c"}


def test_an_action_without_a_key_is_found_in_the_palette() -> None:
    keys = KEYMAP.rebound({"pause": []})
    assert (means(keys, "P"), keys.cap("pause"), keys.settings()["pause"]) == (None, "ctrl+p", ())
    half = KEYMAP.rebound({"watch_previous": []})
    assert (means(half, "w"), means(half, "W")) == ("watch(1)", None)
    assert [key.titles for key in half.keys if "watch(1)" in key.actions] == [("watch: next", "watch: previous")]


@pytest.mark.parametrize(
    ("name", "cap", "told"),
    [
        ("pauze", "f5", "no action is called 'pauze'; did you mean pause?"),
        ("pause", "f99", "pause is 'f99', which is no key; give a character, or a key such as"),
        ("pause", "", "pause is '', which is no key; give a character"),
        ("pause", "ctrl+", "pause is 'ctrl+', which is no key; give a character"),
        ("pause", " ", "pause is ' ', which is no key; give a character"),
        ("pause", "ctrl+c", "always quits; give another key"),
        ("pause", "history", "pause is 'history', which is no key; give a character"),
        ("pause", "h", "pause is 'h', but history has that key already; give pause or history another key"),
        ("history", "1", "history is '1', but value has that key already"),
        ("token_before", "E", "token_before is 'E', but edit has that key already"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(name: str, cap: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KEYMAP.rebound({name: [cap]})
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cap", ["f5", "ctrl+s", "alt+x", "ctrl+shift+left", "pageup", "ü", "+", "ctrl++"])
def test_any_key_that_a_terminal_sends_can_be_bound(cap: str) -> None:
    assert means(KEYMAP.rebound({"pause": [cap]}), cap) == "pause"


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
