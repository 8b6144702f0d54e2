"""Knob turns: those sent to the engine, pending values, undo, presets and defaults."""

import os
import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Knob
from decoder.knobs import KnobName, RulesName
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.option import number
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING
from decoder.session.steering import KnobState, Turn
from dynatui import main as cli
from dynatui.cli import headless
from dynatui.knobs import sliders_of
from dynatui.prompts import load
from dynatui.record.command_line import command_line
from dynatui.screen.knob_editor import KnobEditor
from dynatui.session import Session
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import run, sampled_run, state_of, tree_round, turned_temperature

PAPER = RunConfig(dynatree=PRESETS["paper"])


@dataclass
class Engine:
    config: RunConfig = PAPER
    turns: list[tuple[KnobName, float]] = field(default_factory=list)
    sets: set[RulesName] = field(default_factory=set)

    def turn(self, name: KnobName, value: float, rules_name: RulesName) -> Turn:
        self.turns.append((name, value))
        self.sets.add(rules_name)
        self.config = self.config.turned(name, value, rules_name)
        return Turn(name, value, rules_name, len(self.turns))


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def editor(engine: Engine) -> KnobEditor:
    return KnobEditor(engine)


def at(d0: float = 5.0, tau_h: float = 0.9) -> RunState:
    return state_of([run(), tree_round(0, d0=d0, tau_h=tau_h)])


def in_force(method: str, turn: int) -> Knob:
    return Knob(method=method, round=1, name="tau_h", old=0.9, new=0.85, source="user", turn=turn)


def test_a_knob_is_turned_from_where_history_has_moved_it(editor: KnobEditor, engine: Engine) -> None:
    editor.move("d0", 1, at(d0=6.4))
    assert engine.turns == [("d0", 7.0)]


def test_presses_add_up_before_the_first_is_in_force(editor: KnobEditor, engine: Engine) -> None:
    editor.move("tau_h", -0.05, at())
    editor.move("tau_h", -0.05, at())
    assert [value for _, value in engine.turns] == pytest.approx([0.85, 0.8])
    assert editor.pending(at())["tau_h"] == pytest.approx(0.8)


@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_a_key_between_two_turns_that_come_into_force_is_not_lost(preset: str) -> None:
    engine = Engine(RunConfig(dynatree=PRESETS[preset]))
    editor = KnobEditor(engine)
    editor.move("tau_h", -0.05, at())
    editor.move("tau_h", -0.05, at())
    editor.take(in_force("dynatree", 1))
    assert editor.pending(at(tau_h=0.85)) == {"tau_h": 0.8}
    editor.move("tau_h", -0.05, at(tau_h=0.85))
    assert [value for _, value in engine.turns] == [0.85, 0.8, 0.75]


def test_a_turn_is_pending_until_one_method_has_applied_all_of_them(editor: KnobEditor) -> None:
    editor.move("tau_h", -0.05, at())
    editor.move("tau_h", -0.05, at())
    for method in ("dynatree", "alg1"):
        editor.take(in_force(method, 1))
    assert editor.pending(at(tau_h=0.85)) == {"tau_h": 0.8}


def test_steps_add_up_to_the_value_that_people_write(editor: KnobEditor, engine: Engine) -> None:
    for _ in range(8):
        editor.move("tau_h", -0.05, at())
    for _ in range(9):
        editor.move("tau_h", 0.05, at())
    assert engine.config.of(DynaTree).tau_h == 0.95


def test_what_is_in_force_is_no_longer_wanted(editor: KnobEditor) -> None:
    editor.move("tau_h", -0.05, at())
    editor.take(in_force("dynatree", 1))
    assert editor.pending(at()) == {}


def test_undo_goes_back_turn_by_turn(editor: KnobEditor, engine: Engine) -> None:
    editor.set({"tau_l": 0.3}, at())
    editor.set({"n_max": 64}, at())
    assert editor.undo(at()) == [Turn("n_max", 256.0, "dynatree")]
    assert editor.undo(at()) == [Turn("tau_l", 0.4, "dynatree")]
    assert editor.undo(at()) == []
    assert engine.turns[-2:] == [("n_max", 256.0), ("tau_l", 0.4)]


def test_a_turn_against_the_stop_is_none_and_leaves_nothing_to_undo(editor: KnobEditor, engine: Engine) -> None:
    editor.set({"d0": 99}, at(d0=7.0))
    assert engine.turns == []
    assert editor.undo(at()) == []


def test_the_defaults_are_what_the_program_was_started_with() -> None:
    engine = Engine(RunConfig(dynatree=replace(PAPER.of(DynaTree), tau_h=0.7, tau_l=0.2)))
    editor = KnobEditor(engine)
    state = at(tau_h=0.7)
    editor.set({"tau_h": 0.95}, state)
    editor.set({"tau_l": 0.9}, state)
    editor.set({"d0": 3}, state)
    editor.defaults(state)
    rules = engine.config.of(DynaTree)
    assert (rules.tau_h, rules.tau_l, rules.d0) == (0.7, 0.2, 5.0)


def test_a_preset_brings_every_knob_of_dynatree(editor: KnobEditor, engine: Engine) -> None:
    editor.set({"tau_h": 0.5}, at())
    editor.set({"d_max": 12}, at())
    assert [editor.next_preset(at()) for _ in range(3)] == ["sampled", "tuned", "paper"]
    assert engine.config.of(DynaTree) == PRESETS["paper"]


def test_the_next_preset_is_not_the_one_that_is_in_force() -> None:
    editor = KnobEditor(Engine(RunConfig()))
    assert editor.next_preset(at()) == "paper"


def test_a_preset_is_undone_at_once(editor: KnobEditor, engine: Engine) -> None:
    editor.set({"tau_h": 0.5}, at())
    before = engine.config
    editor.next_preset(at())
    assert engine.config.of(DynaTree) == PRESETS["sampled"]
    editor.undo(at())
    assert engine.config == before


def test_so_are_the_defaults(editor: KnobEditor, engine: Engine) -> None:
    editor.set({"tau_h": 0.5}, at())
    editor.set({"n_max": 9}, at())
    before = engine.config
    assert editor.defaults(at())
    editor.undo(at())
    assert engine.config == before


def watching(method: str) -> RunState:
    methods = ("dynatree", "auto", "ar", "linear", "fixed", "alg1")
    return structs.replace(state_of([run(methods), tree_round(0)]), chosen=method)


@pytest.mark.parametrize(
    ("method", "name", "of"),
    [
        ("dynatree", "d0", "dynatree"),
        ("alg1", "d0", "dynatree"),
        ("auto", "d0", "auto"),
        ("linear", "k", "linear"),
        ("fixed", "n_max", "fixed"),
    ],
)
def test_only_the_watched_method_is_turned(
    editor: KnobEditor, engine: Engine, method: str, name: KnobName, of: RulesName
) -> None:
    editor.set({name: 3}, watching(method))
    assert engine.sets == {of}
    assert editor.pending(watching(method)) == {name: 3}
    others = {"dynatree": "auto", "alg1": "auto"}.get(method, "dynatree")
    assert editor.pending(watching(others)) == {}


def test_where_the_watched_method_has_no_knobs_nothing_is_turned(editor: KnobEditor, engine: Engine) -> None:
    editor.move("d0", 1, watching("ar"))
    assert not editor.set({"d0": 3}, watching("ar"))
    assert not editor.defaults(watching("ar"))
    assert engine.turns == []


@pytest.mark.parametrize("method", ["auto", "linear", "fixed", "ar"])
def test_presets_are_of_dynatree(editor: KnobEditor, engine: Engine, method: str) -> None:
    assert editor.next_preset(watching(method)) is None
    assert engine.config == PAPER


def test_undo_goes_back_in_the_method_that_was_turned(editor: KnobEditor, engine: Engine) -> None:
    editor.set({"d0": 3}, watching("auto"))
    assert editor.undo(watching("linear")) == [Turn("d0", 8.0, "auto")]
    assert engine.config == PAPER


def test_before_the_models_are_loaded_the_first_method_is_turned(editor: KnobEditor, engine: Engine) -> None:
    editor.move("d0", -1, RunState())
    assert engine.config.of(DynaTree).d0 == 4
    assert editor.pending(RunState()) == {"d0": 4}


def test_history_that_is_switched_off_leaves_its_knobs_where_they_are(editor: KnobEditor, engine: Engine) -> None:
    editor.history(at(d0=6.4, tau_h=0.8))
    rules = engine.config.of(DynaTree)
    assert (rules.history, rules.d0, rules.tau_h) == (False, 6.4, 0.8)
    assert engine.turns == [("history", 0.0), ("d0", 6.4), ("tau_h", 0.8)]


def test_history_that_is_switched_on_again_begins_there(editor: KnobEditor, engine: Engine) -> None:
    editor.history(at(d0=6.4))
    editor.history(at(d0=6.4))
    assert (engine.config.of(DynaTree).history, engine.config.of(DynaTree).d0) == (True, 6.4)


def test_taking_back_that_history_was_switched_on_puts_back_what_it_has_moved() -> None:
    engine = Engine(RunConfig(dynatree=PRESETS["tuned"]))
    editor = KnobEditor(engine)
    editor.history(at(d0=2.0, tau_h=0.9))
    editor.undo(at(d0=1.0, tau_h=0.8))
    assert not engine.config.of(DynaTree).history
    assert [(name, value) for name, value in engine.turns if name in ("d0", "tau_h")] == [("tau_h", 0.9), ("d0", 2.0)]


def test_a_knob_is_held_where_the_hand_had_put_it(editor: KnobEditor, engine: Engine) -> None:
    editor.hold({"d0": 2.0}, at(d0=3.7, tau_h=0.85))
    rules = engine.config.of(DynaTree)
    assert (rules.history, rules.d0, rules.tau_h) == (False, 2.0, 0.85)
    editor.undo(at(d0=2.0, tau_h=0.85))
    assert engine.config.of(DynaTree).history


def warm(*methods: str) -> tuple[KnobEditor, Engine]:
    engine = Engine(RunConfig(temperature=0.6, top_p=0.9))
    editor = KnobEditor(engine)
    editor.take(sampled_run(methods))
    return editor, engine


@pytest.mark.parametrize("method", ["dynatree", "auto", "ar", "linear"])
def test_temperature_and_top_p_are_turned_for_all_methods_from_any(method: str) -> None:
    editor, engine = warm("dynatree", "auto", "ar", "linear")
    assert editor.move("temperature", 0.05, watching(method))
    assert editor.set({"top_p": 0.5}, watching(method))
    assert engine.sets == {SAMPLING}
    assert (editor.sampling.temperature, editor.sampling.top_p) == (0.65, 0.5)
    assert editor.pending(watching("ar")) == {"temperature": 0.65, "top_p": 0.5}
    assert not editor.set({"top_p": 0.5}, watching(method))


def test_a_turned_temperature_is_pending_in_each_method_until_that_comes_there() -> None:
    (editor, _), began = warm("dynatree", "ar"), sampled_run(("dynatree", "ar"))
    editor.move("temperature", 0.05, watching("dynatree"))
    editor.move("temperature", 0.05, watching("dynatree"))
    state = state_of([began, turned_temperature("dynatree", 3, 0.6, 0.7)])
    assert editor.pending(state) == {}, "two turns before a token are one"
    assert editor.pending(structs.replace(state, chosen="ar")) == {"temperature": 0.7}
    assert editor.pending(structs.replace(state_of([structs.replace(began, temperature=0.7)]), chosen="ar")) == {}


def test_a_temperature_that_was_turned_back_before_a_token_is_not_pending() -> None:
    editor, engine = warm("dynatree", "ar")
    editor.move("temperature", 0.05, watching("dynatree"))
    assert editor.undo(watching("ar")) == [Turn("temperature", 0.6, SAMPLING)]
    assert editor.pending(state_of([sampled_run(("dynatree", "ar"))])) == {}
    assert engine.config.sampling.temperature == 0.6


def test_the_defaults_of_a_method_and_of_what_all_share_are_undone_at_once() -> None:
    editor, engine = warm("linear", "ar")
    editor.set({"temperature": 1.0}, watching("ar"))
    editor.set({"k": 7}, watching("linear"))
    turned = engine.config
    assert editor.defaults(watching("linear"))
    assert engine.config == RunConfig(temperature=0.6, top_p=0.9)
    editor.undo(watching("linear"))
    assert engine.config == turned


def test_the_defaults_are_the_preset_and_the_temperature_of_the_start() -> None:
    editor, engine = warm("dynatree", "ar")
    started = engine.config
    editor.set({"temperature": 0}, watching("dynatree"))
    assert engine.config.of(DynaTree) == started.of(DynaTree) == PRESETS["sampled"]
    assert editor.next_preset(watching("dynatree")) == "tuned"
    assert editor.defaults(watching("dynatree"))
    assert engine.config == started


KEYS = st.sampled_from(["rounds", "h", "[", "]", "{", "}", "-", "=", "s", "0", "u", "H", "rounds", "h"])


def press(editor: KnobEditor, key: str, state: RunState) -> None:
    actions: dict[str, Callable[[], object]] = {
        "h": lambda: editor.history(state),
        "s": lambda: editor.next_preset(state),
        "0": lambda: editor.defaults(state),
        "u": lambda: editor.undo(state),
        "H": lambda: editor.hold({"d0": 2.0}, state),
    }
    for slider in sliders_of("dynatree"):
        step = slider.step
        down, up = slider.keys[0], slider.keys[1]
        actions[down] = partial(editor.move, slider.name, -step, state)
        actions[up] = partial(editor.move, slider.name, step, state)
    actions[key]()


def numbered(turns: Sequence[tuple[KnobName, float]]) -> tuple[Turn, ...]:
    return tuple(Turn(name, value, "dynatree", number) for number, (name, value) in enumerate(turns, 1))


def decode(decoding: KnobState, editor: KnobEditor, engine: Engine, luck: random.Random) -> None:
    for turn in decoding.apply(numbered(engine.turns)):
        editor.take(Knob(method="dynatree", round=1, name=turn.name, old=0, new=0, source="user", turn=turn.number))
    for _ in range(12):
        decoding.learn(luck.random())


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(preset=st.sampled_from(list(PRESETS.values())), keys=st.lists(KEYS, min_size=3, max_size=25), luck=st.randoms())
def test_whatever_keys_are_pressed_the_command_line_says_what_the_user_set(
    preset: DynaTree, keys: list[str], luck: random.Random
) -> None:
    engine = Engine(RunConfig(dynatree=preset))
    editor = KnobEditor(engine)
    decoding = KnobState(preset)
    for key in keys:
        knobs = decoding.adaptive
        assert knobs is not None
        state = state_of([run(), structs.replace(tree_round(0), knobs=knobs)])
        if key == "rounds":
            decode(decoding, editor, engine, luck)
        else:
            press(editor, key, state)
    decoding.apply(numbered(engine.turns))
    if not engine.config.of(DynaTree).history:
        assert decoding.rules == engine.config.of(DynaTree)
    line = command_line(Session(load.embedded(), config=engine.config))
    assert parsed(line) == engine.config


KNOBS = {knob.name: knob for knob in DynaTree.knobs}
FOUND_ON_GRID = st.sampled_from(["[", "]", "{", "}", "-", "=", "u", "h", "H", "rounds"])


def decimals(value: float) -> int:
    return len(number(value).partition(".")[2])


@st.composite
def anywhere(draw: st.DrawFn) -> DynaTree:
    tau_l = draw(st.integers(1, 98)) / 100
    tau_h = draw(st.integers(round(100 * tau_l) + 1, 100)) / 100
    return DynaTree(tau_h=tau_h, tau_l=tau_l, d0=draw(st.integers(100, 700)) / 100)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(start=anywhere(), keys=st.lists(FOUND_ON_GRID, min_size=1, max_size=25), luck=st.randoms())
def test_whatever_keys_are_pressed_every_knob_is_a_number_as_short_as_its_grid(
    start: DynaTree, keys: list[str], luck: random.Random
) -> None:
    engine = Engine(RunConfig(dynatree=start))
    editor, decoding = KnobEditor(engine), KnobState(start)
    for key in keys:
        assert decoding.adaptive is not None
        state = state_of([run(), structs.replace(tree_round(0), knobs=decoding.adaptive)])
        if key == "rounds":
            decode(decoding, editor, engine, luck)
        else:
            press(editor, key, state)
    rules = engine.config.of(DynaTree)
    for name in ("tau_h", "tau_l", "d0"):
        assert decimals(rules.knob(name)) <= KNOBS[name].digits, (name, rules.knob(name))
        assert float(number(rules.knob(name))) == rules.knob(name)
    for name, value in engine.turns:
        assert decimals(value) <= KNOBS[name].digits, (name, value)
    if not rules.history:
        decoding.apply(numbered(engine.turns))
        assert decoding.rules == rules


def test_tau_h_against_its_lower_stop_is_printed_without_noise() -> None:
    engine = Engine(RunConfig(dynatree=replace(PRESETS["paper"], tau_l=0.05, tau_h=0.1)))
    KnobEditor(engine).move("tau_h", -0.05, at(tau_h=0.1))
    assert "--tau-h 0.06 " in command_line(Session(load.embedded(), config=engine.config)) + " "


def test_undo_puts_back_what_history_had_moved_as_it_was_shown(editor: KnobEditor, engine: Engine) -> None:
    moved = at(d0=6.410000000000002, tau_h=0.8130000000000001)
    editor.hold({}, moved)
    editor.history(at(d0=6.41, tau_h=0.813))
    editor.undo(at(d0=3.0, tau_h=0.7))
    assert engine.turns[-2:] == [("tau_h", 0.813), ("d0", 6.41)]
    assert engine.turns[:3] == [("history", 0.0), ("d0", 6.41), ("tau_h", 0.813)]


def test_undo_puts_back_a_start_between_two_values_of_the_grid_as_it_was_given() -> None:
    engine = Engine(RunConfig(dynatree=replace(PRESETS["paper"], tau_h=0.87654)))
    editor = KnobEditor(engine)
    editor.move("tau_h", 0.05, at(tau_h=0.87654))
    assert engine.turns == [("tau_h", 0.927)]
    editor.undo(at(tau_h=0.927))
    assert engine.config.of(DynaTree).tau_h == 0.87654


def test_a_value_between_two_of_the_grid_becomes_the_nearest_that_bounds_allow() -> None:
    rules = replace(PRESETS["paper"], rho_deep=0.5005)
    assert rules.settled("rho_stop", 0.123456) == 0.123
    assert rules.settled("rho_stop", 0.9) == 0.5
    assert replace(rules, rho_stop=0.5004).settled("rho_deep", 0.50041) == 0.501
    assert rules.settled("n_max", 41.6) == 42


def parsed(line: str) -> RunConfig:
    sessions: list[Session] = []

    def note(session: Session, *_: Any) -> int:
        sessions.append(session)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headless, "run", note)
        patch.setenv("DYNATUI_CONFIG", os.devnull)
        assert cli.main([*shlex.split(line)[1:], "--headless"]) == 0
    return sessions[0].config
