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
from decoder.methods.method import number
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING
from decoder.session.steering import KnobState, Turn
from dynatui import main as cli
from dynatui.cli import headless
from dynatui.knobs import sliders_of
from dynatui.prompts import embedded
from dynatui.record.command_line import command_line
from dynatui.screen.knob_editor import KnobEditor
from dynatui.session import DEMO, Session
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import run, sampled_run, state_of, tree_round, turned_temperature

PAPER = RunConfig(dynatree=PRESETS["paper"])
METHODS = ("dynatree", "auto", "ar", "linear", "fixed", "alg1")
DYNATREE, AR, LINEAR, AUTO = (
    structs.replace(state_of([run(METHODS), tree_round(0)]), chosen=method)
    for method in ("dynatree", "ar", "linear", "auto")
)


@dataclass
class Engine:
    config: RunConfig = PAPER
    turns: list[tuple[KnobName, float]] = field(default_factory=list)
    sets: set[RulesName] = field(default_factory=set)

    @property
    def rules(self) -> DynaTree:
        return self.config.of(DynaTree)

    def turn(self, name: KnobName, value: float, rules_name: RulesName) -> Turn:
        self.turns.append((name, value))
        self.sets.add(rules_name)
        self.config = self.config.turned(name, value, rules_name)
        return Turn(name, value, rules_name, len(self.turns))


def edited(config: RunConfig = PAPER) -> tuple[KnobEditor, Engine]:
    engine: Any = Engine(config)
    return KnobEditor(engine), engine


def started(preset: str = "paper", **changed: Any) -> tuple[KnobEditor, Engine]:
    return edited(RunConfig(dynatree=replace(PRESETS[preset], **changed)))


def warm(*methods: str) -> tuple[KnobEditor, Engine]:
    editor, engine = edited(RunConfig(temperature=0.6, top_p=0.9))
    editor.take(sampled_run(methods))
    return editor, engine


def at(d0: float = 5.0, tau_h: float = 0.9) -> RunState:
    return state_of([run(), tree_round(0, d0=d0, tau_h=tau_h)])


def in_force(method: str, turn: int) -> Knob:
    return Knob(method=method, round=1, name="tau_h", old=0.9, new=0.85, source="user", turn=turn)


def down(editor: KnobEditor, times: int = 1, state: RunState | None = None) -> None:
    for _ in range(times):
        editor.move("tau_h", -0.05, state or at())


def warmer(editor: KnobEditor, times: int = 1) -> None:
    for _ in range(times):
        editor.move("temperature", 0.05, DYNATREE)


def test_a_knob_is_turned_from_where_history_has_moved_it_and_not_against_the_stop() -> None:
    editor, engine = edited()
    editor.move("d0", 1, at(d0=6.4))
    assert engine.turns == [("d0", 7.0)]
    editor.set({"d0": 99}, at(d0=7.0))
    assert engine.turns == [("d0", 7.0)]
    assert len(editor.undo(at())) == 1
    assert editor.undo(at()) == []


@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_a_key_between_two_turns_that_come_into_force_is_not_lost(preset: str) -> None:
    editor, engine = started(preset)
    down(editor, 2)
    assert editor.pending(at())["tau_h"] == pytest.approx(0.8)
    for method in ("dynatree", "alg1"):
        editor.take(in_force(method, 1))
        assert editor.pending(at(tau_h=0.85)) == {"tau_h": 0.8}, "until one method has applied all of them"
    down(editor, state=at(tau_h=0.85))
    assert [value for _, value in engine.turns] == [0.85, 0.8, 0.75]


def test_what_is_in_force_is_no_longer_wanted() -> None:
    editor, _ = edited()
    down(editor)
    editor.take(in_force("dynatree", 1))
    assert editor.pending(at()) == {}


def test_undo_goes_back_turn_by_turn_in_the_method_that_was_turned() -> None:
    editor, engine = edited()
    editor.set({"tau_l": 0.3}, at())
    editor.set({"n_max": 64}, at())
    assert [editor.undo(at()) for _ in range(3)] == [
        [Turn("n_max", 256.0, "dynatree")],
        [Turn("tau_l", 0.4, "dynatree")],
        [],
    ]
    assert engine.turns[-2:] == [("n_max", 256.0), ("tau_l", 0.4)]
    editor.set({"d0": 3}, AUTO)
    assert editor.undo(LINEAR) == [Turn("d0", 8.0, "auto")]
    assert engine.config == PAPER


def test_a_preset_brings_every_knob_of_dynatree_and_the_next_is_not_the_one_in_force() -> None:
    editor, engine = edited()
    editor.set({"tau_h": 0.5}, at())
    editor.set({"d_max": 12}, at())
    assert [editor.next_preset(at()) for _ in range(3)] == ["tuned", "paper", "sampled"]
    assert engine.rules == PRESETS["sampled"]
    assert edited(RunConfig())[0].next_preset(at()) == "paper"


@pytest.mark.parametrize(("temperature", "preset"), [(0.6, "sampled"), (0.0, "tuned")])
def test_from_knobs_that_are_no_preset_the_next_is_the_usual_one(temperature: float, preset: str) -> None:
    editor, engine = edited(RunConfig(temperature=temperature, dynatree=DEMO))
    assert editor.next_preset(state_of([run()])) == preset
    assert engine.rules == PRESETS[preset]


@pytest.mark.parametrize("change", [KnobEditor.next_preset, KnobEditor.defaults])
def test_a_preset_is_undone_at_once_and_so_are_the_defaults(change: Callable[[KnobEditor, RunState], object]) -> None:
    editor, engine = edited()
    editor.set({"tau_h": 0.5}, at())
    editor.set({"n_max": 9}, at())
    before = engine.config
    assert change(editor, at())
    assert engine.rules == PRESETS["tuned" if change is KnobEditor.next_preset else "paper"]
    editor.undo(at())
    assert engine.config == before


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
def test_only_the_watched_method_is_turned(method: str, name: KnobName, of: RulesName) -> None:
    editor, engine = edited()
    state = structs.replace(DYNATREE, chosen=method)
    editor.set({name: 3}, state)
    assert engine.sets == {of}
    assert editor.pending(state) == {name: 3}
    assert editor.pending(AUTO if of == "dynatree" else DYNATREE) == {}


@pytest.mark.parametrize("method", ["auto", "linear", "fixed", "ar"])
def test_presets_are_of_dynatree_and_a_method_without_knobs_turns_nothing(method: str) -> None:
    editor, engine = edited()
    state = structs.replace(DYNATREE, chosen=method)
    assert editor.next_preset(state) is None
    if method == "ar":
        editor.move("d0", 1, state)
        assert not editor.set({"d0": 3}, state)
        assert not editor.defaults(state)
    assert (engine.turns, engine.config) == ([], PAPER)


def test_before_the_models_are_loaded_the_first_method_is_turned() -> None:
    editor, engine = edited()
    editor.move("d0", -1, RunState())
    assert engine.rules.d0 == 4
    assert editor.pending(RunState()) == {"d0": 4}


def test_history_that_is_switched_off_leaves_its_knobs_where_they_are_and_begins_there_again() -> None:
    editor, engine = edited()
    editor.history(at(d0=6.4, tau_h=0.8))
    assert (engine.rules.history, engine.rules.d0, engine.rules.tau_h) == (False, 6.4, 0.8)
    assert engine.turns == [("history", 0.0), ("d0", 6.4), ("tau_h", 0.8)]
    editor.history(at(d0=6.4))
    assert (engine.rules.history, engine.rules.d0) == (True, 6.4)


def test_taking_back_that_history_was_switched_on_puts_back_what_it_has_moved() -> None:
    editor, engine = started("tuned")
    editor.history(at(d0=2.0, tau_h=0.9))
    editor.undo(at(d0=1.0, tau_h=0.8))
    assert not engine.rules.history
    assert [(name, value) for name, value in engine.turns if name in ("d0", "tau_h")] == [("tau_h", 0.9), ("d0", 2.0)]


def test_a_knob_is_held_where_the_hand_had_put_it() -> None:
    editor, engine = edited()
    editor.hold({"d0": 2.0}, at(d0=3.7, tau_h=0.85))
    assert (engine.rules.history, engine.rules.d0, engine.rules.tau_h) == (False, 2.0, 0.85)
    editor.undo(at(d0=2.0, tau_h=0.85))
    assert engine.rules.history


@pytest.mark.parametrize("state", [DYNATREE, AUTO, AR, LINEAR], ids=lambda state: state.chosen)
def test_temperature_and_top_p_are_turned_for_all_methods_from_any(state: RunState) -> None:
    editor, engine = warm("dynatree", "auto", "ar", "linear")
    assert editor.move("temperature", 0.05, state)
    assert editor.set({"top_p": 0.5}, state)
    assert engine.sets == {SAMPLING}
    assert (editor.sampling.temperature, editor.sampling.top_p) == (0.65, 0.5)
    assert editor.pending(AR) == {"temperature": 0.65, "top_p": 0.5}
    assert not editor.set({"top_p": 0.5}, state)


def test_a_turned_temperature_is_pending_in_each_method_until_that_comes_there() -> None:
    (editor, _), began = warm("dynatree", "ar"), sampled_run(("dynatree", "ar"))
    warmer(editor, 2)
    state = state_of([began, turned_temperature("dynatree", 3, 0.6, 0.7)])
    assert editor.pending(state) == {}, "two turns before a token are one"
    assert editor.pending(structs.replace(state, chosen="ar")) == {"temperature": 0.7}
    assert editor.pending(structs.replace(state_of([structs.replace(began, temperature=0.7)]), chosen="ar")) == {}


def test_a_temperature_that_was_turned_back_before_a_token_is_not_pending() -> None:
    editor, engine = warm("dynatree", "ar")
    warmer(editor)
    assert editor.undo(AR) == [Turn("temperature", 0.6, SAMPLING)]
    assert editor.pending(state_of([sampled_run(("dynatree", "ar"))])) == {}
    assert engine.config.sampling.temperature == 0.6


def test_the_defaults_of_a_method_and_of_what_all_share_are_undone_at_once() -> None:
    editor, engine = warm("linear", "ar")
    editor.set({"temperature": 1.0}, AR)
    editor.set({"k": 7}, LINEAR)
    turned = engine.config
    assert editor.defaults(LINEAR)
    assert engine.config == RunConfig(temperature=0.6, top_p=0.9)
    editor.undo(LINEAR)
    assert engine.config == turned


def test_the_defaults_are_the_preset_and_the_temperature_of_the_start() -> None:
    editor, engine = warm("dynatree", "ar")
    begun = engine.config
    editor.set({"temperature": 0}, DYNATREE)
    assert engine.rules == begun.of(DynaTree) == PRESETS["sampled"]
    assert editor.next_preset(DYNATREE) == "tuned"
    assert editor.defaults(DYNATREE)
    assert engine.config == begun


KEYS = st.sampled_from(["rounds", "h", "[", "]", "{", "}", "-", "=", "s", "0", "u", "H", "rounds", "h"])
FOUND_ON_GRID = st.sampled_from(["[", "]", "{", "}", "-", "=", "u", "h", "H", "rounds"])
KNOBS = {knob.name: knob for knob in DynaTree.knobs}


def press(editor: KnobEditor, key: str, state: RunState) -> None:
    actions: dict[str, Callable[[], object]] = {
        "h": lambda: editor.history(state),
        "s": lambda: editor.next_preset(state),
        "0": lambda: editor.defaults(state),
        "u": lambda: editor.undo(state),
        "H": lambda: editor.hold({"d0": 2.0}, state),
    }
    for slider in sliders_of("dynatree"):
        for cap, step in zip(slider.keys, (-slider.step, slider.step), strict=False):
            actions[cap] = partial(editor.move, slider.name, step, state)
    actions[key]()


def numbered(turns: Sequence[tuple[KnobName, float]]) -> tuple[Turn, ...]:
    return tuple(Turn(name, value, "dynatree", number) for number, (name, value) in enumerate(turns, 1))


def decoded(start: DynaTree, keys: list[str], luck: random.Random) -> Engine:
    """The engine after the keys; where history is off, decoding has the values that it was told."""
    editor, engine = edited(RunConfig(dynatree=start))
    decoding = KnobState(start)
    for key in keys:
        assert decoding.adaptive is not None
        if key == "rounds":
            for turn in decoding.apply(numbered(engine.turns)):
                told = Knob(method="dynatree", round=1, name=turn.name, old=0, new=0, source="user", turn=turn.number)
                editor.take(told)
            for _ in range(12):
                decoding.learn(luck.random())
        else:
            press(editor, key, state_of([run(), structs.replace(tree_round(0), knobs=decoding.adaptive)]))
    decoding.apply(numbered(engine.turns))
    assert engine.rules.history or decoding.rules == engine.rules
    return engine


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(preset=st.sampled_from(list(PRESETS.values())), keys=st.lists(KEYS, min_size=3, max_size=25), luck=st.randoms())
def test_whatever_keys_are_pressed_the_command_line_says_what_the_user_set(
    preset: DynaTree, keys: list[str], luck: random.Random
) -> None:
    config = decoded(preset, keys, luck).config
    assert parsed(command_line(Session(embedded(), config=config))) == config


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
    engine = decoded(start, keys, luck)
    for name in ("tau_h", "tau_l", "d0"):
        value = engine.rules.knob(name)
        assert decimals(value) <= KNOBS[name].digits, (name, value)
        assert float(number(value)) == value
    for name, value in engine.turns:
        assert decimals(value) <= KNOBS[name].digits, (name, value)


def test_undo_puts_back_what_history_had_moved_as_it_was_shown() -> None:
    editor, engine = edited()
    editor.hold({}, at(d0=6.410000000000002, tau_h=0.8130000000000001))
    editor.history(at(d0=6.41, tau_h=0.813))
    editor.undo(at(d0=3.0, tau_h=0.7))
    assert engine.turns[-2:] == [("tau_h", 0.813), ("d0", 6.41)]
    assert engine.turns[:3] == [("history", 0.0), ("d0", 6.41), ("tau_h", 0.813)]


def test_undo_puts_back_a_start_between_two_values_of_the_grid_as_it_was_given() -> None:
    editor, engine = started(tau_h=0.87654)
    editor.move("tau_h", 0.05, at(tau_h=0.87654))
    assert engine.turns == [("tau_h", 0.927)]
    editor.undo(at(tau_h=0.927))
    assert engine.rules.tau_h == 0.87654


def test_a_value_between_two_of_the_grid_becomes_the_nearest_that_bounds_allow() -> None:
    rules = replace(PRESETS["paper"], rho_deep=0.5005)
    assert [rules.settled("rho_stop", value) for value in (0.123456, 0.9)] == [0.123, 0.5]
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
